/**
 * The event of a case, as moderators see it: also while a rule or a moderator hides it. Nobody sees an event
 * that its author has deleted, before or after the removal, or whose author has vanished.
 */
import type { NostrEvent } from '../events/rules/event.js';
import type { EventRef } from '../events/store.js';
import type { StoredEvents } from '../events/stored-events.js';
import type { Db } from '../postgres/values.js';

export async function readCaseEvent(
  db: Db,
  stored: StoredEvents,
  { community, id }: EventRef,
): Promise<NostrEvent | undefined> {
  return (await readCaseEvents(db, stored, community, [id])).get(id);
}

/** The events of many cases, by id. */
export async function readCaseEvents(
  db: Db,
  stored: StoredEvents,
  community: number,
  ids: readonly string[],
): Promise<Map<string, NostrEvent>> {
  if (ids.length === 0) return new Map();
  const rows = await stored.byIds(
    db,
    ids.map((id) => ({ community, id })),
  );
  const events = [...rows.values()]
    .filter(({ hidden, isVanished }) => (hidden ?? 'removed') === 'removed' && !isVanished)
    .map(({ payload }) => JSON.parse(payload) as NostrEvent);
  const deleted = await stored.deletedAmong(db, community, events);
  return new Map(events.filter(({ id }) => !deleted.has(id)).map((event) => [event.id, event]));
}
