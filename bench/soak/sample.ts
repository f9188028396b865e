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
  /** Served, without deletion requests. */
  readonly events: number;
  readonly deadTuples: number;
  /** The tables of events and tags, and their indexes, without those that grow by design. */
  readonly tableMegabytes: number;
  readonly indexMegabytes: number;
  /** What grows by design: it is kept for days, months or for ever. */
  readonly keptMegabytes: number;
  readonly keptDeadTuples: number;
  readonly diskMegabytes: number;
  readonly walMegabytes: number;
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
  | 'events'
  | 'deadTuples'
  | 'tableMegabytes'
  | 'indexMegabytes'
  | 'keptMegabytes'
  | 'keptDeadTuples'
  | 'diskMegabytes'
  | 'walMegabytes'
  | 'lagRows'
  | 'erasuresOpen'
>;

/** Dedupe rows, the outbox, tombstones, deletion requests, and the versions that history keeps. */
const KEPT =
  '^(event_dedupe|events_outbox|deletion_tombstones|history_deletions|(events|event_tags)_(request|history))';

async function readDatabase(client: pg.Client): Promise<DatabaseSample> {
  const { rows } = await client.query<DatabaseSample>(`
    WITH tables AS (
      SELECT c.oid, s.n_dead_tup AS dead, c.relname ~ '${KEPT}' AS kept,
        c.relname ~ '^event(s|_tags)_' AS posts
      FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.relkind = 'r'
    )
    SELECT
      (SELECT coalesce(sum(events - requests), 0) FROM community_totals)::float8 AS events,
      (SELECT sum(dead) FROM tables WHERE NOT kept)::float8 AS "deadTuples",
      (SELECT sum(pg_table_size(oid)) FROM tables WHERE posts AND NOT kept)::float8 / 1e6
        AS "tableMegabytes",
      (SELECT sum(pg_indexes_size(oid)) FROM tables WHERE posts AND NOT kept)::float8 / 1e6
        AS "indexMegabytes",
      (SELECT sum(pg_total_relation_size(oid)) FROM tables WHERE kept)::float8 / 1e6 AS "keptMegabytes",
      (SELECT sum(dead) FROM tables WHERE kept)::float8 AS "keptDeadTuples",
      pg_database_size(current_database())::float8 / 1e6 AS "diskMegabytes",
      (SELECT sum(size) FROM pg_ls_waldir())::float8 / 1e6 AS "walMegabytes",
      (SELECT coalesce(max(l.last_seq - o.last_seq), 0) FROM consumer_offsets o CROSS JOIN lane_state l
        WHERE o.paused_at IS NULL)::float8 AS "lagRows",
      (SELECT count(*) FROM erasures WHERE stage <> 'completed')::float8 AS "erasuresOpen"`);
  const [found] = rows;
  return Object.fromEntries(
    Object.entries(found!).map(([name, value]) => [name, round(value)]),
  ) as unknown as DatabaseSample;
}
