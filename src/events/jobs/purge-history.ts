/**
 * A superseded version is kept for `retention.historyDays` of its community, then this job purges its row and
 * content. With 0 days a version is purged when it is superseded; the job finds only older ones. It runs in
 * the lane, because a deletion may change the same row. The version was announced when it was superseded, so
 * nothing is announced now, and the high-water mark of its key keeps it out (I4, I11).
 */

import { inEachCommunity, type Job } from '../../jobs/job.js';
import { tallied } from '../../jobs/tally.js';
import { countOldHistory, selectOldHistory } from '../postgres/sweeps.js';
import { historySince } from '../rules/retention.js';
import { PREVIEWED_MAX } from '../store.js';
import { tallyPreviews } from './previewed.js';

export const purgeHistory: Job = {
  name: 'purge-history',
  cron: '* * * * *',
  about: 'purges superseded versions, after retention.historyDays',
  purges: true,
  run: (context, client) =>
    inEachCommunity(context, async (community) => {
      const { store, now, bounds } = context;
      // Usually there is nothing to do. Then the lane is not used at all.
      const isLane = store.preview === undefined;
      const since = historySince(community, now());
      if (isLane && (await selectOldHistory(client, community.id, since, 1)).length === 0) return 0;
      return store.hide({
        hidden: 'superseded',
        purge: true,
        which: { by: 'history', rules: community, limit: bounds.rows },
      });
    }),
  dryRun: async ({ communities, now, store }, client, state) => {
    if (store.preview !== undefined) {
      const all = communities.all();
      const selections = all.map((rules) => ({ by: 'history', rules, limit: PREVIEWED_MAX }) as const);
      return tallyPreviews(store.preview, state, 'superseded', selections);
    }
    const counts = [];
    for (const community of communities.all())
      counts.push(...(await countOldHistory(client, community.id, historySince(community, now()), state)));
    return tallied('superseded', counts);
  },
};
