/** The public halves of the keys that the node signs with: which is current, and which were before. */
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { bytes, changeConfig } from './config-change.js';

/** One for each claim, so that assertions of one never replace those of another. */
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

/** Of every community and purpose. */
export async function currentKeys(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ pubkey: string }>(
    `SELECT encode(pubkey, 'hex') AS pubkey FROM node_keys WHERE retired_at IS NULL ORDER BY community, purpose LIMIT ${KEYS_MAX}`,
  );
  return rows.map(({ pubkey }) => pubkey);
}
const KEYS_MAX = 10_000;

export interface NodeKey {
  readonly purpose: KeyPurpose;
  readonly pubkey: string;
  readonly createdAt: number;
  readonly retiredAt: number | null;
  /** Why the node itself made it in the place of another; null when an operator did, and of the first one. */
  readonly reason: string | null;
}

/** The current ones and those before them, the newest first. */
export async function listKeys(pool: Pool, community: number): Promise<NodeKey[]> {
  const { rows } = await pool.query<NodeKey>(
    `SELECT purpose, encode(pubkey, 'hex') AS pubkey, created_at AS "createdAt", retired_at AS "retiredAt", reason
     FROM node_keys WHERE community = $1 ORDER BY purpose, created_at DESC, pubkey`,
    [community],
  );
  return rows;
}

export interface KeyChange {
  readonly community: number;
  readonly purpose: KeyPurpose;
  readonly pubkey: string;
  /** The one that it takes the place of. */
  readonly before: string | undefined;
  /** Why the node did it by itself. */
  readonly reason?: string | undefined;
}

/** Refused when another key is current by now. */
export async function replaceKey(
  pool: Pool,
  { community, purpose, pubkey, before, reason }: KeyChange,
  now: number,
): Promise<Denial | undefined> {
  const scope = { community, now };
  const done = await changeConfig(pool, scope, async (change) => {
    const { rowCount } = await change.db.query(
      'UPDATE node_keys SET retired_at = $3 WHERE community = $1 AND purpose = $2 AND retired_at IS NULL AND pubkey = $4',
      [community, purpose, now, before === undefined ? Buffer.alloc(0) : bytes(before)],
    );
    if (before !== undefined && rowCount === 0) return denial('VERSION_MISMATCH');
    const made = await change.db.query(
      `INSERT INTO node_keys (community, purpose, created_at, pubkey, reason) VALUES ($1, $2, $3, $4, $5)
       ON CONFLICT (community, purpose) WHERE retired_at IS NULL DO NOTHING`,
      [community, purpose, now, bytes(pubkey), reason ?? null],
    );
    if (made.rowCount === 0) return denial('VERSION_MISMATCH');
    // Every instance tells which key is the relay's own (NIP-11).
    if (purpose === 'relay') change.raiseVersion();
    // The first one of a purpose is made by the node, not by an operator.
    if (before !== undefined)
      await change.audit('key.change', pubkey, { purpose, before, ...(reason ? { reason } : {}) });
    return { pubkey };
  });
  return isDenial(done) ? done : undefined;
}
