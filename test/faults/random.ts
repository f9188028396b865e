/** Random numbers that are a pure function of their seed: the same words give the same sequence. */
import { createHash } from 'node:crypto';

export interface Random {
  /** From 0 up to, not including, 1. */
  fraction(): number;
  /** A whole number from `min` to `max`, both included. */
  between(min: number, max: number): number;
  chance(probability: number): boolean;
  pick<T>(from: readonly T[]): T;
}

export function createRandom(...words: readonly (string | number)[]): Random {
  let state = createHash('sha256').update(words.join(' ')).digest().readUInt32LE(0);
  // mulberry32
  const fraction = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
  const between = (min: number, max: number) => min + Math.floor(fraction() * (max - min + 1));
  return {
    fraction,
    between,
    chance: (probability) => fraction() < probability,
    pick: (from) => {
      if (from.length === 0) throw new Error('there is nothing to pick from');
      return from[between(0, from.length - 1)]!;
    },
  };
}
