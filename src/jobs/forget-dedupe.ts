/**
 * A dedupe row outlives its event by `retention.dedupeDays`, then it is forgotten: it is the largest of what is kept about
 * events that are gone. Nothing that must stay away (I6) depends on it.
 */
import type { Hidden } from '../core/hidden.js';
import { DAY_MS } from '../core/retention.js';
import { countErased, countForgettable, forgetDedupe, forgetErased } from '../store/sweeps.js';
import { type DryRunCount, inEachCommunity, type Job } from './job.js';

/** What keeps an event away once its dedupe row is forgotten. A reason that is not named here is never forgotten: only the row keeps away what a moderator removed. */
const KEPT_AWAY_BY: Record<Exclude<Hidden, 'withheld' | 'removed'>, string> = {
  superseded: 'the high-water mark of its key, which is never lowered',
  deleted: 'the tombstone of its id or address, which is kept for ever, or for deletion.keepRequestsDays',
  expired: 'its own expiration tag',
  vanished: 'the mark of its author, or of its recipient, which stays',
  erased: 'the keyed hash of its author, or of its recipient, which stays',
  // I6 does not speak of these two: the dedupe row is kept for 180 days, and after that the event is as good as new.
  retention: 'nothing, as it should be',
  capacity: 'nothing, as it should be',
};
const FORGOTTEN = Object.keys(KEPT_AWAY_BY) as Hidden[];

export const forgetDedupeRows: Job = {
  name: 'forget-dedupe',
  cron: '23 4 * * *',
  fill: '1d',
  about: 'forgets the ids of events that are gone, after retention.dedupeDays',
  purges: true,
  run: (context, client) => {
    const { now, bounds } = context;
    return inEachCommunity(context, ({ id, settings }) => {
      const goneBefore = now() - settings['retention.dedupeDays'] * DAY_MS;
      return forgetDedupe(client, id, goneBefore, FORGOTTEN, bounds.rows);
    }).then(async (forgotten) => {
      // Of those who are gone for good no id is kept at all.
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
