/** Requests of instances for keys, and the answers, encrypted for each of them. Deleted within minutes. */
import type { Pool } from 'pg';

const KEPT_MS = 600_000;
const ANSWERED_MAX = 20;

export interface KeyRequest {
  readonly requestId: string;
  /** The name of the key. */
  readonly wanted: string;
  /** The answer is encrypted for this public key. */
  readonly recipient: Buffer;
}

export async function insertKeyRequest(
  pool: Pool,
  { requestId, wanted, recipient }: KeyRequest,
  now: number,
): Promise<void> {
  await pool.query(
    'INSERT INTO subject_key_requests (request_id, requested_at, asked_with, wanted) VALUES ($1, $2, $3, $4)',
    [requestId, now, recipient, wanted],
  );
}

/** Newest first, so that requests nobody can answer do not block the others. */
export async function openKeyRequests(pool: Pool, now: number): Promise<KeyRequest[]> {
  const { rows } = await pool.query<KeyRequest & { requestedAt: number }>({
    name: 'key-requests',
    text: `SELECT request_id AS "requestId", wanted, asked_with AS "recipient", requested_at AS "requestedAt"
      FROM subject_key_requests
      WHERE sealed IS NULL OR requested_at < $1 ORDER BY requested_at DESC LIMIT $2`,
    values: [now - KEPT_MS, ANSWERED_MAX],
  });
  const old = rows.filter(({ requestedAt }) => requestedAt < now - KEPT_MS);
  for (const { requestId } of old) await dropKeyRequest(pool, requestId);
  return rows.filter((row) => !old.includes(row));
}

export async function answerKeyRequest(pool: Pool, requestId: string, sealed: Buffer): Promise<void> {
  await pool.query('UPDATE subject_key_requests SET sealed = $2 WHERE request_id = $1 AND sealed IS NULL', [
    requestId,
    sealed,
  ]);
}

/** Null while nobody has answered; undefined when the request was deleted. */
export async function readAnswer(pool: Pool, requestId: string): Promise<Buffer | null | undefined> {
  const { rows } = await pool.query<{ sealed: Buffer | null }>(
    'SELECT sealed FROM subject_key_requests WHERE request_id = $1',
    [requestId],
  );
  return rows[0]?.sealed;
}

export async function dropKeyRequest(pool: Pool, requestId: string): Promise<void> {
  await pool.query('DELETE FROM subject_key_requests WHERE request_id = $1', [requestId]);
}
