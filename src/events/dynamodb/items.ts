/**
 * Events as items, and the index entries that find them. Entries are written before the item and deleted
 * after it. An entry without a served item is harmless, because every read checks the item itself.
 */
import { topicsOf, UNBOUND } from '../../topics/rules.js';
import { addressOf, KIND_DELETION } from '../rules/classify.js';
import { KIND_GIFT_WRAP, ownersOf } from '../rules/deletion.js';
import type { NostrEvent } from '../rules/event.js';
import { expirationOf } from '../rules/expiration.js';
import type { CameBy, PlacedEvent, RowRef, Submission } from '../rules/facts.js';
import type { Hidden } from '../rules/hidden.js';
import { ages } from '../rules/retention.js';
import type { Item, WriteOf } from './client.js';
import { eventKey, newestKey, partitionOf, partitions, pkKind, pkKindD, timeKey } from './keys.js';

/**
 * An item of DynamoDB holds 400 KB with its names and keys. A payload of more bytes is refused, so that every
 * event is one item.
 */
export const PAYLOAD_BYTES_MAX = 380_000;
/** Filters find an event by its first this many different single-letter tags. Each is an entry to write. */
export const TAGS_INDEXED_MAX = 200;
/** TTL removes an expired event this much later, so that the sweep announces it first. */
const TTL_AFTER_SECONDS = 86_400;
/** Later times are not set as TTL. */
const TTL_MAX = 4_102_444_800;

/** An item of `Events`. Without `payload` only the id is known. */
export interface EventItem extends Item {
  readonly id: string;
  readonly community: number;
  readonly event_id: string;
  readonly pubkey: string;
  readonly kind: number;
  readonly created_at: number;
  /** Milliseconds. */
  readonly ingested_at: number;
  readonly keep: number;
  readonly payload?: string;
  readonly bound?: readonly string[];
  readonly came_by?: CameBy;
  readonly expires_at?: number;
  /** Why it is not served. */
  readonly hidden_as?: Hidden;
  readonly hidden_at?: number;
  /** Milliseconds: when its content was purged. */
  readonly gone_at?: number;
  /** Seconds, for the TTL of DynamoDB. */
  readonly ttl_at?: number;
}

export interface NewItem extends Pick<RowRef, 'ingestedAt' | 'keep'> {
  readonly submission: Submission;
  readonly bound: readonly string[];
  readonly hidden: Hidden | undefined;
}

export function itemOf({ submission, ingestedAt, keep, bound, hidden }: NewItem): EventItem {
  const { community, event, payload, cameBy } = submission;
  const { id, pubkey, kind, created_at } = event;
  const address = addressOf(event);
  const expires = expirationOf(event);
  return {
    ...eventKey(community, id),
    community,
    event_id: id,
    pubkey,
    kind,
    created_at,
    newest: newestKey(created_at, id),
    ingested_at: ingestedAt,
    keep,
    payload,
    ...(hidden === undefined
      ? { pk_kind: pkKind(community, pubkey, kind) }
      : { hidden_as: hidden, hidden_at: ingestedAt }),
    ...(address === undefined ? {} : { pk_kind_d: pkKindD(community, address) }),
    ...(bound.length === 0 ? {} : { bound }),
    ...(cameBy === undefined ? {} : { came_by: cameBy }),
    ...(expires === undefined ? {} : { expires_at: expires }),
    ...(expires === undefined || expires > TTL_MAX ? {} : { ttl_at: expires + TTL_AFTER_SECONDS }),
  };
}

export const eventOf = ({ payload }: EventItem): NostrEvent => JSON.parse(payload!) as NostrEvent;
export const boundOf = ({ bound }: EventItem): readonly string[] => bound ?? UNBOUND;
export const isServedItem = (item: EventItem | undefined): item is EventItem & { readonly payload: string } =>
  item !== undefined && item.hidden_as === undefined && item.payload !== undefined;

/** `seq` names the item within one decision. */
export function placedOf(item: EventItem, seq: number): PlacedEvent {
  return {
    community: item.community,
    row: { seq, ingestedAt: item.ingested_at, keep: item.keep },
    event: eventOf(item),
    payload: item.payload!,
    bound: boundOf(item),
  };
}

// ── Index entries ──────────────────────────────────────────────────────────────────────────────────────────

/** What is in the index of an event. */
export interface Indexed {
  readonly community: number;
  readonly event: NostrEvent;
  readonly bound: readonly string[];
  readonly ingestedAt: number;
}

export const indexedOf = (item: EventItem): Indexed => ({
  community: item.community,
  event: eventOf(item),
  bound: boundOf(item),
  ingestedAt: item.ingested_at,
});

/** An entry has the kind and the author, so that most events that do not match are not read. */
export interface Entry extends Item {
  readonly pk: string;
  readonly sk: string;
  readonly kind: number;
  readonly author: string;
}

/** The entries of a served event, each once. */
export function entriesOf({ community, event, bound, ingestedAt }: Indexed): Entry[] {
  const { id, kind, pubkey: author, created_at } = event;
  const newest = newestKey(created_at, id);
  const keys = new Map<string, string>();
  const add = (list: readonly string[], sk: string) => keys.set(partitionOf(list, id), sk);
  add(partitions.all(community), newest);
  add(partitions.kind(community, kind), newest);
  add(partitions.author(community, author), newest);
  for (const [letter, value] of indexedTags(event, bound))
    add(partitions.tag(community, letter, value), newest);
  if (ages(kind)) add(partitions.ingested(community), timeKey(ingestedAt, id));
  if (kind === KIND_DELETION) add(partitions.requests(community), timeKey(ingestedAt, id));
  const expires = expirationOf(event);
  if (expires !== undefined) add(partitions.expires(community), timeKey(expires, id));
  return [...keys].map(([pk, sk]) => ({ pk, sk, kind, author }));
}

/** Topics first: they are what most readers ask for. */
function indexedTags(event: NostrEvent, bound: readonly string[]): (readonly [string, string])[] {
  const topics = [...bound, ...topicsOf(event)].map((topic) => ['t', topic] as const);
  const tags = event.tags.flatMap(([name, value]) =>
    value !== undefined && /^[a-zA-Z]$/.test(name!) ? [[name!, value] as const] : [],
  );
  const unique = new Map([...topics, ...tags].map((tag) => [tag.join('\n'), tag]));
  return [...unique.values()].slice(0, TAGS_INDEXED_MAX);
}

export const putEntries = (indexed: Indexed): WriteOf[] =>
  entriesOf(indexed).map((put) => ({ table: 'index', put }));

export const removeEntries = (indexed: Indexed): WriteOf[] =>
  entriesOf(indexed).map(({ pk, sk }) => ({ table: 'index', remove: { pk, sk } }));

/** Finds a known id by its author while it is not served. */
export function hiddenEntry({ community, pubkey, created_at, event_id, kind }: EventItem): Entry {
  const [pk] = partitions.hidden(community, pubkey);
  return { pk: pk!, sk: newestKey(created_at, event_id), kind, author: pubkey };
}

/**
 * All of them: an item with its content is also found by the recipients of a gift wrap, and in the lists of
 * removed events and of requests to vanish. When the content is purged, those entries are deleted, because
 * nothing would find them any more.
 */
export function hiddenEntries(item: EventItem): Entry[] {
  return [hiddenEntry(item), ...recipientEntries(item), ...listedEntries(item)];
}

export function recipientEntries(item: EventItem): Entry[] {
  if (item.kind !== KIND_GIFT_WRAP || item.payload === undefined) return [];
  const { community, pubkey } = item;
  const recipients = ownersOf(eventOf(item)).filter((owner) => owner !== pubkey);
  return recipients.flatMap((owner) =>
    partitions.hidden(community, owner).map((pk) => ({ ...hiddenEntry(item), pk })),
  );
}

/** Lists an author, for the checks that go through all public keys. */
export function personEntry(community: number, pubkey: string): Item {
  return { pk: partitionOf(partitions.people(community), pubkey), sk: pubkey };
}

/** Finds a superseded version by the time when it was superseded. */
export function historyEntry(community: number, { id, pubkey, kind }: NostrEvent, at: number): Entry {
  const [pk] = partitions.history(community);
  return { pk: pk!, sk: timeKey(at, id), kind, author: pubkey };
}

/** Finds what a moderator removed, and requests to vanish, by the time from which they are not served. */
export function listedEntries(item: EventItem): Entry[] {
  const { community, event_id, kind, pubkey: author, hidden_as, hidden_at = 0 } = item;
  const list =
    hidden_as === 'removed'
      ? partitions.removed(community)
      : hidden_as === 'withheld'
        ? partitions.vanish(community)
        : [];
  return list.map((pk) => ({ pk, sk: timeKey(hidden_at, event_id), kind, author }));
}
