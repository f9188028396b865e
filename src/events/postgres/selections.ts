/**
 * Selects the rows that a batch takes out of the view (store.ts lists the selections). Each selection uses an
 * index made for it and is bounded in rows and bytes. Inside the lane's transaction: the lane hides and
 * announces the rows (I8).
 */
import type { ClientBase } from 'pg';
import { int2Array, int8Array } from '../../postgres/binary.js';
import { KIND_VANISH } from '../rules/classify.js';
import { factKey, type PlacedEvent, type RowRef } from '../rules/facts.js';
import { DAY_MS, historySince } from '../rules/retention.js';
import type { Authored, EventRef, Ordered, Selection } from '../store.js';
import { selectExcess } from './capacity.js';
import { takeServed } from './hide.js';
import { takeOldRequests } from './old-requests.js';
import { eventAt } from './places.js';
import { selectRemovable } from './restore.js';
import { bounded, COLUMNS, selectEvents, selectExpired, selectOldHistory } from './sweeps.js';

export function selectServed(
  client: ClientBase,
  which: Selection,
  now: number,
): Promise<readonly PlacedEvent[]> {
  switch (which.by) {
    case 'ids':
      return selectRemovable(client, which.refs);
    case 'expiration':
      return selectExpired(client, Math.floor(now / 1_000), which.limit);
    case 'history':
      return selectOldHistory(client, which.rules.id, historySince(which.rules, now), which.limit);
    case 'requests':
      return takeOldRequests(client, which.community, now - which.keepDays * DAY_MS, which.limit);
    case 'oldest':
      throw new Error('events in PostgreSQL are purged for space by their places');
    case 'excess':
      return selectExcess(client, which.scope, which.limits, which.places);
    case 'author':
      return selectEvents(client, SERVED_OF_SQL, [...ofAuthor(which.author), which.limit]);
    case 'community':
      return selectEvents(client, SERVED_IN_SQL, [which.community, which.limit]);
    case 'places':
      return selectEvents(client, SERVED_AT_SQL, [...placeValues(which.places), which.limit]);
    case 'read':
      return takeServed(client, which.events);
  }
}

/**
 * Selects the events that orders of the control plane name. It notes in the same transaction which orders
 * found their event.
 */
export async function selectOrdered(
  client: ClientBase,
  orders: Ordered<boolean>,
  now: number,
): Promise<readonly PlacedEvent[]> {
  const refs = await orders.due(client, now);
  const keyOf = ({ community, id }: EventRef) => factKey(community, id);
  const rows = await selectRemovable(client, [...new Map(refs.map((ref) => [keyOf(ref), ref])).values()]);
  const taken = new Set(rows.map(({ community, event: { id } }) => keyOf({ community, id })));
  await orders.note(
    client,
    refs.map((ref) => taken.has(keyOf(ref))),
    now,
  );
  return rows;
}

// ── By author, community and place ─────────────────────────────────────────────────────────────────────────

export const OF_AUTHOR = 'e.community = $1 AND e.pubkey = $2 AND e.created_at <= $3';
export const spared = (column: string) => `(NOT $4 OR ${column} <> ${KIND_VANISH})`;
export const ofAuthor = ({ community, pubkey, until, sparesRequest }: Authored) => [
  community,
  Buffer.from(pubkey, 'hex'),
  until,
  sparesRequest,
];

const servedOf = (more = '') =>
  bounded(
    `SELECT ${COLUMNS} FROM events e WHERE e.hidden IS NULL AND ${OF_AUTHOR} AND ${spared('e.kind')} ${more}
     ORDER BY e.created_at DESC LIMIT $5`,
  );
const servedIn = (more = '') =>
  bounded(
    `SELECT ${COLUMNS} FROM events e WHERE e.community = $1 AND e.hidden IS NULL ${more}
     ORDER BY e.created_at DESC LIMIT $2`,
  );
export const SERVED_OF_SQL = servedOf();
const SERVED_IN_SQL = servedIn();
/** A subquery and not `<> ALL`: the planner looks at each element of such a list, for each partition. */
const notAmong = (seqs: string) => `AND e.seq NOT IN (SELECT unnest(${seqs}::bigint[]))`;
export const NEXT_OF_SQL = servedOf(notAmong('$6'));
const NEXT_IN_SQL = servedIn(`AND e.created_at <= $3 ${notAmong('$4')}`);

/**
 * The page after the given one, the newest events first. The page itself may be stored still: its rows are
 * left out by their offsets, because many events may have the time of its last one.
 */
export function nextServedOf(
  client: ClientBase,
  author: Authored,
  page: readonly PlacedEvent[],
  limit: number,
): Promise<PlacedEvent[]> {
  const until = Math.min(author.until, lastTimeOf(page));
  return selectEvents(client, NEXT_OF_SQL, [...ofAuthor({ ...author, until }), limit, seqsOf(page)]);
}

export function nextServedIn(
  client: ClientBase,
  community: number,
  page: readonly PlacedEvent[],
  limit: number,
): Promise<PlacedEvent[]> {
  return selectEvents(client, NEXT_IN_SQL, [community, limit, lastTimeOf(page), seqsOf(page)]);
}

const lastTimeOf = (page: readonly PlacedEvent[]) => page.at(-1)?.event.created_at ?? Number.MAX_SAFE_INTEGER;
const seqsOf = (page: readonly PlacedEvent[]) => int8Array(page.map(({ row }) => row.seq));

export const AT_PLACES =
  'unnest($1::bigint[], $2::bigint[], $3::smallint[]) AS asked (seq, ingested_at, keep)';
export const placeValues = (places: readonly RowRef[]) => [
  int8Array(places.map((place) => place.seq)),
  int8Array(places.map((place) => place.ingestedAt)),
  int2Array(places.map((place) => place.keep)),
];
const SERVED_AT_SQL = bounded(
  `SELECT ${COLUMNS} FROM ${AT_PLACES} ${eventAt('asked')} WHERE e.hidden IS NULL LIMIT $4`,
);
