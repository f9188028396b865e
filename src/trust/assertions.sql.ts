/** Reads which scores are to be asserted (NIP-85), and saves what was asserted. */
import type { Pool } from 'pg';
import { hexArray, int2Array, int4Array, int8Array, textArray } from '../postgres/binary.js';
import { type DueScore, gapAfter } from './scores.sql.js';

export interface Unasserted extends DueScore {
  readonly rank: number;
  /** Seconds. */
  readonly assertedAt: number;
}

/** An assertion that failed for any reason is tried again after this time. */
const RETRY_MS = 60_000;

export type ClaimOf = Pick<DueScore, 'community' | 'claim'>;

/**
 * Skips scores that have to be computed again first. It reserves the second of `created_at` before the event
 * is signed: if this process ends in between, no later assertion has the same second.
 */
export async function takeUnasserted(
  pool: Pool,
  now: number,
  limit: number,
  except: readonly ClaimOf[],
): Promise<Unasserted[]> {
  const { rows } = await pool.query<Unasserted>({
    name: 'trust-unasserted',
    text: `UPDATE trust_scores SET asserted_at = $2, publish_at = $3 WHERE (community, subject, claim) IN
        (SELECT community, subject, claim FROM trust_scores
         WHERE publish_at <= $1 AND (asserted_at IS NULL OR asserted_at < $2)
           AND (changes_at IS NULL OR changes_at > $1)
           AND (community, claim) NOT IN (SELECT * FROM unnest($5::int[], $6::text[]))
         ORDER BY publish_at LIMIT $4 FOR UPDATE SKIP LOCKED)
      RETURNING community, claim, encode(subject, 'hex') AS subject, rank, asserted_at AS "assertedAt"`,
    values: [
      now,
      Math.floor(now / 1_000),
      now + RETRY_MS,
      limit,
      int4Array(except.map(({ community }) => community)),
      textArray(except.map(({ claim }) => claim)),
    ],
  });
  return rows;
}

export interface AssertedScore extends Unasserted {
  readonly eventId: string;
  readonly by: string;
  /** When to assert it again, before it expires. */
  readonly renewAt: number;
}

/** If the rank has changed since, it is asserted again after the minimum gap. */
export async function saveAsserted(pool: Pool, asserted: readonly AssertedScore[]): Promise<void> {
  if (asserted.length === 0) return;
  await pool.query({
    name: 'trust-asserted',
    text: `UPDATE trust_scores s SET asserted_rank = n.rank, assertion = n.assertion,
      asserted_by = n.asserted_by, publish_at = CASE
        WHEN s.rank <> n.rank THEN ${gapAfter('n.rank', 's.rank')}
        WHEN s.grounded AND (s.claim = 'report-based' OR EXISTS (SELECT 1 FROM trust_authors a
          WHERE a.community = s.community AND a.pubkey = s.subject)) THEN n.renew_at END
      FROM unnest($1::int[], $2::bytea[], $3::text[], $4::smallint[], $5::bytea[], $6::bytea[], $7::bigint[])
        AS n (community, subject, claim, rank, assertion, asserted_by, renew_at)
      WHERE s.community = n.community AND s.subject = n.subject AND s.claim = n.claim`,
    values: [
      int4Array(asserted.map((a) => a.community)),
      hexArray(asserted.map((a) => a.subject)),
      textArray(asserted.map((a) => a.claim)),
      int2Array(asserted.map((a) => a.rank)),
      hexArray(asserted.map((a) => a.eventId)),
      hexArray(asserted.map((a) => a.by)),
      int8Array(asserted.map((a) => a.renewAt)),
    ],
  });
}
