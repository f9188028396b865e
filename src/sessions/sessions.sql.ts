/**
 * Sessions of operators with their CSRF tokens: one statement writes or deletes both. I12: the rows name a
 * person and are deleted with the person.
 */
import type { Pool } from 'pg';
import type { AuditAction } from '../audit/rules.js';
import { changeConfig } from '../communities/config-change.sql.js';
import { type Subject, untilMs } from '../erasure/rules.js';
import { bytes, type Db } from '../postgres/values.js';

interface Holder {
  readonly community: number;
  readonly pubkey: string;
}

interface Ref extends Holder {
  /** Hex, like every hash in this file. */
  readonly tokenHash: string;
}

interface Times {
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly csrfHash: string;
}

const OF_REF = 'community = $1 AND pubkey = $2 AND token_hash = $3';
const refOf = ({ community, pubkey, tokenHash }: Ref) => [community, bytes(pubkey), bytes(tokenHash)];

export async function createSession(db: Db, session: Ref & Times): Promise<void> {
  const { createdAt, expiresAt, csrfHash } = session;
  await db.query(
    `WITH session AS (
       INSERT INTO operator_sessions (community, pubkey, token_hash, created_at, expires_at)
       VALUES ($1, $2, $3, $4, $5))
     INSERT INTO csrf_tokens (community, pubkey, token_hash, created_at, expires_at, csrf_hash)
     VALUES ($1, $2, $3, $4, $5, $6)`,
    [...refOf(session), createdAt, expiresAt, bytes(csrfHash)],
  );
}

/** Both rows are needed for a session. */
export async function findSession(db: Db, ref: Ref, now: number): Promise<Times | undefined> {
  const { rows } = await db.query<Times>({
    name: 'find-session',
    text: `SELECT s.created_at AS "createdAt", s.expires_at AS "expiresAt",
             encode(csrf_hash, 'hex') AS "csrfHash"
      FROM operator_sessions s JOIN csrf_tokens USING (community, pubkey, token_hash)
      WHERE ${OF_REF} AND s.expires_at > $4`,
    values: [...refOf(ref), now],
  });
  return rows[0];
}

export async function listSessions(
  db: Db,
  { community, pubkey }: Holder,
  now: number,
  limit: number,
): Promise<(Omit<Times, 'csrfHash'> & Pick<Ref, 'tokenHash'>)[]> {
  const { rows } = await db.query<Omit<Times, 'csrfHash'> & Pick<Ref, 'tokenHash'>>(
    `SELECT encode(token_hash, 'hex') AS "tokenHash", created_at AS "createdAt", expires_at AS "expiresAt"
     FROM operator_sessions WHERE community = $1 AND pubkey = $2 AND expires_at > $3
     ORDER BY created_at DESC, token_hash LIMIT $4`,
    [community, bytes(pubkey), now, limit],
  );
  return rows;
}

export async function endSession(db: Db, ref: Ref): Promise<boolean> {
  const { rowCount } = await db.query(
    `WITH guard AS (DELETE FROM csrf_tokens WHERE ${OF_REF})
     DELETE FROM operator_sessions WHERE ${OF_REF}`,
    refOf(ref),
  );
  return rowCount === 1;
}

export async function endSessionsOf(db: Db, { community, pubkey }: Holder): Promise<number> {
  const OF_HOLDER = 'community = $1 AND pubkey = $2';
  const { rowCount } = await db.query(
    `WITH guards AS (DELETE FROM csrf_tokens WHERE ${OF_HOLDER})
     DELETE FROM operator_sessions WHERE ${OF_HOLDER}`,
    [community, bytes(pubkey)],
  );
  return rowCount ?? 0;
}

/** Writes the audit row, by the holder or another actor. The session itself may be in Redis. */
export async function noteSession(
  pool: Pool,
  { community, pubkey, actor = pubkey }: Holder & { readonly actor?: string },
  action: Extract<AuditAction, 'session.start' | 'session.end'>,
  now: number,
  details: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  await changeConfig(pool, { community, actor, now }, ({ audit }) => audit(action, pubkey, details));
}

// ── Erasure ────────────────────────────────────────────────────────────────────────────────────────────────

const OF_SUBJECT = 'community = $1 AND ($2::bytea IS NULL OR pubkey = $2) AND created_at <= $3';

function subjectOf(subject: Subject): unknown[] {
  if (subject.type === 'community') return [subject.community, null, Number.MAX_SAFE_INTEGER];
  return [subject.community, bytes(subject.pubkey), untilMs(subject)];
}

export async function countSessions(db: Db, subject: Subject): Promise<number> {
  const { rows } = await db.query<{ rows: number }>(
    `SELECT (SELECT count(*) FROM operator_sessions WHERE ${OF_SUBJECT})
       + (SELECT count(*) FROM csrf_tokens WHERE ${OF_SUBJECT}) AS rows`,
    subjectOf(subject),
  );
  return rows[0]!.rows;
}

/** Deletes up to `limit` rows of each table. */
export async function deleteSessions(db: Db, subject: Subject, limit: number): Promise<number> {
  let deleted = 0;
  for (const table of ['operator_sessions', 'csrf_tokens']) {
    const { rowCount } = await db.query(
      `DELETE FROM ${table} WHERE (community, pubkey, token_hash) IN
         (SELECT community, pubkey, token_hash FROM ${table} WHERE ${OF_SUBJECT} LIMIT $4)`,
      [...subjectOf(subject), limit],
    );
    deleted += rowCount ?? 0;
  }
  return deleted;
}
