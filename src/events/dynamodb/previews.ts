/** What jobs would take now, for dry runs. It reads what the jobs read, and changes nothing. */
import { isOwner, isProtectedKind } from '../rules/deletion.js';
import { PREVIEWED_MAX, type Previewed, type PreviewedEvent } from '../store.js';
import { agedItems } from './hide.js';
import { leftItems } from './history.js';
import { type EventItem, eventOf } from './items.js';
import { type Selecting, selectItems } from './selections.js';

export async function previewEvents(
  selecting: Selecting,
  which: Previewed,
  now: number,
): Promise<PreviewedEvent[]> {
  const items = await itemsOf(selecting, which, now);
  return items
    .filter(({ payload }) => payload !== undefined)
    .map((item) => ({ community: item.community, event: eventOf(item) }));
}

async function itemsOf(selecting: Selecting, which: Previewed, now: number): Promise<readonly EventItem[]> {
  const { db, communities } = selecting;
  if (which.by === 'left') {
    const left = await leftItems(db, communities(), PREVIEWED_MAX, now);
    return left
      .filter(({ item, author }) => !isProtectedKind(item.kind) && isOwner(eventOf(item), author))
      .map(({ item }) => item);
  }
  if (which.by !== 'sweep') return selectItems(selecting, which, now);
  const found: EventItem[] = [];
  let after: number | undefined = 0;
  while (after !== undefined && found.length < PREVIEWED_MAX) {
    const step: Awaited<ReturnType<typeof agedItems>> = await agedItems(
      db,
      { after, rules: which.rules },
      now,
    );
    found.push(...step.aged);
    after = step.next;
  }
  return found.slice(0, PREVIEWED_MAX);
}
