/**
 * What is kept and for how long: the sweep that finds regular events past their days, moves those whose rules have
 * changed to their bucket, and the drop of partitions in which nothing is left.
 * I11: current versions and requests lie in other buckets; dedupe rows, tombstones and marks are other tables.
 */
import type { Client, ClientBase } from 'pg';
import type { NostrEvent } from '../core/event.js';
import { HIDDEN_CODES } from '../core/hidden.js';
import { Keep, REGULAR_KEEPS, stepOf } from '../core/keep.js';
import type { StoredEvent } from '../core/plan.js';
import { eventDays, eventSince, type Retention, surelySince } from '../core/retention.js';
import { topicsOf, UNBOUND } from '../core/topic.js';
import { hexArray, int2Array, int4Array, int8Array } from './binary.js';
import { PARTITION_END } from './partition-bound.js';
import { type TagHash, tagKeys } from './tag-hash.js';
import { IS_LEFT_HERE, type WouldGo } from './would-go.js';

export const SWEEP_ROWS_MAX = 500;

export type AgedRow = StoredEvent & { readonly community: number };

export interface SweepStep {
  /** Past their days: to be purged. */
  readonly aged: readonly AgedRow[];
  /** Kept, in a bucket that is not theirs any more. */
  readonly misplaced: readonly MisplacedRow[];
  /** Where the next step goes on; undefined when the end was reached. */
  readonly next: number | undefined;
}

export interface MisplacedRow extends AgedRow {
  readonly to: Keep;
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
 * rule, and gives those that are past their own, and those that lie in another bucket than they should.
 */
export async function sweepStep(
  client: ClientBase,
  after: number,
  rules: ReadonlyMap<number, Retention>,
  now: number,
): Promise<SweepStep> {
  const surely = Math.max(0, ...[...rules.values()].map((retention) => surelySince(retention, now)));
  const { rows } = await client.query<SweptRow>(SWEEP_SQL, [after, surely]);
  const aged: AgedRow[] = [];
  const misplaced: MisplacedRow[] = [];
  for (const { community, seq, ingested_at: ingestedAt, keep, payload, bound } of rows) {
    const retention = rules.get(community);
    if (retention === undefined) continue;
    const event = JSON.parse(payload) as NostrEvent;
    const topics = topicsOf(event);
    const found = { community, event, bound: bound ?? UNBOUND, row: { seq, ingestedAt, keep } };
    const to = stepOf(eventDays(retention, topics));
    if (ingestedAt < eventSince(retention, topics, now)) aged.push(found);
    else if (to !== keep) misplaced.push({ ...found, to });
  }
  return { aged, misplaced, next: rows.length < SWEEP_ROWS_MAX ? undefined : rows.at(-1)!.seq };
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

/** Rows whose rules have changed go to the bucket where they are kept long enough, with their tags. In the lane's transaction. */
export async function moveRows(
  client: ClientBase,
  misplaced: readonly MisplacedRow[],
  tagHash: TagHash,
): Promise<void> {
  if (misplaced.length === 0) return;
  await client.query(MOVE_EVENTS_SQL, [
    int8Array(misplaced.map(({ row }) => row.seq)),
    int8Array(misplaced.map(({ row }) => row.ingestedAt)),
    int2Array(misplaced.map(({ row }) => row.keep)),
    int2Array(misplaced.map(({ to }) => to)),
  ]);
  await client.query(MOVE_DEDUPE_SQL, [
    int4Array(misplaced.map(({ community }) => community)),
    hexArray(misplaced.map(({ event }) => event.id)),
    int2Array(misplaced.map(({ to }) => to)),
  ]);
  const tags = misplaced.flatMap((one) =>
    tagKeys(one.community, one.event, tagHash, one.bound).map((tag) => ({ ...one, tag })),
  );
  await client.query(MOVE_TAGS_SQL, [
    int8Array(tags.map(({ tag }) => tag)),
    int8Array(tags.map(({ event }) => event.created_at)),
    int8Array(tags.map(({ row }) => row.seq)),
    int8Array(tags.map(({ row }) => row.ingestedAt)),
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

/**
 * Drops the months that are over and hold nothing that is kept. What goes before its month does is purged by row. Outside the lane: the detaching waits for running queries without
 * stopping new ones, and gives up after the session's lock timeout; the next run goes on where it stopped.
 */
export async function dropPartitions(
  client: Client,
  now: number,
  /** Names them only; after the jobs of a dry run, by what those would have left. */
  dryRun: boolean | WouldGo,
): Promise<string[]> {
  await setUpDropping(client);
  const partitions = await datedPartitions(client);
  const left = new Set(partitions.map(({ name }) => name));
  const dropped: string[] = [];
  for (const partition of partitions) {
    const gone = typeof dryRun === 'boolean' ? undefined : dryRun;
    if (!partition.detaching && !(await mayDrop(client, partition, left, { now, gone }))) continue;
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
 * What is looked for is found by an index that is empty then, not by reading a million rows that are gone. And autovacuum, at work on
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
  { now, gone }: { readonly now: number; readonly gone: WouldGo | undefined },
): Promise<boolean> {
  if (to > now) return false;
  // Tags of events that are gone say nothing.
  if (name.startsWith('event_tags_')) return !left.has(name.replace('event_tags_', 'events_'));
  const isLeft = gone === undefined ? 'true' : IS_LEFT_HERE;
  for (const kept of parent === 'events_history' ? KEPT_HISTORY : KEPT) {
    const { rowCount } = await client.query(`SELECT 1 FROM ${name} e WHERE ${kept} AND ${isLeft} LIMIT 1`);
    if (rowCount !== 0) return false;
  }
  return gone === undefined || !(await gone.movesInto(...monthOf(parent, to)));
}

/** The bucket of a month and its stretch, by its parent and its end. */
function monthOf(parent: string, to: number): [keep: number, from: number, to: number] {
  const keep = Keep[parent.replace('events_', '') as keyof typeof Keep];
  const end = new Date(to);
  return [keep, Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - 1, 1), to];
}

/** Served; deleted, for the time of audit; held or removed by moderation, as long as that can be undone. One index each. */
const KEPT = ['hidden IS NULL', `hidden = ${HIDDEN_CODES.deleted}`, `hidden = ${HIDDEN_CODES.removed}`];
const KEPT_HISTORY = ['true'];
