/**
 * A removed event can be restored for `moderation.undoDays`; then this job purges its row and content. The
 * outbox announced the deletion when it was removed, and its dedupe row still refuses it. The job runs
 * outside the lane: a restoration locks the row, so the two wait for each other.
 */

import { countRemoved } from '../events/postgres/sweeps.js';
import { DAY_MS } from '../events/rules/retention.js';
import { inEachCommunity, type Job } from '../jobs/job.js';
import { tallied } from '../jobs/tally.js';

export const purgeRemovedEvents: Job = {
  name: 'purge-removed',
  cron: '9 * * * *',
  fill: '2h',
  about: 'purges events that moderators removed, after moderation.undoDays',
  purges: true,
  run: (context, client) => {
    const { store, now, bounds } = context;
    return inEachCommunity(context, ({ id: community, settings }) =>
      store.stored.purgeRemoved(client, {
        community,
        removedBefore: now() - settings['moderation.undoDays'] * DAY_MS,
        now: now(),
        limit: bounds.rows,
      }),
    );
  },
  dryRun: async ({ communities, now }, client, gone) => {
    const counts = [];
    for (const { id, settings } of communities.all()) {
      const hiddenBefore = now() - settings['moderation.undoDays'] * DAY_MS;
      counts.push(...(await countRemoved(client, id, hiddenBefore, gone)));
    }
    return tallied('removed', counts);
  },
};
