/**
 * Members: those who asked for a topic, or about whom the operator has decided. Who is refused is held by every instance, so
 * that it raises the polled version; a deleted account stays as a mark and never comes back.
 */
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { MEMBER_STEPS, type MemberStatus, type RefusedAs, refuseAccount } from '../core/membership.js';
import { bytes, type Change, changeConfig, type Db } from './config-change.js';
import { BY_PUBKEY, type Page, type PageOf, readPage } from './page.js';
import { revokeTokensOf } from './tokens.js';

export interface Member {
  readonly pubkey: string;
  readonly status: MemberStatus;
  readonly note: string | null;
  /** By which others find them (NIP-05). */
  readonly name: string | null;
  /** Since when they are a member no more, by their own will. */
  readonly leftAt: number | null;
  /** Requests that wait, subscriptions that are active, and those that are paused. */
  readonly pending: number;
  readonly active: number;
  readonly paused: number;
  readonly createdAt: number;
  readonly updatedAt: number;
}

const COLUMNS = `encode(m.pubkey, 'hex') AS pubkey, m.status, m.note, m.name, m.left_at AS "leftAt", m.created_at AS "createdAt", m.updated_at AS "updatedAt",
  (SELECT count(*) FROM topic_subscription_requests r
   WHERE r.community = m.community AND r.pubkey = m.pubkey AND r.status = 'pending') AS pending,
  (SELECT count(*) FROM topic_subscriptions s
   WHERE s.community = m.community AND s.pubkey = m.pubkey AND s.status = 'active') AS active,
  (SELECT count(*) FROM topic_subscriptions s
   WHERE s.community = m.community AND s.pubkey = m.pubkey AND s.status = 'paused') AS paused
  FROM members m`;

export async function readMember(db: Db, community: number, pubkey: string): Promise<Member | undefined> {
  const { rows } = await db.query<Member>(`SELECT ${COLUMNS} WHERE m.community = $1 AND m.pubkey = $2`, [
    community,
    bytes(pubkey),
  ]);
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
        `SELECT ${COLUMNS} WHERE m.community = $1 AND m.pubkey > $2 AND ($3::text IS NULL OR m.status = $3)
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
  /** Left out, it stays; null takes it away. */
  readonly note?: string | null | undefined;
  /** The same. */
  readonly name?: string | null | undefined;
  readonly actor?: string | undefined;
}

/** Those of MINATO_ADMIN_PUBKEYS: nobody whom they have let in may lock them out. */
export interface Fixed {
  readonly fixed: readonly string[];
}

/** Also for a key that is no member yet. Doing it again changes nothing; a deleted account stays deleted. */
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
       SET status = excluded.status, note = excluded.note, name = excluded.name, updated_at = excluded.updated_at`,
      [community, bytes(pubkey), wanted, noteAfter, nameAfter, now],
    );
    if (nameAfter !== nameBefore) change.raiseVersion();
    if (wanted === 'deleted' && step === 'do') await endMembership(change, pubkey);
    // For good: who is let in again signs in again.
    if (wanted !== 'active' && step === 'do') await revokeTokensOf(change.db, { community, pubkey }, now);
    // Every instance knows who is refused, and as what.
    if (was !== wanted) {
      change.raiseVersion();
      change.raiseRights();
    }
    const named = nameAfter === nameBefore ? {} : { name: nameAfter };
    await change.audit('member.change', pubkey, { status: wanted, note: noteAfter, ...named });
    return (await readMember(change.db, community, pubkey))!;
  });
}

/** Every instance holds all names. */
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

// ─── By their own will ─────────────────────────────────────────────────────────────────────────────────────────

/** Has a subscription, in use or paused. Whoever only asked for one is no member yet. */
const IS_MEMBER = `m.status = 'active' AND m.left_at IS NULL AND NOT is_fenced(m.community, m.pubkey) AND EXISTS (
  SELECT 1 FROM topic_subscriptions s WHERE s.community = m.community AND s.pubkey = m.pubkey AND s.status <> 'ended')`;

export async function isMember(db: Db, community: number, pubkey: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `SELECT 1 FROM members m WHERE m.community = $1 AND m.pubkey = $2 AND ${IS_MEMBER}`,
    [community, bytes(pubkey)],
  );
  return rowCount === 1;
}

/** Up to so many of them, by key. */
export async function listMemberKeys(db: Db, community: number, max: number): Promise<string[]> {
  const { rows } = await db.query<{ pubkey: string }>(
    `SELECT encode(m.pubkey, 'hex') AS pubkey FROM members m WHERE m.community = $1 AND ${IS_MEMBER}
     ORDER BY m.pubkey LIMIT $2`,
    [community, max],
  );
  return rows.map(({ pubkey }) => pubkey);
}

/** False when there is nothing to leave. Whoever left may come again; an operator stays one. */
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

/** What a deleted account had: its subscriptions, its open requests, and its office. */
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
