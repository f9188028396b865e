/**
 * HalfSipHash-1-3 with a secret key, and a table of places by such hashes. Keyed, because clients choose ids
 * and tags: without the key nobody can prepare values that fall together. A hash only finds; whoever asks
 * compares the value itself.
 */
export interface HashKey {
  readonly low: number;
  readonly high: number;
}

const rotate = (value: number, bits: number) => (value << bits) | (value >>> (32 - bits));

/** Of the first `count` words. */
export function hashWords({ low, high }: HashKey, words: Int32Array, count: number): number {
  let v0 = low;
  let v1 = high;
  let v2 = 0x6c796765 ^ low;
  let v3 = 0x74656462 ^ high;
  // One round for each word, one for their number, three at the end.
  for (let at = 0; at < count + 4; at++) {
    const word = at < count ? words[at]! : at === count ? count << 24 : 0;
    if (at === count + 1) v2 ^= 0xff;
    v3 ^= word;
    v0 = (v0 + v1) | 0;
    v1 = rotate(v1, 5) ^ v0;
    v0 = rotate(v0, 16);
    v2 = (v2 + v3) | 0;
    v3 = rotate(v3, 8) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = rotate(v3, 7) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = rotate(v1, 13) ^ v2;
    v2 = rotate(v2, 16);
    v0 ^= word;
  }
  return v1 ^ v3;
}

const SEGMENT_BITS = 8;
const SLOTS_MIN = 16;

/**
 * Places by hash: open addressing with linear probing. In 256 segments that grow each for itself, so that no
 * growth moves more than a small part of a large table at once.
 */
export class HashTable {
  private readonly segments: Int32Array[] = [];
  private readonly counts = new Int32Array(1 << SEGMENT_BITS);

  /** The hash of what is at a place. */
  constructor(private readonly hashOf: (place: number) => number) {
    for (let at = 0; at < 1 << SEGMENT_BITS; at++) this.segments.push(new Int32Array(SLOTS_MIN));
  }

  /** The place with this hash that is the one, or -1. */
  find(hash: number, isIt: (place: number) => boolean): number {
    const slots = this.segments[hash >>> (32 - SEGMENT_BITS)]!;
    const mask = slots.length - 1;
    for (let at = hash & mask; ; at = (at + 1) & mask) {
      const place = slots[at]! - 1;
      if (place === -1 || (this.hashOf(place) === hash && isIt(place))) return place;
    }
  }

  add(hash: number, place: number): void {
    const segment = hash >>> (32 - SEGMENT_BITS);
    let slots = this.segments[segment]!;
    if ((this.counts[segment]! + 1) * 3 > slots.length * 2) slots = this.resize(segment, slots.length * 2);
    put(slots, hash, place);
    this.counts[segment]! += 1;
  }

  /** What stands behind it moves up, so that no mark of a deletion is left. */
  remove(hash: number, place: number): void {
    const segment = hash >>> (32 - SEGMENT_BITS);
    const slots = this.segments[segment]!;
    const mask = slots.length - 1;
    let hole = hash & mask;
    while (slots[hole] !== place + 1) hole = (hole + 1) & mask;
    for (let at = (hole + 1) & mask; slots[at] !== 0; at = (at + 1) & mask) {
      const wanted = this.hashOf(slots[at]! - 1) & mask;
      // It may move to the hole unless its own place lies behind it.
      if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
      slots[hole] = slots[at]!;
      hole = at;
    }
    slots[hole] = 0;
    this.counts[segment]! -= 1;
    if (slots.length > SLOTS_MIN && this.counts[segment]! * 8 < slots.length)
      this.resize(segment, slots.length / 2);
  }

  private resize(segment: number, size: number): Int32Array {
    const slots = new Int32Array(size);
    for (const entry of this.segments[segment]!)
      if (entry !== 0) put(slots, this.hashOf(entry - 1), entry - 1);
    this.segments[segment] = slots;
    return slots;
  }
}

function put(slots: Int32Array, hash: number, place: number): void {
  const mask = slots.length - 1;
  let at = hash & mask;
  while (slots[at] !== 0) at = (at + 1) & mask;
  slots[at] = place + 1;
}
