/** What a reader of the HTTP API may see: the same as over a socket that has proved this key. */
import type { Pool } from 'pg';
import type { Community } from '../communities.js';
import { type Access, ANONYMOUS } from '../core/access.js';
import { readRights, rightsKey } from '../store/subscriptions.js';

/** Whether the reader has agreed to what is current was asked before (`needsConsent`). */
export async function accessOf(
  pool: Pool,
  { id, settings }: Community,
  reader: string | undefined,
): Promise<Access> {
  const enforced = settings['auth.mode'] === 'required';
  if (reader === undefined) return { ...ANONYMOUS, enforced };
  const holder = { community: id, pubkey: reader };
  const rights = (await readRights(pool, [holder])).get(rightsKey(holder));
  const pubkeys = new Set([reader]);
  return { pubkeys, enforced, consented: pubkeys, subscribed: rights?.topics ?? new Set() };
}
