/**
 * SQL of the daily pass over everybody who has grounds or a score, and of deleting scores without grounds.
 */
import type { ClientBase } from 'pg';
import { hexArray } from '../postgres/binary.js';
import { bytes, type Db } from '../postgres/values.js';
import type { ScoresOf } from './scores.sql.js';
import { hasContacts } from './weights.sql.js';

/** The next people after this key who have grounds or a score, in the order of their keys. */
export async function nextSubjects(
  client: ClientBase,
  community: number,
  after: string,
  limit: number,
): Promise<string[]> {
  const next = (table: string, column: string, than: string) =>
    `(SELECT ${column} AS subject FROM ${table} WHERE community = $1 AND ${column} > ${than}
      ORDER BY ${column} LIMIT 1)`;
  const least = (than: string) => `(SELECT min(subject) FROM (
    ${[
      next('trust_people', 'pubkey', than),
      next('trust_reports', 'subject', than),
      next('trust_scores', 'subject', than),
      next('labels', 'target_pubkey', than),
    ].join(' UNION ALL ')}) m)`;
  const { rows } = await client.query<{ subject: string }>(
    `WITH RECURSIVE walk (subject, place) AS (
       SELECT ${least('$2::bytea')}, 1
       UNION ALL SELECT ${least('walk.subject')}, place + 1 FROM walk
       WHERE walk.subject IS NOT NULL AND place < $3)
     SELECT encode(subject, 'hex') AS subject FROM walk WHERE subject IS NOT NULL ORDER BY place`,
    [community, bytes(after), limit],
  );
  return rows.map(({ subject }) => subject);
}

/** The cursor of the pass in each community; communities that it has not reached are missing. */
export async function readPassed(db: Db): Promise<Map<number, string>> {
  const { rows } = await db.query<{ community: number; passed: string }>(
    `SELECT community, encode(passed, 'hex') AS passed FROM trust_sweeps WHERE passed IS NOT NULL`,
  );
  return new Map(rows.map(({ community, passed }) => [community, passed]));
}

export async function savePassed(db: Db, community: number, passed: string): Promise<void> {
  await db.query('UPDATE trust_sweeps SET passed = $2 WHERE community = $1', [community, bytes(passed)]);
}

/** Resets the cursors for the next pass. */
export async function endPass(db: Db): Promise<void> {
  await db.query('UPDATE trust_sweeps SET passed = NULL WHERE passed IS NOT NULL');
}

export interface KeptScore {
  readonly subject: string;
  readonly score: number;
  readonly grounded: boolean;
  readonly changesAt: number | null;
}

/** The stored scores, and which of them are due to be computed again. */
export async function settledScores(
  client: ClientBase,
  { community, claim, subjects }: ScoresOf,
  now: number,
): Promise<{ kept: Map<string, KeptScore>; due: Set<string> }> {
  const { rows } = await client.query<KeptScore & { due: boolean }>(
    `SELECT encode(n.subject, 'hex') AS subject, coalesce(s.score, 0) AS score,
       coalesce(s.grounded, false) AS grounded, s.changes_at AS "changesAt",
       s.changes_at IS NOT NULL AND s.changes_at <= $4 OR d.subject IS NOT NULL AS due
     FROM unnest($3::bytea[]) AS n (subject)
     LEFT JOIN trust_scores s ON s.community = $1 AND s.claim = $2 AND s.subject = n.subject
     LEFT JOIN trust_due d ON d.community = $1 AND d.claim = $2 AND d.subject = n.subject`,
    [community, claim, hexArray(subjects), now],
  );
  return {
    kept: new Map(rows.map((row) => [row.subject, row])),
    due: new Set(rows.filter(({ due }) => due).map(({ subject }) => subject)),
  };
}

/** Deletes scores that have no grounds any more and whose assertions have expired. */
export async function forgetScores(
  client: ClientBase,
  community: number,
  before: number,
  limit: number,
): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM trust_scores s WHERE (community, subject, claim) IN (
       SELECT community, subject, claim FROM trust_scores o
       WHERE o.community = $1 AND NOT o.grounded AND o.computed_at < $2 AND o.publish_at IS NULL
         AND coalesce(o.asserted_at, 0) * 1000 < $2
         AND NOT ${hasContacts('o.subject')}
         AND NOT EXISTS (SELECT 1 FROM trust_reports r WHERE r.community = $1 AND r.subject = o.subject)
       ORDER BY o.computed_at LIMIT $3)`,
    [community, before, limit],
  );
  return rowCount ?? 0;
}
