/** One sample of a soak: what the processes hold, from /proc, and what the database holds, by SQL. */
import { readdirSync, readlinkSync } from 'node:fs';
import type pg from 'pg';
import { memoryOf } from '../node.js';
import type { LoadCounts } from './load.js';

export interface Sample {
  /** Seconds of load so far, over all parts of the run. */
  readonly at: number;
  readonly nodeMegabytes: number;
  readonly databaseMegabytes: number;
  readonly files: number;
  readonly sockets: number;
  readonly events: number;
  readonly deadTuples: number;
  /** The tables of events and tags, and their indexes. */
  readonly tableMegabytes: number;
  readonly indexMegabytes: number;
  /** What is kept for months by design: dedupe rows, outbox, tombstones. */
  readonly keptMegabytes: number;
  /** Rows of the outbox that the slowest consumer has not read. */
  readonly lagRows: number;
  readonly erasuresOpen: number;
  readonly sentPerSecond: number;
  readonly refused: number;
  readonly deliveredPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export async function takeSample(
  pid: number,
  client: pg.Client,
  counts: LoadCounts,
  { at, seconds }: { readonly at: number; readonly seconds: number },
): Promise<Sample> {
  const memory = memoryOf(pid) ?? { node: 0, database: 0 };
  const sorted = [...counts.latenciesMs].sort((a, b) => a - b);
  const quantile = (share: number) => round(sorted[Math.floor(sorted.length * share)] ?? 0);
  return {
    at: Math.round(at),
    nodeMegabytes: round(memory.node),
    databaseMegabytes: round(memory.database),
    ...openFiles(pid),
    ...(await readDatabase(client)),
    sentPerSecond: round(counts.sent / seconds),
    refused: counts.refused,
    deliveredPerSecond: round(counts.delivered / seconds),
    p50Ms: quantile(0.5),
    p99Ms: quantile(0.99),
  };
}

const round = (value: number) => Math.round(value * 10) / 10;

function openFiles(pid: number): { readonly files: number; readonly sockets: number } {
  const names = readdirSync(`/proc/${pid}/fd`);
  const isSocket = (name: string) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${name}`).startsWith('socket:');
    } catch {
      return false;
    }
  };
  return { files: names.length, sockets: names.filter(isSocket).length };
}

type DatabaseSample = Pick<
  Sample,
  'events' | 'deadTuples' | 'tableMegabytes' | 'indexMegabytes' | 'keptMegabytes' | 'lagRows' | 'erasuresOpen'
>;

async function readDatabase(client: pg.Client): Promise<DatabaseSample> {
  const { rows } = await client.query<DatabaseSample>(`
    WITH tables AS (
      SELECT c.relname AS name, c.oid, s.n_dead_tup AS dead
      FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.relkind = 'r'
    )
    SELECT
      (SELECT coalesce(sum(events), 0) FROM community_totals)::float8 AS events,
      (SELECT sum(dead) FROM tables)::float8 AS "deadTuples",
      (SELECT sum(pg_table_size(oid)) FROM tables WHERE name ~ '^event(s|_tags)(_|$)'
        AND name !~ 'outbox')::float8 / 1e6 AS "tableMegabytes",
      (SELECT sum(pg_indexes_size(oid)) FROM tables WHERE name ~ '^event(s|_tags)(_|$)'
        AND name !~ 'outbox')::float8 / 1e6 AS "indexMegabytes",
      (SELECT sum(pg_total_relation_size(oid)) FROM tables
        WHERE name ~ '^(event_dedupe|events_outbox|deletion_tombstones)')::float8 / 1e6 AS "keptMegabytes",
      (SELECT coalesce(max(l.last_seq - o.last_seq), 0) FROM consumer_offsets o CROSS JOIN lane_state l
        WHERE o.paused_at IS NULL)::float8 AS "lagRows",
      (SELECT count(*) FROM erasures WHERE stage <> 'completed')::float8 AS "erasuresOpen"`);
  const [found] = rows;
  return Object.fromEntries(
    Object.entries(found!).map(([name, value]) => [name, round(value)]),
  ) as unknown as DatabaseSample;
}
