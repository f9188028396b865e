/**
 * The records of a set that is too large for memory, for negentropy. One walk over pages notes where every
 * block of records begins and the sum of all ids before it. After that the sum of any range needs only the
 * pages at its two ends, and a large range is split between blocks without reading it. Memory: at most 2,048
 * blocks and a few pages, whatever the size of the set (I14).
 *
 * The set is fixed when it is opened, except that a record may disappear: it was deleted, has expired, or is
 * past its retention. Then a sum may be that of a moment before. At worst a range is compared once more than
 * needed, or counts as equal because it was equal when the session began.
 */
import {
  type Bound,
  boundBetween,
  compareBounds,
  FIRST,
  ID_BYTES,
  LAST,
  placeOf,
  RECORD_BYTES,
  type Records,
  recordAt,
  recordsIn,
  type Split,
  Splitter,
  Sum,
} from './rules-negentropy.js';

export const PAGE_RECORDS = 1_024;
/**
 * Records of a page of the walk, which is not kept. Planning, sorting and sending one page of 4,096 takes a
 * little more than half the time of four of 1,024 (docs/sync.md).
 */
export const WALK_RECORDS = 4 * PAGE_RECORDS;
/** How many records a block has at first, and how many blocks there are before each two become one. */
const SIZES = { blockRecords: PAGE_RECORDS, blocksMax: 2_048 };
/** A range with more whole blocks is split between them. */
const BLOCKS_SPLIT_MIN = 32;
/** Pages that are kept: the ranges of a message follow one another, and some are read twice. */
const PAGES_KEPT = 4;

export interface RecordsPage {
  /** Records in rising order, from `lower` on. */
  readonly records: Uint8Array;
  /** Up to where it is complete; undefined at the end of what was asked. */
  readonly next: Bound | undefined;
}

/** Reads the records from `lower` up to `upper`, at most `limit` of them. */
export type ReadPage = (lower: Bound, upper: Bound, limit: number) => Promise<RecordsPage>;

interface Block {
  readonly lower: Bound;
  /** Of everything before it. */
  readonly before: Sum;
}

interface KeptPage {
  readonly lower: Bound;
  readonly upper: Bound;
  readonly records: Uint8Array;
}

/** Blocks as bytes, 84 each: as objects they would take ten times as much. */
class Blocks {
  private records = Buffer.alloc(64 * BLOCK_BYTES);
  length = 0;

  /** Negative places count from the end. */
  at(place: number): Block {
    const from = (place < 0 ? this.length + place : place) * BLOCK_BYTES;
    const before = new Sum();
    before.count = this.records.readDoubleLE(from + 8);
    for (let word = 0; word < before.words.length; word += 1)
      before.words[word] = this.records.readUInt32LE(from + 16 + 4 * word);
    const id = from + 16 + ID_BYTES;
    const length = this.records.readUInt32LE(id + ID_BYTES);
    return {
      lower: { time: this.records.readDoubleLE(from), id: this.records.subarray(id, id + length) },
      before,
    };
  }

  push({ lower, before }: Block): void {
    if ((this.length + 1) * BLOCK_BYTES > this.records.length)
      this.records = Buffer.concat([this.records], 2 * this.records.length);
    const from = this.length * BLOCK_BYTES;
    this.records.writeDoubleLE(lower.time, from);
    this.records.writeDoubleLE(before.count, from + 8);
    for (const [word, value] of before.words.entries())
      this.records.writeUInt32LE(value, from + 16 + 4 * word);
    this.records.set(lower.id, from + 16 + ID_BYTES);
    this.records.writeUInt32LE(lower.id.length, from + 16 + 2 * ID_BYTES);
    this.length += 1;
  }

  /** Each two become one. */
  halve(): void {
    const all = Array.from({ length: this.length }, (_, place) => this.at(place));
    const kept = all
      .filter((_, place) => place % 2 === 0)
      .map(({ lower, before }) => ({ lower: copyOf(lower), before }));
    this.length = 0;
    for (const block of kept) this.push(block);
  }
}
const BLOCK_BYTES = 8 + 8 + ID_BYTES + ID_BYTES + 4;

export class Digest implements Records {
  private pages: KeptPage[] = [];

  private constructor(
    private readonly read: ReadPage,
    /** The last one begins after all records. */
    private readonly blocks: Blocks,
  ) {}

  get count(): number {
    return this.blocks.at(-1).before.count;
  }

  /** Undefined when there are more records than `max`. */
  static async build(read: ReadPage, max: number, sizes = SIZES): Promise<Digest | undefined> {
    const all = new Sum();
    const blocks = new Blocks();
    let begun = 0;
    let { blockRecords } = sizes;
    let last: Bound | undefined;
    for (let lower: Bound | undefined = FIRST; lower !== undefined; ) {
      const { records, next } = await read(lower, LAST, WALK_RECORDS);
      const count = recordsIn(records);
      for (let from = 0; from < count; ) {
        if (blocks.length === 0 || all.count - begun >= blockRecords) {
          const lower = last === undefined ? FIRST : boundBetween(last, recordAt(records, from));
          blocks.push({ lower, before: all });
          begun = all.count;
          if (blocks.length > sizes.blocksMax) {
            blocks.halve();
            blockRecords *= 2;
          }
        }
        const to = Math.min(count, from + blockRecords - (all.count - begun));
        all.addRecords(records, from, to);
        last = copyOf(recordAt(records, to - 1));
        from = to;
      }
      if (all.count > max) return undefined;
      lower = next;
    }
    if (blocks.length === 0) blocks.push({ lower: FIRST, before: new Sum() });
    blocks.push({ lower: LAST, before: all });
    return new Digest(read, blocks);
  }

  async sum(lower: Bound, upper: Bound, ahead: Bound = upper): Promise<Sum> {
    const total = new Sum();
    const inside = this.blocksIn(lower, upper);
    const add = async (from: Bound, to: Bound, further: Bound) => {
      for await (const { records, begin, end } of this.pieces(from, to, further))
        total.addRecords(records, begin, end);
    };
    if (inside === undefined) {
      await add(lower, upper, ahead);
      return total;
    }
    const { first, last } = inside;
    await add(lower, first.lower, first.lower);
    total.add(last.before);
    total.subtract(first.before);
    await add(last.lower, upper, ahead);
    return total;
  }

  async split(lower: Bound, upper: Bound): Promise<Split> {
    const splitter = new Splitter();
    const inside = this.blocksIn(lower, upper);
    if (inside === undefined || inside.to - inside.from < BLOCKS_SPLIT_MIN) {
      for await (const { records, begin, end } of this.pieces(lower, upper, upper))
        splitter.addRecords(records, begin, end);
      return splitter.finish(upper);
    }
    const { from, to, first, last } = inside;
    for await (const { records, begin, end } of this.pieces(lower, first.lower, first.lower))
      splitter.addRecords(records, begin, end);
    for (let at = from; at < to; at += 1) {
      const block = this.blocks.at(at);
      const sum = this.blocks.at(at + 1).before;
      sum.subtract(block.before);
      splitter.addBlock(block.lower, sum);
    }
    let edge: Bound | undefined = last.lower;
    for await (const { records, begin, end } of this.pieces(last.lower, upper, upper)) {
      splitter.addRecords(records, begin, end, edge);
      edge = undefined;
    }
    return splitter.finish(upper);
  }

  async ids(lower: Bound, upper: Bound, max: number): Promise<{ ids: Uint8Array; next?: Bound }> {
    const ids = new Uint8Array(Math.min(max, this.count) * ID_BYTES);
    let count = 0;
    for await (const { records, begin, end } of this.pieces(lower, upper, upper)) {
      for (let at = begin; at < end; at += 1) {
        const record = recordAt(records, at);
        if (count * ID_BYTES === ids.length) return { ids, next: copyOf(record) };
        ids.set(record.id, count * ID_BYTES);
        count += 1;
      }
    }
    return { ids: ids.subarray(0, count * ID_BYTES) };
  }

  /** The whole blocks between two bounds, if there is one. */
  private blocksIn(lower: Bound, upper: Bound) {
    const from = this.blockAt(lower);
    const after = this.blockAt(upper);
    const isThere = after < this.blocks.length && compareBounds(this.blocks.at(after).lower, upper) === 0;
    const to = isThere ? after : after - 1;
    if (to <= from) return undefined;
    return { from, to, first: this.blocks.at(from), last: this.blocks.at(to) };
  }

  /** The first block that does not begin below the bound. */
  private blockAt(bound: Bound): number {
    let low = 0;
    let high = this.blocks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compareBounds(this.blocks.at(middle).lower, bound) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The records between two bounds, page by page. */
  private async *pieces(lower: Bound, upper: Bound, ahead: Bound) {
    for (let from = lower; compareBounds(from, upper) < 0; ) {
      const page = this.keptAt(from) ?? (await this.readAt(from, ahead));
      const begin = placeOf(page.records, from);
      const end = placeOf(page.records, upper);
      if (end > begin) yield { records: page.records, begin, end };
      from = page.upper;
    }
  }

  private keptAt(bound: Bound): KeptPage | undefined {
    return this.pages.find(
      ({ lower, upper }) => compareBounds(lower, bound) <= 0 && compareBounds(bound, upper) < 0,
    );
  }

  private async readAt(lower: Bound, upper: Bound): Promise<KeptPage> {
    const { records, next } = await this.read(lower, upper, PAGE_RECORDS);
    const page = { lower, upper: next ?? upper, records };
    this.pages = [page, ...this.pages].slice(0, PAGES_KEPT);
    return page;
  }
}

/** A view of a page would keep the whole page in memory. */
function copyOf({ time, id }: Bound): Bound {
  return { time, id: new Uint8Array(id) };
}

/** The records of a set that is small enough for memory, in any order. */
export function smallDigest(
  records: readonly { readonly createdAt: number; readonly id: string }[],
): Promise<Digest | undefined> {
  const all = Buffer.alloc(records.length * RECORD_BYTES);
  [...records]
    .sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1))
    .forEach(({ createdAt, id }, at) => {
      all.writeBigUInt64BE(BigInt(createdAt), at * RECORD_BYTES);
      all.write(id, at * RECORD_BYTES + 8, 'hex');
    });
  const read: ReadPage = async (lower, upper, limit) => {
    const from = placeOf(all, lower);
    const to = Math.min(placeOf(all, upper), from + limit);
    const end = to * RECORD_BYTES;
    const next = to < placeOf(all, upper) ? recordAt(all, to) : undefined;
    return { records: all.subarray(from * RECORD_BYTES, end), next };
  };
  return Digest.build(read, Number.MAX_SAFE_INTEGER);
}
