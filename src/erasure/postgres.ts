/** The deleters of PostgreSQL, in the order in which they delete: events first, so that nothing new follows from them; accounts last. */
import type { Client } from 'pg';
import type { Subject } from '../core/erasure.js';
import type { Lane } from '../lane.js';
import {
  COMMUNITY_TABLES,
  countRowsOf,
  countStores,
  deleteRowsOf,
  STORE_TABLES,
  type TableRows,
} from '../store/erasure-rows.js';
import type { TagHash } from '../store/tag-hash.js';
import { type Deleter, inBatches } from './deleter.js';
import { eventsDeleter } from './events.js';
import { labelsDeleter } from './labels.js';
import { outboxDeleter } from './outbox.js';

export interface PostgresStores {
  /** A session of its own, outside the lane. */
  readonly client: Client;
  readonly lane: Lane;
  readonly tagHash: TagHash;
  readonly now: () => number;
  /** Rows of one batch. */
  readonly rows: number;
}

export function postgresDeleters(stores: PostgresStores): Deleter[] {
  const { client } = stores;
  const tables = { ...STORE_TABLES, ...COMMUNITY_TABLES } as Record<string, readonly TableRows[]>;
  /** Those who ask about the same subject, at the same moment, share one answer. */
  const counted = new WeakMap<Subject, Promise<Map<string, number>>>();
  const count = async (name: string, subject: Subject): Promise<number> => {
    const known = counted.get(subject) ?? countStores(client, Object.entries(tables), subject);
    counted.set(subject, known);
    // One that fails does not take the others with it: then each is asked by itself.
    const all = await known.catch(() => undefined);
    return all?.get(name) ?? countRowsOf(client, tables[name]!, subject);
  };
  const { labels, ...others } = tables;
  return [
    eventsDeleter(stores),
    labelsDeleter(tableDeleter('labels', labels!, count, stores), stores),
    ...Object.entries(others).map(([name, of]) => tableDeleter(name, of, count, stores)),
    outboxDeleter(stores),
  ];
}

function tableDeleter(
  name: string,
  tables: readonly TableRows[],
  count: (name: string, subject: Subject) => Promise<number>,
  { client, now, rows }: PostgresStores,
): Deleter {
  return {
    name: `postgres:${name}`,
    holds: [...new Set(tables.map(({ table }) => table))],
    count: (subject) => count(name, subject),
    delete: async (subject, progress) => {
      let deleted = 0;
      for (const table of tables) {
        const batch = () => deleteRowsOf(client, table, subject, now(), rows);
        // What others add to at the same time would keep it from coming to an end: a batch, and a job takes what is left.
        if (table.uncounted) await batch();
        else deleted += await inBatches(batch, progress);
      }
      return deleted;
    },
  };
}
