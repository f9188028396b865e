/**
 * COUNT (NIP-45): how many different events match, up to a maximum. Rows after the maximum are not read, so a
 * count of everything costs as much as its maximum, not as much as the store holds.
 */
import type { ClientBase, Pool } from 'pg';
import type { Filter } from '../../rules/filter.js';
import type { CountQuery } from '../../store.js';
import type { TagHash } from '../tag-hash.js';
import { COLUMNS, drivingTag, selectRows } from './query.js';
import { Parameters, run } from './statement.js';

/** Runs the query of one filter on a connection of its own. */
type OnPool = <T>(filter: Filter, query: (pool: Pool | ClientBase) => Promise<T>) => Promise<T>;

/**
 * An event with several of the requested tags is found by several scans. So this many rows are read for each
 * counted event.
 */
const ROWS_PER_COUNTED = 4;

/**
 * How many different events match any of the filters, counted up to `max + 1`. One statement per filter: a
 * statement over several filters would be planned each time.
 */
export async function countEvents(
  onPool: Pool | OnPool,
  tagHash: TagHash,
  { filters, max, ...rest }: CountQuery,
): Promise<number> {
  const withPool: OnPool = typeof onPool === 'function' ? onPool : (_filter, query) => query(onPool);
  const found = new Set<number>();
  for (const filter of filters) {
    const limit = Math.min(filter.limit ?? max + 1, max + 1);
    const result = await withPool(filter, async (pool) => {
      const select = (rowsMax?: number) => (params: Parameters) =>
        selectRows({ ...rest, filter, limit, rowsMax }, tagHash, params, COLUMNS);
      const count = (rows: (params: Parameters) => string) =>
        countRows(pool, rows, { withSeqs: filters.length > 1, prepared: filter.tags.length <= 1 });
      // With a limit, the newest events must be counted. Without one, any rows of the scans will do.
      if (limit <= max) return count(select());
      const rowsMax = limit * (isOnceOnly(filter) ? 1 : ROWS_PER_COUNTED);
      const some = await count(select(rowsMax));
      return some.rows < rowsMax || some.different > max ? some : count(select(Number.MAX_SAFE_INTEGER));
    });
    if (filters.length === 1) return Math.min(result.different, limit);
    for (const seq of result.seqs) found.add(seq);
    if (found.size > max) break;
  }
  return Math.min(found.size, max + 1);
}

/** An event has one author and one kind, so no two scans find the same event. */
function isOnceOnly(filter: Filter): boolean {
  return filter.ids !== undefined || drivingTag(filter) === undefined;
}

interface CountedRows {
  readonly rows: number;
  readonly different: number;
  /** Filled only when there are several filters, to compare their events. */
  readonly seqs: readonly number[];
}

async function countRows(
  pool: Pool | ClientBase,
  select: (params: Parameters) => string,
  { withSeqs, prepared }: { readonly withSeqs: boolean; readonly prepared: boolean },
): Promise<CountedRows> {
  const params = new Parameters();
  const seqs = withSeqs ? "coalesce(string_agg(DISTINCT seq::text, ','), '')" : "''";
  const text = `SELECT count(*), count(DISTINCT seq), ${seqs} FROM (${select(params)}) f`;
  const result = await run<[number, number, string]>(pool, { text, values: params.values }, prepared);
  const [rows, different, list] = result.rows[0]!;
  return { rows, different, seqs: list === '' ? [] : list.split(',').map(Number) };
}
