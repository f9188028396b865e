/** What a restored database has forgotten of its erasures, taken from their certificates. */
import type { Pool } from 'pg';
import type { Certificate } from '../core/certificate.js';
import { isDenial } from '../core/errors.js';
import { bytes, changeConfig } from './config-change.js';
import { markErased } from './erasure-steps.js';
import { requestErasure } from './erasures.js';

export interface Forgotten {
  readonly community: number;
  readonly type: 'member' | 'community';
  /** In hex. */
  readonly subject: string;
  readonly until: number | null;
}

export interface Settled {
  readonly known: number;
  readonly elsewhere: number;
  readonly missing: readonly Forgotten[];
}

/** The proofs are kept again, in their order, and what they refuse is refused again. */
export async function settleReplayed(
  pool: Pool,
  proofs: readonly { readonly certificate: Certificate; readonly id: string; readonly event: string }[],
  now: number,
): Promise<Settled> {
  let [known, elsewhere] = [0, 0];
  const missing: Forgotten[] = [];
  for (const proof of proofs) {
    const result = await settleOne(pool, proof, now);
    if (result === 'known') known += 1;
    else if (result === 'elsewhere') elsewhere += 1;
    else missing.push(result);
  }
  return { known, elsewhere, missing };
}

async function settleOne(
  pool: Pool,
  { certificate, id, event }: { certificate: Certificate; id: string; event: string },
  now: number,
): Promise<Forgotten | 'known' | 'elsewhere'> {
  const { erasure_id: erasureId, community: slug, subject, until, cause } = certificate;
  const found = await pool.query<{ id: number }>('SELECT id FROM communities WHERE slug = $1', [slug]);
  const community = found.rows[0]?.id;
  const done = await changeConfig(pool, { community: community ?? 0, now }, async ({ db }) => {
    const kept = await db.query(
      `INSERT INTO erasure_certificates (position, at, erasure_id, certificate_id, previous, event)
       SELECT coalesce(max(position), 0) + 1, $1, $2, $3, $4, $5 FROM erasure_certificates ON CONFLICT DO NOTHING`,
      [
        certificate.completed_at,
        erasureId,
        bytes(id),
        certificate.previous === null ? null : bytes(certificate.previous),
        event,
      ],
    );
    if (kept.rowCount === 0) return 'known' as const;
    if (community === undefined) return 'elsewhere' as const;
    // One that was under way when the backup was made is settled by its proof.
    await db.query(
      `INSERT INTO erasures (erasure_id, community, slug, type, cause, stage, requested_at, updated_at, grace_until, fenced_at, counted_at,
         completed_at, until, subject)
       VALUES ($1, $2, $3, $4, $5, 'completed', $6, $7, $6, $8, $9, $10, $11, $12)
       ON CONFLICT (erasure_id) DO UPDATE SET stage = 'completed', pubkey = NULL, subject = excluded.subject, until = excluded.until,
         completed_at = excluded.completed_at, updated_at = excluded.updated_at`,
      [
        erasureId,
        community,
        slug,
        subject.type,
        cause,
        certificate.requested_at,
        now,
        certificate.fenced_at,
        certificate.counted_at,
        certificate.completed_at,
        until,
        bytes(subject.hash),
      ],
    );
    if (subject.type === 'member' && until !== null)
      await markErased(db, { community, subject: bytes(subject.hash), until }, now);
    return { community, type: subject.type, subject: subject.hash, until };
  });
  if (isDenial(done)) throw new Error(done.denied);
  return done;
}

/** Taken up at once: it was waited for before. Gives the erasure's id. */
export async function takeUpReplayed(
  pool: Pool,
  { community, pubkey, until }: { community: number; pubkey?: string; until?: number },
  now: number,
): Promise<string[]> {
  const { rows } = await pool.query<{ slug: string }>('SELECT slug FROM communities WHERE id = $1', [
    community,
  ]);
  const slug = rows[0]?.slug ?? '';
  const asked = await requestErasure(pool, { community, slug, pubkey, cause: 'replay', graceDays: 0 }, now);
  if (isDenial(asked)) throw new Error(asked.denied);
  if (until !== undefined)
    await pool.query('UPDATE erasures SET until = $2 WHERE erasure_id = $1', [asked.erasureId, until]);
  return [asked.erasureId];
}
