/**
 * Selects the events that a batch takes out of the view (events/store.ts lists the selections). Each reads
 * one partition in order, a bounded number of entries, and then the items themselves.
 */

import { KIND_DELETION, KIND_VANISH } from '../rules/classify.js';
import { deletionTargets } from '../rules/deletion.js';
import { factKey } from '../rules/facts.js';
import { DAY_MS, historySince } from '../rules/retention.js';
import type { EventRef, Selection } from '../store.js';
import { type Dynamodb, eachOf } from './client.js';
import { tombstoneKeyOf } from './facts.js';
import { type Entry, type EventItem, eventOf, isServedItem } from './items.js';
import { END, eventKey, newestKey, partitions, placeOf, timeKey, timeOf } from './keys.js';

export interface Selecting {
  readonly db: Dynamodb;
  readonly communities: () => readonly number[];
}

/** Entries that a selection passes although their events are no longer there, beside those that it takes. */
const PASSED_MAX = 1_000;
const BYTES_MAX = 4 * 1_048_576;
const AT_ONCE = 16;

export async function selectItems(
  selecting: Selecting,
  which: Selection,
  now: number,
): Promise<readonly EventItem[]> {
  const { db } = selecting;
  switch (which.by) {
    case 'ids':
      return [...(await itemsByRef(db, which.refs)).values()].filter(removable);
    case 'expiration':
      return selectExpired(selecting, Math.floor(now / 1_000), which.limit);
    case 'history': {
      const { rules, limit } = which;
      const to = timeKey(historySince(rules, now) - 1, END);
      const isHistory = ({ hidden_as, payload }: EventItem) =>
        hidden_as === 'superseded' && payload !== undefined;
      return take(db, rules.id, partitions.history(rules.id), { from: '', to, limit, timeOf }, isHistory);
    }
    case 'requests':
      return takeOldRequests(db, which.community, now - which.keepDays * DAY_MS, which.limit);
    case 'author': {
      const { community, pubkey, until, sparesRequest } = which.author;
      const range = { from: newestKey(until, ''), to: END, limit: which.limit, timeOf: placeOf };
      const isTaken = (item: EventItem) =>
        isServedItem(item) && !(sparesRequest && item.kind === KIND_VANISH);
      return take(db, community, partitions.author(community, pubkey), range, isTaken);
    }
    case 'community': {
      const range = { from: '', to: END, limit: which.limit, timeOf: placeOf };
      return take(db, which.community, partitions.all(which.community), range, isServedItem);
    }
    case 'excess':
    case 'places':
    case 'read':
      // Places are rows of PostgreSQL: whoever selects by them reads that store directly.
      throw new Error(`events in DynamoDB are not selected by ${which.by}`);
  }
}

/** A moderator removes served events, but not requests to delete or to vanish. */
export const removable = (item: EventItem) =>
  isServedItem(item) && item.kind !== KIND_DELETION && item.kind !== KIND_VANISH;

/** Items by `factKey`. */
export async function itemsByRef(db: Dynamodb, refs: readonly EventRef[]): Promise<Map<string, EventItem>> {
  const found = await db.read(
    refs.map(({ community, id }) => ({ table: 'events', key: eventKey(community, id) })),
  );
  return new Map(
    ([...found.values()] as EventItem[]).map((item) => [factKey(item.community, item.event_id), item]),
  );
}

export interface Range {
  /** Both inclusive. */
  readonly from: string;
  readonly to: string;
  readonly limit: number;
}

/** One page of the entries of a partition, in the order of their keys. */
export async function page(
  db: Dynamodb,
  pk: string,
  { from, to, limit }: Range,
): Promise<{ readonly entries: Entry[]; readonly more: boolean }> {
  // DynamoDB refuses a range that ends before it begins.
  if (from > to) return { entries: [], more: false };
  const { items, next } = await db.query('index', {
    KeyConditionExpression: 'pk = :pk AND sk BETWEEN :from AND :to',
    ExpressionAttributeValues: { ':pk': pk, ':from': from === '' ? ' ' : from, ':to': to },
    Limit: limit,
  });
  return { entries: items as Entry[], more: next !== undefined };
}

/** Takes events in the order of a list of partitions, until they fill a batch of rows or bytes. */
async function take(
  db: Dynamodb,
  community: number,
  list: readonly string[],
  { from, to, limit, timeOf: idOf }: Range & { readonly timeOf: (sk: string) => { readonly id: string } },
  isTaken: (item: EventItem) => boolean,
): Promise<EventItem[]> {
  const taken: EventItem[] = [];
  let bytes = 0;
  for (const pk of list) {
    let start = from;
    for (let passed = 0; passed < limit + PASSED_MAX; ) {
      const { entries, more } = await page(db, pk, { from: start, to, limit: Math.min(limit, 100) });
      passed += Math.max(1, entries.length);
      const ids = entries.map(({ sk }) => idOf(sk).id);
      const items = await itemsByRef(
        db,
        ids.map((id) => ({ community, id })),
      );
      for (const id of ids) {
        const item = items.get(factKey(community, id));
        if (item === undefined || !isTaken(item)) continue;
        if (taken.length >= limit || (bytes >= BYTES_MAX && taken.length > 0)) return taken;
        taken.push(item);
        bytes += Buffer.byteLength(item.payload ?? '');
      }
      if (!more) break;
      start = `${entries.at(-1)!.sk} `;
    }
  }
  return taken;
}

async function selectExpired(
  { db, communities }: Selecting,
  nowSeconds: number,
  limit: number,
): Promise<EventItem[]> {
  const taken: EventItem[] = [];
  for (const community of communities()) {
    const range = { from: '', to: timeKey(nowSeconds, END), limit: limit - taken.length, timeOf };
    taken.push(...(await take(db, community, partitions.expires(community), range, isServedItem)));
    if (taken.length >= limit) break;
  }
  return taken;
}

/**
 * Deletion requests with their tombstones. A tombstone that a later request has renewed names that request,
 * and stays. The tombstones are deleted first: a request that is found again has none left.
 */
async function takeOldRequests(
  db: Dynamodb,
  community: number,
  ingestedBefore: number,
  limit: number,
): Promise<EventItem[]> {
  const range = { from: '', to: timeKey(ingestedBefore - 1, END), limit, timeOf };
  const requests = await take(db, community, partitions.requests(community), range, isServedItem);
  for (const item of requests) {
    const request = eventOf(item);
    await eachOf(deletionTargets(request), AT_ONCE, (target) =>
      db.change({
        table: 'state',
        remove: tombstoneKeyOf(community, target, request.pubkey),
        if: { text: 'request_id = :id', values: { ':id': request.id } },
      }),
    );
  }
  return requests;
}
