/**
 * Random choices that depend on a seed only: the same seed gives the same choices, on every machine. Pure.
 */
import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';

const TWO_32 = 2 ** 32;

export class Dice {
  /** The generator sfc32: three words of state and a counter. */
  private a: number;
  private b: number;
  private c: number;
  private counter = 1;

  constructor(private readonly seed: string) {
    const hash = new DataView(sha256(utf8ToBytes(seed)).buffer);
    [this.a, this.b, this.c] = [hash.getInt32(0), hash.getInt32(4), hash.getInt32(8)];
    // The first numbers still resemble the seed.
    for (let round = 0; round < 12; round += 1) this.next();
  }

  /** Dice of its own for one part of the work, so that a change of one part does not change the others. */
  for(part: string): Dice {
    return new Dice(`${this.seed}/${part}`);
  }

  /** From 0 up to, and without, 1. */
  next(): number {
    const sum = (this.a + this.b + this.counter) | 0;
    this.counter = (this.counter + 1) | 0;
    this.a = this.b ^ (this.b >>> 9);
    this.b = (this.c + (this.c << 3)) | 0;
    this.c = (((this.c << 21) | (this.c >>> 11)) + sum) | 0;
    return (sum >>> 0) / TWO_32;
  }

  /** A whole number from min to max, both included. */
  between(min: number, max: number): number {
    return min + Math.floor(this.next() * (max - min + 1));
  }

  chance(share: number): boolean {
    return this.next() < share;
  }

  /** One of a list that is not empty. */
  pick<T>(list: readonly T[]): T {
    return list[this.between(0, list.length - 1)]!;
  }

  /** In another order. */
  shuffled<T>(list: readonly T[]): T[] {
    const mixed = [...list];
    for (let at = mixed.length - 1; at > 0; at -= 1) {
      const other = this.between(0, at);
      [mixed[at], mixed[other]] = [mixed[other]!, mixed[at]!];
    }
    return mixed;
  }
}

/** The secret key of the person at this place. Whoever knows the seed knows it. */
export function secretOf(seed: string, place: number): string {
  return bytesToHex(sha256(utf8ToBytes(`minato demo/${seed}/${place}`)));
}
