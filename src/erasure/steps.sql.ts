/** What the job that carries erasures out writes. Only one instance runs it at a time. */
import type { ClientBase, Pool } from 'pg';
import { denial, isDenial } from '../api/rules-errors.js';
import { changeConfig } from '../communities/config-change.sql.js';
import type { VanishMark } from '../events/rules/writes.js';
import type { Awaited, Unacknowledged } from '../outbox/rules-follower.js';
import type { ControlTx } from '../postgres/transaction.js';
import { bytes, type Db } from '../postgres/values.js';
import type { Erasure, KeptRows } from './erasures.sql.js';
import type { Counts, ErasureStage } from './rules.js';

/** As `until`: whatever the time of signing. */
export const FOR_EVER = Number.MAX_SAFE_INTEGER;

/** Every instance reads its settings, communities and rights again. */
export async function raiseVersions(db: Db): Promise<void> {
  await db.query('UPDATE config_version SET version = version + 1, rights_version = rights_version + 1');
}

/** The member was blocked or not active: that ban outlives the erasure, however often it is restarted. */
const BANNED = `banned
  OR EXISTS (SELECT 1 FROM blocked_authors b
    WHERE b.community = erasures.community AND b.pubkey = erasures.pubkey)
  OR EXISTS (SELECT 1 FROM members m WHERE m.community = erasures.community AND m.pubkey = erasures.pubkey
    AND m.status <> 'active')`;
/** Not when it was cancelled or held meanwhile. */
const MAY_BE_FENCED = `stage IN ('requested', 'grace') AND held_at IS NULL`;

/** Purged events are in the outbox, which reaches further back than events may be signed ahead. */
const NEWEST_IN_OUTBOX = `(SELECT max(o.created_at) FROM events_outbox o
  WHERE o.community = erasures.community AND o.author = erasures.pubkey AND o.ingested_at >= 0)`;

/**
 * After the fence: `until` becomes the greatest `created_at` of their events that this node has seen, because
 * none of these may come back, also when they were signed ahead of the clock. After a restore, `until` of a
 * member is that of the certificate.
 */
export async function raiseUntil(db: Db, erasureId: string, newest: number): Promise<void> {
  await db.query(
    `UPDATE erasures SET until = greatest(until, $2, CASE type WHEN 'member' THEN ${NEWEST_IN_OUTBOX} END)
     WHERE erasure_id = $1 AND stage = 'fenced'
       AND (type = 'community' OR cause NOT IN ('vanish', 'replay'))`,
    [erasureId, newest],
  );
}

/**
 * The fence of a member: from this transaction of the lane on, nothing of theirs is accepted or shown (I6).
 * Events that were refused before, up to an earlier mark, stay refused. Returns no mark when the erasure may
 * not be fenced any more. After a restore `until` is that of the certificate: what they have signed since is
 * welcome.
 */
export async function fenceMember(
  session: ControlTx,
  { erasureId, community, pubkey, until }: Erasure & { readonly pubkey: string },
  subject: Buffer,
  now: number,
): Promise<readonly VanishMark[]> {
  const { rowCount } = await session.query(
    `UPDATE erasures SET stage = 'fenced', fenced_at = $2, updated_at = $2, subject = $4, banned = ${BANNED},
       until = greatest(coalesce($7::bigint, $3::bigint),
         (SELECT m.until FROM erasure_marks m WHERE m.community = $5 AND m.subject = $4
           AND m.until < ${FOR_EVER}),
         (SELECT v.until FROM vanish_marks v WHERE v.community = $5 AND v.pubkey = $6
           AND v.until < ${FOR_EVER}))
     WHERE erasure_id = $1 AND ${MAY_BE_FENCED}`,
    [erasureId, now, Math.floor(now / 1_000), subject, community, bytes(pubkey), until],
  );
  if (rowCount === 0) return [];
  await markErased(session, { community, subject, until: FOR_EVER }, now);
  return [{ community, pubkey, until: FOR_EVER, requestId: undefined }];
}

export async function markErased(
  db: ClientBase,
  mark: {
    readonly community: number;
    readonly subject: Buffer;
    readonly until: number;
    readonly banned?: boolean;
  },
  now: number,
): Promise<void> {
  await db.query(
    `INSERT INTO erasure_marks AS m (community, until, erased_at, banned, subject) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (community, subject) DO UPDATE
     SET until = greatest(m.until, excluded.until), erased_at = excluded.erased_at,
       banned = m.banned OR excluded.banned`,
    [mark.community, mark.until, now, mark.banned ?? false, mark.subject],
  );
}

/** A request to vanish has its mark already. */
export async function fenceVanished(
  db: Db,
  { erasureId, until }: Erasure,
  subject: Buffer,
  now: number,
): Promise<void> {
  await db.query(
    `UPDATE erasures SET stage = 'fenced', fenced_at = coalesce(fenced_at, $2), updated_at = $2,
      subject = $3, banned = ${BANNED}
     WHERE erasure_id = $1 AND until = $4 AND cause = 'vanish' AND ${MAY_BE_FENCED}`,
    [erasureId, now, subject, until],
  );
}

/** Closes the community. Events that already wait for the lane are refused by the mark, under its lock. */
export async function fenceCommunity(
  session: ControlTx,
  { erasureId, community, until }: Erasure,
  { subject, aheadSeconds }: { readonly subject: Buffer; readonly aheadSeconds: number },
  now: number,
): Promise<void> {
  const { rowCount } = await session.query(
    `UPDATE erasures SET stage = 'fenced', fenced_at = $2, updated_at = $2, subject = $3, until = $4
     WHERE erasure_id = $1 AND ${MAY_BE_FENCED}`,
    [erasureId, now, subject, until ?? Math.floor(now / 1_000) + aheadSeconds],
  );
  if (rowCount === 0) return;
  await markErased(session, { community, subject, until: FOR_EVER }, now);
  await session.query('UPDATE communities SET closed_at = $2 WHERE id = $1', [community, now]);
}

/** Has it been held, cancelled or completed since it was read? */
export async function isStopped(db: Db, erasureId: string): Promise<boolean> {
  const { rows } = await db.query<{ held: boolean }>({
    name: 'erasure-stopped',
    text: `SELECT held_at IS NOT NULL OR stage IN ('completed', 'cancelled') AS held FROM erasures
      WHERE erasure_id = $1`,
    values: [erasureId],
  });
  return rows[0]?.held ?? true;
}

export interface Saved {
  readonly stage?: ErasureStage;
  readonly countedAt?: number;
  readonly passes?: number;
  readonly counted?: Counts;
  readonly added?: Counts;
  readonly deleted?: Counts;
  readonly otherwise?: Counts;
  readonly verified?: Counts;
  readonly failures?: Readonly<Record<string, string>>;
  readonly kept?: Readonly<Record<string, KeptRows>>;
  readonly done?: readonly string[];
  readonly failedAt?: number | null;
  readonly tries?: number;
  readonly outboxSeq?: number | null;
  readonly announcedAt?: number | null;
  readonly waits?: readonly Awaited[];
  readonly unacknowledged?: readonly Unacknowledged[];
}

const COLUMN: Record<keyof Saved, string> = {
  stage: 'stage',
  countedAt: 'counted_at',
  passes: 'passes',
  counted: 'counted',
  added: 'added',
  deleted: 'deleted',
  otherwise: 'otherwise',
  verified: 'verified',
  failures: 'failures',
  kept: 'kept',
  done: 'done',
  failedAt: 'failed_at',
  tries: 'tries',
  outboxSeq: 'outbox_seq',
  announcedAt: 'announced_at',
  waits: 'waits',
  unacknowledged: 'unacknowledged',
};
const AS_JSON: ReadonlySet<keyof Saved> = new Set([
  ...(['counted', 'added', 'deleted', 'otherwise', 'verified'] as const),
  ...(['failures', 'kept', 'waits', 'unacknowledged'] as const),
]);

/** False, and nothing is saved, when somebody has changed stage, cause or `until` since it was read. */
export async function saveErasure(db: Db, read: Erasure, saved: Saved, now: number): Promise<boolean> {
  const entries = Object.entries(saved) as [keyof Saved, unknown][];
  const sets = entries.map(([name], at) => `${COLUMN[name]} = $${at + 6}`);
  const { rowCount } = await db.query(
    `UPDATE erasures SET ${['updated_at = $2', ...sets].join(', ')} WHERE erasure_id = $1 AND ${UNCHANGED}`,
    [
      ...courseOf(read, now),
      ...entries.map(([name, value]) => (AS_JSON.has(name) ? JSON.stringify(value) : value)),
    ],
  );
  return rowCount === 1;
}

const UNCHANGED = 'stage = $3 AND cause = $4 AND until IS NOT DISTINCT FROM $5::bigint';
const courseOf = ({ erasureId, stage, cause, until }: Erasure, now: number) => [
  erasureId,
  now,
  stage,
  cause,
  until,
];

// ── The end ────────────────────────────────────────────────────────────────────────────────────────────────

export interface SignedCertificate {
  readonly id: string;
  readonly previous: string | undefined;
  /** The event, as JSON. */
  readonly event: string;
}

export async function lastCertificate(
  db: Db,
): Promise<{ readonly position: number; readonly id: string } | undefined> {
  const { rows } = await db.query<{ position: number; id: string }>(
    `SELECT position, encode(certificate_id, 'hex') AS id FROM erasure_certificates ORDER BY position DESC
      LIMIT 1`,
  );
  return rows[0];
}

/**
 * In one transaction: the certificate is stored, the public key is deleted, and the fence becomes the mark
 * that stays. False when the erasure was held or changed meanwhile.
 */
export async function completeErasure(
  pool: Pool,
  erasure: Erasure,
  { id, previous, event }: SignedCertificate,
  now: number,
): Promise<boolean> {
  const { erasureId, community, type, cause } = erasure;
  const done = await changeConfig(pool, { community, now }, async (change) => {
    const { db } = change;
    const { rowCount } = await db.query(
      `UPDATE erasures SET stage = 'completed', completed_at = $2, updated_at = $2, pubkey = NULL,
        failed_at = NULL, failures = '{}', waits = '[]'
       WHERE erasure_id = $1 AND ${UNCHANGED} AND held_at IS NULL`,
      courseOf(erasure, now),
    );
    if (rowCount === 0) return denial('STATUS_CONFLICT');
    await db.query(
      `INSERT INTO erasure_certificates (position, at, erasure_id, certificate_id, previous, event)
       SELECT coalesce(max(position), 0) + 1, $1, $2, $3, $4, $5 FROM erasure_certificates`,
      [now, erasureId, bytes(id), previous === undefined ? null : bytes(previous), event],
    );
    if (type === 'member') await settleMarks(db, erasure, now);
    else await db.query('DELETE FROM communities WHERE id = $1', [community]);
    // A vanished member has no erasure request; the certificate says so.
    if (type === 'member' && cause !== 'vanish')
      await change.audit('erasure.complete', erasureId, { certificate: id });
    change.raiseVersion();
    change.raiseRights();
    return true;
  });
  return !isDenial(done);
}

async function settleMarks(
  db: ClientBase,
  { community, cause, pubkey, subject, until, banned }: Erasure,
  now: number,
): Promise<void> {
  if (pubkey === null || subject === null || until === null)
    throw new Error('an erasure of a member that was never fenced cannot end');
  const hash = bytes(subject);
  await markErased(db, { community, subject: hash, until, banned }, now);
  if (cause === 'vanish') {
    await db.query(
      'UPDATE vanish_marks SET erased_at = $3 WHERE community = $1 AND pubkey = $2 AND until = $4',
      [community, bytes(pubkey), now, until],
    );
    return;
  }
  await db.query('UPDATE erasure_marks SET until = $3 WHERE community = $1 AND subject = $2', [
    community,
    hash,
    until,
  ]);
  await db.query('DELETE FROM vanish_marks WHERE community = $1 AND pubkey = $2', [community, bytes(pubkey)]);
}

/** Lifts the ban. False when nobody with this hash was banned. */
export async function liftBan(db: Db, community: number, subject: Buffer): Promise<boolean> {
  const { rowCount } = await db.query(
    'UPDATE erasure_marks SET banned = false WHERE community = $1 AND subject = $2 AND banned',
    [community, subject],
  );
  return rowCount === 1;
}

export async function hasErasureMarks(db: Db): Promise<boolean> {
  const { rows } = await db.query<{ has: boolean }>('SELECT EXISTS (SELECT 1 FROM erasure_marks) AS has');
  return rows[0]!.has;
}

/** The `until` of each of these in seconds, by the hex of the hash; those who were not erased are missing. */
export async function readErasedUntil(
  db: Db,
  community: number,
  subjects: readonly Buffer[],
): Promise<Map<string, number>> {
  const { rows } = await db.query<{ subject: string; until: number }>({
    name: 'erased-until',
    text: `SELECT encode(subject, 'hex') AS subject, until FROM erasure_marks
      WHERE community = $1 AND subject = ANY ($2)`,
    values: [community, subjects],
  });
  return new Map(rows.map(({ subject, until }) => [subject, until]));
}
