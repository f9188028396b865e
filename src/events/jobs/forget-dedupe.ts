/**
 * A dedupe row is kept for `retention.dedupeDays` after its event is purged, then it is forgotten: dedupe
 * rows are most of what is kept about purged events. Nothing that must stay out (I6) depends on these rows.
 */

import { type DryRunCount, inEachCommunity, type Job } from '../../jobs/job.js';
import { countErased, countForgettable, forgetDedupe, forgetErased } from '../postgres/sweeps.js';
import type { Hidden } from '../rules/hidden.js';
import { DAY_MS } from '../rules/retention.js';

/**
 * What keeps an event out once its dedupe row is forgotten. A reason that is not listed here is never
 * forgotten: only the dedupe row keeps out what a moderator removed.
 */
const KEPT_OUT_BY: Record<Exclude<Hidden, 'withheld' | 'removed'>, string> = {
  superseded: 'the high-water mark of its key, which is never lowered',
  deleted: 'the tombstone of its id or address, which is kept for ever, or for deletion.keepRequestsDays',
  expired: 'its own expiration tag',
  vanished: 'the mark of its author, or of its recipient, which stays',
  erased: 'the keyed hash of its author, or of its recipient, which stays',
  // I6 does not cover these two: the dedupe row is kept for 180 days, and after that the event is accepted
  // again.
  retention: 'nothing; it may come back',
  capacity: 'nothing; it may come back',
};
const FORGOTTEN = Object.keys(KEPT_OUT_BY) as Hidden[];

export const forgetDedupeRows: Job = {
  name: 'forget-dedupe',
  cron: '23 4 * * *',
  fill: '1d',
  about: 'forgets the ids of purged events, after retention.dedupeDays',
  purges: true,
  notIn: { dynamodb: 'TTL removes the ids' },
  run: (context, client) => {
    const { now, bounds } = context;
    return inEachCommunity(context, ({ id, settings }) => {
      const goneBefore = now() - settings['retention.dedupeDays'] * DAY_MS;
      return forgetDedupe(client, id, goneBefore, FORGOTTEN, bounds.rows);
    }).then(async (forgotten) => {
      // No id of erased or vanished members is kept at all.
      const erased = await inEachCommunity(context, ({ id }) => forgetErased(client, id, bounds.rows));
      return { changed: forgotten.changed + erased.changed, more: forgotten.more || erased.more };
    });
  },
  dryRun: async ({ communities, now }, client) => {
    const sums = new Map<Hidden, number>();
    for (const { id, settings } of communities.all()) {
      const goneBefore = now() - settings['retention.dedupeDays'] * DAY_MS;
      const byTime = FORGOTTEN.filter((reason) => reason !== 'vanished' && reason !== 'erased');
      const counts = [
        ...(await countForgettable(client, id, goneBefore, byTime)),
        ...(await countErased(client, id)),
      ];
      for (const { reason, rows } of counts) sums.set(reason, (sums.get(reason) ?? 0) + rows);
    }
    return [...sums].map(([reason, rows]): DryRunCount => ({ reason, class: 'dedupe', rows }));
  },
};
