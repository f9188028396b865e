/** What a restored database has forgotten of its erasures, taken from their certificates. */
import type { Pool } from 'pg';
import type { Certificate } from '../core/certificate.js';
import { isDenial } from '../core/errors.js';
import { DEFAULT_SLUG } from './communities.js';
import { bytes, changeConfig, type Db } from './config-change.js';
import { markErased } from './erasure-steps.js';
import { requestErasure } from './erasures.js';

interface Proven {
  readonly certificate: Certificate;
  readonly id: string;
  readonly event: string;
}

export interface Place {
  /** Undefined when there is no such community here. */
  readonly community: number | undefined;
  /** The proof is in the database. */
  readonly isKnown: boolean;
}

export async function placeOf(db: Db, { certificate, id }: Proven): Promise<Place> {
  const { rows } = await db.query<{ community: number | null; isKnown: boolean }>(
    `SELECT (SELECT c.id FROM communities c WHERE c.slug = $1) AS community,
       EXISTS (SELECT 1 FROM erasure_certificates WHERE certificate_id = $2) AS "isKnown"`,
    [certificate.community, bytes(id)],
  );
  return { community: rows[0]!.community ?? undefined, isKnown: rows[0]!.isKnown };
}

/** What it refused is refused again. */
export async function refuseAgain(
  pool: Pool,
  community: number,
  { subject, until, banned }: Certificate,
  now: number,
): Promise<void> {
  if (subject.type !== 'member' || until === null) return;
  const mark = { community, subject: bytes(subject.hash), until, banned };
  const done = await changeConfig(pool, { community, now }, ({ db }) => markErased(db, mark, now));
  if (isDenial(done)) throw new Error(done.denied);
}

/** Taken up at once: it was waited for before. Gives the erasure's id. */
export async function takeUpAgain(
  pool: Pool,
  again: {
    readonly community: number;
    readonly pubkey?: string;
    readonly until?: number;
    readonly cause: 'vanish' | 'replay';
  },
  now: number,
): Promise<string> {
  const { community, pubkey, until, cause } = again;
  const { rows } = await pool.query<{ slug: string }>('SELECT slug FROM communities WHERE id = $1', [
    community,
  ]);
  const slug = rows[0]?.slug ?? '';
  if (pubkey === undefined && slug === DEFAULT_SLUG)
    throw new Error('the default community cannot be erased');
  const asked = await requestErasure(pool, { community, slug, pubkey, cause, graceDays: 0, until }, now);
  if (isDenial(asked)) throw new Error(asked.denied);
  return asked.erasureId;
}

/** The proof itself, and that it was done. One that was under way when the backup was made is settled by it. */
export async function keepProof(
  pool: Pool,
  { certificate, id, event, community }: Proven & Pick<Place, 'community'>,
  now: number,
): Promise<void> {
  const { erasure_id: erasureId, subject, previous } = certificate;
  const done = await changeConfig(pool, { community: community ?? 0, now }, async ({ db }) => {
    await db.query(
      `INSERT INTO erasure_certificates (position, at, erasure_id, certificate_id, previous, event)
       SELECT coalesce(max(position), 0) + 1, $1, $2, $3, $4, $5 FROM erasure_certificates ON CONFLICT DO NOTHING`,
      [certificate.completed_at, erasureId, bytes(id), previous === null ? null : bytes(previous), event],
    );
    if (community === undefined) return;
    await db.query(
      `INSERT INTO erasures (erasure_id, community, slug, type, cause, stage, requested_at, updated_at, grace_until, fenced_at, counted_at,
         completed_at, until, subject, banned)
       VALUES ($1, $2, $3, $4, $5, 'completed', $6, $7, $6, $8, $9, $10, $11, $12, $13)
       ON CONFLICT (erasure_id) DO UPDATE SET stage = 'completed', pubkey = NULL, subject = excluded.subject, until = excluded.until,
         completed_at = excluded.completed_at, updated_at = excluded.updated_at, banned = excluded.banned
       WHERE erasures.stage IN ('requested', 'grace')`,
      [
        erasureId,
        community,
        certificate.community,
        subject.type,
        certificate.cause,
        certificate.requested_at,
        now,
        certificate.fenced_at,
        certificate.counted_at,
        certificate.completed_at,
        certificate.until,
        bytes(subject.hash),
        certificate.banned,
      ],
    );
  });
  if (isDenial(done)) throw new Error(done.denied);
}
