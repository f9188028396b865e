/** Labels. Their events are deleted first, because only the labels say which events those are. */

import { eraseLabels, labelEventsOf } from '../../labels/labels.sql.js';
import { purgeHiddenById } from '../events.sql.js';
import { chooseLabels } from '../rows.sql.js';
import { type Deleter, inBatches } from './deleter.js';
import type { PostgresStores } from './postgres.js';

/** Counted as its table is declared; deleted together with the events of the labels. */
export function labelsDeleter(table: Deleter, { client, store, now, rows }: PostgresStores): Deleter {
  return {
    ...table,
    delete: (subject, progress) =>
      inBatches(
        async (limit) => {
          const ids = await chooseLabels(client, subject, limit);
          if (ids.length === 0) return 0;
          const events = await labelEventsOf(client, ids);
          const hidden = subject.type === 'member' && subject.vanishes ? 'vanished' : 'erased';
          if (events.length > 0) {
            await store.hide({ hidden, purge: true, which: { by: 'ids', refs: events } });
            // Label events that have expired or were withdrawn.
            await purgeHiddenById(client, events, now());
          }
          return eraseLabels(client, ids);
        },
        progress,
        rows,
      ),
  };
}
