/**
 * A superseded version is kept for `retention.historyDays` of its community, then its row and content go; with 0 days it is purged when
 * it is superseded, and what is left of it was superseded before. In the lane: a deletion may want the same row. It was announced when it
 * was superseded, so there is nothing to say now, and the high-water mark of its key keeps it away (I4, I11).
 */
import { historySince } from '../core/retention.js';
import { countOldHistory, selectOldHistory } from '../store/sweeps.js';
import { inEachCommunity, type Job } from './job.js';
import { tallied } from './tally.js';

export const purgeHistory: Job = {
  name: 'purge-history',
  cron: '* * * * *',
  about: 'purges superseded versions, after retention.historyDays',
  purges: true,
  run: (context, client) =>
    inEachCommunity(context, async (community) => {
      const { lane, now, bounds } = context;
      // Mostly there is nothing to do, and the lane need not hear of it.
      const found = await selectOldHistory(client, community.id, historySince(community, now()), 1);
      if (found.length === 0) return 0;
      return lane.hide({
        hidden: 'superseded',
        purge: true,
        select: (session, at) =>
          selectOldHistory(session, community.id, historySince(community, at), bounds.rows),
      });
    }),
  dryRun: async ({ communities, now }, client, gone) => {
    const counts = [];
    for (const community of communities.all())
      counts.push(...(await countOldHistory(client, community.id, historySince(community, now()), gone)));
    return tallied('superseded', counts);
  },
};
