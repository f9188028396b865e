/**
 * The public halves of the keys that the node signs with: the current one of each purpose, and retired ones.
 */
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { changeConfig } from '../communities/config-change.sql.js';
import { bytes } from '../postgres/values.js';

/** One key per claim, so that assertions of one never replace those of another. */
export const KEY_PURPOSES = [
  'moderation',
  'report-based',
  'communication-density',
  'erasure',
  'relay',
] as const;
export type KeyPurpose = (typeof KEY_PURPOSES)[number];

export async function currentKey(
  pool: Pool,
  community: number,
  purpose: KeyPurpose,
): Promise<string | undefined> {
  const { rows } = await pool.query<{ pubkey: string }>({
    name: 'current-key',
    text: `SELECT encode(pubkey, 'hex') AS pubkey FROM node_keys
      WHERE community = $1 AND purpose = $2 AND retired_at IS NULL`,
    values: [community, purpose],
  });
  return rows[0]?.pubkey;
}

/** The current keys of every community and purpose. */
export async function currentKeys(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ pubkey: string }>(
    `SELECT encode(pubkey, 'hex') AS pubkey FROM node_keys
     WHERE retired_at IS NULL ORDER BY community, purpose LIMIT ${KEYS_MAX}`,
  );
  return rows.map(({ pubkey }) => pubkey);
}
const KEYS_MAX = 10_000;

export interface NodeKey {
  readonly purpose: KeyPurpose;
  readonly pubkey: string;
  readonly createdAt: number;
  readonly retiredAt: number | null;
  /** Why the node replaced the previous key without an operator; otherwise null. */
  readonly reason: string | null;
}

/** Current and retired keys, newest first. */
export async function listKeys(pool: Pool, community: number): Promise<NodeKey[]> {
  const { rows } = await pool.query<NodeKey>(
    `SELECT purpose, encode(pubkey, 'hex') AS pubkey, created_at AS "createdAt", retired_at AS "retiredAt",
       reason
     FROM node_keys WHERE community = $1 ORDER BY purpose, created_at DESC, pubkey`,
    [community],
  );
  return rows;
}

export interface KeyChange {
  readonly community: number;
  readonly purpose: KeyPurpose;
  readonly pubkey: string;
  /** The key that it replaces. */
  readonly before: string | undefined;
  /** Why the node replaces it without an operator. */
  readonly reason?: string | undefined;
}

/** Refused when the current key is no longer `before`. */
export async function replaceKey(
  pool: Pool,
  { community, purpose, pubkey, before, reason }: KeyChange,
  now: number,
): Promise<Denial | undefined> {
  const scope = { community, now };
  const done = await changeConfig(pool, scope, async (change) => {
    const { rowCount } = await change.db.query(
      `UPDATE node_keys SET retired_at = $3
       WHERE community = $1 AND purpose = $2 AND retired_at IS NULL AND pubkey = $4`,
      [community, purpose, now, before === undefined ? Buffer.alloc(0) : bytes(before)],
    );
    if (before !== undefined && rowCount === 0) return denial('VERSION_MISMATCH');
    const made = await change.db.query(
      `INSERT INTO node_keys (community, purpose, created_at, pubkey, reason) VALUES ($1, $2, $3, $4, $5)
       ON CONFLICT (community, purpose) WHERE retired_at IS NULL DO NOTHING`,
      [community, purpose, now, bytes(pubkey), reason ?? null],
    );
    if (made.rowCount === 0) return denial('VERSION_MISMATCH');
    // NIP-11 shows the relay's own key, so every instance must reload it.
    if (purpose === 'relay') change.raiseVersion();
    // The node makes the first key of a purpose, so no operator's action is recorded.
    if (before !== undefined)
      await change.audit('key.change', pubkey, { purpose, before, ...(reason ? { reason } : {}) });
    return { pubkey };
  });
  return isDenial(done) ? done : undefined;
}
