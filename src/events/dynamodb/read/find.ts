/**
 * Answers filters: the entries of an index in order, the items that they name, strongly consistent, and the
 * filter on each of them. So an index that is behind never shows what is deleted (I6), and everything that
 * hides at read, such as expiration, days and marks, is decided on the item itself (I7).
 */

import { asMatched, type MatchedEvent } from '../../../topics/rules.js';
import { KIND_VANISH } from '../../rules/classify.js';
import { covers } from '../../rules/deletion.js';
import { factKey } from '../../rules/facts.js';
import { type Filter, matchesNothing, matchFilter } from '../../rules/filter.js';
import { asKept } from '../../rules/retention.js';
import type {
  CountQuery,
  EventRef,
  FoundEvent,
  InSlot,
  NewestPage,
  NewestPlace,
  PendingMark,
  Query,
  ReadEvent,
} from '../../store.js';
import type { Dynamodb } from '../client.js';
import { boundOf, type Entry, type EventItem, eventOf, isServedItem } from '../items.js';
import { type Placed, partitions, placeOf } from '../keys.js';
import type { PendingMarks } from '../marks.js';
import { itemsByRef } from '../selections.js';
import type { Positions } from './positions.js';
import type { RecentWrites } from './recent-writes.js';
import { type Plan, planOf, QueryTooCostly, Scan } from './scans.js';

/** Items that are read at once. */
const PORTION = 100;
const PORTION_MIN = 10;
/**
 * Entries of one query that may not match, beside its limit. Then it is refused: nothing is ever scanned.
 */
const PASSED_MAX = 20_000;
/** Payloads of one answer that are kept; the others are read again when they are sent. */
const HELD_BYTES_MAX = 4 * 1_048_576;
/** A page to fill a memory. */
const PAGE_ROWS = 250;
const PAGE_BYTES = 1_048_576;

export interface Reading {
  readonly db: Dynamodb;
  readonly marks: PendingMarks;
  readonly recent: RecentWrites;
  readonly positions: Positions;
  readonly now: () => number;
}

export type Served = EventItem & { readonly payload: string };
export { isServedItem };

/** A query that may continue a page. */
export type PlacedQuery = Query & { readonly after?: Placed | undefined };

export async function findEvents(reading: Reading, query: PlacedQuery): Promise<FoundEvent[]> {
  const { limit } = query;
  const found: FoundEvent[] = [];
  let bytes = 0;
  for await (const item of matches(reading, query)) {
    const row = foundOf(reading, item);
    bytes += row.bytes;
    found.push(bytes > HELD_BYTES_MAX ? { ...row, payload: undefined } : row);
    if (found.length >= limit) break;
  }
  return found;
}

export async function countEvents(reading: Reading, query: CountQuery, inSlot: InSlot): Promise<number> {
  const { filters, max, ...rest } = query;
  const counted = new Set<string>();
  for (const filter of filters) {
    const limit = Math.min(filter.limit ?? max + 1, max + 1);
    await inSlot(filter, async () => {
      let own = 0;
      if (limit === 0) return;
      for await (const item of matches(reading, { ...rest, filter, limit })) {
        counted.add(item.event_id);
        own += 1;
        if (own >= limit || counted.size > max) break;
      }
    });
    if (counted.size > max) break;
  }
  return Math.min(counted.size, max + 1);
}

export async function eventsById(
  reading: Reading,
  refs: readonly EventRef[],
): Promise<Map<string, ReadEvent>> {
  const { db, marks } = reading;
  const communities = [...new Set(refs.map(({ community }) => community))];
  const pending = await Promise.all(communities.map((community) => marks.of(community)));
  const items = await itemsByRef(db, refs);
  const hiding = new Map(communities.map((community, at) => [community, pending[at]!]));
  const found = new Map<string, ReadEvent>();
  for (const [key, item] of items)
    if (isServedItem(item) && !isVanished(item, hiding.get(item.community)!))
      found.set(key, readOf(reading, item));
  return found;
}

/** The next events of a community after a place, also those that have expired or are past their days. */
export async function newestEvents(
  reading: Reading,
  community: number,
  after: NewestPlace,
): Promise<NewestPage> {
  const { db, marks } = reading;
  const plan = {
    partitions: partitions.all(community).map((pk) => ({ pk, of: 'index' as const })),
    lags: false,
  };
  const scan = new Scan(db, plan, { until: after.createdAt }, PAGE_ROWS, after);
  const events: (ReadEvent & NewestPlace)[] = [];
  const pending = await marks.of(community);
  let bytes = 0;
  for (let passed = 0; passed < PASSED_MAX; ) {
    const entries = await scan.next(PORTION);
    if (entries.length === 0) return { events, isLast: true };
    passed += entries.length;
    for (const item of await served(
      db,
      community,
      entries.map(({ sk }) => placeOf(sk)),
    )) {
      if (isVanished(item, pending)) continue;
      if (events.length >= PAGE_ROWS || bytes >= PAGE_BYTES) return { events, isLast: false };
      events.push({ ...readOf(reading, item), createdAt: item.created_at, id: item.event_id });
      bytes += Buffer.byteLength(item.payload);
    }
  }
  throw new QueryTooCostly();
}

// ── Matches ────────────────────────────────────────────────────────────────────────────────────────────────

/** Newest first, each once. The caller stops when it has enough. */
async function* matches(reading: Reading, query: PlacedQuery): AsyncGenerator<Served> {
  const { db, marks } = reading;
  const { community, filter, limit } = query;
  if (limit <= 0 || matchesNothing(filter)) return;
  const plan = planOf(community, filter);
  // Before any item: an erasure deletes its items before it ends its mark.
  const pending = await marks.of(community);
  if (plan === undefined) {
    for (const item of await ofIds(db, query)) if (doesMatch(item, query, pending)) yield item;
    return;
  }
  const seen = new Set<string>();
  // No more items at once than the answer may need.
  const portionSize = Math.min(PORTION, Math.max(PORTION_MIN, limit));
  for await (const places of candidates(reading, query, plan)) {
    const fresh = places.filter(({ id }) => !seen.has(id) && seen.add(id));
    for (let at = 0; at < fresh.length; at += portionSize)
      for (const item of await served(db, community, fresh.slice(at, at + portionSize)))
        if (doesMatch(item, query, pending)) yield item;
    if (seen.size > limit + PASSED_MAX) throw new QueryTooCostly();
  }
}

/** By ids: every item is read, because their times are not known before. */
async function ofIds(db: Dynamodb, { community, filter, after }: PlacedQuery): Promise<Served[]> {
  const refs = [...filter.ids!].map((id) => ({ community, id }));
  const items = [...(await itemsByRef(db, refs)).values()].filter(isServedItem);
  const placeOfItem = ({ created_at, event_id }: Served) => ({ createdAt: created_at, id: event_id });
  const isLater = (item: Served) => after === undefined || byPlace(placeOfItem(item), after) > 0;
  return items.filter(isLater).sort((a, b) => byPlace(placeOfItem(a), placeOfItem(b)));
}

async function* candidates(
  { db, recent }: Reading,
  { community, filter, limit, after }: PlacedQuery,
  plan: Plan,
): AsyncGenerator<Placed[]> {
  const scan = new Scan(db, plan, filter, limit, after);
  const isLater = (place: Placed) => after === undefined || byPlace(place, after) > 0;
  // What this process has just stored, where the index may not have it yet.
  let own = plan.lags ? recent.find(community, filter).filter(isLater).sort(byPlace) : [];
  for (;;) {
    const entries = await scan.next(Math.min(PORTION, Math.max(PORTION_MIN, limit)));
    if (entries.length === 0) {
      if (own.length > 0) yield own;
      return;
    }
    const places = entries.filter((entry) => mayMatch(entry, filter)).map(({ sk }) => placeOf(sk));
    const last = placeOf(entries.at(-1)!.sk);
    const due = own.filter((place) => byPlace(place, last) <= 0);
    own = own.slice(due.length);
    yield due.length === 0 ? places : [...places, ...due].sort(byPlace);
  }
}

export function mayMatch(
  { kind, author }: Pick<Entry, 'kind' | 'author'>,
  { kinds, authors }: Filter,
): boolean {
  return (kinds?.has(kind) ?? true) && (authors?.has(author) ?? true);
}

export const byPlace = (a: Placed, b: Placed) =>
  b.createdAt - a.createdAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

/** The served items at these places, in their order. */
export async function served(db: Dynamodb, community: number, places: readonly Placed[]): Promise<Served[]> {
  const items = await itemsByRef(
    db,
    places.map(({ id }) => ({ community, id })),
  );
  return places.flatMap(({ id }) => {
    const item = items.get(factKey(community, id));
    return isServedItem(item) ? [item] : [];
  });
}

export function doesMatch(
  item: Served,
  { filter, rules, now }: Query,
  pending: readonly PendingMark[],
): boolean {
  if (item.kind === KIND_VANISH || (item.expires_at ?? Number.POSITIVE_INFINITY) <= Math.floor(now / 1_000))
    return false;
  if (isVanished(item, pending)) return false;
  const event = eventOf(item);
  const bound = boundOf(item);
  const matched: MatchedEvent | undefined =
    rules === undefined
      ? asMatched(event, bound)
      : asKept(rules, event, { bound, ingestedAt: item.ingested_at }, now);
  return matched !== undefined && matchFilter(filter, matched);
}

export function isVanished(item: Served, pending: readonly PendingMark[]): boolean {
  return pending.length > 0 && pending.some((mark) => covers(mark, eventOf(item)));
}

// ── Rows ───────────────────────────────────────────────────────────────────────────────────────────────────

const positionOf = ({ positions, now }: Reading, { community, event_id, ingested_at }: Served) =>
  positions.of(community, event_id, ingested_at, now());

function foundOf(reading: Reading, item: Served): FoundEvent {
  return {
    seq: positionOf(reading, item),
    ingestedAt: item.ingested_at,
    keep: item.keep,
    createdAt: item.created_at,
    kind: item.kind,
    expiresAt: item.expires_at,
    id: item.event_id,
    bytes: Buffer.byteLength(item.payload),
    bound: boundOf(item),
    payload: item.payload,
  };
}

export const readOf = (reading: Reading, item: Served): ReadEvent => ({
  seq: positionOf(reading, item),
  ingestedAt: item.ingested_at,
  payload: item.payload,
  bound: boundOf(item),
});
