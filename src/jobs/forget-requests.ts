/**
 * Deletion requests are kept and served for ever, with their tombstones, unless a community bounds that by
 * `deletion.keepRequestsDays`. Then both end here, announced as past retention. What they deleted is kept away by its dedupe row for
 * as long as that is kept, and by nothing after that (I6): the operator has chosen so.
 */
import type { Community } from '../communities.js';
import { DAY_MS } from '../core/retention.js';
import { countOldRequests, takeOldRequests } from '../store/old-requests.js';
import { inEachCommunity, type Job } from './job.js';
import { tallied } from './tally.js';

/** Requests that were taken in before this are past their days; undefined where they are kept for ever. */
function requestsBefore({ settings }: Community, now: number): number | undefined {
  const days = settings['deletion.keepRequestsDays'];
  return days === 'forever' ? undefined : now - days * DAY_MS;
}

export const forgetRequests: Job = {
  name: 'forget-requests',
  cron: '27 * * * *',
  fill: '2h',
  about: 'purges deletion requests and their tombstones after deletion.keepRequestsDays, where that is set',
  purges: true,
  run: (context) =>
    inEachCommunity(context, async (community) => {
      if (requestsBefore(community, context.now()) === undefined) return 0;
      return context.lane.hide({
        hidden: 'retention',
        purge: true,
        select: (session, now) =>
          takeOldRequests(session, community.id, requestsBefore(community, now)!, context.bounds.rows),
      });
    }),
  dryRun: async ({ communities, now }, client, gone) => {
    const counts = [];
    for (const community of communities.all()) {
      const before = requestsBefore(community, now());
      if (before !== undefined) counts.push(...(await countOldRequests(client, community.id, before, gone)));
    }
    return tallied('retention', counts);
  },
};
