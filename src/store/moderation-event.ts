/**
 * The event of a case, as those see it who decide about it: also while a rule or a moderator keeps it out of view. What its author has
 * deleted, before or after, and what is of one who has vanished, nobody sees any more.
 */
import { addressOf } from '../core/classify.js';
import { ownersOf } from '../core/deletion.js';
import type { NostrEvent } from '../core/event.js';
import { HIDDEN_CODES } from '../core/hidden.js';
import { hexArray } from './binary.js';
import { bytes, type Db } from './config-change.js';
import { addressHash } from './history.js';
import { dedupeOf, eventAt, NOT_VANISHED } from './query.js';
import type { EventRef } from './restore.js';

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

/** A removed row is not hidden a second time when its author deletes it: the tombstone alone says so. */
async function isDeleted(db: Db, community: number, event: NostrEvent): Promise<boolean> {
  const address = addressOf(event);
  const { rowCount } = await db.query(
    `SELECT 1 FROM deletion_tombstones WHERE community = $1
       AND ((target = $2 AND author = ANY ($3::bytea[])) OR (target = $4 AND author = $5 AND requested_at >= $6))`,
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
