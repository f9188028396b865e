/**
 * How far each consumer of the outbox has come, who works on it, what it could not take, and its rebuilding. A number is saved in
 * the transaction of its effect, and only by the holder (I8): one who was taken over saves nothing more.
 */
import type { ClientBase, Pool } from 'pg';
import type { OutboxReason } from '../core/plan.js';
import type { Change } from './changes.js';
import { bytes } from './config-change.js';

type Db = ClientBase | Pool;
const ERROR_CHARS_MAX = 500;

// ── Its turn ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** Where a consumer stands, for the one who works on it or waits to. */
export interface Turn {
  readonly generation: number;
  readonly lastSeq: number;
  readonly holder: string | null;
  readonly beat: number;
  readonly paused: boolean;
}

/**
 * A transaction whose number and effect go together. A crash of the server may take the last of them back, both of it, and they are
 * done again; the outbox itself is durable. So they need not wait for the disk.
 *
 * READ COMMITTED: the outbox says what changed, and events are looked up as they are *now*, also when that is later than the rows: one
 * that has been hidden in between is announced by a later row. A snapshot for all of it would gain nothing, and every beat of the
 * holder's own timer would fail it, because it changes the row in which the number is saved.
 */
export const BEGIN_EFFECT = 'BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = off';

/**
 * A new consumer. While there is nothing to scan its first generation is whole at once: then true, and its maker opens it in the
 * same transaction. Else it waits to be built, from the number that is the last one now.
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

export async function readTurn(db: Db, consumer: string): Promise<Turn | undefined> {
  const { rows } = await db.query<Turn>({
    name: 'consumer-turn',
    text: `SELECT generation, last_seq AS "lastSeq", holder, beat, paused_at IS NOT NULL AS paused
      FROM consumer_offsets WHERE consumer = $1`,
    values: [consumer],
  });
  return rows[0];
}

/** Takes the turn of one whose beat has not moved, or that nobody has. False when somebody was faster, or it has moved after all. */
export async function takeTurn(db: Db, consumer: string, seen: Turn, holder: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `UPDATE consumer_offsets SET holder = $2, beat = beat + 1
     WHERE consumer = $1 AND holder IS NOT DISTINCT FROM $3::uuid AND beat = $4`,
    [consumer, holder, seen.holder, seen.beat],
  );
  return rowCount === 1;
}

/** Keeps the turn. False when it was taken over. */
export async function beat(db: Db, consumer: string, holder: string): Promise<boolean> {
  const { rowCount } = await db.query(
    'UPDATE consumer_offsets SET beat = beat + 1 WHERE consumer = $1 AND holder = $2',
    [consumer, holder],
  );
  return rowCount === 1;
}

/** In the transaction of an effect that saves no number of the live generation. False when it was taken over, or paused. */
export async function holdTurn(tx: ClientBase, consumer: string, holder: string): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'consumer-hold',
    text: `UPDATE consumer_offsets SET beat = beat + 1
      WHERE consumer = $1 AND holder = $2 AND paused_at IS NULL`,
    values: [consumer, holder],
  });
  return rowCount === 1;
}

/** Gives the turn back, so that nobody has to wait for it. */
export async function leaveTurn(db: Db, consumer: string, holder: string): Promise<void> {
  await db.query('UPDATE consumer_offsets SET holder = NULL WHERE consumer = $1 AND holder = $2', [
    consumer,
    holder,
  ]);
}

export interface Progress {
  readonly consumer: string;
  readonly holder: string;
  readonly generation: number;
  /** What it stood at when the batch was read. */
  readonly from: number;
  readonly to: number;
  readonly rows: number;
  readonly rowsPerSecond: number;
  readonly now: number;
}

/** In the transaction of the effect. False when the turn, the generation or the number is another by now: then all of it is rolled back. */
export async function saveProgress(tx: ClientBase, progress: Progress): Promise<boolean> {
  const { consumer, holder, generation, from, to, rows, rowsPerSecond, now } = progress;
  const { rowCount } = await tx.query({
    name: 'consumer-progress',
    text: `UPDATE consumer_offsets SET last_seq = $5, updated_at = $8, applied = applied + $6, rows_per_second = $7, beat = beat + 1,
        error = NULL, failing_since = NULL
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
    'UPDATE consumer_offsets SET error = NULL, failing_since = NULL WHERE consumer = $1 AND failing_since IS NOT NULL',
    [consumer],
  );
}

// ── Dead letters ──────────────────────────────────────────────────────────────────────────────────────────────────

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

export const LETTER = `generation, seq, community, op, reason, encode(event_id, 'hex') AS id, encode(author, 'hex') AS author, kind,
  created_at AS "createdAt", ingested_at AS "ingestedAt", topics, effective_key AS "effectiveKey", attempts, error,
  failed_at AS "failedAt", retry_asked AS "retryAsked"`;

export interface Failure {
  readonly attempts: number;
  readonly error: string;
  readonly now: number;
}

/** Up to a bound: how many are parked. */
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

/** In the transaction that goes on behind it. Parked again, it waits for the operator again. */
export async function park(
  tx: ClientBase,
  consumer: string,
  generation: number,
  change: Change,
  { attempts, error, now }: Failure,
): Promise<void> {
  await tx.query(
    `INSERT INTO consumer_dead_letters AS l (consumer, generation, seq, ingested_at, created_at, failed_at, community, kind, attempts, op,
       reason, error, event_id, author, topics, effective_key)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
     ON CONFLICT (consumer, generation, seq) DO UPDATE
     SET attempts = l.attempts + excluded.attempts, error = excluded.error, failed_at = excluded.failed_at, retry_asked = false`,
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

/** Letters that the operator wants tried again, the oldest first. */
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

// ── Rebuilding ────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Rebuild {
  readonly generation: number;
  readonly reason: string;
  readonly requestedAt: number;
  /** Empty until it has begun. */
  readonly startedAt: number | null;
  readonly pinnedSeq: number | null;
  /** Events up to this number have been looked at. */
  readonly scannedSeq: number;
  readonly scanned: number;
  /** Events of the view when it was pinned. */
  readonly expected: number;
  /** How far the outbox has been replayed; empty while the view is scanned. */
  readonly lastSeq: number | null;
}

export const REBUILD = `generation, reason, requested_at AS "requestedAt", started_at AS "startedAt", pinned_seq AS "pinnedSeq",
  scanned_seq AS "scannedSeq", scanned, expected, last_seq AS "lastSeq"`;

export async function readRebuild(db: Db, consumer: string): Promise<Rebuild | undefined> {
  const { rows } = await db.query<Rebuild>({
    name: 'consumer-rebuild',
    text: `SELECT ${REBUILD} FROM consumer_rebuilds WHERE consumer = $1`,
    values: [consumer],
  });
  return rows[0];
}

/** Asks for a new generation. One that is under way is left alone: false. */
export async function askRebuild(db: Db, consumer: string, reason: string, now: number): Promise<boolean> {
  const { rowCount } = await db.query(
    `INSERT INTO consumer_rebuilds (consumer, generation, reason, requested_at, updated_at)
     SELECT consumer, generation + 1, $2, $3::bigint, $3 FROM consumer_offsets WHERE consumer = $1
     ON CONFLICT (consumer) DO NOTHING`,
    [consumer, reason, now],
  );
  return rowCount === 1;
}

/** In the transaction that opens the generation: it begins (again) from here. Without any number there is nothing to scan. */
export async function pinRebuild(
  tx: ClientBase,
  consumer: string,
  generation: number,
  now: number,
): Promise<boolean> {
  const { rowCount } = await tx.query(
    `UPDATE consumer_rebuilds SET started_at = $3, updated_at = $3, pinned_seq = s.last_seq, scanned_seq = 0, scanned = 0,
       last_seq = CASE WHEN s.last_seq = 0 THEN 0 END,
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

/** In the transaction of the effect, as for `saveReplay`. Behind the last event the outbox is replayed from the pin. */
export async function saveScan(
  tx: ClientBase,
  { consumer, generation, from, to, now, rows }: RebuildProgress & { readonly rows: number },
): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: 'consumer-scan',
    text: `UPDATE consumer_rebuilds SET scanned_seq = $4, scanned = scanned + $5, updated_at = $6,
        last_seq = CASE WHEN $4 >= pinned_seq THEN pinned_seq END
      WHERE consumer = $1 AND generation = $2 AND scanned_seq = $3 AND last_seq IS NULL`,
    values: [consumer, generation, from, to, rows, now],
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

/** The new generation takes the place of the other. False when that is not ours to do any more. */
export async function swapGenerations(
  tx: ClientBase,
  { consumer, holder, now }: { readonly consumer: string; readonly holder: string; readonly now: number },
): Promise<boolean> {
  const { rowCount } = await tx.query(
    `WITH whole AS (
       DELETE FROM consumer_rebuilds r USING consumer_offsets o
       WHERE r.consumer = $1 AND r.last_seq IS NOT NULL AND o.consumer = $1 AND o.holder = $2 AND o.paused_at IS NULL
       RETURNING r.generation, r.last_seq)
     UPDATE consumer_offsets o SET generation = w.generation, last_seq = w.last_seq, updated_at = $3, beat = beat + 1,
       error = NULL, failing_since = NULL
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
