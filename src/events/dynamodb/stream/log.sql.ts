/**
 * The log of changes in PostgreSQL: shard workers append what they read, and the log assigns the positions
 * that every reader uses. One transaction appends the entries of a shard, adds to the totals, moves the
 * checkpoint of the shard and notifies the readers. So each record is appended once, whoever reads it and
 * however often.
 */
import type { Pool, PoolClient } from 'pg';
import { isDenial } from '../../../api/rules-errors.js';
import { hexArray, int4Array, int8Array, textArray } from '../../../postgres/binary.js';
import { inTransaction } from '../../../postgres/transaction.js';
import { withdrawReports, writeReports } from '../../../reports/reports.sql.js';
import { KIND_REPORT, WITHDRAWS } from '../../../reports/rules.js';
import { OUTBOX_CHANNEL, printable } from '../../postgres/batch.js';
import { lowerTopicTotals, raiseTopicTotals } from '../../postgres/capacity.js';
import { LANE_LOCK } from '../../postgres/lane/lock.js';
import { type TagHash, tagKeys } from '../../postgres/tag-hash.js';
import { reportsOf } from '../../rules/batch/batch.js';
import { KIND_DELETION } from '../../rules/classify.js';
import { deletionTargets } from '../../rules/deletion.js';
import { type Announced, OUTBOX_REASONS, OUTLINE_TAGS_MAX } from '../../rules/hidden.js';
import type { LogEntry, ViewEntry } from './rules-records.js';

// ── Shards and their leases ────────────────────────────────────────────────────────────────────────────────

export interface KnownShard {
  readonly id: string;
  readonly parent: string | undefined;
  /** The last record that was appended. */
  readonly checkpoint: string | undefined;
  readonly isDone: boolean;
}

export async function noteShards(
  pool: Pool,
  stream: string,
  shards: readonly { readonly id: string; readonly parent: string | undefined }[],
  now: number,
): Promise<KnownShard[]> {
  await pool.query(
    `INSERT INTO stream_shards (stream, shard, parent, seen_at)
     SELECT $1, s.shard, nullif(s.parent, ''), $4 FROM unnest($2::text[], $3::text[]) AS s (shard, parent)
     ON CONFLICT (stream, shard) DO UPDATE SET seen_at = excluded.seen_at`,
    [stream, shards.map(({ id }) => id), shards.map(({ parent }) => parent ?? ''), now],
  );
  return readShards(pool, stream);
}

export async function readShards(pool: Pool, stream: string): Promise<KnownShard[]> {
  const { rows } = await pool.query<{
    shard: string;
    parent: string | null;
    checkpoint: string | null;
    is_done: boolean;
  }>('SELECT shard, parent, checkpoint, is_done FROM stream_shards WHERE stream = $1', [stream]);
  return rows.map(({ shard, parent, checkpoint, is_done }) => ({
    id: shard,
    parent: parent ?? undefined,
    checkpoint: checkpoint ?? undefined,
    isDone: is_done,
  }));
}

export interface Lease {
  readonly stream: string;
  readonly shard: string;
  readonly holder: string;
}

/** The checkpoint of a shard, if this worker holds its lease now; null where nothing was read yet. */
export async function takeLease(
  pool: Pool,
  { stream, shard, holder }: Lease,
  now: number,
  leaseMs: number,
): Promise<{ readonly checkpoint: string | null } | undefined> {
  const { rows } = await pool.query<{ checkpoint: string | null }>(
    `UPDATE stream_shards SET holder = $3, held_until = $4::bigint + $5::bigint
     WHERE stream = $1 AND shard = $2 AND NOT is_done AND (holder = $3 OR held_until < $4)
     RETURNING checkpoint`,
    [stream, shard, holder, now, leaseMs],
  );
  return rows[0];
}

export async function giveUpLeases(pool: Pool, holder: string): Promise<void> {
  await pool.query('UPDATE stream_shards SET held_until = 0 WHERE holder = $1', [holder]);
}

/** Forgets shards that the stream no longer lists, and that were read to their end. */
export async function forgetShards(pool: Pool, stream: string, seenBefore: number): Promise<void> {
  await pool.query('DELETE FROM stream_shards WHERE (stream <> $1 OR is_done) AND seen_at < $2', [
    stream,
    seenBefore,
  ]);
}

// ── The log ────────────────────────────────────────────────────────────────────────────────────────────────

const BEGIN = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '5s';
  SET LOCAL statement_timeout = '10s'; SET LOCAL idle_in_transaction_session_timeout = '10s'`;
const LOCK = `SELECT pg_advisory_xact_lock(${LANE_LOCK})`;

export interface Appended extends Lease {
  /** What the worker had read before; the append fails when another worker has moved it. */
  readonly after: string | null;
  readonly checkpoint: string | null;
  readonly isDone: boolean;
  readonly entries: readonly LogEntry[];
  readonly tagHash: TagHash;
  readonly now: number;
}

/** False when another worker holds the shard: nothing is appended. */
export async function append(pool: Pool, appended: Appended): Promise<boolean> {
  const { stream, shard, holder, after, checkpoint, isDone, entries, tagHash, now } = appended;
  const done = await inTransaction(pool, BEGIN, async (tx) => {
    await tx.query(LOCK);
    const { rowCount } = await tx.query(
      `UPDATE stream_shards SET checkpoint = $5, is_done = $6
       WHERE stream = $1 AND shard = $2 AND holder = $3 AND checkpoint IS NOT DISTINCT FROM $4`,
      [stream, shard, holder, after, checkpoint, isDone],
    );
    if (rowCount !== 1) return false;
    if (entries.length > 0) await writeEntries(tx, entries, tagHash, now);
    return true;
  });
  return !isDenial(done) && done;
}

const ENTRIES_SQL = `
  WITH entries AS (
    SELECT s.last_seq + e.place AS seq, e.*
    FROM lane_state s, unnest($1::int[], $2::bigint[], $3::int[], $4::text[], $5::text[], $6::bytea[],
      $7::bytea[], $8::text[], $9::text[], $10::bigint[], $13::text[], $14::text[]) WITH ORDINALITY
      AS e (community, created_at, kind, op, reason, event_id, author, topics, effective_key, bytes, tags,
        came_by, place)
  ), announced AS (
    INSERT INTO events_outbox
      (seq, ingested_at, created_at, community, kind, op, reason, event_id, author, topics, effective_key,
       tags, came_by)
    SELECT seq, $11::bigint, created_at, community, kind, op, nullif(reason, ''), event_id, author,
      string_to_array(topics, E'\\n'), effective_key, string_to_array(tags, ',')::bigint[], came_by
    FROM entries WHERE op <> 'mark'
  ), totalled AS (
    INSERT INTO community_totals AS t (community, events, bytes, requests, request_bytes)
    SELECT community, sum(sign), sum(sign * bytes), sum(sign * request), sum(sign * bytes * request)
    FROM (SELECT *, CASE op WHEN 'upsert' THEN 1 ELSE -1 END AS sign,
      CASE kind WHEN ${KIND_DELETION} THEN 1 ELSE 0 END AS request FROM entries) e
    WHERE op <> 'mark' GROUP BY community
    ON CONFLICT (community) DO UPDATE
    SET events = t.events + excluded.events, bytes = t.bytes + excluded.bytes,
      requests = least(t.events + excluded.events, greatest(0, t.requests + excluded.requests)),
      request_bytes = least(t.bytes + excluded.bytes, greatest(0, t.request_bytes + excluded.request_bytes))
  ), numbered AS (
    UPDATE lane_state SET last_seq = last_seq + $12::bigint
  )
  SELECT pg_notify('${OUTBOX_CHANNEL}', '')`;

async function writeEntries(
  tx: PoolClient,
  entries: readonly LogEntry[],
  tagHash: TagHash,
  now: number,
): Promise<void> {
  const view = (entry: LogEntry): ViewEntry | undefined => (entry.op === 'mark' ? undefined : entry);
  const each = <T>(read: (entry: ViewEntry) => T, otherwise: T) =>
    entries.map((entry) => {
      const viewed = view(entry);
      return viewed === undefined ? otherwise : read(viewed);
    });
  await tx.query(ENTRIES_SQL, [
    int4Array(each(({ community }) => community, 0)),
    int8Array(each(({ event }) => event.created_at, 0)),
    int4Array(each(({ event }) => event.kind, 0)),
    textArray(entries.map(({ op }) => op)),
    textArray(each(({ reason }) => reason ?? '', '')),
    hexArray(each(({ event }) => event.id, '')),
    hexArray(each(({ event }) => event.pubkey, '')),
    textArray(each(({ topics }) => topics.join('\n'), '')),
    textArray(each(({ effectiveKey }) => printable(effectiveKey), undefined)),
    int8Array(each(({ payload }) => Buffer.byteLength(payload), 0)),
    now,
    entries.length,
    textArray(each((entry) => outlineTags(entry, tagHash), undefined)),
    textArray(each(({ op, cameBy }) => (op === 'upsert' ? cameBy : undefined), undefined)),
  ]);
  const viewed = entries.flatMap((entry) => view(entry) ?? []);
  await noteReports(tx, viewed, now);
  await raiseTopicTotals(
    tx,
    viewed.filter(({ op }) => op === 'upsert'),
  );
  await lowerTopicTotals(
    tx,
    viewed.filter(({ op }) => op === 'delete'),
  );
}

/** In the order of the log: an event that comes and is withdrawn in one page leaves no report. */
async function noteReports(tx: PoolClient, entries: readonly ViewEntry[], now: number): Promise<void> {
  for (const { op, reason, community, event } of entries) {
    if (op === 'upsert' && event.kind === KIND_REPORT) {
      const reports = reportsOf({ submission: { community, event }, ingestedAt: now });
      if (reports.length > 0) await writeReports(tx, reports);
    } else if (op === 'upsert' && event.kind === KIND_DELETION) {
      // A report outlives its event when that is purged by retention; deleting the event withdraws it.
      const { pubkey } = event;
      const ids = deletionTargets(event).flatMap((target) => (target.type === 'id' ? [target.id] : []));
      await withdrawReports(
        tx,
        ids.map((id) => ({ community, event: { id, pubkey } })),
      );
    } else if (reason !== undefined && event.kind === KIND_REPORT && WITHDRAWN_BY.has(reason))
      await withdrawReports(tx, [{ community, event }]);
  }
}
const WITHDRAWN_BY = new Set(
  (Object.keys(OUTBOX_REASONS) as Announced[])
    .filter((hidden) => WITHDRAWS[hidden])
    .map((hidden) => OUTBOX_REASONS[hidden]),
);

/** The tags of an event that is hidden, for those who may hold it. An empty list is known to be empty. */
function outlineTags({ op, community, event, topics }: ViewEntry, tagHash: TagHash): string | undefined {
  if (op === 'upsert') return undefined;
  const keys = tagKeys(community, event, tagHash, topics);
  return keys.length > OUTLINE_TAGS_MAX ? undefined : keys.join(',');
}

/**
 * Records were lost: the stream no longer keeps what follows the checkpoint. Every reader of the log is now
 * behind it and rebuilds; the shard continues with the oldest record that is kept.
 */
export async function appendGap(pool: Pool, { stream, shard, holder }: Lease): Promise<void> {
  await inTransaction(pool, BEGIN, async (tx) => {
    await tx.query(LOCK);
    await tx.query('UPDATE lane_state SET last_seq = last_seq + 1, outbox_floor = last_seq + 2');
    await tx.query(
      'UPDATE stream_shards SET checkpoint = NULL WHERE stream = $1 AND shard = $2 AND holder = $3',
      [stream, shard, holder],
    );
    await tx.query('SELECT pg_notify($1, $2)', [OUTBOX_CHANNEL, '']);
    return true;
  });
}

/** A mark of the control plane takes a position, in the transaction of its rows. */
export async function appendMark(tx: Pick<PoolClient, 'query'>): Promise<void> {
  await tx.query(LOCK);
  await tx.query('UPDATE lane_state SET last_seq = last_seq + 1');
  await tx.query('SELECT pg_notify($1, $2)', [OUTBOX_CHANNEL, '']);
}
