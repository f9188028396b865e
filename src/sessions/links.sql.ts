/**
 * One-time links that sign a key in with a browser. Only the hash of a code is stored. A key has at most one
 * link in a community: a new one replaces it, and using it deletes it.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { changeConfig } from '../communities/config-change.sql.js';
import { bytes } from '../postgres/values.js';

const CODE_BYTES = 32;
/** Long enough to copy a link to a browser, too short to be found later. */
const LINK_MS = 600_000;

interface Holder {
  readonly community: number;
  readonly pubkey: string;
}

const hashOf = (code: string) => createHash('sha256').update(code).digest();

/** Made on the machine of the node, so the audit row has no actor. */
export async function makeLink(
  pool: Pool,
  { community, pubkey }: Holder,
  now: number,
): Promise<{ readonly code: string; readonly expiresAt: number } | Denial> {
  const code = randomBytes(CODE_BYTES).toString('base64url');
  const expiresAt = now + LINK_MS;
  return changeConfig(pool, { community, now }, async ({ db, audit }) => {
    await db.query(
      `INSERT INTO sign_in_links (community, pubkey, code_hash, created_at, expires_at)
       VALUES ($1, $2, $3, $4, $5)
       ON CONFLICT (community, pubkey) DO UPDATE SET code_hash = excluded.code_hash,
         created_at = excluded.created_at, expires_at = excluded.expires_at`,
      [community, bytes(pubkey), hashOf(code), now, expiresAt],
    );
    await audit('session.link', pubkey, { expires_at: expiresAt });
    return { code, expiresAt };
  });
}

/** The key of the link. One statement deletes and reads it, so that it works once, on any instance. */
export async function spendLink(
  pool: Pool,
  community: number,
  code: string,
  now: number,
): Promise<string | Denial> {
  const { rows } = await pool.query<{ pubkey: string }>(
    `DELETE FROM sign_in_links WHERE code_hash = $1 AND community = $2 AND expires_at > $3
     RETURNING encode(pubkey, 'hex') AS pubkey`,
    [hashOf(code), community, now],
  );
  return rows[0]?.pubkey ?? denial('INVALID_LINK');
}
