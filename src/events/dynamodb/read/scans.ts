/**
 * Which partitions answer a filter, and their entries in one order. Every partition is read newest first in
 * pages; the pages are merged, and reading stops when the caller has enough.
 */
import { classify } from '../../rules/classify.js';
import type { Filter, TagCondition } from '../../rules/filter.js';
import { type Dynamodb, eachOf } from '../client.js';
import type { Entry } from '../items.js';
import { END, GSI_PK_KIND, newestKey, type Placed, partitions, pkKind } from '../keys.js';

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
    const { partition, from } = cursor;
    const isIndex = partition.of === 'index';
    const [hash, range] = isIndex ? ['pk', 'sk'] : ['pk_kind', 'newest'];
    const { items, next } = await this.db.query(isIndex ? 'index' : 'events', {
      ...(isIndex ? {} : { IndexName: GSI_PK_KIND }),
      KeyConditionExpression: `${hash} = :pk AND ${range} BETWEEN :from AND :to`,
      ExpressionAttributeValues: { ':pk': partition.pk, ':from': from, ':to': this.to },
      Limit: this.pageSize,
    });
    cursor.entries = isIndex ? (items as Entry[]) : items.map((item) => entryOf(partition, item));
    cursor.at = 0;
    const last = (next?.[range] ?? cursor.entries.at(-1)?.sk) as string | undefined;
    cursor.from = next === undefined || last === undefined || `${last} ` > this.to ? undefined : `${last} `;
  }
}

/** The partition has the author and the kind. */
function entryOf({ pk }: Partition, item: Record<string, unknown>): Entry {
  const [, author, kind] = pk.split('/');
  return { pk, sk: item.newest as string, author: author!, kind: Number(kind) };
}

const maxOf = (a: string, b: string) => (a > b ? a : b);
