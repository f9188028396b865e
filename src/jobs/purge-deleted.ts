/**
 * What its author deleted stays hidden for `deletion.auditDays`, then its row and content go. It was announced when it was
 * hidden, so there is nothing to say now, and its tombstone and dedupe row go on refusing it (I6, I11).
 *
 * Outside the lane: the lane changes served and superseded rows only, and no path makes a deleted row anything else, so the two
 * never want the same row; a purge of hundreds of rows need not hold up a single post.
 */

import { DAY_MS } from '../core/retention.js';
import { countDeleted, purgeDeleted } from '../store/sweeps.js';
import { inEachCommunity, type Job } from './job.js';
import { Tally } from './tally.js';

export const purgeDeletedEvents: Job = {
  name: 'purge-deleted',
  cron: '7 * * * *',
  fill: '2h',
  about: 'purges events that their authors deleted, after deletion.auditDays',
  purges: true,
  run: (context, client) => {
    const { now, bounds } = context;
    return inEachCommunity(context, ({ id, settings }) =>
      purgeDeleted(client, id, now() - settings['deletion.auditDays'] * DAY_MS, now(), bounds.rows),
    );
  },
  dryRun: async ({ communities, now }, client, gone) => {
    const tally = new Tally();
    for (const { id, settings } of communities.all()) {
      const hiddenBefore = now() - settings['deletion.auditDays'] * DAY_MS;
      for (const count of await countDeleted(client, id, hiddenBefore, gone)) tally.add(count);
      if (settings['deletion.auditDays'] > 0) continue;
      // What the job before deletes is not even kept for the audit.
      const deleted = gone.deletedNow.filter(({ community }) => community === id);
      for (const { event } of deleted) tally.addEvent(event);
      await gone.take(deleted, { served: false });
    }
    return tally.counts('deleted');
  },
};
