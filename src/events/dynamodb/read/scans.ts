/**
 * Which partitions answer a filter, and their entries in one order. Every partition is read newest first in
 * pages; the pages are merged, and reading stops when the caller has enough.
 */
import { classify } from '../../rules/classify.js';
import type { Filter, TagCondition } from '../../rules/filter.js';
import { type Dynamodb, eachOf } from '../client.js';
import type { Entry } from '../items.js';
import { END, GSI_PK_KIND, newestKey, type Placed, partitions, pkKind, placeOf } from '../keys.js';

/**
 * Up to this many pairs of author and kind are read one by one. Above it, each author is read and the kinds
 * are checked on the entries.
 */
const PAIRS_MAX = 500;
/** Partitions that one filter may need; with more it is refused. */
export const PARTITIONS_MAX = 4_000;
/** Partitions that are read at the same time. */
const AT_ONCE = 16;
/** Entries of a page. The first page of many partitions is small: most of it may not be needed. */
const PAGE_MIN = 10;
const PAGE_MAX = 250;
/** Tags that usually match few events: the better index when authors are given as well. */
const SELECTIVE_TAGS = new Set(['a', 'd', 'e', 'i', 'q']);

/** The filter needs more reads than one query may use. */
export class QueryTooCostly extends Error {
  constructor() {
    super('the filter is too broad for this relay, narrow it by authors, tags or time');
    this.name = 'QueryTooCostly';
  }
}

/** A partition of the index table, or of GSI_PK_KIND, which is behind by a moment. */
interface Partition {
  readonly pk: string;
  readonly of: 'index' | 'pk-kind';
}

export interface Plan {
  readonly partitions: readonly Partition[];
  /** Some of them are behind by a moment. */
  readonly lags: boolean;
}

/** Undefined for a filter by ids, which needs no index. */
export function planOf(community: number, filter: Filter): Plan | undefined {
  if (filter.ids !== undefined) return undefined;
  const list = partitionsOf(community, filter);
  if (list.length > PARTITIONS_MAX) throw new QueryTooCostly();
  return { partitions: list, lags: list.some((partition) => partition.of === 'pk-kind') };
}

const inIndex = (list: readonly string[]) => list.map((pk): Partition => ({ pk, of: 'index' }));

function partitionsOf(community: number, filter: Filter): readonly Partition[] {
  const { authors, kinds } = filter;
  const tag = drivingTag(filter);
  if (tag !== undefined)
    return [...tag.values].flatMap((value) => inIndex(partitions.tag(community, tag.name, value)));
  if (authors !== undefined) {
    const pairs = kinds === undefined ? 0 : authors.size * kinds.size;
    if (kinds === undefined || (kinds.size > 1 && pairs > PAIRS_MAX))
      return [...authors].flatMap((author) => inIndex(partitions.author(community, author)));
    return [...authors].flatMap((author) =>
      [...kinds].map((kind): Partition => ({ pk: pkKind(community, author, kind), of: 'pk-kind' })),
    );
  }
  if (kinds !== undefined)
    return [...kinds]
      .filter((kind) => classify(kind) !== 'ephemeral')
      .flatMap((kind) => inIndex(partitions.kind(community, kind)));
  return inIndex(partitions.all(community));
}

function drivingTag({ tags, authors }: Filter): TagCondition | undefined {
  const usable = authors === undefined ? tags : tags.filter((tag) => SELECTIVE_TAGS.has(tag.name));
  const rank = (tag: TagCondition) => (SELECTIVE_TAGS.has(tag.name) ? 0 : tag.name === 't' ? 2 : 1);
  return [...usable].sort((a, b) => rank(a) - rank(b) || a.values.size - b.values.size)[0];
}

interface Cursor {
  readonly partition: Partition;
  /** Entries that were read and not taken yet. */
  entries: readonly Entry[];
  at: number;
  /** Where the next page begins; undefined at the end. */
  from: string | undefined;
}

/**
 * Entries of all partitions of a plan, newest first, in portions. The same event may come more than once.
 */
export class Scan {
  private readonly cursors: Cursor[];
  private readonly to: string;
  private pageSize: number;

  constructor(
    private readonly db: Dynamodb,
    { partitions: list }: Plan,
    { since = 0, until = Number.MAX_SAFE_INTEGER }: Pick<Filter, 'since' | 'until'>,
    limit: number,
    after?: Placed,
  ) {
    const first = newestKey(until, '');
    const from = after === undefined ? first : maxOf(first, `${newestKey(after.createdAt, after.id)} `);
    this.to = `${newestKey(since, '')}${END}`;
    const start = until < 0 || from > this.to ? undefined : from;
    this.cursors = list.map((partition) => ({ partition, entries: [], at: 0, from: start }));
    this.pageSize = Math.min(PAGE_MAX, Math.max(PAGE_MIN, Math.ceil((2 * limit) / Math.max(1, list.length))));
  }

  /** The next entries in order, about so many; an empty list at the end. */
  async next(count: number): Promise<Entry[]> {
    const taken: Entry[] = [];
    while (taken.length < count) {
      await this.fill();
      const open = this.cursors.filter(({ entries, at }) => at < entries.length);
      if (open.length === 0) return taken;
      // Up to the last entry of the shortest page everything is known.
      const bound = open.reduce<string | undefined>((least, { entries, from }) => {
        const last = entries.at(-1)!.sk;
        return from === undefined || (least !== undefined && least < last) ? least : last;
      }, undefined);
      const known: Entry[] = [];
      for (const cursor of open)
        while (cursor.at < cursor.entries.length) {
          const entry = cursor.entries[cursor.at]!;
          if (bound !== undefined && entry.sk > bound) break;
          known.push(entry);
          cursor.at += 1;
        }
      taken.push(...known.sort((a, b) => (a.sk < b.sk ? -1 : a.sk > b.sk ? 1 : 0)));
    }
    return taken;
  }

  /** Reads a page of each partition that has none. */
  private async fill(): Promise<void> {
    const empty = this.cursors.filter(({ entries, at, from }) => at >= entries.length && from !== undefined);
    await eachOf(empty, AT_ONCE, async (cursor) => {
      do await this.readPage(cursor);
      while (cursor.entries.length === 0 && cursor.from !== undefined);
    });
    if (empty.length > 0) this.pageSize = Math.min(PAGE_MAX, this.pageSize * 2);
  }

  private async readPage(cursor: Cursor): Promise<void> {
    const range = { from: cursor.from!, to: this.to, limit: this.pageSize, isBackwards: false };
    const { entries, last } = await pageOf(this.db, cursor.partition, range);
    cursor.entries = entries;
    cursor.at = 0;
    cursor.from = last === undefined || `${last} ` > this.to ? undefined : `${last} `;
  }
}

/** An entry with the place that its key names. */
export type PlacedEntry = Placed & Pick<Entry, 'kind' | 'author'>;

/** Entries of one second that are held at once. With more of them the filter is refused. */
const SECOND_MAX = 50_000;

/**
 * Entries of all partitions of a plan from the oldest second to the newest. Each partition is read backwards,
 * and a second is complete when every partition has passed it.
 */
export class RisingScan {
  private readonly cursors: Cursor[];
  private readonly last: string;

  constructor(
    private readonly db: Dynamodb,
    { partitions: list }: Plan,
    { since, until }: { readonly since: number; readonly until: number },
  ) {
    this.last = newestKey(until, '');
    const from = `${newestKey(since, '')}${END}`;
    const start = until < 0 || this.last > from ? undefined : from;
    this.cursors = list.map((partition) => ({ partition, entries: [], at: 0, from: start }));
  }

  /** The entries of the next second that has any, by rising id, each once. Undefined at the end. */
  async nextSecond(): Promise<PlacedEntry[] | undefined> {
    await this.fill();
    const seconds = this.cursors.flatMap(({ entries, at }) =>
      at < entries.length ? [placeOf(entries[at]!.sk).createdAt] : [],
    );
    if (seconds.length === 0) return undefined;
    const second = seconds.reduce((least, one) => Math.min(least, one));
    const found = new Map<string, PlacedEntry>();
    for (let isMore = true; isMore; ) {
      for (const cursor of this.cursors) this.take(cursor, second, found);
      if (found.size > SECOND_MAX) throw new QueryTooCostly();
      isMore = this.cursors.some(({ entries, at, from }) => at >= entries.length && from !== undefined);
      if (isMore) await this.fill();
      isMore &&= this.cursors.some(
        ({ entries, at }) => at < entries.length && placeOf(entries[at]!.sk).createdAt === second,
      );
    }
    return [...found.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  private take(cursor: Cursor, second: number, found: Map<string, PlacedEntry>): void {
    for (; cursor.at < cursor.entries.length; cursor.at += 1) {
      const { sk, kind, author } = cursor.entries[cursor.at]!;
      const place = placeOf(sk);
      if (place.createdAt !== second) return;
      found.set(place.id, { ...place, kind, author });
    }
  }

  private async fill(): Promise<void> {
    const empty = this.cursors.filter(({ entries, at, from }) => at >= entries.length && from !== undefined);
    await eachOf(empty, AT_ONCE, async (cursor) => {
      do await this.readPage(cursor);
      while (cursor.entries.length === 0 && cursor.from !== undefined);
    });
  }

  private async readPage(cursor: Cursor): Promise<void> {
    const range = { from: this.last, to: cursor.from!, limit: PAGE_MAX, isBackwards: true };
    const { entries, last } = await pageOf(this.db, cursor.partition, range);
    cursor.entries = entries;
    cursor.at = 0;
    cursor.from = last === undefined ? undefined : before(last);
    if (cursor.from !== undefined && cursor.from < this.last) cursor.from = undefined;
  }
}

/** Follows every key below this one: keys end with a hex digit, and END sorts after all of them. */
const before = (key: string) =>
  `${key.slice(0, -1)}${String.fromCharCode(key.charCodeAt(key.length - 1) - 1)}${END}`;

interface PageRange {
  readonly from: string;
  readonly to: string;
  readonly limit: number;
  readonly isBackwards: boolean;
}

/** `last`: the key of the last entry, where there are more. */
export async function pageOf(
  db: Dynamodb,
  partition: Partition,
  { from, to, limit, isBackwards }: PageRange,
): Promise<{ readonly entries: readonly Entry[]; readonly last: string | undefined }> {
  const isIndex = partition.of === 'index';
  const [hash, range] = isIndex ? ['pk', 'sk'] : ['pk_kind', 'newest'];
  const { items, next } = await db.query(isIndex ? 'index' : 'events', {
    ...(isIndex ? {} : { IndexName: GSI_PK_KIND }),
    KeyConditionExpression: `${hash} = :pk AND ${range} BETWEEN :from AND :to`,
    ExpressionAttributeValues: { ':pk': partition.pk, ':from': from, ':to': to },
    ScanIndexForward: !isBackwards,
    Limit: limit,
  });
  const entries = isIndex ? (items as Entry[]) : items.map((item) => entryOf(partition, item));
  const last = next === undefined ? undefined : ((next[range] ?? entries.at(-1)?.sk) as string | undefined);
  return { entries, last };
}

/** The partition has the author and the kind. */
function entryOf({ pk }: Partition, item: Record<string, unknown>): Entry {
  const [, author, kind] = pk.split('/');
  return { pk, sk: item.newest as string, author: author!, kind: Number(kind) };
}

const maxOf = (a: string, b: string) => (a > b ? a : b);
