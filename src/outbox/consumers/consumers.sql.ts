/**
 * The offset, the lease, the dead letters and the rebuild of each consumer of the outbox. An offset is saved
 * in the transaction of its effect, and only by the holder of the lease (I8): a former holder cannot save.
 */
import type { ClientBase, Pool } from 'pg';
import type { OutboxReason } from '../../events/rules/writes.js';
import { bytes } from '../../postgres/values.js';
import type { Change } from '../changes.sql.js';

type Db = ClientBase | Pool;
const ERROR_CHARS_MAX = 500;

// ── Lease ──────────────────────────────────────────────────────────────────────────────────────────────────

/** The state of a consumer, for the holder of the lease and for those who wait for it. */
export interface Lease {
  readonly generation: number;
  readonly lastSeq: number;
  readonly holder: string | null;
  readonly beat: number;
  readonly paused: boolean;
  /** A rebuild is requested or running. */
  readonly rebuilds: boolean;
  /** The operator has requested a retry of dead letters. */
  readonly retries: boolean;
}

const LEASE = `o.generation, o.last_seq AS "lastSeq", o.holder, o.beat, o.paused_at IS NOT NULL AS paused,
  EXISTS (SELECT 1 FROM consumer_rebuilds r WHERE r.consumer = o.consumer) AS rebuilds,
  EXISTS (SELECT 1 FROM consumer_dead_letters l
    WHERE l.consumer = o.consumer AND l.generation = o.generation AND l.retry_asked) AS retries`;

/**
 * Begins a transaction with an effect and its offset. A crash of the server may undo the last of these
 * transactions, effect and offset together, and they are done again: the outbox itself is durable. So they
 * need not wait for the disk.
 *
 * READ COMMITTED: the outbox says what changed, and events are read as they are *now*, possibly later than
 * the rows. An event that was hidden in between is announced by a later row. A snapshot would gain nothing,
 * and every beat of the holder would make it fail, because the beat changes the row with the offset.
 */
export const BEGIN_EFFECT = 'BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = off';

/**
 * Registers a new consumer. If the outbox is empty, its first generation is complete at once: the result is
 * true, and the caller opens it in the same transaction. Otherwise a rebuild is requested.
 */
export async function registerConsumer(db: Db, consumer: string, now: number): Promise<boolean> {
  const { rows } = await db.query<{ generation: number }>(
    `WITH made AS (
       INSERT INTO consumer_offsets (consumer, last_seq, generation, updated_at)
       SELECT $1, last_seq, CASE WHEN last_seq = 0 THEN 1 ELSE 0 END, $2::bigint FROM lane_state
       ON CONFLICT (consumer) DO NOTHING RETURNING consumer, generation),
     asked AS (
       INSERT INTO consumer_rebuilds (consumer, generation, reason, requested_at, updated_at)
       SELECT consumer, 1, 'it is new here', $2, $2 FROM made WHERE generation = 0)
     SELECT generation FROM made`,
    [consumer, now],
  );
  return rows[0]?.generation === 1;
}

export async function readLease(db: Db, consumer: string): Promise<Lease | undefined> {
  const { rows } = await db.query<Lease>({
    name: 'consumer-lease',
    text: `SELECT ${LEASE} FROM consumer_offsets o WHERE o.consumer = $1`,
    values: [consumer],
  });
  return rows[0];
}

/**
 * Takes a lease that is free or whose beat has not changed. False if another instance was faster, or the beat
 * has changed.
 */
export async function takeLease(db: Db, consumer: string, seen: Lease, holder: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `UPDATE consumer_offsets SET holder = $2, beat = beat + 1
     WHERE consumer = $1 AND holder IS NOT DISTINCT FROM $3::uuid AND beat = $4`,
    [consumer, holder, seen.holder, seen.beat],
  );
  return rowCount === 1;
}

export interface Held {
  readonly consumer: string;
  readonly holder: string;
}

export interface Beat extends Lease {
  readonly consumer: string;
  /** The last offset of the outbox. */
  readonly head: number;
}

/** A beat that a crash undoes is only a missing beat, so its commit does not wait for the disk. */
const NOT_FLUSHED = "set_config('synchronous_commit', 'off', true) IS NOT NULL";

/** Renews these leases and returns the state of each consumer. A missing one was taken over. */
export async function beatAll(db: Db, held: readonly Held[]): Promise<Beat[]> {
  const { rows } = await db.query<Beat>({
    name: 'consumer-beats',
    text: `UPDATE consumer_offsets o SET beat = o.beat + 1
      FROM unnest($1::text[], $2::uuid[]) AS n (consumer, holder), lane_state s
      WHERE o.consumer = n.consumer AND o.holder = n.holder AND (SELECT ${NOT_FLUSHED})
      RETURNING o.consumer, s.last_seq AS head, ${LEASE}`,
    values: [held.map(({ consumer }) => consumer), held.map(({ holder }) => holder)],
  });
  return rows;
}

/**
 * Checks the lease in a transaction that saves no offset of the live generation. False if it was taken over
 * or the consumer is paused.
 */
export async function holdLease(tx: ClientBase, consumer: string, holder: string): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'consumer-hold',
    text: `UPDATE consumer_offsets SET beat = beat + 1
      WHERE consumer = $1 AND holder = $2 AND paused_at IS NULL`,
    values: [consumer, holder],
  });
  return rowCount === 1;
}

/** Frees the lease, so that another instance need not wait. */
export async function releaseLease(db: Db, consumer: string, holder: string): Promise<void> {
  await db.query('UPDATE consumer_offsets SET holder = NULL WHERE consumer = $1 AND holder = $2', [
    consumer,
    holder,
  ]);
}

export interface Progress {
  readonly consumer: string;
  readonly holder: string;
  readonly generation: number;
  /** The offset at which the batch was read. */
  readonly from: number;
  readonly to: number;
  readonly rows: number;
  readonly rowsPerSecond: number;
  readonly now: number;
}

/**
 * In the transaction of the effect. False if the lease, the generation or the offset has changed: then the
 * caller rolls back.
 */
export async function saveProgress(tx: ClientBase, progress: Progress): Promise<boolean> {
  const { consumer, holder, generation, from, to, rows, rowsPerSecond, now } = progress;
  const { rowCount } = await tx.query({
    name: 'consumer-progress',
    text: `UPDATE consumer_offsets SET last_seq = $5, updated_at = $8, applied = applied + $6,
        rows_per_second = $7, beat = beat + 1, error = NULL, failing_since = NULL
      WHERE consumer = $1 AND holder = $2 AND generation = $3 AND last_seq = $4 AND paused_at IS NULL`,
    values: [consumer, holder, generation, from, to, rows, rowsPerSecond, now],
  });
  return rowCount === 1;
}

export async function recordFailure(db: Db, consumer: string, error: string, now: number): Promise<void> {
  await db.query(
    'UPDATE consumer_offsets SET error = $2, failing_since = coalesce(failing_since, $3) WHERE consumer = $1',
    [consumer, error.slice(0, ERROR_CHARS_MAX), now],
  );
}

export async function forgetFailure(db: Db, consumer: string): Promise<void> {
  await db.query(
    `UPDATE consumer_offsets SET error = NULL, failing_since = NULL
     WHERE consumer = $1 AND failing_since IS NOT NULL`,
    [consumer],
  );
}

// ── Dead letters ───────────────────────────────────────────────────────────────────────────────────────────

export interface DeadLetter {
  readonly generation: number;
  readonly seq: number;
  readonly community: number;
  readonly op: 'upsert' | 'delete';
  readonly reason: OutboxReason | null;
  readonly id: string;
  readonly author: string;
  readonly kind: number;
  readonly createdAt: number;
  readonly ingestedAt: number;
  readonly topics: readonly string[];
  readonly effectiveKey: string | null;
  readonly attempts: number;
  readonly error: string;
  readonly failedAt: number;
  readonly retryAsked: boolean;
}

export const LETTER = `generation, seq, community, op, reason,
  encode(event_id, 'hex') AS id, encode(author, 'hex') AS author, kind,
  created_at AS "createdAt", ingested_at AS "ingestedAt", topics, effective_key AS "effectiveKey",
  attempts, error, failed_at AS "failedAt", retry_asked AS "retryAsked"`;

export interface Failure {
  readonly attempts: number;
  readonly error: string;
  readonly now: number;
}

/** The number of dead letters, counted up to `atMost`. */
export async function countLetters(
  db: Db,
  consumer: string,
  generation: number,
  atMost: number,
): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*) AS count
     FROM (SELECT 1 FROM consumer_dead_letters WHERE consumer = $1 AND generation = $2 LIMIT $3) l`,
    [consumer, generation, atMost],
  );
  return rows[0]!.count;
}

/** In the transaction that saves the offset after it. A second failure clears the requested retry. */
export async function park(
  tx: ClientBase,
  consumer: string,
  generation: number,
  change: Change,
  { attempts, error, now }: Failure,
): Promise<void> {
  await tx.query(
    `INSERT INTO consumer_dead_letters AS l (consumer, generation, seq, ingested_at, created_at, failed_at,
       community, kind, attempts, op, reason, error, event_id, author, topics, effective_key)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
     ON CONFLICT (consumer, generation, seq) DO UPDATE
     SET attempts = l.attempts + excluded.attempts, error = excluded.error, failed_at = excluded.failed_at,
       retry_asked = false`,
    [
      consumer,
      generation,
      change.seq,
      change.ingestedAt,
      change.createdAt,
      now,
      change.community,
      change.kind,
      attempts,
      change.op,
      change.reason ?? null,
      error.slice(0, ERROR_CHARS_MAX),
      bytes(change.id),
      bytes(change.author),
      [...change.topics],
      change.effectiveKey ?? null,
    ],
  );
}

/** Dead letters with a requested retry, the oldest first. */
export async function askedLetters(
  db: Db,
  consumer: string,
  generation: number,
  limit: number,
): Promise<DeadLetter[]> {
  const { rows } = await db.query<DeadLetter>(
    `SELECT ${LETTER} FROM consumer_dead_letters
     WHERE consumer = $1 AND generation = $2 AND retry_asked ORDER BY seq LIMIT $3`,
    [consumer, generation, limit],
  );
  return rows;
}

export async function dropLetter(
  tx: ClientBase,
  consumer: string,
  { generation, seq }: Pick<DeadLetter, 'generation' | 'seq'>,
): Promise<void> {
  await tx.query('DELETE FROM consumer_dead_letters WHERE consumer = $1 AND generation = $2 AND seq = $3', [
    consumer,
    generation,
    seq,
  ]);
}

// ── Rebuilding ─────────────────────────────────────────────────────────────────────────────────────────────

export interface Rebuild {
  readonly generation: number;
  readonly reason: string;
  readonly requestedAt: number;
  /** Null until it has begun. */
  readonly startedAt: number | null;
  readonly pinnedSeq: number | null;
  /** Events up to this offset have been scanned. */
  readonly scannedSeq: number;
  /** Where the scan continues, for a store whose events have no offset. */
  readonly scannedPlace: string | null;
  readonly scanned: number;
  /** The number of effective events when it was pinned. */
  readonly expected: number;
  /** The offset of the replay; null during the scan. */
  readonly lastSeq: number | null;
}

export const REBUILD = `generation, reason, requested_at AS "requestedAt", started_at AS "startedAt",
  pinned_seq AS "pinnedSeq", scanned_seq AS "scannedSeq",
  scanned_place AS "scannedPlace", scanned, expected, last_seq AS "lastSeq"`;

export async function readRebuild(db: Db, consumer: string): Promise<Rebuild | undefined> {
  const { rows } = await db.query<Rebuild>({
    name: 'consumer-rebuild',
    text: `SELECT ${REBUILD} FROM consumer_rebuilds WHERE consumer = $1`,
    values: [consumer],
  });
  return rows[0];
}

/** Requests a rebuild. False if one is requested or running already. */
export async function askRebuild(db: Db, consumer: string, reason: string, now: number): Promise<boolean> {
  const { rowCount } = await db.query(
    `INSERT INTO consumer_rebuilds (consumer, generation, reason, requested_at, updated_at)
     SELECT consumer, generation + 1, $2, $3::bigint, $3 FROM consumer_offsets WHERE consumer = $1
     ON CONFLICT (consumer) DO NOTHING`,
    [consumer, reason, now],
  );
  return rowCount === 1;
}

/**
 * Pins the rebuild at the head of the outbox, in the transaction that opens the generation. If the outbox was
 * never written there is nothing to scan.
 */
export async function pinRebuild(
  tx: ClientBase,
  consumer: string,
  generation: number,
  now: number,
): Promise<boolean> {
  const { rowCount } = await tx.query(
    `UPDATE consumer_rebuilds SET started_at = $3, updated_at = $3, pinned_seq = s.last_seq,
       scanned_seq = 0, scanned_place = NULL, scanned = 0, last_seq = CASE WHEN s.last_seq = 0 THEN 0 END,
       expected = (SELECT coalesce(sum(events), 0)::bigint FROM community_totals)
     FROM lane_state s WHERE consumer = $1 AND generation = $2`,
    [consumer, generation, now],
  );
  await tx.query('DELETE FROM consumer_dead_letters WHERE consumer = $1 AND generation = $2', [
    consumer,
    generation,
  ]);
  return rowCount === 1;
}

export interface RebuildProgress {
  readonly consumer: string;
  readonly generation: number;
  readonly from: number;
  readonly to: number;
  readonly now: number;
}

interface ScanProgress extends RebuildProgress {
  readonly rows: number;
  readonly place: string | undefined;
  /** Every effective event was scanned. */
  readonly isDone: boolean;
}

/**
 * In the transaction of the effect, as `saveReplay`. After the last event, the outbox is replayed from the
 * pin.
 */
export async function saveScan(
  tx: ClientBase,
  { consumer, generation, from, to, now, rows, place, isDone }: ScanProgress,
): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'consumer-scan',
    text: `UPDATE consumer_rebuilds SET scanned_seq = $4, scanned = scanned + $5, updated_at = $6,
        scanned_place = $7, last_seq = CASE WHEN $8::boolean THEN pinned_seq END
      WHERE consumer = $1 AND generation = $2 AND scanned_seq = $3 AND last_seq IS NULL`,
    values: [consumer, generation, from, to, rows, now, place ?? null, isDone],
  });
  return rowCount === 1;
}

export async function saveReplay(
  tx: ClientBase,
  { consumer, generation, from, to, now }: RebuildProgress,
): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'consumer-replay',
    text: `UPDATE consumer_rebuilds SET last_seq = $4, updated_at = $5
      WHERE consumer = $1 AND generation = $2 AND last_seq = $3`,
    values: [consumer, generation, from, to, now],
  });
  return rowCount === 1;
}

/** Makes the new generation the live one. False if this process no longer holds the lease. */
export async function swapGenerations(
  tx: ClientBase,
  { consumer, holder, now }: { readonly consumer: string; readonly holder: string; readonly now: number },
): Promise<boolean> {
  const { rowCount } = await tx.query(
    `WITH whole AS (
       DELETE FROM consumer_rebuilds r USING consumer_offsets o
       WHERE r.consumer = $1 AND r.last_seq IS NOT NULL
         AND o.consumer = $1 AND o.holder = $2 AND o.paused_at IS NULL
       RETURNING r.generation, r.last_seq)
     UPDATE consumer_offsets o SET generation = w.generation, last_seq = w.last_seq, updated_at = $3,
       beat = beat + 1, error = NULL, failing_since = NULL
     FROM whole w WHERE o.consumer = $1 AND o.holder = $2`,
    [consumer, holder, now],
  );
  if (rowCount !== 1) return false;
  await tx.query(
    `DELETE FROM consumer_dead_letters l USING consumer_offsets o
     WHERE l.consumer = $1 AND o.consumer = $1 AND l.generation <> o.generation`,
    [consumer],
  );
  return true;
}
