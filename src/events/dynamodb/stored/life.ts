/** What DynamoDB knows about one id: its item, repeats, tombstones, the head of its address, marks. */
import { addressOf } from '../../rules/classify.js';
import { ownersOf } from '../../rules/deletion.js';
import type { NostrEvent } from '../../rules/event.js';
import { CAME_BY_SYNC } from '../../rules/facts.js';
import type { EventRef } from '../../store.js';
import { type EventLife, type KnownLife, type KnownTombstone, TOMBSTONES_MAX } from '../../stored-events.js';
import { type Dynamodb, type Item, keyText } from '../client.js';
import { tombstonesOf } from '../facts.js';
import { type EventItem, eventOf } from '../items.js';
import { eventKey, headKey, idTombstoneKey, markKey, seenKey, type TableKey } from '../keys.js';

const atState = (key: TableKey) => ({ table: 'state' as const, key });

export async function readLife(db: Dynamodb, { community, id }: EventRef): Promise<EventLife> {
  const seenAt = seenKey(community, id);
  const first = await db.read([{ table: 'events', key: eventKey(community, id) }, atState(seenAt)]);
  const item = first.get(keyText('events', eventKey(community, id))) as EventItem | undefined;
  const event = item?.payload === undefined ? undefined : eventOf(item);
  const address = event && addressOf(event);
  const owners = event === undefined ? (item === undefined ? [] : [item.pubkey]) : ownersOf(event);
  const found = await db.read([
    ...owners.map((owner) => atState(markKey(community, owner))),
    ...(address === undefined ? [] : [atState(headKey(community, address))]),
  ]);
  const head = address === undefined ? undefined : found.get(keyText('state', headKey(community, address)));
  const marks: Item[] = owners.flatMap((owner) => {
    const mark = found.get(keyText('state', markKey(community, owner)));
    return mark === undefined ? [] : [mark];
  });
  const [mark] = marks.sort((a, b) => (b.until_at as number) - (a.until_at as number));
  return {
    known: item && knownOf(item, event, first.get(keyText('state', seenAt))),
    tombstones: await readTombstones(db, { community, id }, event),
    head: head && { id: head.id as string, created_at: head.created_at as number },
    vanish: mark && {
      until: mark.until_at as number,
      request: (mark.request_id as string | undefined) ?? null,
    },
  };
}

function knownOf(item: EventItem, event: NostrEvent | undefined, seen: Item | undefined): KnownLife {
  const { pubkey: author, ingested_at, came_by, hidden_as, hidden_at, gone_at, expires_at } = item;
  return {
    author,
    firstSeenAt: ingested_at,
    lastSeenAt: (seen?.last_seen_at as number | undefined) ?? null,
    seenCount: 1 + ((seen?.seen_count as number | undefined) ?? 0),
    hidden: hidden_as,
    goneAt: gone_at ?? null,
    cameBy: came_by === undefined ? 'post' : came_by === CAME_BY_SYNC ? 'sync' : 'gossip',
    stored: event && { event, expiresAt: expires_at ?? null, hiddenAt: hidden_at ?? null },
  };
}

/** Of a stored event only those that apply to it: another key's request has no effect (I5). */
async function readTombstones(
  db: Dynamodb,
  { community, id }: EventRef,
  event: NostrEvent | undefined,
): Promise<KnownTombstone[]> {
  if (event === undefined) {
    const { items } = await db.query('state', {
      KeyConditionExpression: 'pk = :pk',
      ExpressionAttributeValues: { ':pk': idTombstoneKey(community, id, '').pk },
      Limit: TOMBSTONES_MAX,
    });
    return items.map((item) => tombstoneOf(item, false)).sort(byTime);
  }
  const asked = tombstonesOf({ community, event, payload: '' });
  const found = await db.read(asked.map(({ key }) => atState(key)));
  return asked
    .flatMap(({ key, name }) => {
      const item = found.get(keyText('state', key));
      if (item === undefined) return [];
      const isAddress = name !== id;
      return isAddress && (item.requested_at as number) < event.created_at
        ? []
        : [tombstoneOf(item, isAddress)];
    })
    .sort(byTime);
}

const tombstoneOf = (item: Item, isAddress: boolean): KnownTombstone => ({
  author: item.sk as string,
  isAddress,
  requestedAt: item.requested_at as number,
  appliedAt: (item.buried_at as number | undefined) ?? null,
  deletionEvent: item.request_id as string,
});

const byTime = (a: KnownTombstone, b: KnownTombstone) =>
  a.requestedAt - b.requestedAt || (a.author < b.author ? -1 : 1);
