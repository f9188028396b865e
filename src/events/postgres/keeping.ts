/**
 * Retention in the database: the sweep that finds regular events past their days and moves events to another
 * bucket when their rules change, and the drop of empty partitions. I11: current versions and requests are in
 * other buckets; dedupe rows, tombstones and marks are in other tables.
 */
import type { Client, ClientBase } from 'pg';
import { hexArray, int2Array, int4Array, int8Array } from '../../postgres/binary.js';
import { errorCode, SQLSTATE } from '../../postgres/rules-error-code.js';
import { topicsOf, UNBOUND } from '../../topics/rules.js';
import type { NostrEvent } from '../rules/event.js';
import type { PlacedEvent } from '../rules/facts.js';
import { HIDDEN_CODES } from '../rules/hidden.js';
import { Keep, REGULAR_KEEPS, stepOf } from '../rules/keep.js';
import { eventDays, eventSince, type Retention, surelySince } from '../rules/retention.js';
import { type DryRunState, IS_LEFT_HERE } from './dry-run.js';
import { PARTITION_END } from './partition-bound.js';
import { partitionsOfRows } from './partitions.js';
import { type TagHash, tagKeys } from './tag-hash.js';

export const SWEEP_ROWS_MAX = 500;

export interface SweepStep {
  /** Past their days, to be purged. */
  readonly aged: readonly PlacedEvent[];
  /** Kept, but in a bucket that is no longer theirs. */
  readonly misplaced: readonly MisplacedRow[];
  /** The start of the next step; undefined when the end was reached. */
  readonly next: number | undefined;
}

export interface MisplacedRow extends PlacedEvent {
  readonly to: Keep;
}

/** Served regular rows after a position, oldest first: one scan along `seq` over the partitions. */
export const SWEEP_SQL = `
  SELECT e.seq, e.ingested_at, e.keep, e.community, e.payload, e.bound FROM events e
  WHERE e.keep IN (${REGULAR_KEEPS.join(', ')}) AND e.seq > $1::bigint AND e.ingested_at < $2::bigint
    AND e.hidden IS NULL
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
 * One bounded step of the sweep, inside the lane's transaction. It reads the next rows that are older than
 * the shortest days of any rule, and returns those past their own days and those in the wrong bucket.
 */
export async function sweepStep(
  client: ClientBase,
  after: number,
  rules: ReadonlyMap<number, Retention>,
  now: number,
): Promise<SweepStep> {
  const surely = Math.max(0, ...[...rules.values()].map((retention) => surelySince(retention, now)));
  const { rows } = await client.query<SweptRow>(SWEEP_SQL, [after, surely]);
  const aged: PlacedEvent[] = [];
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
  FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::smallint[])
    AS g (seq, ingested_at, keep, new_keep)
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

/**
 * Moves rows to the bucket that keeps them long enough, with their tags, after their rules have changed. In
 * the lane's transaction.
 */
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

/**
 * The partitions by month, those of events before those of tags. Their ranges are read from the catalogue.
 */
async function datedPartitions(client: Client): Promise<DatedPartition[]> {
  const { rows } = await client.query<DatedPartition>(
    `SELECT p.relname AS parent, c.relname AS name, i.inhdetachpending AS detaching,
       ${PARTITION_END} AS to
     FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
     WHERE c.relkind = 'r' AND c.relname ~ '^(events|event_tags)_(history|days\\d+)_\\d{4}_\\d{2}$'
     ORDER BY c.relname DESC`,
  );
  return rows;
}

/**
 * Drops the months that are over and hold nothing to keep. Events that end earlier than their month are
 * purged by row. Outside the lane: DETACH waits for running queries without blocking new ones, and gives up
 * after the session's lock time-out. The next run continues where this one stopped.
 */
export async function dropPartitions(
  client: Client,
  now: number,
  /** True: only returns the names. A state: takes the jobs of the dry run before this one into account. */
  dryRun: boolean | DryRunState,
): Promise<string[]> {
  await setUpDropping(client);
  const partitions = await datedPartitions(client);
  const left = new Set(partitions.map(({ name }) => name));
  const dropped: string[] = [];
  for (const partition of partitions) {
    const state = typeof dryRun === 'boolean' ? undefined : dryRun;
    if (!partition.detaching && !(await mayDrop(client, partition, left, { now, state }))) continue;
    dropped.push(partition.name);
    left.delete(partition.name);
    if (dryRun !== false) continue;
    const how = partition.detaching ? 'FINALIZE' : 'CONCURRENTLY';
    await client.query(`ALTER TABLE ${partition.parent} DETACH PARTITION ${partition.name} ${how}`);
    await client.query(`DROP TABLE ${partition.name}`);
  }
  if (typeof dryRun === 'object') dropped.push(...(await madeAndDropped(dryRun, partitions, now)));
  return dropped;
}

/**
 * For a dry run: the months that a run would create for moved rows, and drop again because a later job takes
 * all of these rows.
 */
async function madeAndDropped(
  state: DryRunState,
  existing: readonly DatedPartition[],
  now: number,
): Promise<string[]> {
  const names = new Set(existing.map(({ name }) => name));
  const emptied: string[] = [];
  for (const { name, keep, from, to } of partitionsOfRows(await state.movedAndTaken())) {
    if (to <= now && !names.has(name) && !(await state.movesInto(keep, from, to))) emptied.push(name);
  }
  return emptied;
}

/**
 * The check uses an index that is empty by then, instead of reading a million purged rows. Autovacuum, which
 * may be working on the swept rows, is interrupted at once and not after a second; only a superuser may set
 * that.
 */
async function setUpDropping(client: Client): Promise<void> {
  await client.query('SET enable_seqscan = off');
  await client.query("SET deadlock_timeout = '20ms'").catch((error: unknown) => {
    if (errorCode(error) !== SQLSTATE.insufficientPrivilege) throw error;
  });
}

async function mayDrop(
  client: Client,
  { parent, name, to }: DatedPartition,
  left: ReadonlySet<string>,
  { now, state }: { readonly now: number; readonly state: DryRunState | undefined },
): Promise<boolean> {
  if (to > now) return false;
  // The tags of a dropped partition of events are of no use.
  if (name.startsWith('event_tags_')) return !left.has(name.replace('event_tags_', 'events_'));
  const isLeft = state === undefined ? 'true' : IS_LEFT_HERE;
  for (const kept of parent === 'events_history' ? KEPT_HISTORY : KEPT) {
    const { rowCount } = await client.query(`SELECT 1 FROM ${name} e WHERE ${kept} AND ${isLeft} LIMIT 1`);
    if (rowCount !== 0) return false;
  }
  return state === undefined || !(await state.movesInto(...monthOf(parent, to)));
}

/** The bucket of a month and its range, by its parent and its end. */
function monthOf(parent: string, to: number): [keep: number, from: number, to: number] {
  const keep = Keep[parent.replace('events_', '') as keyof typeof Keep];
  const end = new Date(to);
  return [keep, Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - 1, 1), to];
}

/**
 * Rows to keep: served, deleted and within the audit time, or removed and still restorable. One index each.
 */
const KEPT = ['hidden IS NULL', `hidden = ${HIDDEN_CODES.deleted}`, `hidden = ${HIDDEN_CODES.removed}`];
const KEPT_HISTORY = ['true'];
