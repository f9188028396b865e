/**
 * An event that its author deleted stays hidden for `deletion.auditDays`, then this job purges its row and
 * content. It was announced when it was hidden, so nothing is announced now. Its tombstone and dedupe row
 * keep refusing it (I6, I11).
 *
 * It runs outside the lane: the lane changes only served and superseded rows, and nothing turns a deleted row
 * into one of these, so the two never change the same row. A purge of hundreds of rows delays no post.
 */

import { inEachCommunity, type Job } from '../../jobs/job.js';
import { Tally } from '../../jobs/tally.js';
import { countDeleted, purgeDeleted } from '../postgres/sweeps.js';
import { DAY_MS } from '../rules/retention.js';

export const purgeDeletedEvents: Job = {
  name: 'purge-deleted',
  cron: '7 * * * *',
  fill: '2h',
  about: 'purges events that their authors deleted, after deletion.auditDays',
  purges: true,
  notIn: { dynamodb: 'an event that its author deletes is purged at once' },
  run: (context, client) => {
    const { now, bounds } = context;
    return inEachCommunity(context, ({ id, settings }) =>
      purgeDeleted(client, id, now() - settings['deletion.auditDays'] * DAY_MS, now(), bounds.rows),
    );
  },
  dryRun: async ({ communities, now }, client, state) => {
    const tally = new Tally();
    for (const { id, settings } of communities.all()) {
      const hiddenBefore = now() - settings['deletion.auditDays'] * DAY_MS;
      for (const count of await countDeleted(client, id, hiddenBefore, state)) tally.add(count);
      if (settings['deletion.auditDays'] > 0) continue;
      // With 0 audit days, versions that the job before would delete are purged at once.
      const deleted = state.deletedNow.filter(({ community }) => community === id);
      for (const { event } of deleted) tally.addEvent(event);
      await state.take(deleted, { served: false });
    }
    return tally.counts('deleted');
  },
};
