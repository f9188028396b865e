/**
 * Deletes rows that are needed only for a time, in batches. A row that is locked is deleted by a later batch.
 */
import type { ClientBase } from 'pg';

const AGING = {
  rate_buckets: { key: 'key', time: 'at' },
  used_credentials: { key: 'key', time: 'expires_at' },
  revoked_tokens: { key: 'community, token_id', time: 'expires_at' },
  operator_sessions: { key: 'community, pubkey, token_hash', time: 'expires_at' },
  csrf_tokens: { key: 'community, pubkey, token_hash', time: 'expires_at' },
  sign_in_links: { key: 'community, pubkey', time: 'expires_at' },
  plan_events: { key: 'community, event_id', time: 'received_at' },
  usage_requests: { key: 'community, pubkey, metric, request_id', time: 'counted_at' },
} as const;
export type Aging = keyof typeof AGING;

export async function forgetBefore(
  client: ClientBase,
  table: Aging,
  before: number,
  limit: number,
): Promise<number> {
  const { key, time } = AGING[table];
  const { rowCount } = await client.query(
    `DELETE FROM ${table} WHERE (${key}) IN
       (SELECT ${key} FROM ${table} WHERE ${time} < $1 ORDER BY ${time} LIMIT $2 FOR UPDATE SKIP LOCKED)`,
    [before, limit],
  );
  return rowCount ?? 0;
}

export async function countBefore(client: ClientBase, table: Aging, before: number): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `SELECT count(*) AS count FROM ${table} WHERE ${AGING[table].time} < $1`,
    [before],
  );
  return rows[0]!.count;
}
