/**
 * The files of a person's export that are made from these tables, with the lines that the tables of
 * PostgreSQL would have (events/postgres/tables.ts declares them).
 */
import type { DynamodbPlace } from '../../../node/config.js';
import type { EventErasing, Owner } from '../../store.js';
import { Dynamodb } from '../client.js';
import { type EventItem, eventOf } from '../items.js';
import { seenKey } from '../keys.js';
import { type Found, hiddenOf, servedOf, wrapsTo } from './found.js';
import { type OwnedState, stateOf } from './state.js';

export interface PersonalEvents extends Pick<EventErasing, 'personal'> {
  close(): Promise<void>;
}

/** For a command, which needs no store. */
export function openPersonal(place: DynamodbPlace): PersonalEvents {
  const db = new Dynamodb(place);
  return { personal: (file, owner) => personalRows(db, file, owner), close: () => db.close() };
}

type Walk = AsyncGenerator<Found[]>;

export async function* personalRows(db: Dynamodb, file: string, owner: Owner): AsyncGenerator<object> {
  const { pubkey } = owner;
  const author = { ...owner, until: Number.MAX_SAFE_INTEGER, sparesRequest: false };
  const isOwn = (item: EventItem) => item.pubkey === pubkey;
  switch (file) {
    case 'events':
      for await (const item of itemsIn(servedOf(db, author))) yield eventOf(item);
      return;
    case 'hidden-events':
      for await (const item of itemsIn(hiddenOf(db, author)))
        if (isOwn(item) && item.payload !== undefined) yield hiddenEvent(item);
      return;
    case 'gift-wraps':
      for await (const item of itemsIn(wrapsTo(db, author))) yield hiddenEvent(item);
      for await (const item of itemsIn(hiddenOf(db, author))) if (!isOwn(item)) yield hiddenEvent(item);
      return;
    case 'event-ids':
      for (const walk of [servedOf(db, author), hiddenOf(db, author)])
        for await (const item of itemsIn(walk)) if (isOwn(item)) yield await idOf(db, item);
      return;
    default: {
      const line = STATE_LINES[file];
      if (line === undefined) return;
      for await (const states of stateOf(db, owner)) for (const state of states) yield* line(state);
    }
  }
}

async function* itemsIn(walk: Walk): AsyncGenerator<EventItem> {
  for await (const found of walk) for (const one of found) if (one.type !== 'left') yield one.item;
}

const hiddenEvent = (item: EventItem) => ({
  hidden: item.hidden_as ?? null,
  hidden_at: item.hidden_at ?? null,
  event: eventOf(item),
});

async function idOf(db: Dynamodb, item: EventItem): Promise<object> {
  const { community, event_id, ingested_at } = item;
  const seen = await db.get('state', seenKey(community, event_id));
  return {
    event_id,
    first_seen_at: ingested_at,
    last_seen_at: seen?.last_seen_at ?? ingested_at,
    seen_count: 1 + ((seen?.seen_count as number | undefined) ?? 0),
    hidden: item.hidden_as ?? null,
    gone_at: item.gone_at ?? null,
  };
}

const STATE_LINES: Readonly<Record<string, (state: OwnedState) => object[]>> = {
  'newest-versions': (state) =>
    state.type === 'head' ? [{ created_at: state.createdAt, event_id: state.id }] : [],
  deletions: (state) =>
    state.type === 'tombstone'
      ? [
          {
            target: state.target,
            is_address: state.isAddress,
            requested_at: state.requestedAt,
            deletion_event: state.requestId,
          },
        ]
      : [],
  'deletions-by-day': (state) => (state.type === 'quota' ? [{ day: state.day, targets: state.targets }] : []),
  'deletions-under-way': (state) =>
    state.type === 'removal' ? [{ target: state.target, requested_at: state.requestedAt }] : [],
};
