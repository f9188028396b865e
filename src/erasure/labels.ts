/** Labels: the events that tell them go first, because without the labels nobody would know of them. */
import { purgeHiddenById } from '../store/erasure-events.js';
import { chooseLabels } from '../store/erasure-rows.js';
import { eraseLabels, labelEventsOf } from '../store/labels.js';
import { selectRemovable } from '../store/restore.js';
import { type Deleter, inBatches } from './deleter.js';
import type { PostgresStores } from './postgres.js';

/** As the table is counted, and deleted in another way. */
export function labelsDeleter(table: Deleter, { client, lane, now, rows }: PostgresStores): Deleter {
  return {
    ...table,
    delete: (subject, progress) =>
      inBatches(async () => {
        const ids = await chooseLabels(client, subject, rows);
        if (ids.length === 0) return 0;
        const events = await labelEventsOf(client, ids);
        const hidden = subject.type === 'member' && subject.vanishes ? 'vanished' : 'erased';
        if (events.length > 0) {
          await lane.hide({ hidden, purge: true, select: (session) => selectRemovable(session, events) });
          // Those that have expired or were withdrawn.
          await purgeHiddenById(client, events, now());
        }
        return eraseLabels(client, ids);
      }, progress),
  };
}
