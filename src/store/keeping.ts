/**
 * What is kept and for how long: the sweep that finds regular events past their days, moves those whose rules have
 * changed to their bucket, and the drop of partitions in which nothing is served any more.
 * I11: current versions and requests lie in other buckets; dedupe rows, tombstones and marks are other tables.
 */
import type { Client, ClientBase } from 'pg';
import type { NostrEvent } from '../core/event.js';
import { Keep, REGULAR_KEEPS, stepOf } from '../core/keep.js';
import type { RowRef, StoredEvent } from '../core/plan.js';
import { cutoff, eventDays, type Retention } from '../core/retention.js';
import { topicsOf, UNBOUND } from '../core/topic.js';
import { hexArray, int2Array, int4Array, int8Array } from './binary.js';
import { PARTITION_END } from './partition-bound.js';
import { type TagHash, tagKeys } from './tag-hash.js';
import { IS_LEFT_HERE, type WouldGo } from './would-go.js';

export const SWEEP_ROWS_MAX = 500;

export type AgedRow = StoredEvent & { readonly community: number };

export interface SweepStep {
  /** Past their days: to be hidden. */
  readonly aged: readonly AgedRow[];
  readonly moved: number;
  /** Where those that are moved lie afterwards. */
  readonly places: readonly RowRef[];
  /** Where the next step goes on; undefined when the end was reached. */
  readonly next: number | undefined;
}

/** Served regular rows after a place, oldest first: one walk along `seq` over the partitions. */
export const SWEEP_SQL = `
  SELECT e.seq, e.ingested_at, e.keep, e.community, e.payload, e.bound FROM events e
  WHERE e.keep IN (${REGULAR_KEEPS.join(', ')}) AND e.seq > $1::bigint AND e.ingested_at < $2::bigint AND e.hidden IS NULL
  ORDER BY e.seq LIMIT ${SWEEP_ROWS_MAX}`;

interface SweptRow {
  seq: number;
  ingested_at: number;
  keep: number;
  community: number;
  payload: string;
  bound: string[] | null;
}

/**
 * One bounded step of the sweep, inside the lane's transaction: looks at the next rows older than the shortest days of any
 * rule, and gives those that are past their own.
 */
export async function sweepStep(
  client: ClientBase,
  after: number,
  rules: ReadonlyMap<number, Retention>,
  now: number,
  /** None: only looks, and moves nothing. */
  tagHash: TagHash | undefined,
): Promise<SweepStep> {
  const { rows } = await client.query<SweptRow>(SWEEP_SQL, [after, youngestCutoff(rules, now)]);
  const aged: AgedRow[] = [];
  const misplaced: { row: SweptRow; event: NostrEvent; to: Keep }[] = [];
  for (const row of rows) {
    const retention = rules.get(row.community);
    if (retention === undefined) continue;
    const event = JSON.parse(row.payload) as NostrEvent;
    const days = eventDays(retention, topicsOf(event));
    if (row.ingested_at < cutoff(days, now)) {
      const place = { seq: row.seq, ingestedAt: row.ingested_at, keep: row.keep };
      aged.push({ community: row.community, event, bound: row.bound ?? UNBOUND, row: place });
    } else if (stepOf(days) !== row.keep) misplaced.push({ row, event, to: stepOf(days) });
  }
  if (misplaced.length > 0 && tagHash !== undefined) await moveRows(client, misplaced, tagHash);
  const places = misplaced.map(({ row, to }) => ({ seq: row.seq, ingestedAt: row.ingested_at, keep: to }));
  const next = rows.length < SWEEP_ROWS_MAX ? undefined : rows.at(-1)!.seq;
  return { aged, moved: misplaced.length, places, next };
}

/** Nothing younger than this can be past its days; 0 when everything is kept for ever. */
function youngestCutoff(rules: ReadonlyMap<number, Retention>, now: number): number {
  const days = [...rules.values()].flatMap((retention) => [
    retention.settings['retention.regularDays'],
    ...[...retention.topics.values()].flatMap(({ policy }) => policy.retentionDays ?? []),
  ]);
  return Math.max(0, ...days.map((candidate) => cutoff(candidate, now)));
}

const MOVE_EVENTS_SQL = `
  UPDATE events e SET keep = g.new_keep
  FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::smallint[]) AS g (seq, ingested_at, keep, new_keep)
  WHERE e.keep = g.keep AND e.ingested_at = g.ingested_at AND e.seq = g.seq`;
const MOVE_DEDUPE_SQL = `
  UPDATE event_dedupe d SET keep = g.new_keep
  FROM unnest($1::int[], $2::bytea[], $3::smallint[]) AS g (community, event_id, new_keep)
  WHERE d.community = g.community AND d.event_id = g.event_id`;
const MOVE_TAGS_SQL = `
  UPDATE event_tags t SET keep = g.new_keep
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::smallint[])
    AS g (tag, created_at, seq, ingested_at, keep, new_keep)
  WHERE t.tag = g.tag AND t.created_at = g.created_at AND t.seq = g.seq
    AND t.ingested_at = g.ingested_at AND t.keep = g.keep`;

/** Rows whose rules have changed go to the bucket where they are kept long enough, with their tags. */
async function moveRows(
  client: ClientBase,
  misplaced: readonly { row: SweptRow; event: NostrEvent; to: Keep }[],
  tagHash: TagHash,
): Promise<void> {
  await client.query(MOVE_EVENTS_SQL, [
    int8Array(misplaced.map(({ row }) => row.seq)),
    int8Array(misplaced.map(({ row }) => row.ingested_at)),
    int2Array(misplaced.map(({ row }) => row.keep)),
    int2Array(misplaced.map(({ to }) => to)),
  ]);
  await client.query(MOVE_DEDUPE_SQL, [
    int4Array(misplaced.map(({ row }) => row.community)),
    hexArray(misplaced.map(({ event }) => event.id)),
    int2Array(misplaced.map(({ to }) => to)),
  ]);
  const tags = misplaced.flatMap(({ row, event, to }) =>
    tagKeys(row.community, event, tagHash, row.bound ?? UNBOUND).map((tag) => ({ row, event, to, tag })),
  );
  await client.query(MOVE_TAGS_SQL, [
    int8Array(tags.map(({ tag }) => tag)),
    int8Array(tags.map(({ event }) => event.created_at)),
    int8Array(tags.map(({ row }) => row.seq)),
    int8Array(tags.map(({ row }) => row.ingested_at)),
    int2Array(tags.map(({ row }) => row.keep)),
    int2Array(tags.map(({ to }) => to)),
  ]);
}

interface DatedPartition {
  readonly parent: string;
  readonly name: string;
  /** End of its month, in milliseconds. */
  readonly to: number;
  readonly detaching: boolean;
}

/** The dated partitions, those of events before those of tags. Their bounds are read from the catalogue. */
async function datedPartitions(client: Client): Promise<DatedPartition[]> {
  const { rows } = await client.query<DatedPartition>(
    `SELECT p.relname AS parent, c.relname AS name, i.inhdetachpending AS detaching,
       ${PARTITION_END} AS to
     FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
     WHERE c.relkind = 'r' AND c.relname ~ '^(events|event_tags)_(history|days\\d+)_\\d{4}_\\d{2}$' ORDER BY c.relname DESC`,
  );
  return rows;
}

export interface DropOptions {
  readonly now: number;
  readonly historyDays: number;
  /** Deleted rows stay this long, also when their month is over. */
  readonly auditDays: number;
}

/**
 * Drops the months in which nothing is served any more. Outside the lane: the detaching waits for running queries without
 * stopping new ones, and gives up after the session's lock timeout; the next run goes on where it stopped.
 */
export async function dropPartitions(
  client: Client,
  options: DropOptions,
  /** Names them only; after the jobs of a dry run, by what those would have left. */
  dryRun: boolean | WouldGo,
): Promise<string[]> {
  await setUpDropping(client);
  const partitions = await datedPartitions(client);
  const left = new Set(partitions.map(({ name }) => name));
  const dropped: string[] = [];
  for (const partition of partitions) {
    const gone = typeof dryRun === 'boolean' ? undefined : dryRun;
    if (!partition.detaching && !(await mayDrop(client, partition, left, { ...options, gone }))) continue;
    dropped.push(partition.name);
    left.delete(partition.name);
    if (dryRun !== false) continue;
    const how = partition.detaching ? 'FINALIZE' : 'CONCURRENTLY';
    await client.query(`ALTER TABLE ${partition.parent} DETACH PARTITION ${partition.name} ${how}`);
    await client.query(`DROP TABLE ${partition.name}`);
  }
  return dropped;
}

/**
 * What is looked for is found by an index that is empty then, not by reading a million hidden rows. And autovacuum, at work on
 * what was just swept, is asked to leave at once, not after a second; only a superuser may set that.
 */
async function setUpDropping(client: Client): Promise<void> {
  await client.query('SET enable_seqscan = off');
  await client.query("SET deadlock_timeout = '20ms'").catch((error: { code?: string }) => {
    if (error.code !== INSUFFICIENT_PRIVILEGE) throw error;
  });
}
const INSUFFICIENT_PRIVILEGE = '42501';

async function mayDrop(
  client: Client,
  { parent, name, to }: DatedPartition,
  left: ReadonlySet<string>,
  options: DropOptions & { readonly gone: WouldGo | undefined },
): Promise<boolean> {
  const { now, historyDays, auditDays, gone } = options;
  if (parent === 'events_history') return to <= cutoff(historyDays, now);
  if (to > now) return false;
  // Tags of events that are gone say nothing.
  if (name.startsWith('event_tags_')) return !left.has(name.replace('event_tags_', 'events_'));
  const isLeft = gone === undefined ? 'true' : IS_LEFT_HERE;
  const served = `SELECT 1 FROM ${name} e WHERE hidden IS NULL AND ${isLeft} LIMIT 1`;
  const audited = `SELECT 1 FROM ${name} e WHERE hidden = 2 AND hidden_at >= ${cutoff(auditDays, now)} AND ${isLeft} LIMIT 1`;
  if (!(await isEmpty(client, served)) || !(await isEmpty(client, audited))) return false;
  return gone === undefined || !(await gone.movesInto(...monthOf(parent, to)));
}

/** The bucket of a month and its stretch, by its parent and its end. */
function monthOf(parent: string, to: number): [keep: number, from: number, to: number] {
  const keep = Keep[parent.replace('events_', '') as keyof typeof Keep];
  const end = new Date(to);
  return [keep, Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - 1, 1), to];
}

async function isEmpty(client: Client, query: string): Promise<boolean> {
  return (await client.query(query)).rowCount === 0;
}
