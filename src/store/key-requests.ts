/** Instances that ask for the key of the erased, and the answers, sealed for each of them. Gone within minutes. */
import type { Pool } from 'pg';

const KEPT_MS = 600_000;
const ANSWERED_MAX = 20;

export async function askForKey(
  pool: Pool,
  requestId: string,
  askedWith: Buffer,
  now: number,
): Promise<void> {
  await pool.query(
    'INSERT INTO subject_key_requests (request_id, requested_at, asked_with) VALUES ($1, $2, $3)',
    [requestId, now, askedWith],
  );
}

export async function openKeyRequests(
  pool: Pool,
  now: number,
): Promise<{ readonly requestId: string; readonly askedWith: Buffer }[]> {
  const { rows } = await pool.query<{ requestId: string; askedWith: Buffer; requestedAt: number }>({
    name: 'key-requests',
    text: `SELECT request_id AS "requestId", asked_with AS "askedWith", requested_at AS "requestedAt" FROM subject_key_requests
      WHERE sealed IS NULL OR requested_at < $1 LIMIT $2`,
    values: [now - KEPT_MS, ANSWERED_MAX],
  });
  const old = rows.filter(({ requestedAt }) => requestedAt < now - KEPT_MS);
  for (const { requestId } of old) await dropKeyRequest(pool, requestId);
  return rows.filter((row) => !old.includes(row));
}

export async function answerKeyRequest(pool: Pool, requestId: string, sealed: Buffer): Promise<void> {
  await pool.query('UPDATE subject_key_requests SET sealed = $2 WHERE request_id = $1', [requestId, sealed]);
}

/** Null while nobody has answered; undefined when the request is gone. */
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
