import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LaneQueue, QUEUE_BYTES_MAX, QUEUE_EVENTS_MAX, type Queued } from './lane-queue.js';

interface Item extends Queued {
  readonly number: number;
}
const item = (community: number, number = 0, bytes = 1): Item => ({ community, number, bytes });
const ALL = Number.MAX_SAFE_INTEGER;

function fill(queue: LaneQueue<Item>, community: number, count: number, bytes = 1): number {
  let taken = 0;
  for (let number = 0; number < count; number += 1) if (queue.add(item(community, number, bytes))) taken += 1;
  return taken;
}

describe('order', () => {
  it('is first in, first out within a community, and all comes out once', () => {
    const sent = fc.array(fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 0, max: 9 })));
    const sizes = fc.array(fc.tuple(fc.integer({ min: 1, max: 7 }), fc.integer({ min: 1, max: 30 })), {
      minLength: 1,
    });
    fc.assert(
      fc.property(sent, sizes, (list, batches) => {
        const queue = new LaneQueue<Item>();
        const items = list.map(([community, bytes], number) => item(community, number, bytes));
        for (const one of items) expect(queue.add(one)).toBe(true);
        const out: Item[] = [];
        for (let turn = 0; turn < items.length && queue.size > 0; turn += 1) {
          const [eventsMax, bytesMax] = batches[turn % batches.length]!;
          const batch = queue.take(eventsMax, bytesMax);
          expect(batch.length).toBeGreaterThan(0);
          expect(batch.length).toBeLessThanOrEqual(eventsMax);
          const bytes = batch.reduce((sum, one) => sum + one.bytes, 0);
          if (batch.length > 1) expect(bytes).toBeLessThanOrEqual(bytesMax);
          out.push(...batch);
          expect(queue.size).toBe(items.length - out.length);
        }
        expect(queue.size).toBe(0);
        expect(queue.take(10, ALL)).toEqual([]);
        for (const community of [1, 2, 3, 4]) {
          const of = (list: Item[]) => list.filter((one) => one.community === community);
          expect(of(out)).toEqual(of(items));
        }
      }),
      { seed: 7447, numRuns: 300 },
    );
  });

  it('is round-robin between communities: a long line does not hold up a short one', () => {
    const queue = new LaneQueue<Item>();
    fill(queue, 1, 5_000);
    fill(queue, 2, 3);
    fill(queue, 3, 1);
    expect(queue.take(7, ALL).map((one) => one.community)).toEqual([1, 2, 3, 1, 2, 1, 2]);
  });

  it('goes on in the next batch where the last one stopped', () => {
    const queue = new LaneQueue<Item>();
    for (const community of [1, 2, 3]) fill(queue, community, 10);
    const communities = Array.from({ length: 6 }, () =>
      queue.take(2, ALL).map((one) => one.community),
    ).flat();
    expect(communities).toEqual([1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]);
  });

  it('one that comes late waits for one of each at most', () => {
    const queue = new LaneQueue<Item>();
    fill(queue, 1, 9_000);
    queue.take(500, ALL);
    fill(queue, 2, 1);
    expect(queue.take(2, ALL).map((one) => one.community)).toContain(2);
  });

  it('a line of any length keeps its order through thousands of takes', () => {
    const queue = new LaneQueue<Item>();
    let sent = 0;
    const out: number[] = [];
    for (let turn = 0; turn < 40; turn += 1) {
      for (let count = 0; count < 200; count += 1) queue.add(item(1, sent++));
      out.push(...queue.take(150, ALL).map((one) => one.number));
    }
    out.push(...queue.take(ALL, ALL).map((one) => one.number));
    expect(out).toEqual(Array.from({ length: sent }, (_, number) => number));
  });
});

describe('bounds (I14)', () => {
  it('a batch has at most its events and bytes, but at least one event', () => {
    const queue = new LaneQueue<Item>();
    fill(queue, 1, 10, 100);
    expect(queue.take(3, ALL)).toHaveLength(3);
    expect(queue.take(10, 250)).toHaveLength(2);
    expect(queue.take(10, 99)).toHaveLength(1);
    expect(queue.take(10, 0)).toHaveLength(1);
    expect(queue.size).toBe(3);
  });

  it('a flooding community leaves room for the others, in number', () => {
    const queue = new LaneQueue<Item>();
    expect(fill(queue, 1, QUEUE_EVENTS_MAX + 5)).toBe(QUEUE_EVENTS_MAX / 2);
    expect(queue.add(item(2))).toBe(true);
    expect(fill(queue, 3, 5_000)).toBe(5_000);
  });

  it('a flooding community leaves room for the others, in bytes', () => {
    const queue = new LaneQueue<Item>();
    const megabyte = 1_048_576;
    expect(fill(queue, 1, 100, megabyte)).toBe(QUEUE_BYTES_MAX / 2 / megabyte);
    expect(queue.add(item(1, 0, 1))).toBe(false);
    expect(queue.add(item(2, 0, megabyte))).toBe(true);
  });

  it('all communities together stay within the number and the bytes', () => {
    const byNumber = new LaneQueue<Item>();
    for (let community = 1; community <= 5; community += 1) fill(byNumber, community, QUEUE_EVENTS_MAX / 4);
    expect(byNumber.size).toBe(QUEUE_EVENTS_MAX);
    const byBytes = new LaneQueue<Item>();
    let taken = 0;
    for (let community = 1; community <= 9; community += 1) taken += fill(byBytes, community, 8, 1_048_576);
    expect(taken * 1_048_576).toBe(QUEUE_BYTES_MAX);
  });

  it('what is taken makes room again, and a refused one takes none', () => {
    const queue = new LaneQueue<Item>();
    fill(queue, 1, QUEUE_EVENTS_MAX);
    const size = queue.size;
    expect(queue.add(item(1))).toBe(false);
    expect(queue.size).toBe(size);
    queue.take(100, ALL);
    expect(fill(queue, 1, 200)).toBe(100);
    queue.take(QUEUE_EVENTS_MAX, ALL);
    expect(queue.size).toBe(0);
    expect(fill(queue, 2, 40, QUEUE_BYTES_MAX / 64)).toBe(32);
  });
});
