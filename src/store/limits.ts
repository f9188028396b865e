/** What holds over all instances: credentials that are used once. */
import type { ClientBase, Pool } from 'pg';

/** Spends a credential; false when it was spent before and is still remembered. */
export async function useCredential(
  db: ClientBase | Pool,
  key: string,
  expiresAt: number,
  now: number,
): Promise<boolean> {
  const { rowCount } = await db.query({
    name: 'use-credential',
    text: `INSERT INTO used_credentials AS u (key, expires_at) VALUES ($1, $2)
           ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at WHERE u.expires_at <= $3`,
    values: [key, expiresAt, now],
  });
  return rowCount === 1;
}
