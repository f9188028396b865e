/**
 * Members: those who requested a topic, or whose account an operator has changed. Every instance caches who
 * is refused, so such a change raises the polled version. A deleted account stays as a mark and cannot be
 * enabled again.
 */
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import { BY_PUBKEY, type Page, type PageOf, readPage } from '../postgres/page.js';
import { bytes, type Db } from '../postgres/values.js';
import { revokeTokensOf } from '../sessions/tokens.sql.js';
import { MEMBER_STEPS, type MemberStatus, type RefusedAs, refuseAccount } from './rules.js';

export interface Member {
  readonly pubkey: string;
  readonly status: MemberStatus;
  readonly note: string | null;
  /** The NIP-05 name. */
  readonly name: string | null;
  /** When they left on their own; null while they have not. */
  readonly leftAt: number | null;
  /** Counts: pending requests, active subscriptions, paused subscriptions. */
  readonly pending: number;
  readonly active: number;
  readonly paused: number;
  readonly createdAt: number;
  readonly updatedAt: number;
}

/** Of `m`, a row of members. */
export const MEMBER_COLUMNS = `encode(m.pubkey, 'hex') AS pubkey, m.status, m.note, m.name,
  m.left_at AS "leftAt", m.created_at AS "createdAt", m.updated_at AS "updatedAt",
  (SELECT count(*) FROM topic_subscription_requests r
   WHERE r.community = m.community AND r.pubkey = m.pubkey AND r.status = 'pending') AS pending,
  (SELECT count(*) FROM topic_subscriptions s
   WHERE s.community = m.community AND s.pubkey = m.pubkey AND s.status = 'active') AS active,
  (SELECT count(*) FROM topic_subscriptions s
   WHERE s.community = m.community AND s.pubkey = m.pubkey AND s.status = 'paused') AS paused`;

export async function readMember(db: Db, community: number, pubkey: string): Promise<Member | undefined> {
  const { rows } = await db.query<Member>(
    `SELECT ${MEMBER_COLUMNS} FROM members m WHERE m.community = $1 AND m.pubkey = $2`,
    [community, bytes(pubkey)],
  );
  return rows[0];
}

export async function readMemberStatus(
  db: Db,
  community: number,
  pubkey: string,
): Promise<MemberStatus | RefusedAs | undefined> {
  const { rows } = await db.query<{ status: MemberStatus | RefusedAs | null }>({
    name: 'member-status',
    text: `SELECT CASE WHEN is_fenced($1, $2) THEN 'erasing'
      ELSE (SELECT status FROM members WHERE community = $1 AND pubkey = $2) END AS status`,
    values: [community, bytes(pubkey)],
  });
  return rows[0]!.status ?? undefined;
}

export async function refuseMember(db: Db, community: number, pubkey: string): Promise<Denial | undefined> {
  return refuseAccount(await readMemberStatus(db, community, pubkey));
}

export function listMembers(
  db: Db,
  { community, status }: { community: number; status?: MemberStatus | undefined },
  page: PageOf,
): Promise<Page<Member> | Denial> {
  return readPage(
    page,
    BY_PUBKEY,
    ({ pubkey }: Member) => [pubkey],
    async ([after], limit) => {
      const { rows } = await db.query<Member>(
        `SELECT ${MEMBER_COLUMNS} FROM members m
         WHERE m.community = $1 AND m.pubkey > $2 AND ($3::text IS NULL OR m.status = $3)
         ORDER BY m.pubkey LIMIT $4`,
        [community, bytes(after), status ?? null, limit],
      );
      return rows;
    },
  );
}

export async function ensureMember({ db, community, now }: Change, pubkey: string): Promise<void> {
  await db.query(
    `INSERT INTO members (community, pubkey, created_at, updated_at) VALUES ($1, $2, $3, $3)
     ON CONFLICT (community, pubkey) DO UPDATE SET left_at = NULL WHERE members.left_at IS NOT NULL`,
    [community, bytes(pubkey), now],
  );
}

export interface MemberChange {
  readonly community: number;
  readonly pubkey: string;
  readonly status?: MemberStatus | undefined;
  /** Undefined keeps the note; null removes it. */
  readonly note?: string | null | undefined;
  /** Undefined keeps the name; null removes it. */
  readonly name?: string | null | undefined;
  readonly actor?: string | undefined;
}

/** The keys of MINATO_ADMIN_PUBKEYS: no other operator may lock them out. */
export interface Fixed {
  readonly fixed: readonly string[];
}

/**
 * Works also for a key that is not a member yet. Doing it twice changes nothing; a deleted account stays
 * deleted.
 */
export function changeMember(
  pool: Pool,
  { community, pubkey, status, note, name, actor }: MemberChange,
  { fixed }: Fixed,
  now: number,
): Promise<Member | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readMember(change.db, community, pubkey);
    const was = before?.status ?? 'active';
    const wanted = status ?? was;
    if (wanted !== 'active' && fixed.includes(pubkey)) return denial('FIXED_OPERATOR');
    const step = MEMBER_STEPS[was][wanted];
    if (step === 'conflict') return denial('STATUS_CONFLICT', { status: was });
    const noteAfter = note === undefined ? (before?.note ?? null) : note;
    const nameBefore = before?.name ?? null;
    const nameAfter = wanted === 'deleted' ? null : name === undefined ? nameBefore : name;
    const isSame = noteAfter === before?.note && nameAfter === nameBefore;
    if (before !== undefined && step === 'done' && isSame) return before;
    const refused = nameAfter === nameBefore ? undefined : await refuseName(change, nameAfter);
    if (refused !== undefined) return refused;
    await change.db.query(
      `INSERT INTO members (community, pubkey, status, note, name, created_at, updated_at)
       VALUES ($1, $2, $3, $4, $5, $6, $6)
       ON CONFLICT (community, pubkey) DO UPDATE
       SET status = excluded.status, note = excluded.note, name = excluded.name,
         updated_at = excluded.updated_at`,
      [community, bytes(pubkey), wanted, noteAfter, nameAfter, now],
    );
    if (nameAfter !== nameBefore) change.raiseVersion();
    if (wanted === 'deleted' && step === 'do') await endMembership(change, pubkey);
    // Permanent: a member who is enabled again must sign in again.
    if (wanted !== 'active' && step === 'do') await revokeTokensOf(change.db, { community, pubkey }, now);
    // Every instance caches who is refused and why.
    if (was !== wanted) {
      change.raiseVersion();
      change.raiseRights();
    }
    const named = nameAfter === nameBefore ? {} : { name: nameAfter };
    await change.audit('member.change', pubkey, { status: wanted, note: noteAfter, ...named });
    return (await readMember(change.db, community, pubkey))!;
  });
}

/** Limit, because every instance caches all names. */
const NAMES_MAX = 10_000;

async function refuseName({ db, community }: Change, name: string | null): Promise<Denial | undefined> {
  if (name === null) return undefined;
  const { rows } = await db.query<{ taken: boolean; names: number }>(
    `SELECT count(*) AS names, coalesce(bool_or(name = $2), false) AS taken
     FROM members WHERE community = $1 AND name IS NOT NULL`,
    [community, name],
  );
  const { taken, names } = rows[0]!;
  if (taken) return denial('NAME_TAKEN', { name });
  return names >= NAMES_MAX ? denial('STATUS_CONFLICT', { names_max: NAMES_MAX }) : undefined;
}

// ─── Joining and leaving ───────────────────────────────────────────────────────────────────────────────────

/** A member has a subscription, active or paused. Who has only requested one is not a member yet. */
const IS_MEMBER = `m.status = 'active' AND m.left_at IS NULL AND NOT is_fenced(m.community, m.pubkey)
  AND EXISTS (SELECT 1 FROM topic_subscriptions s
    WHERE s.community = m.community AND s.pubkey = m.pubkey AND s.status <> 'ended')`;

export async function isMember(db: Db, community: number, pubkey: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `SELECT 1 FROM members m WHERE m.community = $1 AND m.pubkey = $2 AND ${IS_MEMBER}`,
    [community, bytes(pubkey)],
  );
  return rowCount === 1;
}

/** At most `max` of them, ordered by key. */
export async function listMemberKeys(db: Db, community: number, max: number): Promise<string[]> {
  const { rows } = await db.query<{ pubkey: string }>(
    `SELECT encode(m.pubkey, 'hex') AS pubkey FROM members m WHERE m.community = $1 AND ${IS_MEMBER}
     ORDER BY m.pubkey LIMIT $2`,
    [community, max],
  );
  return rows.map(({ pubkey }) => pubkey);
}

/** False when there is nothing to leave. A member who left may join again; an operator stays an operator. */
export async function leave(
  pool: Pool,
  { community, pubkey }: { readonly community: number; readonly pubkey: string },
  now: number,
): Promise<boolean> {
  const done = await changeConfig(pool, { community, now }, async (change) => {
    const { rowCount } = await change.db.query(
      `UPDATE members SET left_at = $3, name = NULL, updated_at = $3
       WHERE community = $1 AND pubkey = $2 AND status = 'active' AND left_at IS NULL`,
      [community, bytes(pubkey), now],
    );
    if (rowCount === 0) return denial('NOT_FOUND');
    await endSubscriptions(change, pubkey);
    change.raiseVersion();
    change.raiseRights();
    return true;
  });
  return !isDenial(done);
}

/** Ends what a deleted account had: its subscriptions, its open requests, and its role. */
async function endMembership(change: Change, pubkey: string): Promise<void> {
  await endSubscriptions(change, pubkey);
  const { rowCount } = await change.db.query('DELETE FROM operators WHERE community = $1 AND pubkey = $2', [
    change.community,
    bytes(pubkey),
  ]);
  if ((rowCount ?? 0) > 0) change.raiseVersion();
}

async function endSubscriptions({ db, community, now }: Change, pubkey: string): Promise<void> {
  const key = bytes(pubkey);
  await db.query(
    `UPDATE topic_subscriptions SET status = 'ended', ended_at = $3, updated_at = $3
     WHERE community = $1 AND pubkey = $2 AND status <> 'ended'`,
    [community, key, now],
  );
  await db.query(
    `UPDATE topic_subscription_requests SET status = 'cancelled'
     WHERE community = $1 AND pubkey = $2 AND status IN ('pending', 'approved')`,
    [community, key],
  );
}
