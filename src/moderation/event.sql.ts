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
import { hexArray, int8Array } from '../postgres/binary.js';
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
  return (await deletedAmong(db, community, [event])).has(id) ? undefined : event;
}

/**
 * The ids of the events that their authors have deleted. A removed row keeps its mark when its author deletes
 * it; only the tombstone shows the deletion.
 */
export async function deletedAmong(
  db: Db,
  community: number,
  events: readonly NostrEvent[],
): Promise<ReadonlySet<string>> {
  if (events.length === 0) return new Set();
  const asked = events.flatMap((event) => {
    const address = addressOf(event);
    const byId = ownersOf(event).map((owner) => ({ id: event.id, target: event.id, owner, since: 0 }));
    if (address === undefined) return byId;
    const target = addressHash(address);
    return [...byId, { id: event.id, target, owner: event.pubkey, since: event.created_at }];
  });
  const { rows } = await db.query<{ id: string }>(
    `SELECT DISTINCT encode(asked.id, 'hex') AS id
     FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[]) AS asked (id, target, owner, since)
     JOIN deletion_tombstones t ON t.community = $1 AND t.target = asked.target AND t.author = asked.owner
       AND t.requested_at >= asked.since`,
    [
      community,
      hexArray(asked.map(({ id }) => id)),
      hexArray(asked.map(({ target }) => target)),
      hexArray(asked.map(({ owner }) => owner)),
      int8Array(asked.map(({ since }) => since)),
    ],
  );
  return new Set(rows.map(({ id }) => id));
}
