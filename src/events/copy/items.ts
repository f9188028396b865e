/**
 * What a copy writes to DynamoDB for each row of PostgreSQL: the item as the store would have it, and its
 * index entries. `copied_at` tells the stream that an item was copied, so that nothing is announced twice.
 */
import { createHash } from 'node:crypto';
import type { Settings } from '../../communities/rules-settings.js';
import type { Item, WriteOf } from '../dynamodb/client.js';
import {
  type EventItem,
  hiddenEntry,
  historyEntry,
  itemOf,
  PAYLOAD_BYTES_MAX,
  putEntries,
} from '../dynamodb/items.js';
import {
  ALONE,
  eventKey,
  idTombstoneKey,
  markKey,
  newestKey,
  ownerOf,
  pendingMarks,
  type Table,
} from '../dynamodb/keys.js';
import type { NostrEvent } from '../rules/event.js';
import type { EventRow, GoneRow, HeadRow, MarkRow, TombstoneRow } from './source.sql.js';

export interface Copied {
  readonly table: Table;
  readonly item: Item;
  /** Index entries, written before the item. */
  readonly entries: readonly WriteOf[];
}

const SECONDS_PER_DAY = 86_400;
/** A purged id has neither in PostgreSQL. */
const KIND_UNKNOWN = -1;

/** Undefined for an event that does not fit into an item. */
export function copyOfEvent(row: EventRow, settings: Settings): Copied | undefined {
  const { community, payload, ingestedAt, keep, bound, cameBy, hidden, hiddenAt = ingestedAt } = row;
  if (Buffer.byteLength(payload) > PAYLOAD_BYTES_MAX) return undefined;
  const event = JSON.parse(payload) as NostrEvent;
  const submission = { community, event, payload, ...(cameBy === undefined ? {} : { cameBy }) };
  const fresh = itemOf({ submission, ingestedAt, keep, bound, hidden });
  if (hidden === undefined)
    return { table: 'events', item: fresh, entries: putEntries({ community, event, bound, ingestedAt }) };
  const days = { superseded: settings['retention.historyDays'], deleted: settings['deletion.auditDays'] };
  const kept = hidden === 'superseded' || hidden === 'deleted' ? days[hidden] : undefined;
  const ttl_at =
    typeof kept === 'number' ? Math.ceil(hiddenAt / 1_000) + (kept + 1) * SECONDS_PER_DAY : undefined;
  const { ttl_at: _, ...bare } = fresh;
  const item = { ...bare, hidden_at: hiddenAt, ...(ttl_at === undefined ? {} : { ttl_at }) } as EventItem;
  const history = hidden === 'superseded' ? [historyEntry(community, event, hiddenAt)] : [];
  return { table: 'events', item, entries: [hiddenEntry(item), ...history].map(entry) };
}

export function copyOfGone(row: GoneRow, settings: Settings): Copied {
  const { community, id, author, hidden, firstSeenAt, goneAt } = row;
  const created_at = Math.floor(firstSeenAt / 1_000);
  const ttl_at = Math.ceil(goneAt / 1_000) + settings['retention.dedupeDays'] * SECONDS_PER_DAY;
  const item: EventItem = {
    ...eventKey(community, id),
    community,
    event_id: id,
    pubkey: author,
    kind: KIND_UNKNOWN,
    created_at,
    newest: newestKey(created_at, id),
    ingested_at: firstSeenAt,
    keep: 0,
    hidden_as: hidden,
    hidden_at: goneAt,
    gone_at: goneAt,
    // Only this id keeps out what a moderator removed.
    ...(hidden === 'removed' ? {} : { ttl_at }),
  };
  return { table: 'events', item, entries: [entry(hiddenEntry(item))] };
}

export function copyOfHead({ community, addressHash, id, createdAt, pubkey }: HeadRow): Copied {
  const owner_key = ownerOf(community, pubkey);
  const pk = `${community}/head/${addressHash}`;
  return state({ pk, sk: ALONE, id, created_at: createdAt, owner_key });
}

export function copyOfTombstone(row: TombstoneRow): Copied {
  const { community, isAddress, target, author, requestedAt, requestId } = row;
  const owner_key = ownerOf(community, author);
  const key = idTombstoneKey(community, isAddress ? `a/${target}` : target, author);
  return state({ ...key, requested_at: requestedAt, request_id: requestId, owner_key });
}

export function copiesOfMark({ community, pubkey, until, requestId, isPending }: MarkRow): Copied[] {
  const owner_key = ownerOf(community, pubkey);
  const mark = {
    ...markKey(community, pubkey),
    until_at: until,
    ...(requestId === undefined || requestId === null ? {} : { request_id: requestId }),
    owner_key,
  };
  const pending = { pk: pendingMarks(community), sk: pubkey, until_at: until, owner_key };
  return [state(mark), ...(isPending ? [state(pending)] : [])];
}

const entry = (put: Item): WriteOf => ({ table: 'index', put });
const state = (item: Item): Copied => ({ table: 'state', item, entries: [] });

/** Members that are being erased, or were: nothing of them is copied. */
export const isErasing = ({ hidden_as }: Item): boolean => hidden_as === 'vanished' || hidden_as === 'erased';

/**
 * Attributes that differ between two copies, that follow from others and the settings, or that are in the
 * log.
 */
const OWN = new Set(['copied_at', 'buried_at', 'ttl_at', 'came_by']);
/** All that PostgreSQL keeps of a purged event. */
const GONE = new Set(['id', 'pubkey', 'ingested_at', 'hidden_as', 'gone_at']);

/** The same for two items with the same content. */
export function hashOfItem(item: Item): string {
  const isGone = item.gone_at !== undefined && item.payload === undefined;
  // PostgreSQL keeps superseded versions in a bucket of their own.
  const isCompared = (name: string) =>
    isGone ? GONE.has(name) : !OWN.has(name) && !(name === 'keep' && item.hidden_as === 'superseded');
  const names = Object.keys(item).filter(isCompared);
  const text = JSON.stringify(names.sort().map((name) => [name, item[name]]));
  return createHash('sha256').update(text).digest('hex');
}
