import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HashTable, hashWords } from '../../events/hash.js';
import { Keys } from './keys.js';

const KEY = { low: 0x0706_0504, high: 0x0302_0100 };
const hex = (number: number) => number.toString(16).padStart(64, '0');

describe('the keys of the window', () => {
  it('of two values are never the same, and lead back to the value', () => {
    const value = fc.oneof(
      fc.string(),
      fc.nat(5).map(hex),
      fc.nat(5).map((number) => hex(number).toUpperCase()),
      fc.constantFrom('', ' ', 'a'.repeat(64), 'é'.repeat(40), '港'.repeat(3_000)),
    );
    const asked = fc.record({ community: fc.nat(2), letter: fc.constantFrom('t', 'T', 'p', ''), value });
    fc.assert(
      fc.property(fc.array(asked, { maxLength: 60, size: 'max' }), (all) => {
        const keys = new Keys(KEY);
        const known = new Map<string, number>();
        for (const { community, letter, value } of all) {
          const ask = () =>
            letter === '' ? keys.bound(community, value) : keys.tag(community, letter, value);
          const name = JSON.stringify([community, letter, value]);
          expect(ask().find()).toBe(known.get(name) ?? -1);
          if (!known.has(name)) known.set(name, ask().add());
          expect(keys.valueOf(known.get(name)!)).toBe(value);
          expect(keys.isTag(known.get(name)!, 't')).toBe(letter === 't');
          expect(keys.isBound(known.get(name)!)).toBe(letter === '');
        }
        expect(new Set(known.values()).size).toBe(known.size);
      }),
    );
  });

  it('of an author, an author with a kind, a kind, a tag and everything stand apart', () => {
    const keys = new Keys(KEY);
    const ask = [
      () => keys.author(1, hex(1)),
      () => keys.tag(1, 'p', hex(1)),
      () => keys.authorKind(1, 0, 1),
      () => keys.kind(1, 1),
      () => keys.all(1),
      () => keys.all(2),
    ];
    const numbers = ask.map((asked) => asked().add());
    expect(new Set(numbers).size).toBe(ask.length);
    expect(ask.map((asked) => asked().find())).toEqual(numbers);
  });

  it('that are removed are not found, and others still are', () => {
    const keys = new Keys(KEY);
    const numbers = Array.from({ length: 50_000 }, (_, place) => keys.tag(1, 'e', hex(place)).add());
    for (const [place, key] of numbers.entries()) if (place % 10 > 0) keys.remove(key);
    const found = numbers.map((_, place) => keys.tag(1, 'e', hex(place)).find());
    expect(found).toEqual(numbers.map((key, place) => (place % 10 > 0 ? -1 : key)));
  });
});

describe('the hash', () => {
  it('is another with another key', () => {
    const words = Int32Array.from([1, 2, 3]);
    expect(hashWords(KEY, words, 3)).not.toBe(hashWords({ ...KEY, low: 1 }, words, 3));
    expect(hashWords(KEY, words, 3)).not.toBe(hashWords(KEY, words, 2));
  });

  it('spreads values that differ in little over the whole table', () => {
    const buckets = new Int32Array(256);
    for (let value = 0; value < 25_600; value++)
      buckets[hashWords(KEY, Int32Array.of(value), 1) >>> 24]! += 1;
    expect(Math.min(...buckets)).toBeGreaterThan(50);
    expect(Math.max(...buckets)).toBeLessThan(150);
  });
});

describe('a table of places', () => {
  it('finds what was added and not removed, also where all hashes are the same', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.boolean(), fc.nat(40)), { maxLength: 300, size: 'max' }),
        fc.constantFrom(1, 3, 40),
        (steps, different) => {
          const hashOf = (place: number) => place % different;
          const table = new HashTable(hashOf);
          const known = new Set<number>();
          for (const [isAdding, place] of steps) {
            if (isAdding === known.has(place)) continue;
            if (isAdding) table.add(hashOf(place), place);
            else table.remove(hashOf(place), place);
            if (isAdding) known.add(place);
            else known.delete(place);
          }
          const places = Array.from({ length: 41 }, (_, place) => place);
          const found = places.map((place) => table.find(hashOf(place), (other) => other === place));
          expect(found).toEqual(places.map((place) => (known.has(place) ? place : -1)));
        },
      ),
    );
  });
});
