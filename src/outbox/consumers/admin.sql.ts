/** What operators read and change about consumers of the outbox: lag, dead letters, pause, replay. */
import type { ClientBase, Pool } from 'pg';
import { z } from 'zod';
import { type Denial, denial } from '../../api/rules-errors.js';
import { type Order, type Page, type PageOf, readPage } from '../../postgres/page.js';
import { type DeadLetter, LETTER, REBUILD, type Rebuild } from './consumers.sql.js';

type Db = ClientBase | Pool;

export interface ConsumerState {
  readonly consumer: string;
  readonly generation: number;
  readonly lastSeq: number;
  readonly headSeq: number;
  /** The number of offsets between its own and the head. */
  readonly lagRows: number;
  /** The age of the oldest row that it has not read; 0 if it has read all. */
  readonly lagSeconds: number;
  /** The outbox no longer has the rows that it needs next. */
  readonly behind: boolean;
  readonly rowsPerSecond: number;
  readonly applied: number;
  readonly deadLetters: number;
  /** An instance holds its lease. A live holder raises `beat` every 2 s. */
  readonly held: boolean;
  readonly beat: number;
  readonly pausedAt: number | null;
  readonly updatedAt: number;
  readonly error: string | null;
  readonly failingSince: number | null;
  readonly rebuild: Rebuild | undefined;
}

export async function readConsumers(db: Db, now: number): Promise<ConsumerState[]> {
  const { rows } = await db.query<
    Omit<ConsumerState, 'lagSeconds' | 'lagRows' | 'rebuild'> & { waitingSince: number | null }
  >(
    `SELECT o.consumer, o.generation, o.last_seq AS "lastSeq", s.last_seq AS "headSeq",
       o.last_seq < s.outbox_floor - 1 AS behind,
       o.rows_per_second AS "rowsPerSecond", o.applied, o.holder IS NOT NULL AS held, o.beat,
       o.paused_at AS "pausedAt", o.updated_at AS "updatedAt", o.error, o.failing_since AS "failingSince",
       (SELECT count(*)::int FROM consumer_dead_letters l
         WHERE l.consumer = o.consumer AND l.generation = o.generation) AS "deadLetters",
       (SELECT x.ingested_at FROM events_outbox x
         WHERE x.seq > o.last_seq ORDER BY x.seq LIMIT 1) AS "waitingSince"
     FROM consumer_offsets o CROSS JOIN lane_state s ORDER BY o.consumer`,
  );
  const rebuilds = await db.query<Rebuild & { consumer: string }>(
    `SELECT consumer, ${REBUILD} FROM consumer_rebuilds`,
  );
  const building = new Map(rebuilds.rows.map(({ consumer, ...rebuild }) => [consumer, rebuild]));
  return rows.map(({ waitingSince, ...state }) => ({
    ...state,
    lagRows: Math.max(0, state.headSeq - state.lastSeq),
    lagSeconds: waitingSince === null ? 0 : Math.max(0, (now - waitingSince) / 1_000),
    rebuild: building.get(state.consumer),
  }));
}

export async function readConsumer(db: Db, consumer: string, now: number): Promise<ConsumerState | Denial> {
  return (await readConsumers(db, now)).find((state) => state.consumer === consumer) ?? denial('NOT_FOUND');
}

export type RebuildPhase = 'waiting' | 'scanning' | 'replaying';

/** The progress of a rebuild in its phase. New writes move the end of a replay. */
export function progressOf(
  { startedAt, pinnedSeq, scanned, expected, lastSeq }: Rebuild,
  headSeq: number,
): { readonly phase: RebuildPhase; readonly percent: number } {
  const share = (done: number, all: number) =>
    all <= 0 ? 100 : Math.min(100, Math.floor((100 * done) / all));
  if (startedAt === null || pinnedSeq === null) return { phase: 'waiting', percent: 0 };
  if (lastSeq === null) return { phase: 'scanning', percent: share(scanned, expected) };
  return { phase: 'replaying', percent: share(lastSeq - pinnedSeq, headSeq - pinnedSeq) };
}

export async function pauseConsumer(db: Db, consumer: string, now: number): Promise<Denial | undefined> {
  const { rowCount } = await db.query(
    'UPDATE consumer_offsets SET paused_at = coalesce(paused_at, $2) WHERE consumer = $1',
    [consumer, now],
  );
  return rowCount === 1 ? undefined : denial('NOT_FOUND');
}

export async function resumeConsumer(db: Db, consumer: string): Promise<Denial | undefined> {
  const { rowCount } = await db.query('UPDATE consumer_offsets SET paused_at = NULL WHERE consumer = $1', [
    consumer,
  ]);
  return rowCount === 1 ? undefined : denial('NOT_FOUND');
}

/**
 * Moves a consumer back to an offset, so that everything after it is applied again. It refuses to move
 * forwards, which would skip rows, and to move before the floor of the outbox: there only a rebuild helps.
 */
export async function replayFrom(db: Db, consumer: string, after: number): Promise<Denial | undefined> {
  const { rows } = await db.query<{ floor: number; last_seq: number; moved: boolean }>(
    `WITH moved AS (
       UPDATE consumer_offsets o SET last_seq = $2 FROM lane_state s
       WHERE o.consumer = $1 AND $2 <= o.last_seq AND $2 >= s.outbox_floor - 1 RETURNING o.consumer)
     SELECT s.outbox_floor AS floor, o.last_seq, EXISTS (SELECT 1 FROM moved) AS moved
     FROM consumer_offsets o CROSS JOIN lane_state s WHERE o.consumer = $1`,
    [consumer, after],
  );
  const found = rows[0];
  if (found === undefined) return denial('NOT_FOUND');
  if (found.moved) return undefined;
  return denial('REPLAY_OUT_OF_REACH', { from_min: found.floor - 1, from_max: found.last_seq });
}

/** Dead letters of the live generation, in the order of their offsets. */
export async function listLetters(
  db: Db,
  consumer: string,
  {
    after,
    limit,
    community,
  }: { readonly after: number; readonly limit: number; readonly community?: number },
): Promise<DeadLetter[]> {
  const { rows } = await db.query<DeadLetter>(
    `SELECT ${LETTER} FROM consumer_dead_letters l WHERE consumer = $1 AND seq > $2
       AND generation = (SELECT generation FROM consumer_offsets o WHERE o.consumer = l.consumer)
       AND ($4::int IS NULL OR community = $4) ORDER BY seq LIMIT $3`,
    [consumer, after, limit, community ?? null],
  );
  return rows;
}

const BY_SEQ: Order<[number]> = {
  schema: z.tuple([z.number().int().min(0).max(Number.MAX_SAFE_INTEGER)]),
  start: [0],
};

/** Of one community, or of all. */
export function pageLetters(
  db: Db,
  { consumer, community }: { readonly consumer: string; readonly community?: number },
  page: PageOf,
): Promise<Page<DeadLetter> | Denial> {
  const of = community === undefined ? {} : { community };
  return readPage(
    page,
    BY_SEQ,
    ({ seq }: DeadLetter) => [seq],
    ([after], limit) => listLetters(db, consumer, { after, limit, ...of }),
  );
}

/** Requests a retry of one dead letter, or of all. Returns how many. */
export async function askRetry(
  db: Db,
  consumer: string,
  { seq, community }: { readonly seq?: number; readonly community?: number },
): Promise<number> {
  const { rowCount } = await db.query(
    `UPDATE consumer_dead_letters SET retry_asked = true
     WHERE consumer = $1 AND ($2::bigint IS NULL OR seq = $2) AND ($3::int IS NULL OR community = $3)`,
    [consumer, seq ?? null, community ?? null],
  );
  return rowCount ?? 0;
}
