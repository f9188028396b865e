/**
 * Finds stored events for operators, page by page: served ones along the indexes of a REQ, by words with the
 * search index, hidden ones by author or by why they are hidden. A page is bounded by events and bytes (I14).
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import type { Community } from '../communities/communities.js';
import { moderatorsView } from '../events/rules/access.js';
import type { NostrEvent } from '../events/rules/event.js';
import { type Filter, parseFilter } from '../events/rules/filter.js';
import { findCost, type QueryCost } from '../events/rules/query-cost.js';
import { isRefusal } from '../events/rules/reply.js';
import type { ListedHidden, ListedPlace, StoredEvents, StoredRow } from '../events/stored-events.js';
import { heldAmong } from '../moderation/cases.sql.js';
import { decodeCursor, encodeCursor, notACursor, type Page } from '../postgres/page.js';
import { type SearchPools, selectSearched } from '../search/search.sql.js';
import { allTopics } from '../topics/rules.js';
import type { Named } from './event-name.js';
import { type Concealed, concealedAs, type State, stateOf } from './rules-finder.js';

export interface FinderPools {
  readonly pool: Pool;
  readonly events: StoredEvents;
  readonly search: SearchPools;
  /** Runs a query in a slot of its class, within the deadline of that class. */
  readonly inSlot: <T>(cost: QueryCost, query: (pool: Pool) => Promise<T>) => Promise<T>;
}

export interface Asked {
  readonly named: Named | undefined;
  readonly author: string | undefined;
  readonly topic: string | undefined;
  readonly kinds: readonly number[] | undefined;
  /** Seconds, inclusive. */
  readonly since: number | undefined;
  readonly until: number | undefined;
  readonly text: string | undefined;
  /** `hidden`: for any reason, of one author. */
  readonly show: 'served' | 'hidden' | ListedHidden;
  readonly limit: number;
  readonly cursor: string | undefined;
}

export interface FoundStored {
  readonly row: StoredRow;
  readonly state: State;
  /** Undefined where its content is concealed. */
  readonly event: NostrEvent | undefined;
  readonly topics: readonly string[];
  readonly concealed: Concealed | undefined;
}

type Place = Pick<ListedPlace, 'at' | 'id'>;

/** A page ends with the event that goes beyond the bytes. */
const PAGE_BYTES = 2_097_152;
/** A bounded scan of hidden rows. */
const HIDDEN_COST: QueryCost = { class: 'medium', ms: 20 };

const cursorSchema = z.tuple([z.number().int(), z.string().regex(/^[0-9a-f]{64}$/)]);

export async function findStored(
  pools: FinderPools,
  community: Community,
  asked: Asked,
  now: number,
): Promise<Page<FoundStored> | Denial> {
  const from = asked.cursor === undefined ? undefined : decodeCursor(asked.cursor, cursorSchema);
  if (asked.cursor !== undefined && from === undefined) return notACursor();
  const after = from && { at: from[0], id: from[1] };
  const found = await placesOf(pools, community, asked, after, now);
  if (isDenial(found)) return found;
  const { places, next } = withinBytes(found);
  const rows = await pools.events.rows(pools.pool, community.id, places);
  return {
    items: await show(pools, community, rows, now),
    cursor: next && encodeCursor([next.at, next.id]),
  };
}

interface Places {
  readonly places: readonly ListedPlace[];
  readonly next: Place | undefined;
}

function withinBytes({ places, next }: Places): Places {
  let size = 0;
  const end = places.findIndex(({ bytes }) => {
    size += bytes;
    return size > PAGE_BYTES;
  });
  if (end === -1 || end === places.length - 1) return { places, next };
  return { places: places.slice(0, end + 1), next: places[end] };
}

async function placesOf(
  pools: FinderPools,
  community: Community,
  asked: Asked,
  after: Place | undefined,
  now: number,
): Promise<Places | Denial> {
  const { named, show } = asked;
  if (named !== undefined && 'id' in named)
    return { places: await pools.events.placesOfIds(pools.pool, community.id, [named.id]), next: undefined };
  const filter = filterOf(asked, after);
  if (isDenial(filter)) return filter;
  if (show !== 'served') return hiddenPlaces(pools, community, asked, after);
  return filter.search === undefined
    ? servedPlaces(pools, community, filter, asked.limit, after, now)
    : wordPlaces(pools, community, filter, asked.limit, after, now);
}

function filterOf(
  { named, author, topic, kinds, since, until, text, show }: Asked,
  after: Place | undefined,
) {
  const address = named !== undefined && 'address' in named ? named.address : undefined;
  const last = after === undefined || show !== 'served' ? until : Math.min(until ?? after.at, after.at);
  const filter = parseFilter(
    {
      ...(address === undefined
        ? { ...(author && { authors: [author] }), ...(kinds && { kinds }) }
        : { authors: [address.author], kinds: [address.kind] }),
      // A replaceable event has no `d`.
      ...(address !== undefined && address.d !== '' && { '#d': [address.d] }),
      ...(topic !== undefined && { '#t': [topic] }),
      ...(since !== undefined && { since }),
      ...(last !== undefined && { until: last }),
      ...(text !== undefined && { search: text }),
    },
    { 'limits.filterValuesMax': Number.POSITIVE_INFINITY },
  );
  return isRefusal(filter) ? invalid('text', filter.why) : filter;
}

async function servedPlaces(
  { events, inSlot }: FinderPools,
  { id: community }: Community,
  filter: Filter,
  limit: number,
  after: Place | undefined,
  now: number,
): Promise<Places> {
  const query = {
    community,
    filter,
    limit: limit + 1,
    now,
    after: after && { created_at: after.at, id: after.id },
  };
  const rows = await inSlot(findCost(filter, limit + 1), (pool) => events.find(pool, query));
  const places = rows.slice(0, limit);
  return { places, next: rows.length > limit ? places.at(-1) : undefined };
}

async function wordPlaces(
  { pool, events, search, inSlot }: FinderPools,
  community: Community,
  filter: Filter,
  limit: number,
  after: Place | undefined,
  now: number,
): Promise<Places | Denial> {
  const seen = { ...filter, view: moderatorsView(community) };
  const found = await inSlot(findCost(seen, limit + 1), (eventPool) => {
    const behind = after && { created_at: after.at, id: after.id };
    return selectSearched({ ...search, pool: eventPool }, community, seen, limit, now, behind);
  });
  if (isDenial(found)) return found;
  const places = await events.placesOfIds(pool, community.id, found.ids);
  return { places, next: found.isMore ? places.at(-1) : undefined };
}

async function hiddenPlaces(
  { events, inSlot }: FinderPools,
  { id: community }: Community,
  { named, author: given, topic, kinds, since, until, text, show, limit }: Asked,
  after: Place | undefined,
): Promise<Places | Denial> {
  if (text !== undefined) return invalid('text', 'words find served events only');
  const address = named !== undefined && 'address' in named ? named.address : undefined;
  const author = address?.author ?? given;
  const hidden = show === 'deleted' || show === 'removed' ? show : undefined;
  const by = author === undefined ? hidden && { hidden } : { author, ...(hidden && { hidden }) };
  if (by === undefined) return invalid('author', 'hidden events are listed by author, or deleted or removed');
  const tags: [string, string][] = [];
  if (topic !== undefined) tags.push(['t', topic]);
  if (address !== undefined && address.d !== '') tags.push(['d', address.d]);
  return inSlot(HIDDEN_COST, (pool) =>
    events.placesOfHidden(pool, {
      community,
      by,
      kinds: address === undefined ? kinds : [address.kind],
      since,
      until,
      tags,
      after,
      limit,
    }),
  );
}

async function show(
  { pool, events }: FinderPools,
  community: Community,
  rows: readonly StoredRow[],
  now: number,
): Promise<FoundStored[]> {
  const parsed = rows.map((row) => ({ row, event: JSON.parse(row.payload) as NostrEvent }));
  const removed = parsed.filter(({ row }) => row.hidden === 'removed').map(({ event }) => event);
  const held = await heldAmong(
    pool,
    community.id,
    removed.map(({ id }) => id),
  );
  const deleted = await events.deletedAmong(pool, community.id, removed);
  return parsed.map(({ row, event }) => {
    const state = stateOf({ ...row, event, isHeld: held.has(row.id) }, community, now);
    const { 'auth.privateKinds': privateKinds } = community.settings;
    const concealed = concealedAs(row.kind, state, deleted.has(row.id), privateKinds);
    if (concealed !== undefined) return { row, state, event: undefined, topics: [], concealed };
    return { row, state, event, topics: allTopics(event, row.bound), concealed };
  });
}

function invalid(path: string, message: string): Denial {
  return denial('INVALID_REQUEST', { problems: [{ path: `querystring/${path}`, message }] });
}
