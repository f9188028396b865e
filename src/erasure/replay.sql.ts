/** Writes what a restored database lacks of its erasures, from their certificates. */
import type { Pool } from 'pg';
import { isDenial } from '../api/rules-errors.js';
import { DEFAULT_SLUG } from '../communities/communities.sql.js';
import { changeConfig } from '../communities/config-change.sql.js';
import { bytes, type Db } from '../postgres/values.js';
import type { Certificate } from './certificates/rules.js';
import { requestErasure } from './erasures.sql.js';
import { markErased } from './steps.sql.js';

interface Proven {
  readonly certificate: Certificate;
  readonly id: string;
  readonly event: string;
}

export interface Place {
  /** Undefined when there is no such community here. */
  readonly community: number | undefined;
  /** The certificate is in the database. */
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

/**
 * Up to when it refuses events, in seconds. Old certificates of communities have only the time of the fence.
 */
export const refusedUntil = ({ subject, until, fenced_at }: Certificate): number | null =>
  until ?? (subject.type === 'community' ? Math.floor(fenced_at / 1_000) : null);

/** Refuses these events again: of a member by a mark, of a community in the one that has its name now. */
export async function refuseAgain(
  pool: Pool,
  community: number,
  certificate: Certificate,
  now: number,
): Promise<void> {
  const { subject, banned } = certificate;
  const until = refusedUntil(certificate);
  if (until === null) return;
  const mark = { community, subject: bytes(subject.hash), until, banned };
  const done = await changeConfig(pool, { community, now }, async (change) => {
    if (subject.type === 'member') return markErased(change.db, mark, now);
    await change.db.query(
      'UPDATE communities SET refused_until = greatest(refused_until, $2) WHERE id = $1',
      [community, until],
    );
    change.raiseVersion();
  });
  if (isDenial(done)) throw new Error(done.denied);
}

/** Without another grace period. Returns the id of the erasure. */
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

/**
 * Erasures after a restore that are not fenced yet: their members would still be served. A vanished member
 * has no fence but the mark, which the backup may lack.
 */
export async function unfencedReplays(db: Db): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT e.erasure_id AS id FROM erasures e WHERE e.stage NOT IN ('completed', 'cancelled')
      AND e.held_at IS NULL
       AND (e.cause = 'replay' AND e.fenced_at IS NULL OR e.cause = 'vanish' AND NOT EXISTS (
         SELECT 1 FROM vanish_marks v WHERE v.community = e.community AND v.pubkey = e.pubkey))`,
  );
  return rows.map(({ id }) => id);
}

/** The numbers of communities that were erased. */
export async function erasedCommunities(db: Db): Promise<number[]> {
  const { rows } = await db.query<{ community: number }>(
    `SELECT e.community FROM erasures e WHERE e.type = 'community' AND e.stage = 'completed'
      AND NOT EXISTS (SELECT 1 FROM communities c WHERE c.id = e.community) ORDER BY 1`,
  );
  return rows.map(({ community }) => community);
}

/** Stores the certificate and the completed erasure; also one that was running when the backup was made. */
export async function keepProof(
  pool: Pool,
  { certificate, id, event, community }: Proven & Pick<Place, 'community'>,
  now: number,
): Promise<void> {
  const { erasure_id: erasureId, subject, previous } = certificate;
  const done = await changeConfig(pool, { community: community ?? 0, now }, async ({ db }) => {
    await db.query(
      `INSERT INTO erasure_certificates (position, at, erasure_id, certificate_id, previous, event)
       SELECT coalesce(max(position), 0) + 1, $1, $2, $3, $4, $5 FROM erasure_certificates
         ON CONFLICT DO NOTHING`,
      [certificate.completed_at, erasureId, bytes(id), previous === null ? null : bytes(previous), event],
    );
    // A community that is made under this name later must refuse those events.
    if (community === undefined && subject.type === 'member') return;
    await db.query(
      `INSERT INTO erasures (erasure_id, community, slug, type, cause, stage, requested_at, updated_at,
        grace_until, fenced_at, counted_at,
         completed_at, until, subject, banned)
       VALUES ($1, $2, $3, $4, $5, 'completed', $6, $7, $6, $8, $9, $10, $11, $12, $13)
       ON CONFLICT (erasure_id) DO UPDATE SET stage = 'completed', pubkey = NULL, subject = excluded.subject,
         until = excluded.until,
         completed_at = excluded.completed_at, updated_at = excluded.updated_at, banned = excluded.banned
       WHERE erasures.stage IN ('requested', 'grace')`,
      [
        erasureId,
        community ?? 0,
        certificate.community,
        subject.type,
        certificate.cause,
        certificate.requested_at,
        now,
        certificate.fenced_at,
        certificate.counted_at,
        certificate.completed_at,
        refusedUntil(certificate),
        bytes(subject.hash),
        certificate.banned,
      ],
    );
  });
  if (isDenial(done)) throw new Error(done.denied);
}
