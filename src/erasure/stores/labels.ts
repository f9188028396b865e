/** Labels. Their events are deleted first, because only the labels say which events those are. */

import { eraseLabels, labelEventsOf } from '../../labels/labels.sql.js';
import { chooseLabels } from '../rows.sql.js';
import { type Deleter, inBatches } from './deleter.js';
import type { PostgresStores } from './postgres.js';
import { stayingOf } from './staying.js';

/** Counted as its table is declared; deleted together with the events of the labels. */
export function labelsDeleter(table: Deleter, stores: PostgresStores): Deleter {
  const { client, store, rows } = stores;
  return {
    ...table,
    delete: (subject, progress) =>
      inBatches(
        async (limit) => {
          const ids = await chooseLabels(client, subject, await stayingOf(stores, subject), limit);
          if (ids.length === 0) return 0;
          const events = await labelEventsOf(client, ids);
          const hidden = subject.type === 'member' && subject.vanishes ? 'vanished' : 'erased';
          // Also those that have expired or were withdrawn.
          if (events.length > 0) await store.purge(events, hidden);
          return eraseLabels(client, ids);
        },
        progress,
        rows,
      ),
  };
}
