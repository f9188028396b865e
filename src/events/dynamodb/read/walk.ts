/** Walks all served events of a community, the newest first, page by page, for readers that rebuild (I9). */
import type { EventRef, ReadEvent } from '../../store.js';
import { type Placed, partitions, placeOf } from '../keys.js';
import { isVanished, type Reading, readOf, served } from './find.js';
import { QueryTooCostly, Scan } from './scans.js';

const PORTION = 100;
/** Entries of one page without a served event; then the page ends early. */
const PASSED_MAX = 5_000;
/** Events that the caller wants in one page. */
const TOGETHER_MAX = 20_000;

export interface WalkOf {
  readonly community: number;
  /** The `next` of the page before. */
  readonly after: Placed | undefined;
  readonly limit: number;
  /** Whether two neighbours must be in one page; then it may exceed its limit. */
  readonly together?: (one: Placed, next: Placed) => boolean;
}

export interface WalkedPage {
  readonly events: readonly (ReadEvent & EventRef)[];
  /** Where the next page begins; undefined at the end. */
  readonly next: Placed | undefined;
}

export async function walkEvents(reading: Reading, walk: WalkOf): Promise<WalkedPage> {
  const { db, marks } = reading;
  const { community, after, limit, together = () => false } = walk;
  const all = partitions.all(community).map((pk) => ({ pk, of: 'index' as const }));
  const scan = new Scan(db, { partitions: all, lags: false }, {}, limit, after);
  const pending = await marks.of(community);
  const events: (ReadEvent & EventRef)[] = [];
  let passed = 0;
  let last: Placed | undefined;
  for (;;) {
    const entries = await scan.next(PORTION);
    if (entries.length === 0) return { events, next: undefined };
    const taken: Placed[] = [];
    let isEnd = false;
    for (const { sk } of entries) {
      const place = placeOf(sk);
      const isFull = events.length + taken.length >= limit || passed + taken.length >= PASSED_MAX;
      isEnd = isFull && last !== undefined && !together(last, place);
      if (isEnd) break;
      taken.push(place);
      last = place;
    }
    for (const item of await served(db, community, taken))
      if (!isVanished(item, pending)) events.push({ ...readOf(reading, item), community, id: item.event_id });
    passed += taken.length;
    if (isEnd) return { events, next: last };
    if (passed > limit + PASSED_MAX + TOGETHER_MAX) throw new QueryTooCostly();
  }
}
