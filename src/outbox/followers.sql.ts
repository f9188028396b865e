/**
 * Followers of the outbox: external services, what each has acknowledged, and whether an erasure continued
 * without it (I17). Each change is one statement that also checks its conditions, so that a concurrent
 * acknowledgement and erasure agree on which came first.
 */
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { changeConfig } from '../communities/config-change.sql.js';
import { bytesOrNull, type Db } from '../postgres/values.js';
import { readReach } from './outbox.sql.js';
import { FOLLOWER_LIMIT_SECONDS, FOLLOWERS_MAX, type FollowerState } from './rules-follower.js';

export interface Follower {
  readonly community: number;
  readonly slug: string;
  readonly name: string;
  readonly acknowledgedSeq: number;
  readonly acknowledgedAt: number | null;
  readonly headSeq: number;
  /** The number of offsets between its own and the head. */
  readonly lagRows: number;
  /** The age of the oldest row that it has not acknowledged. */
  readonly lagSeconds: number;
  readonly limitSeconds: number;
  readonly registeredAt: number;
  readonly registeredBy: string | null;
  /** When it last read or acknowledged. */
  readonly seenAt: number;
  /**
   * It has missed rows and must rebuild from the effective events: an erasure continued without it, or the
   * outbox no longer has the rows that it needs next.
   */
  readonly mustRebuild: boolean;
  /** Milliseconds: when an erasure continued without it. */
  readonly overrunAt: number | null;
  /** Not null: it has begun to rebuild. */
  readonly pinnedSeq: number | null;
  /** An erasure waits for it. */
  readonly isAwaited: boolean;
}

export interface FollowerRef {
  readonly community: number;
  readonly name: string;
}

const BEHIND_FLOOR = 'f.acknowledged_seq < s.outbox_floor - 1';
const IS_AWAITED = `EXISTS (SELECT 1 FROM erasures e
    WHERE e.community = f.community AND e.stage NOT IN ('completed', 'cancelled')
      AND e.waits @> jsonb_build_array(jsonb_build_object('name', f.name)))`;
const SELECT = `SELECT f.community, c.slug, f.name, f.acknowledged_seq AS "acknowledgedSeq",
    f.acknowledged_at AS "acknowledgedAt", s.last_seq AS "headSeq",
    f.limit_seconds AS "limitSeconds", f.registered_at AS "registeredAt",
    encode(f.registered_by, 'hex') AS "registeredBy", f.seen_at AS "seenAt",
    f.overrun_seq IS NOT NULL OR ${BEHIND_FLOOR} AS "mustRebuild", f.overrun_at AS "overrunAt",
    f.pinned_seq AS "pinnedSeq", ${IS_AWAITED} AS "isAwaited", (SELECT x.ingested_at FROM events_outbox x
      WHERE x.seq > f.acknowledged_seq ORDER BY x.seq LIMIT 1) AS "waitingSince"
  FROM outbox_followers f JOIN communities c ON c.id = f.community CROSS JOIN lane_state s`;

type Row = Omit<Follower, 'lagRows' | 'lagSeconds'> & { readonly waitingSince: number | null };

function followerOf({ waitingSince, ...row }: Row, now: number): Follower {
  return {
    ...row,
    lagRows: Math.max(0, row.headSeq - row.acknowledgedSeq),
    lagSeconds: waitingSince === null ? 0 : Math.max(0, (now - waitingSince) / 1_000),
  };
}

/** Of one community, or of all. Each community has at most FOLLOWERS_MAX. */
export async function listFollowers(db: Db, community: number | undefined, now: number): Promise<Follower[]> {
  const { rows } = await db.query<Row>(
    `${SELECT} WHERE $1::int IS NULL OR f.community = $1 ORDER BY c.slug, f.name`,
    [community ?? null],
  );
  return rows.map((row) => followerOf(row, now));
}

export async function readFollower(
  db: Db,
  { community, name }: FollowerRef,
  now: number,
): Promise<Follower | Denial> {
  const { rows } = await db.query<Row>(`${SELECT} WHERE f.community = $1 AND f.name = $2`, [community, name]);
  return rows[0] === undefined ? denial('NOT_FOUND', { follower: name }) : followerOf(rows[0], now);
}

// ── Registering ────────────────────────────────────────────────────────────────────────────────────────────

export interface Registration extends FollowerRef {
  readonly actor?: string | undefined;
  readonly limitSeconds?: number | undefined;
  /** The offset at which a new follower begins; 0 by default. */
  readonly seq?: number | undefined;
  /** The community is being erased: it gets no new followers. */
  readonly isClosing?: boolean;
}

/** Registering a known name again changes at most its time limit. */
export function registerFollower(
  pool: Pool,
  { community, name, actor, limitSeconds, seq = 0, isClosing = false }: Registration,
  now: number,
): Promise<Follower | Denial> {
  return changeConfig(pool, { community, actor, now }, async ({ db, audit }) => {
    const known = await db.query<{ name: string; limit_seconds: number }>(
      'SELECT name, limit_seconds FROM outbox_followers WHERE community = $1',
      [community],
    );
    const before = known.rows.find((row) => row.name === name);
    if (before === undefined) {
      if (isClosing) return denial('COMMUNITY_NOT_FOUND');
      if (known.rows.length >= FOLLOWERS_MAX)
        return denial('FOLLOWER_LIMIT_REACHED', { limit: FOLLOWERS_MAX });
      const refused = seq === 0 ? undefined : await refuseOffset(db, seq);
      if (refused !== undefined) return refused;
      const limit = limitSeconds ?? FOLLOWER_LIMIT_SECONDS.default;
      await db.query(
        `INSERT INTO outbox_followers
           (community, name, acknowledged_seq, registered_at, seen_at, limit_seconds, registered_by)
         VALUES ($1, $2, $3, $4, $4, $5, $6)`,
        [community, name, seq, now, limit, bytesOrNull(actor)],
      );
      await audit('follower.register', name, { limit_seconds: limit });
    } else if (limitSeconds !== undefined && limitSeconds !== before.limit_seconds) {
      await db.query('UPDATE outbox_followers SET limit_seconds = $3 WHERE community = $1 AND name = $2', [
        community,
        name,
        limitSeconds,
      ]);
      await audit('follower.change', name, { limit_seconds: limitSeconds });
    }
    return readFollower(db, { community, name }, now);
  });
}

async function refuseOffset(db: ClientBase, seq: number): Promise<Denial | undefined> {
  const { floor, head } = await readReach(db);
  if (seq > head) return denial('OFFSET_OUT_OF_RANGE', { head });
  return seq < floor - 1 ? denial('OUTBOX_BEHIND', { floor, head }) : undefined;
}

/** No erasure waits for it any more. */
export function removeFollower(
  pool: Pool,
  { community, name, actor }: FollowerRef & { readonly actor?: string | undefined },
  now: number,
): Promise<Follower | Denial> {
  return changeConfig(pool, { community, actor, now }, async ({ db, audit }) => {
    const before = await readFollower(db, { community, name }, now);
    const { rowCount } = await db.query('DELETE FROM outbox_followers WHERE community = $1 AND name = $2', [
      community,
      name,
    ]);
    if (rowCount === 1) await audit('follower.remove', name);
    return before;
  });
}

// ── Reading and acknowledging ──────────────────────────────────────────────────────────────────────────────

export interface Acknowledgement extends FollowerRef {
  readonly seq: number;
  /** It was rebuilt from a view that is pinned at `seq`, which may be less than before. */
  readonly rebuilt: boolean;
}

/**
 * An offset only grows. A rebuild may set it to any offset that the outbox still has and after which no
 * erasure has scrubbed rows.
 */
export async function acknowledge(
  db: Db,
  { community, name, seq, rebuilt }: Acknowledgement,
  now: number,
): Promise<Follower | Denial> {
  const { rowCount } = await db.query({
    name: 'follower-acknowledge',
    text: `UPDATE outbox_followers f SET acknowledged_seq = $3, acknowledged_at = $4, seen_at = $4,
         overrun_seq = NULL, overrun_at = NULL, pinned_seq = NULL
       FROM lane_state s WHERE f.community = $1 AND f.name = $2
         AND $3 BETWEEN s.outbox_floor - 1 AND s.last_seq
         AND CASE WHEN $5 THEN $3 >= coalesce(f.overrun_seq, 0)
           ELSE f.overrun_seq IS NULL AND $3 >= f.acknowledged_seq AND NOT ${BEHIND_FLOOR} END`,
    values: [community, name, seq, now, rebuilt],
  });
  const follower = await readFollower(db, { community, name }, now);
  if (rowCount === 1 || 'denied' in follower) return follower;
  const { acknowledgedSeq, mustRebuild, headSeq } = follower;
  const isOutside = seq > headSeq || (!rebuilt && !mustRebuild && seq < acknowledgedSeq);
  if (isOutside) return denial('OFFSET_OUT_OF_RANGE', { acknowledged: acknowledgedSeq, head: headSeq });
  return denial('OUTBOX_BEHIND', { ...(await readReach(db)) });
}

export interface FollowerSeen {
  readonly acknowledgedSeq: number;
  readonly mustRebuild: boolean;
}

/** Records that it reads. Undefined if no follower of this name is registered. */
export async function seeFollower(
  db: Db,
  { community, name }: FollowerRef,
  now: number,
): Promise<FollowerSeen | undefined> {
  const { rows } = await db.query<FollowerSeen>({
    name: 'follower-seen',
    text: `WITH seen AS (UPDATE outbox_followers SET seen_at = $3::bigint
         WHERE community = $1 AND name = $2 AND seen_at < $3::bigint - ${SEEN_MS})
       SELECT f.acknowledged_seq AS "acknowledgedSeq", f.overrun_seq IS NOT NULL AS "mustRebuild"
       FROM outbox_followers f WHERE f.community = $1 AND f.name = $2`,
    values: [community, name, now],
  });
  return rows[0];
}
const SEEN_MS = 5_000;

/**
 * Records that it rebuilds from a view that is pinned there. From now on erasures wait for it again.
 * 'behind': an erasure has scrubbed rows after the pin, so it needs a later pin. Undefined if no follower of
 * this name is registered.
 */
export async function pinFollower(
  db: Db,
  { community, name }: FollowerRef,
  pinned: number,
  now: number,
): Promise<'pinned' | 'behind' | undefined> {
  const { rows } = await db.query<{ behind: boolean }>(
    `UPDATE outbox_followers SET seen_at = $4, pinned_seq = CASE WHEN overrun_seq <= $3 THEN $3::bigint END
     WHERE community = $1 AND name = $2 RETURNING coalesce(overrun_seq > $3, false) AS behind`,
    [community, name, pinned, now],
  );
  if (rows[0] === undefined) return undefined;
  return rows[0].behind ? 'behind' : 'pinned';
}

// ── Erasures ───────────────────────────────────────────────────────────────────────────────────────────────

/** Followers that have not acknowledged everything up to an offset. */
export async function followersBehind(db: Db, community: number, seq: number): Promise<FollowerState[]> {
  const { rows } = await db.query<FollowerState>(
    `SELECT name, acknowledged_seq AS "acknowledgedSeq", limit_seconds AS "limitSeconds",
       overrun_seq IS NOT NULL AND pinned_seq IS NULL AS "isOverrun"
     FROM outbox_followers
     WHERE community = $1 AND (acknowledged_seq < $2 OR overrun_seq IS NOT NULL) ORDER BY name`,
    [community, seq],
  );
  return rows;
}

/**
 * Records that the erasure continues without them, so that they must rebuild. Returns those that have still
 * not acknowledged.
 */
export async function overrunFollowers(
  db: Db,
  community: number,
  names: readonly string[],
  seq: number,
  now: number,
): Promise<Set<string>> {
  const { rows } = await db.query<{ name: string }>(
    `UPDATE outbox_followers
     SET overrun_seq = greatest(overrun_seq, $3), overrun_at = coalesce(overrun_at, $4), pinned_seq = NULL
     WHERE community = $1 AND name = ANY ($2) AND (acknowledged_seq < $3 OR overrun_seq IS NOT NULL)
     RETURNING name`,
    [community, names, seq, now],
  );
  return new Set(rows.map(({ name }) => name));
}

// ── Open streams ───────────────────────────────────────────────────────────────────────────────────────────

/** A stream reports its offset about every ten seconds. After this time its process is considered dead. */
const STREAM_SILENT_MS = 60_000;

export interface OpenStream {
  readonly streamId: string;
  readonly community: number;
}

/** Records that everything up to `sentSeq` was sent to the reader. */
export async function noteStream(
  db: Db,
  { streamId, community }: OpenStream,
  sentSeq: number,
  now: number,
): Promise<void> {
  await db.query({
    name: 'stream-sent',
    text: `INSERT INTO outbox_streams (stream_id, community, sent_seq, seen_at) VALUES ($1, $2, $3, $4)
       ON CONFLICT (stream_id) DO UPDATE SET sent_seq = excluded.sent_seq, seen_at = excluded.seen_at`,
    values: [streamId, community, sentSeq, now],
  });
}

/** Also deletes the rows of killed processes. */
export async function forgetStream(db: Db, { streamId }: OpenStream, now: number): Promise<void> {
  await db.query('DELETE FROM outbox_streams WHERE stream_id = $1 OR seen_at < $2', [
    streamId,
    now - STREAM_SILENT_MS,
  ]);
}

/** Whether an open stream has not sent everything up to an offset. */
export async function hasStreamBehind(db: Db, community: number, seq: number, now: number): Promise<boolean> {
  const { rows } = await db.query<{ has: boolean }>(
    `SELECT EXISTS (SELECT 1 FROM outbox_streams
       WHERE community = $1 AND sent_seq < $2 AND seen_at >= $3) AS has`,
    [community, seq, now - STREAM_SILENT_MS],
  );
  return rows[0]!.has;
}

// ── For the metrics ────────────────────────────────────────────────────────────────────────────────────────

export interface FollowerCounts {
  readonly registered: number;
  /** An erasure waits for them. */
  readonly awaited: number;
  readonly overrun: number;
}

export async function countFollowers(db: Db): Promise<FollowerCounts> {
  const { rows } = await db.query<FollowerCounts>(
    `SELECT count(*)::int AS registered,
       (count(*) FILTER (WHERE f.overrun_seq IS NOT NULL))::int AS overrun,
       (count(*) FILTER (WHERE ${IS_AWAITED}))::int AS awaited
     FROM outbox_followers f`,
  );
  return rows[0]!;
}
