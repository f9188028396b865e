/**
 * Lists of events, one for each key, oldest first: by `created_at`, of the same second the highest id first.
 * A short list is one block; a long one is a row of blocks, so that nothing is moved far, wherever an event
 * comes in or goes. Most keys have one event or two.
 */
import { type Blocks, sizeClassFor } from './blocks.js';
import { IntColumn } from './columns.js';

/** Of a block of a long list; a list with more events is long. */
const BLOCK_CLASS = 9;
const BLOCK_SIZE = 1 << BLOCK_CLASS;
const LONG = 0xff;

/** The blocks of a long list, oldest first, and how many events each holds. */
interface LongList {
  readonly blocks: number[];
  readonly counts: number[];
}

export class Postings {
  private readonly counts = new IntColumn();
  private readonly blockOf = new IntColumn();
  private readonly sizeClass = new IntColumn();
  private readonly long = new Map<number, LongList>();

  constructor(
    private readonly blocks: Blocks,
    /** Negative when the first event is older. Never 0 for two events. */
    private readonly compare: (a: number, b: number) => number,
  ) {}

  /** A key that is new. */
  open(key: number): void {
    this.counts.set(key, 0);
    this.sizeClass.set(key, 0);
    this.blockOf.set(key, this.blocks.take(0));
  }

  count(key: number): number {
    return this.counts.get(key);
  }

  add(key: number, event: number): void {
    const count = this.counts.get(key);
    this.counts.set(key, count + 1);
    const list = this.long.get(key);
    if (list !== undefined || count === BLOCK_SIZE) {
      this.addLong(list ?? this.lengthen(key), event);
      return;
    }
    const sizeClass = this.sizeClass.get(key);
    if (count === 1 << sizeClass) this.resize(key, sizeClass + 1, count);
    this.insert(this.blockOf.get(key), count, event);
  }

  /** False when the list is empty now, and closed with it. */
  remove(key: number, event: number): boolean {
    const count = this.counts.get(key) - 1;
    this.counts.set(key, count);
    const list = this.long.get(key);
    if (list !== undefined) {
      this.removeLong(list, event);
      // Not at once, so that a list does not change its shape with every event.
      if (count <= BLOCK_SIZE / 2) this.shorten(key, list);
      return true;
    }
    this.take(this.blockOf.get(key), count + 1, event);
    const sizeClass = this.sizeClass.get(key);
    if (count === 0) this.blocks.free(this.blockOf.get(key), sizeClass);
    else if (sizeClass > 1 && count <= 1 << (sizeClass - 2)) this.resize(key, sizeClass - 1, count);
    return count > 0;
  }

  oldest(key: number): number {
    return this.blocks.get(this.long.get(key)?.blocks[0] ?? this.blockOf.get(key));
  }

  /**
   * The events of a list, from the newest that is not after a time to the oldest. It holds until something is
   * added or removed.
   */
  walk(key: number, isAfter: ((event: number) => boolean) | undefined): Walk {
    const { blocks } = this;
    const list = this.long.get(key);
    let block = 0;
    if (list !== undefined) {
      const { length } = list.blocks;
      const newer =
        isAfter === undefined ? length : lowest(length, (at) => isAfter(blocks.get(list.blocks[at]!)));
      block = Math.max(0, newer - 1);
    }
    const start = list === undefined ? this.blockOf.get(key) : list.blocks[block]!;
    const count = list === undefined ? this.counts.get(key) : list.counts[block]!;
    const at = isAfter === undefined ? count : lowest(count, (place) => isAfter(blocks.get(start + place)));
    return new Walk(blocks, list, block, start, at - 1);
  }

  // ── Short lists ──────────────────────────────────────────────────────────────────────────────────────────

  private resize(key: number, sizeClass: number, count: number): void {
    const before = this.blockOf.get(key);
    const after = this.blocks.take(sizeClass);
    this.blocks.copy(before, after, count);
    this.blocks.free(before, this.sizeClass.get(key));
    this.blockOf.set(key, after);
    this.sizeClass.set(key, sizeClass);
  }

  private insert(block: number, count: number, event: number): void {
    const { blocks } = this;
    const place = lowest(count, (at) => this.compare(blocks.get(block + at), event) > 0);
    blocks.move(block + place, block + place + 1, count - place);
    blocks.set(block + place, event);
  }

  private take(block: number, count: number, event: number): void {
    const { blocks } = this;
    const place = lowest(count, (at) => this.compare(blocks.get(block + at), event) >= 0);
    if (place === count || blocks.get(block + place) !== event)
      throw new Error('an event of the window is not in the list of its key');
    blocks.move(block + place + 1, block + place, count - place - 1);
  }

  // ── Long lists ───────────────────────────────────────────────────────────────────────────────────────────

  private lengthen(key: number): LongList {
    const list = { blocks: [this.blockOf.get(key)], counts: [BLOCK_SIZE] };
    this.sizeClass.set(key, LONG);
    this.long.set(key, list);
    return list;
  }

  /** What is left of a long list in one block. */
  private shorten(key: number, { blocks, counts }: LongList): void {
    const count = this.counts.get(key);
    const sizeClass = sizeClassFor(count);
    const short = this.blocks.take(sizeClass);
    let at = 0;
    blocks.forEach((block, place) => {
      this.blocks.copy(block, short + at, counts[place]!);
      at += counts[place]!;
      this.blocks.free(block, BLOCK_CLASS);
    });
    this.long.delete(key);
    this.blockOf.set(key, short);
    this.sizeClass.set(key, sizeClass);
  }

  private addLong(list: LongList, event: number): void {
    const { blocks, counts } = list;
    let place = this.placeOf(list, event);
    if (counts[place] === BLOCK_SIZE) {
      this.split(list, place);
      place = this.placeOf(list, event);
    }
    this.insert(blocks[place]!, counts[place]!, event);
    counts[place]! += 1;
  }

  /** At an end of the list, where most events come in, the full block stays full. */
  private split({ blocks, counts }: LongList, place: number): void {
    const after = this.blocks.take(BLOCK_CLASS);
    const isLast = place === blocks.length - 1;
    const left = isLast ? BLOCK_SIZE - 1 : place === 0 ? 1 : BLOCK_SIZE / 2;
    this.blocks.copy(blocks[place]! + left, after, BLOCK_SIZE - left);
    blocks.splice(place + 1, 0, after);
    counts.splice(place, 1, left, BLOCK_SIZE - left);
  }

  private removeLong(list: LongList, event: number): void {
    const { blocks, counts } = list;
    const place = this.placeOf(list, event);
    this.take(blocks[place]!, counts[place]!, event);
    counts[place]! -= 1;
    if (counts[place] === 0) this.dropBlock(list, place);
    else if (place + 1 < blocks.length && counts[place]! + counts[place + 1]! <= BLOCK_SIZE / 2)
      this.join(list, place);
    else if (place > 0 && counts[place - 1]! + counts[place]! <= BLOCK_SIZE / 2) this.join(list, place - 1);
  }

  /** Two neighbours of which little is left become one. */
  private join(list: LongList, place: number): void {
    const { blocks, counts } = list;
    this.blocks.copy(blocks[place + 1]!, blocks[place]! + counts[place]!, counts[place + 1]!);
    counts[place]! += counts[place + 1]!;
    this.dropBlock(list, place + 1);
  }

  private dropBlock({ blocks, counts }: LongList, place: number): void {
    this.blocks.free(blocks[place]!, BLOCK_CLASS);
    blocks.splice(place, 1);
    counts.splice(place, 1);
  }

  /** The last block that begins with an event not newer than this one. */
  private placeOf({ blocks }: LongList, event: number): number {
    const newer = lowest(blocks.length, (at) => this.compare(this.blocks.get(blocks[at]!), event) > 0);
    return Math.max(0, newer - 1);
  }
}

/** From newer to older. */
export class Walk {
  /** The event at which it stands, or -1 at the end. */
  event: number;

  constructor(
    private readonly blocks: Blocks,
    private readonly list: LongList | undefined,
    private block: number,
    private start: number,
    private at: number,
  ) {
    this.event = at < 0 ? -1 : blocks.get(start + at);
  }

  next(): void {
    if (this.at === 0 && this.block > 0) {
      this.block -= 1;
      this.start = this.list!.blocks[this.block]!;
      this.at = this.list!.counts[this.block]!;
    }
    this.at -= 1;
    this.event = this.at < 0 ? -1 : this.blocks.get(this.start + this.at);
  }
}

/** The lowest place of which it is true; true for all places after it. The count when there is none. */
function lowest(count: number, isTrue: (place: number) => boolean): number {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isTrue(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
