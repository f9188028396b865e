/**
 * The deleters of PostgreSQL, one for each store of the declared tables, in the order in which they delete.
 */
import type { Client } from 'pg';
import type { EventStore } from '../../events/store.js';
import type { DeleterName } from '../../postgres/table.js';
import { STORES, type Store } from '../all-tables.sql.js';
import { countRowsOf, countStores, deleteRowsOf, stepsOf } from '../rows.sql.js';
import { BESIDE_LANE, type Subject } from '../rules.js';
import { type Deleter, inBatches } from './deleter.js';
import { labelsDeleter } from './labels.js';
import { outboxDeleter } from './outbox.js';
import { stayingOf } from './staying.js';

export interface PostgresStores {
  /** A session of its own, outside the lane. */
  readonly client: Client;
  readonly store: EventStore;
  readonly now: () => number;
  /** Rows of one batch. */
  readonly rows: number;
}

/** Deleters of stores that need more than the conditions of their tables. */
type SpecialDeleter = (table: Deleter, stores: PostgresStores) => Deleter | readonly Deleter[];
const SPECIAL: Readonly<Record<DeleterName, SpecialDeleter | 'registered elsewhere'>> = {
  events: (_, stores) => stores.store.deleters(stores),
  labels: labelsDeleter,
  outbox: outboxDeleter,
  // Together with those of Redis and DynamoDB: sessions.ts, audit.ts.
  audit: 'registered elsewhere',
  rates: 'registered elsewhere',
  sessions: 'registered elsewhere',
};

/** Its rows are counted by the conditions of the declaration, whichever deleter it has. */
const isCounted = ({ by, tables }: Store) =>
  by === undefined || tables.some(({ erased }) => erased.member !== undefined);

export function postgresDeleters(stores: PostgresStores): Deleter[] {
  const { client } = stores;
  const countable = STORES.filter(isCounted);
  /** All stores of one round share one query: it passes the same subject object to each. */
  const counted = new WeakMap<Subject, Promise<Map<string, number>>>();
  const count = async ({ name, tables }: Store, subject: Subject): Promise<number> => {
    const known =
      counted.get(subject) ??
      stayingOf(stores, subject).then((staying) => countStores(client, countable, subject, staying));
    counted.set(subject, known);
    // When the shared query fails, each store is counted with its own, so that only the broken one fails.
    const all = await known.catch(() => undefined);
    return all?.get(name) ?? countRowsOf(client, tables, subject, await stayingOf(stores, subject));
  };
  return STORES.flatMap((store) => {
    const table = tableDeleter(store, (subject) => count(store, subject), stores);
    const special = store.by === undefined ? undefined : SPECIAL[store.by];
    if (special === 'registered elsewhere') return [];
    return special === undefined ? table : special(table, stores);
  });
}

function tableDeleter({ name, tables }: Store, count: Deleter['count'], stores: PostgresStores): Deleter {
  const { client, now, rows } = stores;
  return {
    name,
    holds: tables.map((table) => table.name),
    count,
    delete: async (subject, progress) => {
      let deleted = 0;
      for (const table of tables)
        for (const step of stepsOf(table, subject)) {
          const staying = step.where.includes(':staying') ? await stayingOf(stores, subject) : [];
          const batch = (limit: number) =>
            deleteRowsOf(client, table, step, { subject, staying, now: now(), limit });
          // Others add rows at the same time, so this might never end: one batch here, and a job deletes the
          // rest.
          if (step.uncounted) await batch(rows);
          else deleted += await inBatches(batch, progress, rows, BESIDE_LANE);
        }
      return deleted;
    },
  };
}
