import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IdSet } from './id-set.js';

const idOf = (number: number) => number.toString(16).padStart(64, '0');
const heldOf = (ids: IdSet, community: number, count: number) =>
  Array.from({ length: count }, (_, number) => number).filter((number) => ids.has(community, idOf(number)));

describe('a limited set of ids', () => {
  it('is like a set while it has room, each community for itself', () => {
    const step = fc.record({
      what: fc.constantFrom('add', 'delete', 'clear'),
      community: fc.constantFrom(1, 2),
      number: fc.nat(20),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const ids = new IdSet(200);
        const model = new Set<string>();
        for (const { what, community, number } of steps) {
          const key = `${community}/${number}`;
          if (what === 'add') model.add(key);
          else if (what === 'delete') model.delete(key);
          else if (number === 0) model.clear();
          if (what === 'add') ids.add(community, idOf(number));
          else if (what === 'delete') ids.delete(community, idOf(number));
          else if (number === 0) ids.clear();
        }
        const held = [1, 2].flatMap((community) =>
          heldOf(ids, community, 21).map((number) => `${community}/${number}`),
        );
        expect(held.sort()).toEqual([...model].sort());
      }),
    );
  });

  it('holds the newest ids when more are added than it may hold', () => {
    const ids = new IdSet(100);
    for (let number = 0; number < 1_050; number += 1) ids.add(1, idOf(number));
    expect(heldOf(ids, 1, 1_050)).toEqual(Array.from({ length: 100 }, (_, at) => 950 + at));
  });

  it('keeps an id that is asked for again and again', () => {
    const ids = new IdSet(100);
    ids.add(1, idOf(0));
    for (let number = 1; number < 1_000; number += 1) {
      ids.add(1, idOf(number));
      expect(ids.has(1, idOf(0))).toBe(true);
    }
  });

  it('finds room when every id was asked for', () => {
    const ids = new IdSet(10);
    for (let number = 0; number < 10; number += 1) ids.add(1, idOf(number));
    expect(heldOf(ids, 1, 10)).toHaveLength(10);
    ids.add(1, idOf(10));
    expect(heldOf(ids, 1, 11)).toHaveLength(10);
    expect(ids.has(1, idOf(10))).toBe(true);
  });

  it('uses the place of a deleted id again', () => {
    const ids = new IdSet(3);
    for (const number of [0, 1, 2]) ids.add(1, idOf(number));
    ids.delete(1, idOf(0));
    ids.add(1, idOf(3));
    expect(heldOf(ids, 1, 4)).toEqual([1, 2, 3]);
  });
});
