/**
 * Walks the events of a filter from the oldest to the newest, as pairs of time and id (NIP-77), page by page.
 * The keys of a partition are in the order of answers: the newest first, and the lowest id of a second first.
 * So they are read backwards, second by second, and the ids of each second are put into rising order. A page
 * ends at its limit, or after so many entries without a match (I14); the next one begins there.
 */
import { type Bound, compareBounds, ID_BYTES, RECORD_BYTES } from '../../../sync/rules-negentropy.js';
import { factKey } from '../../rules/facts.js';
import { matchesNothing } from '../../rules/filter.js';
import type { PendingMark, RecordsFound, RecordsQuery } from '../../store.js';
import { itemsByRef } from '../selections.js';
import { doesMatch, isServedItem, mayMatch, type Reading, type Served } from './find.js';
import { type PlacedEntry, planOf, RisingScan } from './scans.js';

/** Entries of one page that may not match. */
const PASSED_MAX = 2_000;
const PORTION = 100;
const NO_ID = new Uint8Array(0);

export async function readRecords(reading: Reading, query: RecordsQuery): Promise<RecordsFound> {
  const { community, filter, limit, lower, upper } = query;
  const spanSeconds = query.spanSeconds ?? 0;
  const found = new Records(limit);
  if (matchesNothing(filter)) return { records: found.bytes(), next: undefined, spanSeconds };
  const pending = await reading.marks.of(community);
  const isWithin = (bound: Bound) => compareBounds(bound, lower) >= 0 && compareBounds(bound, upper) < 0;
  const entries = await scanOf(reading, query);
  let passed = 0;
  for (let second = await entries(); second !== undefined; second = await entries()) {
    const places = second.filter((entry) => mayMatch(entry, filter) && isWithin(boundOf(entry)));
    for (let at = 0; at < places.length; at += PORTION) {
      const portion = places.slice(at, at + PORTION);
      for (const item of await servedAt(reading, query, portion, pending))
        if (found.add(boundOf({ createdAt: item.created_at, id: item.event_id })))
          return { records: found.bytes(), next: found.next(), spanSeconds };
    }
    passed += second.length;
    const last = second.at(-1)!;
    if (passed >= limit + PASSED_MAX)
      return { records: found.bytes(), next: { time: last.createdAt + 1, id: NO_ID }, spanSeconds };
  }
  return { records: found.bytes(), next: undefined, spanSeconds };
}

/** The entries of one second after another, in rising order of their ids; undefined at the end. */
async function scanOf(
  { db }: Reading,
  { community, filter, lower, upper }: RecordsQuery,
): Promise<() => Promise<readonly PlacedEntry[] | undefined>> {
  const plan = planOf(community, filter);
  if (plan !== undefined) {
    const since = Math.max(filter.since ?? 0, lower.time);
    const until = Math.min(filter.until ?? Number.MAX_SAFE_INTEGER, upper.time);
    const scan = new RisingScan(db, plan, { since, until });
    return () => scan.nextSecond();
  }
  // By ids: every item is read, because their times are not known before. They are one page.
  const refs = [...filter.ids!].map((id) => ({ community, id }));
  const entries = [...(await itemsByRef(db, refs)).values()]
    .map((item) => ({ createdAt: item.created_at, id: item.event_id, kind: item.kind, author: item.pubkey }))
    .sort((a, b) => compareBounds(boundOf(a), boundOf(b)));
  let isRead = false;
  return async () => {
    if (isRead || entries.length === 0) return undefined;
    isRead = true;
    return entries;
  };
}

/** Those that match and were visible at the position of the query, in the order of the entries. */
async function servedAt(
  reading: Reading,
  query: RecordsQuery,
  portion: readonly PlacedEntry[],
  pending: readonly PendingMark[],
): Promise<Served[]> {
  const { community, upTo } = query;
  const items = await itemsByRef(
    reading.db,
    portion.map(({ id }) => ({ community, id })),
  );
  return portion.flatMap(({ id }) => {
    const item = items.get(factKey(community, id));
    const isShown =
      isServedItem(item) &&
      doesMatch(item, query, pending) &&
      reading.positions.wasVisible(community, id, item.ingested_at, upTo);
    return isShown ? [item] : [];
  });
}

const boundOf = ({ createdAt, id }: Pick<PlacedEntry, 'createdAt' | 'id'>): Bound => ({
  time: createdAt,
  id: Buffer.from(id, 'hex'),
});

class Records {
  private readonly all: Bound[] = [];

  constructor(private readonly limit: number) {}

  /** True when the page is full. */
  add(bound: Bound): boolean {
    this.all.push(bound);
    return this.all.length >= this.limit;
  }

  bytes(): Uint8Array {
    const records = Buffer.alloc(this.all.length * RECORD_BYTES);
    this.all.forEach(({ time, id }, at) => {
      records.writeBigInt64BE(BigInt(time), at * RECORD_BYTES);
      records.set(id, (at + 1) * RECORD_BYTES - ID_BYTES);
    });
    return records;
  }

  /** After the last record: nothing lies between an id and the same id plus one. */
  next(): Bound {
    const { time, id } = this.all.at(-1)!;
    const next = new Uint8Array(id);
    for (let at = next.length - 1; at >= 0; at -= 1) {
      next[at] = (next[at]! + 1) & 0xff;
      if (next[at] !== 0) return { time, id: next };
    }
    return { time: time + 1, id: NO_ID };
  }
}
