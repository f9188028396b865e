/** The deleters of PostgreSQL, in the order in which they delete: events first, so that nothing new follows from them; accounts last. */
import type { Client } from 'pg';
import type { Subject } from '../core/erasure.js';
import type { Lane } from '../lane.js';
import {
  COMMUNITY_TABLES,
  countRowsOf,
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
  const { labels, ...others } = STORE_TABLES;
  return [
    eventsDeleter(stores),
    labelsDeleter(tableDeleter('labels', labels, stores), stores),
    ...Object.entries(others).map(([name, tables]) => tableDeleter(name, tables, stores)),
    ...Object.entries(COMMUNITY_TABLES).map(([name, tables]) => tableDeleter(name, tables, stores)),
    outboxDeleter(stores),
  ];
}

function tableDeleter(
  name: string,
  tables: readonly TableRows[],
  { client, now, rows }: PostgresStores,
): Deleter {
  return {
    name: `postgres:${name}`,
    holds: [...new Set(tables.map(({ table }) => table))],
    count: async (subject: Subject) => {
      let count = 0;
      for (const table of tables) count += await countRowsOf(client, table, subject);
      return count;
    },
    delete: async (subject, progress) => {
      let deleted = 0;
      for (const table of tables)
        deleted += await inBatches(() => deleteRowsOf(client, table, subject, now(), rows), progress);
      return deleted;
    },
  };
}
