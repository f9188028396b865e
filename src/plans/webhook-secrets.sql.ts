/**
 * The secret that a payment provider signs its calls with: one per community, shown once, when it is made.
 */
import { randomBytes } from 'node:crypto';
import type { Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { changeConfig } from '../communities/config-change.sql.js';
import type { Db } from '../postgres/values.js';

const SECRET_BYTES = 32;

export interface WebhookSecret {
  readonly secret: string;
  readonly createdAt: number;
}

export async function readWebhookSecret(db: Db, community: number): Promise<WebhookSecret | undefined> {
  const { rows } = await db.query<WebhookSecret>(
    'SELECT secret, created_at AS "createdAt" FROM webhook_secrets WHERE community = $1',
    [community],
  );
  return rows[0];
}

interface Caller {
  readonly community: number;
  readonly actor?: string | undefined;
}

/** Replaces the previous secret. */
export function createWebhookSecret(
  pool: Pool,
  { community, actor }: Caller,
  now: number,
): Promise<WebhookSecret | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const secret = `whsec_${randomBytes(SECRET_BYTES).toString('base64url')}`;
    await change.db.query(
      `INSERT INTO webhook_secrets (community, secret, created_at) VALUES ($1, $2, $3)
       ON CONFLICT (community) DO UPDATE SET secret = excluded.secret, created_at = excluded.created_at`,
      [community, secret, now],
    );
    await change.audit('webhook-secret.create', 'plan');
    return { secret, createdAt: now };
  });
}

export function deleteWebhookSecret(
  pool: Pool,
  { community, actor }: Caller,
  now: number,
): Promise<{ readonly createdAt: number } | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readWebhookSecret(change.db, community);
    if (before === undefined) return denial('NOT_FOUND');
    await change.db.query('DELETE FROM webhook_secrets WHERE community = $1', [community]);
    await change.audit('webhook-secret.delete', 'plan');
    return { createdAt: before.createdAt };
  });
}
