/**
 * The event of a case, as moderators see it: also while a rule or a moderator hides it. Nobody sees an event
 * that its author has deleted, before or after the removal, or whose author has vanished.
 */

import { addressHash } from '../events/postgres/history.js';
import { dedupeOf, eventAt } from '../events/postgres/places.js';
import { NOT_VANISHED } from '../events/postgres/read/hidden-at-read.js';
import { addressOf } from '../events/rules/classify.js';
import { ownersOf } from '../events/rules/deletion.js';
import type { NostrEvent } from '../events/rules/event.js';
import { HIDDEN_CODES } from '../events/rules/hidden.js';
import type { EventRef } from '../events/store.js';
import { hexArray } from '../postgres/binary.js';
import { bytes, type Db } from '../postgres/values.js';

export async function readCaseEvent(db: Db, { community, id }: EventRef): Promise<NostrEvent | undefined> {
  const { rows } = await db.query<{ payload: string }>(
    `SELECT e.payload FROM (SELECT $1::int AS community, $2::bytea AS event_id) asked
     ${dedupeOf('asked.community', 'asked.event_id')} ${eventAt('d')}
     WHERE coalesce(e.hidden, ${HIDDEN_CODES.removed}) = ${HIDDEN_CODES.removed} AND ${NOT_VANISHED}`,
    [community, bytes(id)],
  );
  if (rows[0] === undefined) return undefined;
  const event = JSON.parse(rows[0].payload) as NostrEvent;
  return (await isDeleted(db, community, event)) ? undefined : event;
}

/** A removed row keeps its mark when its author deletes it; only the tombstone shows the deletion. */
async function isDeleted(db: Db, community: number, event: NostrEvent): Promise<boolean> {
  const address = addressOf(event);
  const { rowCount } = await db.query(
    `SELECT 1 FROM deletion_tombstones WHERE community = $1
       AND ((target = $2 AND author = ANY ($3::bytea[]))
         OR (target = $4 AND author = $5 AND requested_at >= $6))`,
    [
      community,
      bytes(event.id),
      hexArray(ownersOf(event)),
      address === undefined ? null : bytes(addressHash(address)),
      bytes(event.pubkey),
      event.created_at,
    ],
  );
  return (rowCount ?? 0) > 0;
}
