/** What a reader of the HTTP API may see: the same as on a websocket that is authenticated with this key. */
import type { Pool } from 'pg';
import type { Community } from '../communities/communities.js';
import { type Access, ANONYMOUS } from '../events/rules/access.js';
import { readRights, rightsKey } from '../topics/subscriptions.sql.js';

/** The consent of the reader was checked before (`needsConsent`). */
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
