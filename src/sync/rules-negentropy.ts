/**
 * Negentropy, protocol version 1 (NIP-77): finds the differences of two sets of records, which are pairs of
 * `created_at` and id in rising order. Pure. A message is a list of ranges that follow one another. Of each
 * range it has nothing (it is settled), a fingerprint, or all ids. Ranges whose fingerprints differ are split
 * until few records are left.
 *
 * How a range is split is free: the other side answers any ranges. So this side splits where its records
 * allow it without reading them again (sync/digest.ts).
 */
import { sha256 } from '@noble/hashes/sha2.js';

export const ID_BYTES = 32;
/** A record as bytes: `created_at` as eight bytes, the most significant first, then the id. */
export const RECORD_BYTES = 8 + ID_BYTES;
const FINGERPRINT_BYTES = 16;
const VERSION = 0x61;
const VERSION_FIRST = 0x60;
const VERSION_LAST = 0x6f;
/** A range is split into at least this many parts, and into less than twice as many. */
const PARTS_MIN = 16;
const PARTS_MAX = 2 * PARTS_MIN;
/** A range of fewer records is sent as ids. */
export const LISTED_MAX = PARTS_MAX - 1;
/** Room for the fingerprint of what did not fit. */
const REST_BYTES = 200;
/** Own ids that the other side does not have, passed on at once. */
const HAVE_PAGE = 1_000;

enum Mode {
  skip = 0,
  fingerprint = 1,
  ids = 2,
}

/** The message is malformed, or no version of the protocol that is known here. */
export class BadMessage extends Error {}

/**
 * Between two records: after all that are smaller. `id` is the beginning of an id, up to 32 bytes; `time` may
 * be infinite.
 */
export interface Bound {
  readonly time: number;
  readonly id: Uint8Array;
}

const NO_ID = new Uint8Array(0);
export const FIRST: Bound = { time: 0, id: NO_ID };
export const LAST: Bound = { time: Number.POSITIVE_INFINITY, id: NO_ID };

export function compareBounds(one: Bound, other: Bound): number {
  if (one.time !== other.time) return one.time < other.time ? -1 : 1;
  return compareIds(one.id, other.id);
}

function compareIds(one: Uint8Array, other: Uint8Array): number {
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at += 1) {
    const difference = one[at]! - other[at]!;
    if (difference !== 0) return difference;
  }
  return one.length - other.length;
}

/** The shortest bound between two records that follow one another. */
export function boundBetween(before: Bound, after: Bound): Bound {
  if (before.time !== after.time) return { time: after.time, id: NO_ID };
  let shared = 0;
  while (shared < ID_BYTES - 1 && before.id[shared] === after.id[shared]) shared += 1;
  return { time: after.time, id: after.id.subarray(0, shared + 1) };
}

/** The record at this place of a page. The id is a view of the page. */
export function recordAt(page: Uint8Array, at: number): Bound {
  const from = at * RECORD_BYTES;
  const view = new DataView(page.buffer, page.byteOffset + from, 8);
  return {
    time: view.getUint32(0) * 2 ** 32 + view.getUint32(4),
    id: page.subarray(from + 8, from + RECORD_BYTES),
  };
}

export function recordsIn(page: Uint8Array): number {
  return page.length / RECORD_BYTES;
}

/** The first record of a page that is not below the bound, by its place. */
export function placeOf(page: Uint8Array, bound: Bound): number {
  let low = 0;
  let high = recordsIn(page);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareBounds(recordAt(page, middle), bound) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

const WORDS = ID_BYTES / 4;

/** A number of records and the sum of their ids, as numbers of 256 bits with the lowest byte first. */
export class Sum {
  count = 0;
  readonly words = new Uint32Array(WORDS);

  /** The records of a page from one place up to another. */
  addRecords(page: Uint8Array, from: number, to: number): void {
    const view = new DataView(page.buffer, page.byteOffset, page.length);
    for (let at = from; at < to; at += 1) this.addId(view, at * RECORD_BYTES + 8);
  }

  private addId(view: DataView, at: number): void {
    let carry = 0;
    for (let word = 0; word < WORDS; word += 1) {
      const total = this.words[word]! + view.getUint32(at + 4 * word, true) + carry;
      this.words[word] = total;
      carry = total > 0xffff_ffff ? 1 : 0;
    }
    this.count += 1;
  }

  add(other: Sum): void {
    let carry = 0;
    for (let word = 0; word < WORDS; word += 1) {
      const total = this.words[word]! + other.words[word]! + carry;
      this.words[word] = total;
      carry = total > 0xffff_ffff ? 1 : 0;
    }
    this.count += other.count;
  }

  subtract(other: Sum): void {
    let borrow = 0;
    for (let word = 0; word < WORDS; word += 1) {
      const total = this.words[word]! - other.words[word]! - borrow;
      this.words[word] = total;
      borrow = total < 0 ? 1 : 0;
    }
    this.count -= other.count;
  }

  fingerprint(): Uint8Array {
    const writer = new Writer();
    const words = new DataView(new ArrayBuffer(ID_BYTES));
    for (const [at, word] of this.words.entries()) words.setUint32(4 * at, word, true);
    writer.bytes(new Uint8Array(words.buffer));
    writer.number(this.count);
    return sha256(writer.written()).subarray(0, FINGERPRINT_BYTES);
  }
}

// ── Splitting a range in one pass ──────────────────────────────────────────────────────────────────────────

export interface Part {
  readonly upper: Bound;
  readonly sum: Sum;
}

/** All ids, one after another, where there are few; otherwise the parts. */
export type Split = { readonly ids: Uint8Array } | { readonly parts: readonly Part[] };

/**
 * Takes the records of a range in order and splits it into parts of about the same size, without knowing
 * their number before: when there are too many parts, each two of them become one.
 */
export class Splitter {
  private parts: { lower: Bound; sum: Sum }[] = [];
  private size = 1;
  private count = 0;
  private listed: Uint8Array[] = [];
  private before: Bound | undefined;

  /** `lower`: the shortest bound before the first of them, where the record before it is not known. */
  addRecords(page: Uint8Array, from: number, to: number, lower?: Bound): void {
    let known = lower;
    for (let at = from; at < to; at += 1) {
      const record = recordAt(page, at);
      if (this.count < PARTS_MAX) this.listed.push(record.id);
      const begin = known ?? (this.before === undefined ? record : boundBetween(this.before, record));
      this.partFor(1, begin).addRecords(page, at, at + 1);
      this.count += 1;
      this.before = record;
      known = undefined;
    }
  }

  /** Records that are not read, from this bound on. */
  addBlock(lower: Bound, sum: Sum): void {
    this.partFor(sum.count, lower).add(sum);
    this.count += sum.count;
    this.before = undefined;
  }

  private partFor(count: number, lower: Bound): Sum {
    const last = this.parts.at(-1);
    if (last !== undefined && last.sum.count + count <= this.size) return last.sum;
    if (this.parts.length === PARTS_MAX) {
      this.halve();
      return this.partFor(count, lower);
    }
    const sum = new Sum();
    this.parts.push({ lower, sum });
    return sum;
  }

  private halve(): void {
    while (this.parts.length > PARTS_MAX - PARTS_MIN / 2) {
      this.size *= 2;
      const fewer: { lower: Bound; sum: Sum }[] = [];
      for (const part of this.parts) {
        const last = fewer.at(-1);
        if (last !== undefined && last.sum.count + part.sum.count <= this.size) last.sum.add(part.sum);
        else fewer.push(part);
      }
      this.parts = fewer;
    }
  }

  finish(upper: Bound): Split {
    if (this.count <= LISTED_MAX && this.listed.length === this.count) return { ids: joined(this.listed) };
    return {
      parts: this.parts.map(({ sum }, at) => ({ sum, upper: this.parts[at + 1]?.lower ?? upper })),
    };
  }
}

function joined(ids: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(ids.length * ID_BYTES);
  for (const [at, id] of ids.entries()) all.set(id, at * ID_BYTES);
  return all;
}

// ── Messages ───────────────────────────────────────────────────────────────────────────────────────────────

type Range = { readonly upper: Bound } & (
  | { readonly mode: Mode.skip }
  | { readonly mode: Mode.fingerprint; readonly fingerprint: Uint8Array }
  /** One after another. */
  | { readonly mode: Mode.ids; readonly ids: Uint8Array }
);

function readRanges(message: Uint8Array): Range[] | 'other version' {
  const reader = new Reader(message);
  const version = reader.byte();
  if (version < VERSION_FIRST || version > VERSION_LAST) throw new BadMessage('this is not negentropy');
  if (version !== VERSION) return 'other version';
  const ranges: Range[] = [];
  for (let lower = FIRST; !reader.isAtEnd; ) {
    const upper = reader.bound();
    if (compareBounds(upper, lower) < 0) throw new BadMessage('the ranges are not in rising order');
    ranges.push(readRange(reader, upper));
    lower = upper;
  }
  return ranges;
}

function readRange(reader: Reader, upper: Bound): Range {
  const mode = reader.number();
  switch (mode) {
    case Mode.skip:
      return { upper, mode };
    case Mode.fingerprint:
      return { upper, mode, fingerprint: reader.bytes(FINGERPRINT_BYTES) };
    case Mode.ids:
      return { upper, mode, ids: reader.bytes(reader.number() * ID_BYTES) };
    default:
      throw new BadMessage('a range has an unknown mode');
  }
}

class Reader {
  private at = 0;
  private time = 0;
  constructor(private readonly message: Uint8Array) {}

  get isAtEnd(): boolean {
    return this.at === this.message.length;
  }

  byte(): number {
    const byte = this.message[this.at];
    if (byte === undefined) throw new BadMessage('the message ends too early');
    this.at += 1;
    return byte;
  }

  bytes(length: number): Uint8Array {
    if (length > this.message.length - this.at) throw new BadMessage('the message ends too early');
    this.at += length;
    return this.message.subarray(this.at - length, this.at);
  }

  /** Seven bits in each byte, the most significant first. */
  number(): number {
    let value = 0;
    for (;;) {
      const byte = this.byte();
      value = value * 128 + (byte & 127);
      if (!Number.isSafeInteger(value)) throw new BadMessage('a number is too large');
      if (byte < 128) return value;
    }
  }

  /** Times are sent as differences, plus one; zero is infinity, and so is every later one. */
  bound(): Bound {
    const difference = this.number();
    this.time = difference === 0 ? Number.POSITIVE_INFINITY : this.time + difference - 1;
    const length = this.number();
    if (length > ID_BYTES) throw new BadMessage('a bound is too long');
    return { time: this.time, id: this.bytes(length) };
  }
}

class Writer {
  private buffer = new Uint8Array(256);
  length = 0;
  private time = 0;

  bytes(bytes: Uint8Array): void {
    while (this.length + bytes.length > this.buffer.length) {
      const larger = new Uint8Array(2 * this.buffer.length);
      larger.set(this.buffer);
      this.buffer = larger;
    }
    this.buffer.set(bytes, this.length);
    this.length += bytes.length;
  }

  number(value: number): void {
    const digits = [value % 128];
    for (let rest = Math.floor(value / 128); rest > 0; rest = Math.floor(rest / 128))
      digits.push((rest % 128) | 128);
    this.bytes(Uint8Array.from(digits.reverse()));
  }

  bound({ time, id }: Bound): void {
    if (time === Number.POSITIVE_INFINITY) this.number(0);
    else this.number(time - this.time + 1);
    this.time = time;
    this.number(id.length);
    this.bytes(id);
  }

  skip(upper: Bound): void {
    this.bound(upper);
    this.number(Mode.skip);
  }
  fingerprint(upper: Bound, sum: Sum): void {
    this.bound(upper);
    this.number(Mode.fingerprint);
    this.bytes(sum.fingerprint());
  }
  ids(upper: Bound, ids: Uint8Array): void {
    this.bound(upper);
    this.number(Mode.ids);
    this.number(ids.length / ID_BYTES);
    this.bytes(ids);
  }
  split(upper: Bound, split: Split): void {
    if ('ids' in split) this.ids(upper, split.ids);
    else for (const part of split.parts) this.fingerprint(part.upper, part.sum);
  }

  mark(): { readonly length: number; readonly time: number } {
    return { length: this.length, time: this.time };
  }
  backTo({ length, time }: { readonly length: number; readonly time: number }): void {
    this.length = length;
    this.time = time;
  }

  written(): Uint8Array {
    return this.buffer.slice(0, this.length);
  }
}

// ── One round ──────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The records of one side. `ahead`: the records up to there will be asked for next, so that a page may hold
 * more than one range.
 */
export interface Records {
  sum(lower: Bound, upper: Bound, ahead?: Bound): Promise<Sum>;
  split(lower: Bound, upper: Bound): Promise<Split>;
  /** At most `max` ids, one after another, and where the next one begins if there are more. */
  ids(
    lower: Bound,
    upper: Bound,
    max: number,
  ): Promise<{ readonly ids: Uint8Array; readonly next?: Bound | undefined }>;
}

/**
 * Receives the differences while they are found. The next ones wait for it. One may come twice: what does not
 * fit into a message is asked for again as a whole, with ranges in it that were settled.
 */
export interface Differences {
  /** This side has them, the other has not. */
  have(ids: readonly string[]): Promise<void>;
  /** The other side has them, this one has not. */
  need(ids: readonly string[]): Promise<void>;
}

/** The first message of the side that opens. */
export async function openingMessage(records: Records): Promise<Uint8Array> {
  const writer = new Writer();
  writer.bytes(Uint8Array.of(VERSION));
  writer.split(LAST, await records.split(FIRST, LAST));
  return writer.written();
}

/** The answer of the side that was asked: never empty, but it may have no range. */
export async function respond(message: Uint8Array, records: Records, bytesMax: number): Promise<Uint8Array> {
  const ranges = readRanges(message);
  // The client may choose a version that both know.
  if (ranges === 'other version') return Uint8Array.of(VERSION);
  return new Round(ranges, records, bytesMax).answer(undefined);
}

/** The next message of the side that has opened; undefined at the end. */
export async function reconcile(
  message: Uint8Array,
  records: Records,
  bytesMax: number,
  found: Differences,
): Promise<Uint8Array | undefined> {
  const ranges = readRanges(message);
  if (ranges === 'other version') throw new BadMessage('the other side knows only another version');
  const next = await new Round(ranges, records, bytesMax).answer(found);
  return next.length > 1 ? next : undefined;
}

class Round {
  private readonly writer = new Writer();
  /** The ranges before `lower` that are not written yet need nothing more. */
  private isSkipping = false;
  /** Of each range: the end of the ranges without a gap that it is in. */
  private readonly ahead: Bound[];

  constructor(
    private readonly ranges: readonly Range[],
    private readonly records: Records,
    private readonly bytesMax: number,
  ) {
    this.writer.bytes(Uint8Array.of(VERSION));
    this.ahead = ranges.map(({ upper }) => upper);
    for (let place = ranges.length - 2; place >= 0; place -= 1)
      if (ranges[place + 1]!.mode !== Mode.skip) this.ahead[place] = this.ahead[place + 1]!;
  }

  async answer(found: Differences | undefined): Promise<Uint8Array> {
    const { ranges, writer } = this;
    let lower = FIRST;
    for (const [place, range] of ranges.entries()) {
      const unsent = await this.take(range, lower, place, found);
      if (unsent !== undefined) {
        await this.writeRest(unsent, this.lastAfter(place));
        break;
      }
      lower = range.upper;
    }
    return writer.written();
  }

  /** Where the rest begins, if it did not fit. */
  private async take(
    range: Range,
    lower: Bound,
    place: number,
    found: Differences | undefined,
  ): Promise<Bound | undefined> {
    const { upper } = range;
    switch (range.mode) {
      case Mode.skip:
        this.isSkipping = true;
        return undefined;
      case Mode.fingerprint: {
        const sum = await this.records.sum(lower, upper, this.ahead[place]);
        if (compareIds(sum.fingerprint(), range.fingerprint) === 0) {
          this.isSkipping = true;
          return undefined;
        }
        const split = await this.records.split(lower, upper);
        return this.write(lower, () => this.writer.split(upper, split)) ? undefined : lower;
      }
      case Mode.ids:
        if (found === undefined) return this.list(lower, upper);
        await this.compare(lower, upper, range.ids, found);
        this.isSkipping = true;
        return undefined;
    }
  }

  /** Sends the own ids of a range, so that the other side can compare. */
  private async list(lower: Bound, upper: Bound): Promise<Bound | undefined> {
    const room = Math.floor((this.bytesMax - REST_BYTES - this.writer.length) / ID_BYTES);
    if (room <= 0) return lower;
    const { ids, next } = await this.records.ids(lower, upper, room);
    this.flushSkip(lower);
    this.writer.ids(next ?? upper, ids);
    return next;
  }

  private async compare(lower: Bound, upper: Bound, theirs: Uint8Array, found: Differences): Promise<void> {
    const missing = new Set(idsIn(theirs));
    for (let from: Bound | undefined = lower; from !== undefined; ) {
      const { ids, next } = await this.records.ids(from, upper, HAVE_PAGE);
      const have = idsIn(ids).filter((id) => !missing.delete(id));
      if (have.length > 0) await found.have(have);
      from = next;
    }
    if (missing.size > 0) await found.need([...missing]);
  }

  private flushSkip(lower: Bound): void {
    if (this.isSkipping) this.writer.skip(lower);
    this.isSkipping = false;
  }

  /** False when it does not fit: then nothing is written. */
  private write(lower: Bound, write: () => void): boolean {
    const { writer, isSkipping } = this;
    const mark = writer.mark();
    this.flushSkip(lower);
    write();
    if (writer.length <= this.bytesMax - REST_BYTES) return true;
    writer.backTo(mark);
    this.isSkipping = isSkipping;
    return false;
  }

  /** One fingerprint for what did not fit: the other side asks for its parts in the next round. */
  private async writeRest(lower: Bound, upper: Bound): Promise<void> {
    const sum = await this.records.sum(lower, upper);
    this.flushSkip(lower);
    this.writer.fingerprint(upper, sum);
  }

  /** The end of the last range that is not settled: what comes after it is not asked again. */
  private lastAfter(place: number): Bound {
    const open = this.ranges.slice(place).findLast(({ mode }) => mode !== Mode.skip);
    return (open ?? this.ranges[place]!).upper;
  }
}

function idsIn(ids: Uint8Array): string[] {
  const hex = toHex(ids);
  return Array.from({ length: ids.length / ID_BYTES }, (_, at) => hex.slice(64 * at, 64 * (at + 1)));
}

export function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('hex');
}

/** Lower or upper case, as clients send it. */
export function fromHex(text: string): Uint8Array {
  if (text.length % 2 !== 0 || !/^[0-9a-fA-F]*$/.test(text)) throw new BadMessage('the message is not hex');
  return Buffer.from(text, 'hex');
}
