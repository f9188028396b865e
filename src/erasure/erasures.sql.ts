/**
 * Rows of erasures: who requested one, its stage, what it counted. Only the job that carries erasures out and
 * operators who hold, release or retry them change a row, each with one statement.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import { DAY_MS } from '../events/rules/retention.js';
import type { EventStore, PendingMark } from '../events/store.js';
import type { Awaited, Unacknowledged } from '../outbox/rules-follower.js';
import { hexArray, int4Array, int8Array } from '../postgres/binary.js';
import { replaceNames } from '../postgres/named.js';
import { type Bounded, countUpTo, NEWEST_FIRST, type Page, type PageOf, readPage } from '../postgres/page.js';
import { isErased, memberRowsOf } from '../postgres/table.js';
import { bytes, type Db, isUuid } from '../postgres/values.js';
import { TABLES } from './all-tables.sql.js';
import type { Counts, ErasureCause, ErasureStage, Ledger, ShownStage } from './rules.js';

export interface KeptRows {
  readonly rows: number;
  readonly until: number;
  readonly why: string;
}

export interface Erasure extends Ledger {
  readonly erasureId: string;
  readonly community: number;
  readonly slug: string;
  readonly type: 'member' | 'community';
  readonly cause: ErasureCause;
  readonly stage: ErasureStage;
  readonly requestedAt: number;
  readonly updatedAt: number;
  readonly graceUntil: number;
  readonly fencedAt: number | null;
  readonly countedAt: number | null;
  readonly completedAt: number | null;
  readonly heldAt: number | null;
  readonly holdReason: string | null;
  readonly failedAt: number | null;
  /** Seconds. */
  readonly until: number | null;
  readonly tries: number;
  readonly passes: number;
  readonly banned: boolean;
  /** Null when the erasure is completed or cancelled. */
  readonly pubkey: string | null;
  /** The keyed hash of whom it is about, in hex. */
  readonly subject: string | null;
  readonly verified: Counts;
  readonly failures: Readonly<Record<string, string>>;
  readonly kept: Readonly<Record<string, KeptRows>>;
  readonly done: readonly string[];
  /** The head of the outbox when the last delete of this pass was in it, and when that was; null before. */
  readonly outboxSeq: number | null;
  readonly announcedAt: number | null;
  /** Followers that it waits for, and those that it continued without (I17). */
  readonly waits: readonly Awaited[];
  readonly unacknowledged: readonly Unacknowledged[];
}

const COLUMNS = `erasure_id AS "erasureId", community, slug, type, cause, stage,
  requested_at AS "requestedAt", updated_at AS "updatedAt", grace_until AS "graceUntil",
  fenced_at AS "fencedAt", counted_at AS "countedAt",
  completed_at AS "completedAt", held_at AS "heldAt", hold_reason AS "holdReason", failed_at AS "failedAt",
  until, tries, passes, banned, encode(pubkey, 'hex') AS pubkey, encode(subject, 'hex') AS subject,
  counted, added, deleted, otherwise, verified, failures, kept, done,
  outbox_seq AS "outboxSeq", announced_at AS "announcedAt", waits, unacknowledged`;

/** As people see it: a hold or a failure instead of the stage. */
export function shownStage({ stage, heldAt, failedAt }: Erasure): ShownStage {
  if (stage === 'completed' || stage === 'cancelled') return stage;
  if (heldAt !== null) return 'held';
  return failedAt === null ? stage : 'failed';
}

// ── Asking ─────────────────────────────────────────────────────────────────────────────────────────────────

export interface ErasureAsk {
  readonly community: number;
  readonly slug: string;
  /** Of a member; a whole community without one. */
  readonly pubkey?: string | undefined;
  readonly cause: ErasureCause;
  readonly graceDays: number;
  /** Also the id of the member's own request. */
  readonly erasureId?: string | undefined;
  /** Seconds, where it is known before the fence. */
  readonly until?: number | undefined;
}

/** The open erasure, or a new one. */
export async function askErasure(change: Change, asked: ErasureAsk): Promise<Erasure> {
  const { db, now } = change;
  const { community, slug, pubkey, cause, graceDays, erasureId = randomUUID(), until } = asked;
  const open = await findOpen(db, community, pubkey);
  if (open !== undefined) return open.cause === 'vanish' ? widen(change, open, cause) : open;
  const { rows } = await db.query<Erasure>(
    `INSERT INTO erasures (erasure_id, community, slug, type, cause, stage, requested_at, updated_at,
      grace_until, pubkey, until)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10) RETURNING ${COLUMNS}`,
    [
      erasureId,
      community,
      slug,
      pubkey === undefined ? 'community' : 'member',
      cause,
      graceDays > 0 ? 'grace' : 'requested',
      now,
      now + graceDays * DAY_MS,
      pubkey === undefined ? null : bytes(pubkey),
      until ?? null,
    ],
  );
  // The row says who; the log says that it was asked for.
  await change.audit('erasure.request', erasureId, { type: rows[0]!.type, cause });
  return rows[0]!;
}

/** A member who has vanished up to a time is now erased as a whole, without another grace period. */
async function widen({ db, now, audit }: Change, open: Erasure, cause: ErasureCause): Promise<Erasure> {
  const { rows } = await db.query<Erasure>(
    `UPDATE erasures SET cause = $2, stage = 'requested', done = '{}', until = NULL, updated_at = $3
      WHERE erasure_id = $1 RETURNING ${COLUMNS}`,
    [open.erasureId, cause, now],
  );
  await audit('erasure.request', open.erasureId, { type: 'member', cause });
  return rows[0]!;
}

export function requestErasure(
  pool: Pool,
  asked: ErasureAsk & { readonly actor?: string | undefined },
  now: number,
): Promise<Erasure | Denial> {
  const { community, actor } = asked;
  return changeConfig(pool, { community, actor, now }, (change) => askErasure(change, asked));
}

async function findOpen(db: Db, community: number, pubkey: string | undefined): Promise<Erasure | undefined> {
  const { rows } = await db.query<Erasure>(
    `SELECT ${COLUMNS} FROM erasures WHERE community = $1 AND stage NOT IN ('completed', 'cancelled')
       AND CASE WHEN $2::bytea IS NULL THEN type = 'community' ELSE type = 'member' AND pubkey = $2 END`,
    [community, pubkey === undefined ? null : bytes(pubkey)],
  );
  return rows[0];
}

/**
 * A request to vanish (NIP-62) becomes an erasure without grace; its mark is the fence. One that is under way
 * for an earlier mark begins again with the later one.
 */
export async function takeUpVanished(
  client: ClientBase,
  store: Pick<EventStore, 'strangersAmong' | 'endMark'>,
  now: number,
  limit: number,
): Promise<void> {
  if ((await countVanished(client)) > 0) await settleStrangers(client, store, now, limit);
  const { rows } = await client.query<{ community: number; pubkey: Buffer; until: number }>(
    `SELECT v.community, v.pubkey, v.until ${VANISHED} ORDER BY v.community, v.pubkey LIMIT $1`,
    [limit],
  );
  for (const { community, pubkey, until } of rows)
    await client.query(
      `INSERT INTO erasures (erasure_id, community, slug, type, cause, stage, requested_at, updated_at,
        grace_until, until, pubkey)
       SELECT $1, c.id, c.slug, 'member', 'vanish', 'requested', $2, $2, $2, $3, $4 FROM communities c
         WHERE c.id = $5
       ON CONFLICT (community, pubkey) WHERE type = 'member' AND stage NOT IN ('completed', 'cancelled')
       DO UPDATE SET until = excluded.until, stage = 'requested', done = '{}',
         updated_at = excluded.updated_at
       WHERE erasures.cause = 'vanish'`,
      [randomUUID(), now, until, pubkey, community],
    );
  // A member in the grace period who vanishes does not wait any longer.
  await client.query(
    `UPDATE erasures e SET grace_until = $1 FROM vanish_marks v
     WHERE v.community = e.community AND v.pubkey = e.pubkey AND v.erased_at IS NULL AND v.request IS NOT NULL
       AND e.stage IN ('requested', 'grace') AND e.grace_until > $1`,
    [now],
  );
}

/** The conditions of the tables are about one person; here they are applied to each mark. */
const OF_MARK: Readonly<Record<string, string>> = {
  community: 'v.community',
  pubkey: 'v.pubkey',
  hex: `encode(v.pubkey, 'hex')`,
  until: 'v.until',
  ms: '(v.until * 1000 + 999)',
  bounded: 'true',
  vanishes: 'true',
  staying: `'{}'::bytea[]`,
};
const ofMark = (condition: string) => replaceNames(condition, (name) => OF_MARK[name]);
const TRACES: readonly (readonly [table: string, condition: string])[] = TABLES.filter(isErased)
  .filter(({ erased }) => erased.through === undefined)
  .flatMap(({ name, erased }) => {
    const counted = memberRowsOf(erased).filter(({ uncounted }) => !uncounted);
    const conditions = erased.traces ?? counted.map(({ where }) => where);
    return conditions.map((condition) => [name, ofMark(condition)] as const);
  });
const IS_STRANGER = [
  'NOT EXISTS (SELECT 1 FROM event_tags t WHERE t.tag = v.recipient_tag)',
  ...TRACES.map(
    ([table, condition]) =>
      `NOT EXISTS (SELECT 1 FROM ${table} t WHERE t.community = v.community AND ${condition})`,
  ),
].join(' AND ');

/** A key that has no rows here needs no erasure, so a flood of such requests costs few queries for many. */
async function settleStrangers(
  client: ClientBase,
  store: Pick<EventStore, 'strangersAmong' | 'endMark'>,
  now: number,
  limit: number,
): Promise<void> {
  const { rows } = await client.query<PendingMark>(
    `SELECT v.community, encode(v.pubkey, 'hex') AS pubkey, v.until ${VANISHED} AND ${IS_STRANGER} LIMIT $1`,
    [limit * STRANGERS_PER_ERASURE],
  );
  if (rows.length === 0) return;
  const strangers = await store.strangersAmong(rows);
  for (const mark of strangers) await store.endMark(mark, { forget: false });
  await client.query(
    `UPDATE vanish_marks u SET erased_at = $1
     FROM unnest($2::int[], $3::bytea[], $4::bigint[]) AS s (community, pubkey, until)
     WHERE u.community = s.community AND u.pubkey = s.pubkey AND u.until = s.until`,
    [
      now,
      int4Array(strangers.map(({ community }) => community)),
      hexArray(strangers.map(({ pubkey }) => pubkey)),
      int8Array(strangers.map(({ until }) => until)),
    ],
  );
}
const STRANGERS_PER_ERASURE = 100;

/** Requests that are no erasure yet, or an erasure up to an earlier time. */
const VANISHED = `FROM vanish_marks v WHERE v.erased_at IS NULL AND v.request IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM erasures e WHERE e.community = v.community AND e.pubkey = v.pubkey
    AND e.stage NOT IN ('completed', 'cancelled') AND (e.cause <> 'vanish' OR e.until = v.until))`;

export async function countVanished(client: ClientBase): Promise<number> {
  const { rows } = await client.query<{ count: number }>(`SELECT count(*) AS count ${VANISHED}`);
  return rows[0]!.count;
}

// ── Reading ────────────────────────────────────────────────────────────────────────────────────────────────

export async function readErasure(db: Db, erasureId: string): Promise<Erasure | undefined> {
  if (!isUuid(erasureId)) return undefined;
  const { rows } = await db.query<Erasure>(`SELECT ${COLUMNS} FROM erasures WHERE erasure_id = $1`, [
    erasureId,
  ]);
  return rows[0];
}

/** By their ids; unknown ids are missing. */
export async function readErasures(db: Db, ids: readonly string[]): Promise<Map<string, Erasure>> {
  const { rows } = await db.query<Erasure>(`SELECT ${COLUMNS} FROM erasures WHERE erasure_id = ANY ($1)`, [
    ids,
  ]);
  return new Map(rows.map((erasure) => [erasure.erasureId, erasure]));
}

/** The open erasure of a whole community of this name. */
export async function findOpenOfSlug(db: Db, slug: string): Promise<Erasure | undefined> {
  const { rows } = await db.query<Erasure>(
    `SELECT ${COLUMNS} FROM erasures WHERE type = 'community' AND slug = $1
      AND stage NOT IN ('completed', 'cancelled')`,
    [slug],
  );
  return rows[0];
}

export interface ErasureFilter {
  /** All communities by default. */
  readonly community?: number | undefined;
  /** Of this member. An erasure that has ended names nobody. */
  readonly pubkey?: string | undefined;
  readonly open?: boolean | undefined;
  /** Also the erasures of whole communities, of all of them. */
  readonly communities?: boolean | undefined;
}

/** The newest first. */
export function listErasures(
  db: Db,
  { community, pubkey, open = false, communities = false }: ErasureFilter,
  page: PageOf,
): Promise<Page<Erasure> | Denial> {
  return readPage(
    page,
    NEWEST_FIRST,
    ({ requestedAt, erasureId }: Erasure) => [requestedAt, erasureId],
    async ([before, id], limit) => {
      const { rows } = await db.query<Erasure>(
        `SELECT ${COLUMNS} FROM erasures
         WHERE ($1::int IS NULL OR community = $1 OR ($6 AND type = 'community'))
           AND (requested_at, erasure_id) < ($2, $3::uuid)
           AND (NOT $4 OR stage NOT IN ('completed', 'cancelled'))
           ${pubkey === undefined ? '' : 'AND community = $1 AND pubkey = $7'}
         ORDER BY requested_at DESC, erasure_id DESC LIMIT $5`,
        [community ?? null, before, id, open, limit, communities, ...(pubkey ? [bytes(pubkey)] : [])],
      );
      return rows;
    },
  );
}

/** Those that can continue now; the one that has waited longest first. */
export async function dueErasures(db: Db, now: number, limit: number): Promise<Erasure[]> {
  const { rows } = await db.query<Erasure>(
    `SELECT ${COLUMNS} FROM erasures WHERE stage NOT IN ('completed', 'cancelled') AND held_at IS NULL
      AND grace_until <= $1
     ORDER BY updated_at LIMIT $2`,
    [now, limit],
  );
  return rows;
}

/** Those that need an operator, held or failed; the oldest first. */
export async function listWaiting(db: Db, limit: number): Promise<Erasure[]> {
  const { rows } = await db.query<Erasure>(
    `SELECT ${COLUMNS} FROM erasures
     WHERE stage NOT IN ('completed', 'cancelled') AND (held_at IS NOT NULL OR failed_at IS NOT NULL)
     ORDER BY requested_at, erasure_id LIMIT $1`,
    [limit],
  );
  return rows;
}

/** How many of a community need an operator, counted up to `max`. */
export function countWaiting(db: Db, community: number, max: number): Promise<Bounded> {
  const from = `erasures WHERE community = $1 AND stage NOT IN ('completed', 'cancelled')
    AND (held_at IS NOT NULL OR failed_at IS NOT NULL)`;
  return countUpTo(db, from, [community], max);
}

/** Those that wait for followers of the outbox, the oldest first. */
export async function listAwaiting(db: Db, limit: number): Promise<Erasure[]> {
  const { rows } = await db.query<Erasure>(
    `SELECT ${COLUMNS} FROM erasures WHERE stage NOT IN ('completed', 'cancelled') AND waits <> '[]'
     ORDER BY requested_at, erasure_id LIMIT $1`,
    [limit],
  );
  return rows;
}

export interface EndedErasure {
  readonly community: number;
  readonly subject: string;
  readonly until: number;
  readonly erasedAt: number;
  readonly vanishes: boolean;
}

/** Members whose erasure ended since then, for the daily check; the latest first. */
export async function completedSince(db: Db, since: number, limit: number): Promise<EndedErasure[]> {
  const { rows } = await db.query<EndedErasure>(
    `SELECT community, encode(subject, 'hex') AS subject, until, completed_at AS "erasedAt",
      cause = 'vanish' AS vanishes FROM erasures
     WHERE stage = 'completed' AND type = 'member' AND subject IS NOT NULL AND until IS NOT NULL
       AND completed_at >= $1
     ORDER BY completed_at DESC LIMIT $2`,
    [since, limit],
  );
  return rows;
}

export async function countByStage(db: Db): Promise<{ stage: ShownStage; count: number }[]> {
  const { rows } = await db.query<{ stage: ShownStage; count: number }>(
    `SELECT CASE WHEN stage IN ('completed', 'cancelled') THEN stage WHEN held_at IS NOT NULL THEN 'held'
       WHEN failed_at IS NOT NULL THEN 'failed' ELSE stage END AS stage, count(*) AS count FROM erasures
         GROUP BY 1`,
  );
  return rows;
}

// ── Steps of operators and members ─────────────────────────────────────────────────────────────────────────

export interface ErasureRef {
  readonly community: number;
  readonly erasureId: string;
  readonly actor?: string | undefined;
}

/** Possible until the fence. */
export function cancelErasure(
  pool: Pool,
  { community, erasureId, actor }: ErasureRef,
  now: number,
): Promise<Erasure | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const cancelled = await cancelOpen(change, erasureId);
    if (cancelled !== undefined) return cancelled;
    return refusedStep(change.db, community, erasureId);
  });
}

export async function cancelOpen(change: Change, erasureId: string): Promise<Erasure | undefined> {
  const { db, community, now } = change;
  const { rows } = await db.query<Erasure>(
    `UPDATE erasures SET stage = 'cancelled', pubkey = NULL, updated_at = $3
     WHERE erasure_id = $1 AND community = $2 AND stage IN ('requested', 'grace') AND held_at IS NULL
       AND cause <> 'vanish' AND fenced_at IS NULL
     RETURNING ${COLUMNS}`,
    [erasureId, community, now],
  );
  if (rows[0] === undefined) return undefined;
  // The member's own request has the same id.
  await db.query(
    `UPDATE personal_data_requests SET status = 'cancelled', finished_at = $2
     WHERE request_id = $1 AND kind = 'deletion' AND status = 'pending'`,
    [erasureId, now],
  );
  await change.audit('erasure.cancel', erasureId);
  return rows[0];
}

async function refusedStep(db: Db, community: number, erasureId: string): Promise<Denial> {
  const found = await readErasure(db, erasureId);
  if (found === undefined || found.community !== community) return denial('NOT_FOUND');
  return denial('STATUS_CONFLICT', { stage: shownStage(found) });
}

const STEPS = {
  hold: {
    audit: 'erasure.hold',
    set: 'held_at = $3, hold_reason = $4',
    where: `held_at IS NULL AND $4::text <> ''`,
  },
  release: {
    audit: 'erasure.release',
    set: 'held_at = NULL, hold_reason = NULL',
    where: `held_at IS NOT NULL AND $4::text IS NOT NULL`,
  },
  retry: {
    audit: 'erasure.retry',
    set: `failed_at = NULL, failures = '{}', passes = 0, updated_at = $3`,
    where: `failed_at IS NOT NULL AND held_at IS NULL AND $4::text IS NOT NULL`,
  },
} as const;

/** A legal hold stops an erasure in any stage; when released, it continues from there. */
export function stepErasure(
  pool: Pool,
  step: keyof typeof STEPS,
  { community, erasureId, actor, reason = '' }: ErasureRef & { readonly reason?: string },
  now: number,
): Promise<Erasure | Denial> {
  const { audit, set, where } = STEPS[step];
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const { rows } = await change.db.query<Erasure>(
      `UPDATE erasures SET ${set} WHERE erasure_id = $1 AND community = $2
        AND stage NOT IN ('completed', 'cancelled') AND $3::bigint > 0
         AND ${where} RETURNING ${COLUMNS}`,
      [erasureId, community, now, reason],
    );
    if (rows[0] === undefined) return refusedStep(change.db, community, erasureId);
    await change.audit(audit, erasureId, reason === '' ? {} : { reason });
    return rows[0];
  });
}
