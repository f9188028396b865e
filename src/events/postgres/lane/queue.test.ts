import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  HEAVY_BATCH_BYTES_MAX,
  HEAVY_REST,
  LaneQueue,
  LIGHT_BATCHES_MAX,
  LIGHT_RECENT_MS,
  QUEUE_BYTES_MAX,
  QUEUE_EVENTS_MAX,
  type Queued,
} from './queue.js';

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
  it('is first in, first out within a community, and each item is taken once', () => {
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

  it('is round-robin between communities: a long line does not delay a short one', () => {
    const queue = new LaneQueue<Item>();
    fill(queue, 1, 5_000);
    fill(queue, 2, 3);
    fill(queue, 3, 1);
    expect(queue.take(7, ALL).map((one) => one.community)).toEqual([1, 2, 3, 1, 2, 1, 2]);
  });

  it('continues in the next batch where the last one stopped', () => {
    const queue = new LaneQueue<Item>();
    for (const community of [1, 2, 3]) fill(queue, community, 10);
    const communities = Array.from({ length: 6 }, () =>
      queue.take(2, ALL).map((one) => one.community),
    ).flat();
    expect(communities).toEqual([1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]);
  });

  it('a community that arrives late waits for at most one item of each other', () => {
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

describe('shares of senders, by weight (I18)', () => {
  const sent = (from: readonly string[], number = 0, tags = 1, bytes = 500): Item => ({
    community: 1,
    from,
    number,
    tags,
    bytes,
  });
  const senders = (batch: readonly Item[]) => batch.map(({ from }) => from?.join(' ') ?? 'operator');
  const MALLORY = ['198.51.100.7'];
  const ALICE = ['192.0.2.1'];
  const HEAVY = 1_990;

  it('a light event does not wait behind the heavy events of a flood from another address', () => {
    const queue = new LaneQueue<Item>();
    for (let number = 0; number < 400; number += 1) queue.add(sent(MALLORY, number, HEAVY, 58_000));
    queue.take(500, ALL, 2_000);
    queue.add(sent(ALICE));
    expect(senders(queue.take(500, ALL, 2_000))[0]).toBe('192.0.2.1');
  });

  it('a light event is not in a batch with heavy ones, and waits for one batch of them at most', () => {
    const queue = new LaneQueue<Item>();
    const floods = ['198.51.100.7', '198.51.100.8', '198.51.100.9'];
    for (const address of floods)
      for (let number = 0; number < 10; number += 1) queue.add(sent([address], number, HEAVY, 58_000));
    for (let number = 0; number < 20; number += 1) {
      expect(queue.take(500, ALL, 2_000)).toHaveLength(1);
      queue.add(sent(ALICE, number));
      queue.add(sent(['192.0.2.2'], number));
      expect(senders(queue.take(500, ALL, 2_000)).sort()).toEqual(['192.0.2.1', '192.0.2.2']);
    }
  });

  it('a heavy event waits for a few batches of light ones at most', () => {
    const queue = new LaneQueue<Item>();
    for (let number = 0; number < 1_000; number += 1) queue.add(sent(ALICE, number));
    queue.add(sent(MALLORY, 0, HEAVY));
    queue.add(sent(MALLORY, 1, HEAVY));
    const batches = Array.from({ length: 2 * (LIGHT_BATCHES_MAX + 1) }, () =>
      senders(queue.take(10, ALL, 2_000)).includes('198.51.100.7'),
    );
    const round = [...Array<boolean>(LIGHT_BATCHES_MAX).fill(false), true];
    expect(batches).toEqual([...round, ...round]);
  });

  it('a heavy event stays behind the light ones of its line, also when light ones never end', () => {
    const queue = new LaneQueue<Item>();
    for (let number = 0; number < 30; number += 1) queue.add(sent(MALLORY, number));
    queue.add(sent(MALLORY, 30, HEAVY));
    queue.add(sent(MALLORY, 31));
    const ofMallory: number[] = [];
    for (let round = 0; round < 60; round += 1) {
      for (let number = 0; number < 2; number += 1) queue.add(sent(ALICE, number));
      const batch = queue.take(3, ALL, 2_000);
      ofMallory.push(...batch.filter(({ from }) => from === MALLORY).map(({ number }) => number));
    }
    expect(ofMallory).toEqual(Array.from({ length: 32 }, (_, number) => number));
  });

  describe('of the lane while light events come', () => {
    /** A light event takes 2 ms of the lane. Returns how many are written. */
    function run(from: readonly string[] | undefined, lightEvery: number, forMs: number, heavyMs = 20) {
      const clock = { ms: 0 };
      const queue = new LaneQueue<Item>(() => clock.ms);
      for (let number = 0; number < 400; number += 1)
        queue.add({ ...sent(MALLORY, number, HEAVY, 58_000), from });
      const written = { light: 0, heavy: 0 };
      let lightDue = 0;
      while (clock.ms < forMs) {
        for (; lightDue <= clock.ms; lightDue += lightEvery) queue.add(sent(ALICE, lightDue));
        const batch = queue.take(500, ALL, 2_000);
        const kind = batch[0]?.tags === HEAVY ? 'heavy' : 'light';
        const tookMs = kind === 'heavy' ? heavyMs : 2;
        clock.ms += batch.length === 0 ? 1 : tookMs;
        if (batch.length === 0) continue;
        written[kind] += batch.length;
        queue.noteWritten(tookMs);
      }
      return written;
    }

    it('heavy ones of strangers take a tenth of its time, or less if a batch of them takes long', () => {
      const short = run(MALLORY, 10, 10_000, 4);
      expect(short.light).toBe(1_000);
      expect(short.heavy).toBeGreaterThan(175);
      expect(short.heavy).toBeLessThan(250);
      const long = run(MALLORY, 10, 20_000, 20);
      expect(long.light).toBe(2_000);
      expect(long.heavy).toBeGreaterThan(15);
      expect(long.heavy).toBeLessThan(21);
    });

    it("the operator's heavy ones do not rest, nor any when no light ones come", () => {
      expect(run(undefined, 10, 4_000).heavy).toBeGreaterThan(60);
      expect(run(MALLORY, 1_000_000, 4_000).heavy).toBeGreaterThan(100);
    });

    it('a rest is bounded, and ends when light ones stop or the lane closes', () => {
      const clock = { ms: 0 };
      const queue = new LaneQueue<Item>(() => clock.ms);
      const write = (tookMs: number) => {
        const batch = queue.take(500, ALL);
        if (batch.length > 0) queue.noteWritten(tookMs);
        return senders(batch);
      };
      for (let number = 0; number < 5; number += 1) queue.add(sent(MALLORY, number, HEAVY));
      expect(write(60_000)).toEqual(['198.51.100.7']);
      queue.add(sent(ALICE));
      expect(write(1)).toEqual(['192.0.2.1']);
      expect([write(1), queue.restMs]).toEqual([[], LIGHT_RECENT_MS]);
      clock.ms += LIGHT_RECENT_MS;
      queue.add(sent(ALICE));
      expect(write(1)).toEqual(['192.0.2.1']);
      expect([write(1), queue.restMs]).toEqual([[], HEAVY_REST.msMax - LIGHT_RECENT_MS]);
      clock.ms += HEAVY_REST.msMax - LIGHT_RECENT_MS;
      expect(write(1_000)).toEqual(['198.51.100.7']);
      queue.add(sent(ALICE));
      expect(write(1)).toEqual(['192.0.2.1']);
      expect(write(1)).toEqual([]);
      queue.endRest();
      expect(write(1)).toEqual(['198.51.100.7']);
      clock.ms += LIGHT_RECENT_MS;
      expect(write(1)).toEqual(['198.51.100.7']);
    });
  });

  it('large events are in batches of their own, which are small', () => {
    const queue = new LaneQueue<Item>();
    for (let number = 0; number < 45; number += 1) queue.add(sent(MALLORY, number, 0, 90_000));
    queue.add(sent(ALICE));
    expect(senders(queue.take(500, ALL))).toEqual(['192.0.2.1']);
    expect(queue.take(500, ALL)).toHaveLength(Math.floor(HEAVY_BATCH_BYTES_MAX / 90_000));
  });

  it('addresses share by weight: many light events equal few of more weight', () => {
    const queue = new LaneQueue<Item>();
    for (let number = 0; number < 100; number += 1) queue.add(sent(MALLORY, number, 200));
    for (let number = 0; number < 2_000; number += 1) queue.add(sent(ALICE, number));
    const out = senders(Array.from({ length: 10 }, () => queue.take(55, ALL)).flat());
    const heavier = out.filter((one) => one === '198.51.100.7').length;
    expect(heavier).toBeGreaterThanOrEqual(49);
    expect(heavier).toBeLessThanOrEqual(51);
  });

  it('networks share equally, however many addresses each has', () => {
    const queue = new LaneQueue<Item>();
    for (let host = 0; host < 100; host += 1)
      queue.add(sent(['2001:db8:1::/48', `2001:db8:1:${host}::/64`], host));
    for (let number = 0; number < 10; number += 1)
      queue.add(sent(['2001:db8:2::/48', '2001:db8:2:1::/64'], number));
    const out = senders(queue.take(20, ALL));
    expect(out.filter((one) => one.startsWith('2001:db8:2:'))).toHaveLength(10);
  });

  it('authors at one address share equally: a busy author does not delay the others', () => {
    const queue = new LaneQueue<Item>();
    const address = '192.0.2.1';
    for (let number = 0; number < 100; number += 1) queue.add(sent([address, 'mallory'], number));
    queue.add(sent([address, 'alice'], 1));
    queue.add(sent([address, 'alice'], 2));
    const first = queue.take(4, ALL);
    expect(senders(first)).toContain('192.0.2.1 alice');
    const ofAlice = [...first, ...queue.take(ALL, ALL)].filter(({ from }) => from?.[1] === 'alice');
    expect(ofAlice.map(({ number }) => number)).toEqual([1, 2]);
  });

  it('new keys give an address no more than its share', () => {
    const queue = new LaneQueue<Item>();
    for (let number = 0; number < 100; number += 1)
      queue.add(sent(['198.51.100.7', `key ${number}`], number));
    for (let number = 0; number < 10; number += 1) queue.add(sent(['192.0.2.1', 'alice'], number));
    expect(senders(queue.take(20, ALL)).filter((one) => one.endsWith('alice'))).toHaveLength(10);
  });

  it("the operator's events are one line among the addresses", () => {
    const queue = new LaneQueue<Item>();
    fill(queue, 1, 1_000);
    queue.add(sent(ALICE));
    expect(senders(queue.take(2, ALL))).toContain('192.0.2.1');
  });

  it('an address or a network may fill only a part of the queue; a refused event takes no space', () => {
    const queue = new LaneQueue<Item>();
    const flood = (from: readonly string[]) => {
      let taken = 0;
      while (queue.add(sent(from))) taken += 1;
      return taken;
    };
    expect(flood(MALLORY)).toBe(QUEUE_EVENTS_MAX / 4);
    for (let number = 0; number < 100; number += 1) queue.add(sent(['2001:db8:1::/48', '2001:db8:1:1::/64']));
    expect(flood(['2001:db8:1::/48', '2001:db8:1:2::/64'])).toBe(QUEUE_EVENTS_MAX / 4 - 100);
    expect(flood(['2001:db8:1::/48', '2001:db8:1:3::/64'])).toBe(0);
    expect(flood(ALICE)).toBe(0);
    expect(fill(queue, 2, 1)).toBe(1);
  });

  it('is first in, first out within an address, and each item is taken once, whatever its weight', () => {
    const paths = [
      undefined,
      ['a', 'x'],
      ['a', 'y'],
      ['b', 'x'],
      ['n', 'c', 'x'],
      ['n', 'd', 'x'],
      ['n', 'd', 'y'],
    ];
    const drafts = fc.array(
      fc.record({
        community: fc.integer({ min: 1, max: 3 }),
        path: fc.nat(paths.length - 1),
        tags: fc.constantFrom(0, 1, 21, 400, 3_000),
        bytes: fc.constantFrom(1, 5_000, 90_000),
      }),
      { maxLength: 60 },
    );
    const limits = fc.record({
      events: fc.integer({ min: 1, max: 9 }),
      tags: fc.integer({ min: 0, max: 900 }),
    });
    fc.assert(
      fc.property(drafts, limits, (list, { events, tags: tagsMax }) => {
        const queue = new LaneQueue<Item>();
        const items = list.map(
          ({ path, ...draft }, number): Item => ({ ...draft, from: paths[path], number }),
        );
        const out: Item[] = [];
        for (const one of items) {
          expect(queue.add(one)).toBe(true);
          if (one.number % 7 === 3) out.push(...queue.take(events, ALL, tagsMax));
        }
        while (queue.size > 0) {
          const batch = queue.take(events, ALL, tagsMax);
          const tags = batch.reduce((sum, one) => sum + (one.tags ?? 0), 0);
          if (batch.length > 1) expect(tags).toBeLessThanOrEqual(tagsMax);
          out.push(...batch);
        }
        const lineOf = ({ community, from }: Item) => `${community} ${from}`;
        for (const line of new Set(items.map(lineOf))) {
          const of = (all: Item[]) => all.filter((one) => lineOf(one) === line);
          expect(of(out)).toEqual(of(items));
        }
        expect(out).toHaveLength(items.length);
      }),
      { seed: 7447, numRuns: 300 },
    );
  });
});

describe('limits (I14)', () => {
  it('a batch stays within its maximum of events and bytes, but has at least one event', () => {
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

  it('taking an item frees its space, and a refused item takes none', () => {
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
