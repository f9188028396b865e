/**
 * Bytes outside the V8 heap: written one after another into slabs, each piece known by a number that stays
 * while it is moved. What is freed is overwritten at once. A slab of which most is free is given back: what
 * is left in it is written to the end.
 */
import { IntColumn, Places } from './columns.js';

const SLAB_BYTES = 1_048_576;
/** Before each piece stands its number and its length, so that a slab can be walked. */
const HEADER_BYTES = 8;
/**
 * A larger piece has a slab of its own: so less than a sixteenth of a full slab is unused, which no moving
 * would gain.
 */
const PIECE_BYTES_MAX = SLAB_BYTES / 16;
/** With less than this part of it in use a slab is given back: moving a byte frees three. */
const USED_MIN = 1 / 4;
/** Where memory is short, one is given back with less than this part in use: moving three bytes frees one. */
const MOVED_MAX = 3 / 4;

interface Slab {
  readonly bytes: Buffer;
  /** Where the next piece is written. */
  end: number;
  /** Bytes of pieces that are there, with their headers. */
  live: number;
}

export class Arena {
  private readonly slabs: (Slab | undefined)[] = [];
  private readonly freeSlabs: number[] = [];
  private readonly pieces = new Places();
  private readonly slabOf = new IntColumn();
  private readonly offsetOf = new IntColumn();
  private readonly lengthOf = new IntColumn();
  private open = -1;
  /** Of all slabs. */
  bytes = 0;
  /** Of all pieces, with their headers. */
  live = 0;

  put(source: Uint8Array, length = source.length): number {
    const piece = this.pieces.take();
    this.lengthOf.set(piece, length);
    this.write(piece, source, 0, length);
    return piece;
  }

  /** A view that holds until something is added or freed. */
  view(piece: number): Buffer {
    const offset = this.offsetOf.get(piece);
    return this.slabs[this.slabOf.get(piece)]!.bytes.subarray(offset, offset + this.lengthOf.get(piece));
  }

  length(piece: number): number {
    return this.lengthOf.get(piece);
  }

  byte(piece: number, at: number): number {
    return this.slabs[this.slabOf.get(piece)]!.bytes[this.offsetOf.get(piece) + at]!;
  }

  isSame(piece: number, bytes: Uint8Array, length: number): boolean {
    if (this.lengthOf.get(piece) !== length) return false;
    const { bytes: own } = this.slabs[this.slabOf.get(piece)]!;
    const offset = this.offsetOf.get(piece);
    for (let at = 0; at < length; at++) if (own[offset + at] !== bytes[at]) return false;
    return true;
  }

  free(piece: number): void {
    const number = this.slabOf.get(piece);
    const slab = this.slabs[number]!;
    const offset = this.offsetOf.get(piece);
    const length = this.lengthOf.get(piece);
    slab.bytes.fill(0, offset, offset + length);
    slab.live -= HEADER_BYTES + length;
    this.live -= HEADER_BYTES + length;
    this.slabOf.set(piece, -1);
    this.pieces.giveBack(piece);
    if (number !== this.open) this.giveBackUnused(number);
  }

  private giveBackUnused(number: number): void {
    const { bytes, live } = this.slabs[number]!;
    if (live === 0) this.drop(number);
    else if (live < bytes.length * USED_MIN) this.empty(number);
  }

  /**
   * Gives one slab back if at least an eighth of all is free in those that are written; what is left in it is
   * written elsewhere. False if that would free little for what is moved.
   */
  compact(): boolean {
    const { bytes = { length: 0 }, live = 0 } = this.slabs[this.open] ?? {};
    const free = this.bytes - bytes.length - (this.live - live);
    if (free <= this.bytes / 8) return false;
    let emptiest = -1;
    let share = MOVED_MAX;
    this.slabs.forEach((slab, number) => {
      if (slab === undefined || number === this.open || slab.live / slab.bytes.length >= share) return;
      emptiest = number;
      share = slab.live / slab.bytes.length;
    });
    if (emptiest === -1) return false;
    this.empty(emptiest);
    return true;
  }

  private empty(number: number): void {
    const { bytes, end } = this.slabs[number]!;
    for (let at = 0; at < end; ) {
      const piece = bytes.readInt32LE(at);
      const length = bytes.readInt32LE(at + 4);
      const offset = at + HEADER_BYTES;
      at = aligned(offset + length);
      if (this.slabOf.get(piece) !== number || this.offsetOf.get(piece) !== offset) continue;
      this.live -= HEADER_BYTES + length;
      this.write(piece, bytes, offset, length);
    }
    this.drop(number);
  }

  private write(piece: number, source: Uint8Array, from: number, length: number): void {
    const needed = HEADER_BYTES + length;
    const number = this.slabFor(needed);
    const slab = this.slabs[number]!;
    const at = slab.end;
    slab.bytes.writeInt32LE(piece, at);
    slab.bytes.writeInt32LE(length, at + 4);
    slab.bytes.set(
      from === 0 && source.length === length ? source : source.subarray(from, from + length),
      at + HEADER_BYTES,
    );
    slab.end = aligned(at + needed);
    slab.live += needed;
    this.live += needed;
    this.slabOf.set(piece, number);
    this.offsetOf.set(piece, at + HEADER_BYTES);
  }

  private slabFor(needed: number): number {
    if (needed > PIECE_BYTES_MAX) return this.makeSlab(aligned(needed));
    const slab = this.slabs[this.open];
    if (slab === undefined || slab.end + needed > SLAB_BYTES) {
      const before = this.open;
      this.open = this.makeSlab(SLAB_BYTES);
      if (slab !== undefined) this.giveBackUnused(before);
    }
    return this.open;
  }

  private makeSlab(size: number): number {
    const number = this.freeSlabs.pop() ?? this.slabs.length;
    this.slabs[number] = { bytes: Buffer.allocUnsafeSlow(size), end: 0, live: 0 };
    this.bytes += size;
    return number;
  }

  private drop(number: number): void {
    this.bytes -= this.slabs[number]!.bytes.length;
    this.slabs[number] = undefined;
    this.freeSlabs.push(number);
  }
}

const aligned = (offset: number) => (offset + 3) & ~3;
