/**
 * What a moderator removed can be restored for `moderation.undoDays`, then its row and content go. It was announced when it was removed;
 * its dedupe row goes on refusing it. Outside the lane: a restoration locks the row, and the two wait for each other.
 */
import { DAY_MS } from '../core/retention.js';
import { countRemoved, purgeRemoved } from '../store/sweeps.js';
import { inEachCommunity, type Job } from './job.js';
import { tallied } from './tally.js';

export const purgeRemovedEvents: Job = {
  name: 'purge-removed',
  cron: '9 * * * *',
  fill: '2h',
  about: 'purges events that moderators removed, after moderation.undoDays',
  purges: true,
  run: (context, client) => {
    const { now, bounds } = context;
    return inEachCommunity(context, ({ id, settings }) =>
      purgeRemoved(client, id, now() - settings['moderation.undoDays'] * DAY_MS, now(), bounds.rows),
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
