/**
 * Deletion requests are kept and served for ever, with their tombstones, unless a community limits that by
 * `deletion.keepRequestsDays`. Then this job purges both, announced as past retention. Their targets are then
 * kept out by their dedupe rows, and later by nothing (I6): that is the operator's choice.
 */
import type { Community } from '../../communities/communities.js';
import { inEachCommunity, type Job } from '../../jobs/job.js';
import { tallied } from '../../jobs/tally.js';
import { countOldRequests } from '../postgres/old-requests.js';
import { DAY_MS } from '../rules/retention.js';
import { PREVIEWED_MAX } from '../store.js';
import { tallyPreviews } from './previewed.js';

/** Undefined where requests are kept for ever. */
function keepDaysOf({ settings }: Community): number | undefined {
  const days = settings['deletion.keepRequestsDays'];
  return days === 'forever' ? undefined : days;
}

export const forgetRequests: Job = {
  name: 'forget-requests',
  cron: '27 * * * *',
  fill: '2h',
  about: 'purges deletion requests and their tombstones after deletion.keepRequestsDays, where that is set',
  purges: true,
  run: (context) =>
    inEachCommunity(context, async (community) => {
      const keepDays = keepDaysOf(community);
      if (keepDays === undefined) return 0;
      return context.store.hide({
        hidden: 'retention',
        purge: true,
        which: { by: 'requests', community: community.id, keepDays, limit: context.bounds.rows },
      });
    }),
  dryRun: async ({ communities, now, store }, client, state) => {
    if (store.preview !== undefined) {
      const selections = communities.all().flatMap((community) => {
        const keepDays = keepDaysOf(community);
        if (keepDays === undefined) return [];
        return [{ by: 'requests', community: community.id, keepDays, limit: PREVIEWED_MAX } as const];
      });
      return tallyPreviews(store.preview, state, 'retention', selections);
    }
    const counts = [];
    for (const community of communities.all()) {
      const keepDays = keepDaysOf(community);
      if (keepDays === undefined) continue;
      const before = now() - keepDays * DAY_MS;
      counts.push(...(await countOldRequests(client, community.id, before, state)));
    }
    return tallied('retention', counts);
  },
};
