/** What the job that carries erasures out writes. Only one runs at a time, over all instances. */
import type { Client, ClientBase, Pool } from 'pg';
import type { ErasureStage } from '../core/erasure.js';
import type { VanishMark } from '../core/plan.js';
import { bytes, changeConfig, type Db } from './config-change.js';
import type { Counts, Erasure, KeptRows } from './erasures.js';

/** Everything that was signed at any time. */
export const FOR_EVER = Number.MAX_SAFE_INTEGER;

/** Instances read everything anew: who is refused, which communities there are, who may what. */
export async function raiseVersions(db: Db): Promise<void> {
  await db.query('UPDATE config_version SET version = version + 1, rights_version = rights_version + 1');
}

/**
 * The fence of a member: from this transaction of the lane on nothing of theirs is taken in, and nothing is shown. It is remembered
 * whether the operator had kept them out: a ban outlives the erasure.
 */
export async function fenceMember(
  session: Client,
  { erasureId, community, pubkey }: Erasure & { readonly pubkey: string },
  { subject, until }: { readonly subject: Buffer; readonly until: number },
  now: number,
): Promise<readonly VanishMark[]> {
  await markErased(session, { community, subject, until: FOR_EVER }, now);
  await session.query(
    `UPDATE erasures SET stage = 'fenced', fenced_at = $2, updated_at = $2, until = $3, subject = $4,
       banned = EXISTS (SELECT 1 FROM blocked_authors b WHERE b.community = $5 AND b.pubkey = $6)
         OR EXISTS (SELECT 1 FROM members m WHERE m.community = $5 AND m.pubkey = $6 AND m.status = 'disabled')
     WHERE erasure_id = $1`,
    [erasureId, now, until, subject, community, bytes(pubkey)],
  );
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
     SET until = greatest(m.until, excluded.until), erased_at = excluded.erased_at, banned = m.banned OR excluded.banned`,
    [mark.community, mark.until, now, mark.banned ?? false, mark.subject],
  );
}

/** A request to vanish has its mark already. */
export async function fenceVanished(
  db: Db,
  { erasureId, community, pubkey }: Erasure & { readonly pubkey: string },
  subject: Buffer,
  now: number,
): Promise<void> {
  await db.query(
    `UPDATE erasures SET stage = 'fenced', fenced_at = coalesce(fenced_at, $2), updated_at = $2, subject = $3,
       banned = EXISTS (SELECT 1 FROM blocked_authors b WHERE b.community = $4 AND b.pubkey = $5)
     WHERE erasure_id = $1`,
    [erasureId, now, subject, community, bytes(pubkey)],
  );
}

/** Nothing reaches the community any more; what is on its way is refused by the mark, under the lane's lock. */
export async function fenceCommunity(
  session: Client,
  { erasureId, community }: Erasure,
  subject: Buffer,
  now: number,
): Promise<void> {
  await markErased(session, { community, subject, until: FOR_EVER }, now);
  await session.query('UPDATE communities SET closed_at = $2 WHERE id = $1', [community, now]);
  await session.query(
    `UPDATE erasures SET stage = 'fenced', fenced_at = $2, updated_at = $2, subject = $3 WHERE erasure_id = $1`,
    [erasureId, now, subject],
  );
}

/** Is somebody holding it, or was it taken back, since it was read? */
export async function isStopped(db: Db, erasureId: string): Promise<boolean> {
  const { rows } = await db.query<{ held: boolean }>({
    name: 'erasure-stopped',
    text: `SELECT held_at IS NOT NULL OR stage IN ('completed', 'cancelled') AS held FROM erasures WHERE erasure_id = $1`,
    values: [erasureId],
  });
  return rows[0]?.held ?? true;
}

export interface Saved {
  readonly stage?: ErasureStage;
  readonly countedAt?: number;
  readonly passes?: number;
  readonly counted?: Counts;
  readonly deleted?: Counts;
  readonly verified?: Counts;
  readonly failures?: Readonly<Record<string, string>>;
  readonly kept?: Readonly<Record<string, KeptRows>>;
  readonly done?: readonly string[];
  readonly failedAt?: number | null;
  readonly tries?: number;
}

const COLUMN: Record<keyof Saved, string> = {
  stage: 'stage',
  countedAt: 'counted_at',
  passes: 'passes',
  counted: 'counted',
  deleted: 'deleted',
  verified: 'verified',
  failures: 'failures',
  kept: 'kept',
  done: 'done',
  failedAt: 'failed_at',
  tries: 'tries',
};
const AS_JSON = new Set(['counted', 'deleted', 'verified', 'failures', 'kept']);

export async function saveErasure(db: Db, erasureId: string, saved: Saved, now: number): Promise<void> {
  const entries = Object.entries(saved) as [keyof Saved, unknown][];
  const sets = entries.map(([name], at) => `${COLUMN[name]} = $${at + 3}`);
  await db.query(`UPDATE erasures SET ${['updated_at = $2', ...sets].join(', ')} WHERE erasure_id = $1`, [
    erasureId,
    now,
    ...entries.map(([name, value]) => (AS_JSON.has(name) ? JSON.stringify(value) : value)),
  ]);
}

// ── The end ───────────────────────────────────────────────────────────────────────────────────────────────────────

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
    `SELECT position, encode(certificate_id, 'hex') AS id FROM erasure_certificates ORDER BY position DESC LIMIT 1`,
  );
  return rows[0];
}

/** All at once: the proof is kept, the person is forgotten, the fence becomes the mark that stays. */
export function completeErasure(
  pool: Pool,
  erasure: Erasure,
  { id, previous, event }: SignedCertificate,
  now: number,
): Promise<unknown> {
  const { erasureId, community, type, cause, pubkey, subject, until, banned } = erasure;
  return changeConfig(pool, { community, now }, async (change) => {
    const { db } = change;
    await db.query(
      `INSERT INTO erasure_certificates (position, at, erasure_id, certificate_id, previous, event)
       SELECT coalesce(max(position), 0) + 1, $1, $2, $3, $4, $5 FROM erasure_certificates`,
      [now, erasureId, bytes(id), previous === undefined ? null : bytes(previous), event],
    );
    if (type === 'member') await settleMarks(db, { community, cause, pubkey, subject, until, banned }, now);
    else await db.query('DELETE FROM communities WHERE id = $1', [community]);
    await db.query(
      `UPDATE erasures SET stage = 'completed', completed_at = $2, updated_at = $2, pubkey = NULL, failed_at = NULL, failures = '{}'
       WHERE erasure_id = $1`,
      [erasureId, now],
    );
    if (type === 'member') await change.audit('erasure.complete', erasureId, { certificate: id });
    change.raiseVersion();
    change.raiseRights();
  });
}

async function settleMarks(
  db: ClientBase,
  {
    community,
    cause,
    pubkey,
    subject,
    until,
    banned,
  }: Pick<Erasure, 'community' | 'cause' | 'pubkey' | 'subject' | 'until' | 'banned'>,
  now: number,
): Promise<void> {
  if (cause === 'vanish') {
    await db.query(
      'UPDATE vanish_marks SET erased_at = $3 WHERE community = $1 AND pubkey = $2 AND until = $4',
      [community, bytes(pubkey!), now, until],
    );
    await markErased(db, { community, subject: bytes(subject!), until: until!, banned }, now);
    return;
  }
  await db.query(
    'UPDATE erasure_marks SET until = $3, banned = banned OR $4 WHERE community = $1 AND subject = $2',
    [community, bytes(subject!), until, banned],
  );
  if (pubkey !== null)
    await db.query('DELETE FROM vanish_marks WHERE community = $1 AND pubkey = $2', [
      community,
      bytes(pubkey),
    ]);
}
