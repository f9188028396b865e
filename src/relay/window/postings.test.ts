import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Blocks } from './blocks.js';
import { Postings } from './postings.js';

/** Events are their own order: a higher number is newer. */
const byNumber = (a: number, b: number) => a - b;

function listOf(postings: Postings, key: number, until?: number): number[] {
  const found: number[] = [];
  const walk = postings.walk(key, until === undefined ? undefined : (event) => event > until);
  for (; walk.event !== -1; walk.next()) found.push(walk.event);
  return found;
}
const newestFirst = (events: Iterable<number>) => [...events].sort((a, b) => b - a);

describe('the lists of the window', () => {
  it('are in order, however long they get and however much is removed', () => {
    const run = fc.record({
      isAdding: fc.constantFrom(true, true, false),
      from: fc.nat(20_000),
      count: fc.integer({ min: 1, max: 900 }),
      step: fc.constantFrom(1, -1, 7, 31),
    });
    fc.assert(
      fc.property(fc.array(run, { maxLength: 12, size: 'max' }), fc.nat(20_000), (runs, until) => {
        const blocks = new Blocks();
        const postings = new Postings(blocks, byNumber);
        const events = new Set<number>();
        for (const { isAdding, from, count, step } of runs) {
          for (let place = 0; place < count; place++) {
            const event = from + place * step;
            if (event < 0 || isAdding === events.has(event)) continue;
            if (isAdding) {
              if (events.size === 0) postings.open(5);
              postings.add(5, event);
              events.add(event);
            } else {
              events.delete(event);
              if (postings.remove(5, event) !== events.size > 0) expect.fail(`event ${event}`);
            }
          }
        }
        if (events.size === 0) {
          expect(blocks.used).toBe(0);
          return;
        }
        expect(postings.count(5)).toBe(events.size);
        expect(listOf(postings, 5)).toEqual(newestFirst(events));
        expect(listOf(postings, 5, until)).toEqual(newestFirst(events).filter((event) => event <= until));
        expect(postings.oldest(5)).toBe(Math.min(...events));
      }),
      { numRuns: 200 },
    );
  });

  it('take little more than their events, also after nearly all of them were removed', () => {
    const blocks = new Blocks();
    const postings = new Postings(blocks, byNumber);
    postings.open(1);
    for (let event = 0; event < 100_000; event++) postings.add(1, event);
    expect(blocks.used).toBeLessThan(101_000);
    for (let event = 0; event < 100_000; event++) if (event % 50 > 0) postings.remove(1, event);
    expect(listOf(postings, 1)).toHaveLength(2_000);
    expect(blocks.used).toBeLessThan(8_300);
  });

  it('take little more than their events when these come newest first, as in a filling', () => {
    const blocks = new Blocks();
    const postings = new Postings(blocks, byNumber);
    postings.open(1);
    for (let event = 100_000; event >= 0; event--) postings.add(1, event);
    expect(blocks.used).toBeLessThan(101_000);
  });

  it('of one key do not touch those of another', () => {
    const postings = new Postings(new Blocks(), byNumber);
    for (const key of [0, 1, 2]) postings.open(key);
    for (let event = 0; event < 3_000; event++) postings.add(event % 3, event);
    for (let event = 0; event < 3_000; event += 3) postings.remove(0, event);
    for (const key of [1, 2]) expect(listOf(postings, key)).toHaveLength(1_000);
  });
});
