/** Reads the version of a replaceable event that is served now. */

import { bytes, type Db } from '../../../postgres/values.js';
import type { NostrEvent } from '../../rules/event.js';
import { Keep } from '../../rules/keep.js';

export interface CurrentOf {
  readonly community: number;
  readonly pubkey: string;
  readonly kind: number;
}

export async function readCurrentEvent(
  db: Db,
  { community, pubkey, kind }: CurrentOf,
): Promise<NostrEvent | undefined> {
  const { rows } = await db.query<{ payload: string }>(
    `SELECT payload FROM events
     WHERE community = $1 AND pubkey = $2 AND kind = $3 AND keep = ${Keep.current} AND hidden IS NULL
     LIMIT 1`,
    [community, bytes(pubkey), kind],
  );
  return rows[0] && (JSON.parse(rows[0].payload) as NostrEvent);
}
