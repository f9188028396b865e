/**
 * Selects the events that a batch takes out of the view (events/store.ts lists the selections). Each reads
 * one partition in order, a bounded number of entries, and then the items themselves.
 */
import { topicsOf } from '../../topics/rules.js';
import { KIND_DELETION, KIND_VANISH } from '../rules/classify.js';
import { factKey } from '../rules/facts.js';
import { ages, DAY_MS, historySince } from '../rules/retention.js';
import type { EventRef, Selection } from '../store.js';
import type { Dynamodb } from './client.js';
import { type Entry, type EventItem, eventOf, isServedItem } from './items.js';
import { END, eventKey, newestKey, partitions, placeOf, timeKey, timeOf } from './keys.js';

export interface Selecting {
  readonly db: Dynamodb;
  readonly communities: () => readonly number[];
}

/** Entries that a selection passes although their events are no longer there, beside those that it takes. */
const PASSED_MAX = 1_000;
const BYTES_MAX = 4 * 1_048_576;

/** Changes nothing. */
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
    case 'requests': {
      const to = timeKey(now - which.keepDays * DAY_MS - 1, END);
      const range = { from: '', to, limit: which.limit, timeOf };
      return take(db, which.community, partitions.requests(which.community), range, isServedItem);
    }
    case 'oldest':
      return takeOldest(db, which);
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
  /** In the opposite order. */
  readonly isFalling?: boolean;
}

/** One page of the entries of a partition, in the order of their keys. */
export async function page(
  db: Dynamodb,
  pk: string,
  { from, to, limit, isFalling = false }: Range,
): Promise<{ readonly entries: Entry[]; readonly more: boolean }> {
  // DynamoDB refuses a range that ends before it begins.
  if (from > to) return { entries: [], more: false };
  const { items, next } = await db.query('index', {
    KeyConditionExpression: 'pk = :pk AND sk BETWEEN :from AND :to',
    ExpressionAttributeValues: { ':pk': pk, ':from': from === '' ? ' ' : from, ':to': to },
    Limit: limit,
    ScanIndexForward: !isFalling,
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

// ── The oldest ─────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Regular events of a community in the order in which they came in; of a topic in the order of their own
 * time, because that is the order of its index. I11: only regular events.
 */
async function takeOldest(
  db: Dynamodb,
  { scope, need, limit }: Extract<Selection, { by: 'oldest' }>,
): Promise<EventItem[]> {
  const { community, topic } = scope;
  const isWhole = topic === '';
  const list = isWhole ? partitions.ingested(community) : partitions.tag(community, 't', topic);
  const idOf = ({ sk }: Entry) => (isWhole ? timeOf(sk) : placeOf(sk)).id;
  const taken: EventItem[] = [];
  let { events, bytes } = need;
  for await (const entries of merged(db, list, isWhole, limit + PASSED_MAX)) {
    const ids = entries.filter(({ kind }) => ages(kind)).map(idOf);
    const items = await itemsByRef(
      db,
      ids.map((id) => ({ community, id })),
    );
    for (const id of ids) {
      if ((events <= 0 && bytes <= 0) || taken.length >= limit) return taken;
      const item = items.get(factKey(community, id));
      if (!isServedItem(item)) continue;
      // An event that is only bound to a topic does not count for its size.
      if (!isWhole && !topicsOf(eventOf(item)).includes(topic)) continue;
      taken.push(item);
      events -= 1;
      bytes -= Buffer.byteLength(item.payload);
    }
  }
  return taken;
}

/** The entries of some partitions in one order, page by page. */
async function* merged(
  db: Dynamodb,
  list: readonly string[],
  isRising: boolean,
  entriesMax: number,
): AsyncGenerator<Entry[]> {
  const inOrder = (one: Entry, other: Entry) => (one.sk < other.sk === isRising ? -1 : 1);
  let [from, to] = ['', END];
  for (let passed = 0; passed < entriesMax; ) {
    const pages = await Promise.all(
      list.map((pk) => page(db, pk, { from, to, limit: MERGED_ROWS, isFalling: !isRising })),
    );
    // A partition with more entries bounds the step: the next one begins where it stopped.
    const [reached] = pages.flatMap(({ entries, more }) => (more ? [entries.at(-1)!] : [])).sort(inOrder);
    const entries = pages.flatMap((one) => one.entries).sort(inOrder);
    yield entries.filter(
      (entry) => reached === undefined || inOrder(entry, reached) <= 0 || entry === reached,
    );
    if (reached === undefined) return;
    passed += entries.length;
    if (isRising) from = `${reached.sk} `;
    else to = before(reached.sk);
  }
}
const MERGED_ROWS = 100;

/** Sorts before this key, and after all keys before it. */
const before = (sk: string) =>
  `${sk.slice(0, -1)}${String.fromCharCode(sk.charCodeAt(sk.length - 1) - 1)}${END}`;
