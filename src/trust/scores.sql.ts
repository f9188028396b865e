/**
 * Trust scores, derived from the grounds (I9): which are due, and what was computed. The transaction that
 * computes a score deletes its due row; a ground that is written at the same time waits for that transaction
 * before it can add its own due row.
 */
import type { ClientBase } from 'pg';
import type { AccessRules } from '../events/rules/access.js';
import { hexArray, int2Array, textArray } from '../postgres/binary.js';
import { bytes, type Db } from '../postgres/values.js';
import {
  ASSERTION_GAP,
  CLAIMS,
  type Claim,
  rankOf,
  renewalMs,
  scoreOf,
  type TrustSettings,
} from './rules.js';
import { GATHER, hasContacts } from './weights.sql.js';

// ── Due scores ─────────────────────────────────────────────────────────────────────────────────────────────

export interface DueScore {
  readonly community: number;
  readonly claim: Claim;
  readonly subject: string;
}

/** Whether anything is to be computed or asserted, in one query: an idle node runs it every 2.5 s. */
export async function isAnyWaiting(db: Db, now: number): Promise<boolean> {
  const { rows } = await db.query<{ waiting: boolean }>({
    name: 'trust-waiting',
    text: `SELECT EXISTS (SELECT 1 FROM trust_due WHERE due_at <= $1::bigint)
        OR EXISTS (SELECT 1 FROM trust_scores WHERE changes_at <= $1)
        OR EXISTS (SELECT 1 FROM trust_scores WHERE publish_at <= $1)
        OR EXISTS (SELECT 1 FROM trust_sweeps WHERE after IS NOT NULL) AS waiting`,
    values: [now],
  });
  return rows[0]!.waiting;
}

/** Takes due scores, including those with a ground that has left the window. */
export async function takeDue(tx: ClientBase, now: number, limit: number): Promise<DueScore[]> {
  await tx.query({
    name: 'trust-passed',
    text: `INSERT INTO trust_due (community, claim, due_at, subject)
      SELECT community, claim, changes_at, subject FROM
        (SELECT * FROM trust_scores WHERE changes_at <= $1 ORDER BY changes_at LIMIT $2) s
      ORDER BY community, subject, claim ON CONFLICT DO NOTHING`,
    values: [now, limit],
  });
  const { rows } = await tx.query<DueScore>({
    name: 'trust-take-due',
    text: `DELETE FROM trust_due WHERE (community, subject, claim) IN
        (SELECT community, subject, claim FROM trust_due WHERE due_at <= $1
          ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
      RETURNING community, claim, encode(subject, 'hex') AS subject`,
    values: [now, limit],
  });
  return rows;
}

/** Marks the scores of both claims as due. */
export async function markDue(
  db: Db,
  community: number,
  subjects: readonly string[],
  now: number,
): Promise<void> {
  await db.query(
    `INSERT INTO trust_due (community, claim, due_at, subject)
     SELECT $1, claim, $2, subject FROM unnest($3::bytea[]) AS s (subject), unnest($4::text[]) AS c (claim)
     ORDER BY subject, claim ON CONFLICT DO NOTHING`,
    [community, now, hexArray(subjects), textArray(CLAIMS)],
  );
}

// ── Computing ──────────────────────────────────────────────────────────────────────────────────────────────

export interface ComputedScore {
  readonly subject: string;
  readonly score: number;
  readonly rank: number;
  readonly grounded: boolean;
  readonly changesAt: number | null;
  /** May be asserted. A key that was never seen here may not exist, so its density is not asserted. */
  readonly asserted: boolean;
}

export interface ScoresOf {
  readonly community: number;
  readonly claim: Claim;
  readonly subjects: readonly string[];
}

/** Computes scores from the grounds only. */
export async function computeScores(
  db: Db,
  { community, claim, subjects }: ScoresOf,
  rules: AccessRules,
  now: number,
): Promise<ComputedScore[]> {
  const { settings } = rules;
  const found = await GATHER[claim](db, community, subjects, rules, now);
  return subjects.map((subject) => {
    const { grounded, seen, changesAt, ...weights } = found.get(subject)!;
    const score = scoreOf(claim, weights, settings);
    const asserted = grounded && (claim === 'report-based' || seen);
    return { subject, score, rank: rankOf(claim, score), grounded, changesAt, asserted };
  });
}

export async function saveScores(
  tx: ClientBase,
  { community, claim }: Pick<ScoresOf, 'community' | 'claim'>,
  scores: readonly ComputedScore[],
  settings: TrustSettings,
  now: number,
): Promise<void> {
  const values = [
    community,
    claim,
    now,
    settings['trust.publish'],
    Math.floor(renewalMs(settings)),
    hexArray(scores.map((s) => s.subject)),
    scores.map((s) => s.score),
    int2Array(scores.map((s) => s.rank)),
    scores.map((s) => s.grounded),
    scores.map((s) => s.changesAt),
    scores.map((s) => s.asserted),
  ];
  await tx.query({ name: 'trust-save', text: SAVE_SQL, values });
}

/** The earliest time at which a changed rank may be asserted. */
export const gapAfter = (before: string, rank: string) => `(s.asserted_at * 1000 + CASE
  WHEN s.claim = 'report-based' AND ${before} - ${rank} >= ${ASSERTION_GAP.fall} THEN ${ASSERTION_GAP.fallMs}
  ELSE ${ASSERTION_GAP.usualMs} END)`;

/**
 * Somebody who was never named, reported or labelled and never named anybody has no row. An assertion is due
 * when the asserted rank has changed or an older key signed it, otherwise when it must be renewed. When no
 * grounds are left, the last assertion is corrected once and then expires. Two assertions by one key are
 * ASSERTION_GAP apart.
 */
const SAVE_SQL = `
  WITH n AS (
    SELECT * FROM unnest($6::bytea[], $7::float8[], $8::smallint[], $9::boolean[], $10::bigint[],
        $11::boolean[])
      AS n (subject, score, rank, grounded, changes_at, asserted)
    WHERE grounded OR EXISTS (SELECT 1 FROM trust_scores s
        WHERE s.community = $1::int AND s.claim = $2::text AND s.subject = n.subject)
      OR ${hasContacts('n.subject')}
      OR EXISTS (SELECT 1 FROM trust_reports r WHERE r.community = $1::int AND r.subject = n.subject)
      OR EXISTS (SELECT 1 FROM labels l WHERE l.community = $1::int AND l.target_pubkey = n.subject)),
  k AS (SELECT (SELECT pubkey FROM node_keys
    WHERE community = $1::int AND purpose = $2::text AND retired_at IS NULL) AS pubkey)
  INSERT INTO trust_scores AS s (community, claim, score, computed_at, changes_at, publish_at, rank,
    grounded, subject)
  SELECT $1::int, $2::text, n.score, $3::bigint, n.changes_at,
    CASE WHEN $4::boolean AND n.asserted THEN $3::bigint END, n.rank, n.grounded, n.subject
  FROM n ORDER BY n.subject
  ON CONFLICT (community, subject, claim) DO UPDATE
  SET score = excluded.score, computed_at = excluded.computed_at, changes_at = excluded.changes_at,
    rank = excluded.rank, grounded = excluded.grounded, publish_at = CASE
      WHEN NOT $4::boolean THEN NULL
      WHEN s.asserted_rank IS NULL THEN excluded.publish_at
      WHEN s.asserted_by IS DISTINCT FROM (SELECT pubkey FROM k)
        THEN greatest($3::bigint, (s.asserted_at + 1) * 1000)
      WHEN s.asserted_rank <> excluded.rank
        THEN greatest($3::bigint, ${gapAfter('s.asserted_rank', 'excluded.rank')})
      WHEN excluded.publish_at IS NOT NULL THEN s.asserted_at * 1000 + $5::bigint END`;

// ── Reading ────────────────────────────────────────────────────────────────────────────────────────────────

export interface Score {
  readonly score: number;
  readonly rank: number;
  readonly computedAt: number | null;
  readonly assertion: string | null;
  /** Its grounds have changed since, so it has to be computed again. */
  readonly isDue: boolean;
}

export async function readScore(db: Db, { community, claim, subject }: DueScore): Promise<Score | undefined> {
  const { rows } = await db.query<Score>({
    name: 'trust-score',
    text: `SELECT coalesce(s.score, 0) AS score, coalesce(s.rank, 0) AS rank, s.computed_at AS "computedAt",
        encode(s.assertion, 'hex') AS assertion, d.subject IS NOT NULL AS "isDue"
      FROM (SELECT $1::int AS community, $2::text AS claim, $3::bytea AS subject) n
      LEFT JOIN trust_scores s USING (community, claim, subject)
      LEFT JOIN trust_due d USING (community, claim, subject)
      WHERE s.subject IS NOT NULL OR d.subject IS NOT NULL`,
    values: [community, claim, bytes(subject)],
  });
  return rows[0];
}
