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
import type { Db } from '../postgres/values.js';

export async function readCaseEvent(db: Db, { community, id }: EventRef): Promise<NostrEvent | undefined> {
  return (await readCaseEvents(db, community, [id])).get(id);
}

/** The events of many cases, by id. */
export async function readCaseEvents(
  db: Db,
  community: number,
  ids: readonly string[],
): Promise<Map<string, NostrEvent>> {
  if (ids.length === 0) return new Map();
  const { rows } = await db.query<{ payload: string }>(
    `SELECT e.payload FROM unnest($2::bytea[]) AS asked (event_id)
     ${dedupeOf('$1::int', 'asked.event_id')} ${eventAt('d')}
     WHERE coalesce(e.hidden, ${HIDDEN_CODES.removed}) = ${HIDDEN_CODES.removed} AND ${NOT_VANISHED}`,
    [community, hexArray(ids)],
  );
  const events = rows.map(({ payload }) => JSON.parse(payload) as NostrEvent);
  const deleted = await deletedAmong(db, community, events);
  return new Map(events.filter(({ id }) => !deleted.has(id)).map((event) => [event.id, event]));
}

/** What would delete an event: each owner of its id, and its author for its address. */
function deletionsOf(event: NostrEvent) {
  const { id, pubkey, created_at: since } = event;
  const byId = ownersOf(event).map((author) => ({ id, target: id, author, since: 0 }));
  const address = addressOf(event);
  if (address === undefined) return byId;
  return [...byId, { id, target: addressHash(address), author: pubkey, since }];
}

/** A removed row keeps its mark when its author deletes it; only the tombstone shows the deletion. */
export async function deletedAmong(
  db: Db,
  community: number,
  events: readonly NostrEvent[],
): Promise<Set<string>> {
  const asked = events.flatMap(deletionsOf);
  const { rows } = await db.query<{ id: string }>(
    `SELECT DISTINCT encode(asked.id, 'hex') AS id
     FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[]) AS asked (id, target, author, since)
     JOIN deletion_tombstones t ON t.community = $1 AND t.target = asked.target AND t.author = asked.author
       AND t.requested_at >= asked.since`,
    [
      community,
      hexArray(asked.map(({ id }) => id)),
      hexArray(asked.map(({ target }) => target)),
      hexArray(asked.map(({ author }) => author)),
      int8Array(asked.map(({ since }) => since)),
    ],
  );
  return new Set(rows.map(({ id }) => id));
}
