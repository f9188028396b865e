/** Sizes of the tables, from the catalogue: nothing is counted, and no row is read. */
import type { Pool } from 'pg';
import { isDenial } from '../api/rules-errors.js';
import { PARTITION_END } from '../events/postgres/partition-bound.js';
import { inTransaction } from '../postgres/transaction.js';

/** I14: far more tables than a node has. */
const TABLES_MAX = 5_000;
/** A table that is being dropped is locked for a moment. */
const BEGIN_READING = `BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
  SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '2s';
  SET LOCAL idle_in_transaction_session_timeout = '10s'`;

export interface TableSize {
  readonly name: string;
  /** The planner's estimate; null before the first ANALYZE. */
  readonly rows: number | null;
  /** With its large values, without its indexes. */
  readonly tableBytes: number;
  readonly indexBytes: number;
  /** Of a range partition: the first value that it does not hold. */
  readonly end: number | null;
}

export interface DatabaseSizes {
  readonly bytes: number;
  readonly tables: readonly TableSize[];
}

export async function readSizes(pool: Pool): Promise<DatabaseSizes> {
  const sizes = await inTransaction(pool, BEGIN_READING, async (db): Promise<DatabaseSizes> => {
    const { rows: tables } = await db.query<TableSize>(
      `SELECT c.relname AS name, CASE WHEN c.reltuples < 0 THEN NULL ELSE c.reltuples::bigint END AS rows,
         coalesce(pg_table_size(c.oid), 0) AS "tableBytes",
         coalesce(pg_indexes_size(c.oid), 0) AS "indexBytes",
         ${PARTITION_END} AS end
       FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
       ORDER BY c.relname LIMIT ${TABLES_MAX}`,
    );
    const { rows } = await db.query<{ bytes: number }>(
      'SELECT pg_database_size(current_database()) AS bytes',
    );
    return { bytes: rows[0]!.bytes, tables };
  });
  if (isDenial(sizes)) throw new Error('reading sizes is never denied');
  return sizes;
}
