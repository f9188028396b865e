import { describe, expect, it } from 'vitest';
import type { NostrEvent } from '../events/rules/event.js';
import type { Filter } from '../events/rules/filter.js';
import { Memory, type Reading } from './memory.js';
import { STEPS_MAX } from './window/read.js';
import { EVERYTHING } from './window/window.js';

const COMMUNITY = 1;
const ANY: Filter = { tags: [] };
const RULES = { settings: { 'retention.regularDays': 0 }, topics: new Map() };

const hex = (number: number) => number.toString(16).padStart(64, '0');
const ALICE = hex(0xa11ce);

function held(number: number, created_at: number, given: Partial<NostrEvent> = {}, seq = number) {
  const event = {
    id: hex(number),
    pubkey: ALICE,
    created_at,
    kind: 1,
    tags: [],
    content: '',
    sig: '',
    ...given,
  };
  return { seq, ingestedAt: 0, event, payload: Buffer.from(JSON.stringify(event)), bound: [] };
}

/** Complete from this second on. */
function open(from = Number.NEGATIVE_INFINITY, ...communities: number[]): Memory {
  const memory = new Memory();
  memory.allow(256);
  for (const community of [COMMUNITY, ...communities])
    memory.window.reach(community, { createdAt: from - 1, id: '' });
  return memory;
}
const ask = (memory: Memory, filter = ANY, community = COMMUNITY) =>
  memory.read(filter, { community, limit: 100, now: 0, rules: RULES });
const numbers = (memory: Memory, filter?: Filter, community?: number) =>
  ask(memory, filter, community)?.rows.map(({ id }) => Number.parseInt(id, 16));

/** A page is read while something happens; which of these events it may bring. */
async function during(memory: Memory, happens: () => void): Promise<(number: number) => boolean> {
  let kept: Reading | undefined;
  await memory.reading(COMMUNITY, async (reading) => {
    happens();
    kept = reading;
  });
  return (number) => kept!.mayHold(hex(number));
}

describe('while a page is read', () => {
  it('nothing comes back with it that went meanwhile', async () => {
    const memory = open();
    const mayHold = await during(memory, () => memory.onDelete(COMMUNITY, hex(1)));
    expect([mayHold(1), mayHold(2)]).toEqual([false, true]);
  });

  it('what goes from another community stays in this one', async () => {
    const memory = open();
    const mayHold = await during(memory, () => memory.onDelete(2, hex(1)));
    expect(mayHold(1)).toBe(true);
  });

  it.each([
    [
      'somebody vanished',
      (memory: Memory) => memory.onMarks([{ community: COMMUNITY, pubkey: ALICE, until: 9 }]),
    ],
    ['everything was let go', (memory: Memory) => memory.clear()],
  ])('none of it counts when %s meanwhile', async (_, happens) => {
    const memory = open();
    expect((await during(memory, () => happens(memory)))(1)).toBe(false);
  });

  it('an event of a time before the window is held, for the page may be of a moment before it', async () => {
    const memory = open(100);
    memory.onUpsert(COMMUNITY, held(1, 50));
    await during(memory, () => memory.onUpsert(COMMUNITY, held(2, 50)));
    memory.onUpsert(COMMUNITY, held(3, 50));
    expect([1, 2, 3].map((number) => memory.window.find(COMMUNITY, hex(number)) !== -1)).toEqual([
      false,
      true,
      false,
    ]);
    // It is not shown before the window is complete down to its time.
    expect(numbers(memory)).toEqual([]);
  });
});

describe('a window that ends within a second', () => {
  const isHeld = (memory: Memory, number: number) => memory.window.find(COMMUNITY, hex(number)) !== -1;

  it('takes in what comes of that second before its end, for no later page brings it', () => {
    const memory = open();
    memory.window.reach(COMMUNITY, { createdAt: 100, id: hex(5) });
    for (const number of [4, 6]) memory.onUpsert(COMMUNITY, held(number, 100));
    expect([4, 6].map((number) => isHeld(memory, number))).toEqual([true, false]);
    // The database answers for that second until the window is complete down to its first event.
    expect(ask(memory)?.rest).toEqual({ tags: [], until: 100 });
    expect(numbers(memory)).toEqual([]);
  });

  it('ends before that second once an event was evicted', () => {
    const memory = open();
    for (const number of [4, 5]) memory.onUpsert(COMMUNITY, held(number, 100));
    memory.onUpsert(COMMUNITY, held(6, 101));
    memory.window.allow(memory.window.bytes - 1);
    memory.window.trim();
    expect(memory.window.extent(COMMUNITY).downTo).toEqual({ createdAt: 100, id: '' });
    expect([numbers(memory), isHeld(memory, 5)]).toEqual([[6], false]);
  });
});

describe('memory', () => {
  it('leaves to the database what lies before its time, and nothing that does not', () => {
    const memory = open(100);
    for (const [number, createdAt] of [
      [1, 100],
      [2, 150],
      [3, 200],
    ] as const)
      memory.onUpsert(COMMUNITY, held(number, createdAt));
    expect(ask(memory)?.rest).toEqual({ tags: [], until: 99 });
    expect(ask(memory, { tags: [], since: 100 })?.rest).toBeUndefined();
    expect(ask(memory, { tags: [], since: 99 })?.rest).toEqual({ tags: [], since: 99, until: 99 });
    expect(ask(memory, { tags: [], until: 50 })).toEqual({
      rows: [],
      rest: { tags: [], until: 50 },
      steps: 0,
    });
    const limited = memory.read(ANY, { community: COMMUNITY, limit: 3, now: 0, rules: RULES });
    expect(limited?.rest).toBeUndefined();
  });

  it('asks for those ids only that it does not hold', () => {
    const memory = open(100);
    memory.onUpsert(COMMUNITY, held(1, 100));
    const ids = (...list: number[]) => ({ tags: [], ids: new Set(list.map(hex)) });
    expect(ask(memory, ids(1))?.rest).toBeUndefined();
    expect(ask(memory, ids(1, 2))?.rest).toEqual({ ...ids(2), until: 99 });
    memory.window.reach(COMMUNITY, EVERYTHING);
    expect(ask(memory, ids(1, 2))?.rest).toBeUndefined();
  });

  it('is of each community alone', () => {
    const memory = open(Number.NEGATIVE_INFINITY, 2);
    memory.onUpsert(COMMUNITY, held(1, 10));
    memory.onUpsert(2, held(2, 10));
    memory.onUpsert(2, held(1, 10, { content: 'there' }, 3));
    memory.onDelete(COMMUNITY, hex(1));
    expect([numbers(memory), numbers(memory, ANY, 2)]).toEqual([[], [1, 2]]);
    expect(ask(memory, ANY, 3)?.rows).toEqual([]);
  });

  it('has an event that was removed and restored under its new position, once', () => {
    const memory = open();
    memory.onUpsert(COMMUNITY, held(1, 10, {}, 5));
    const before = ask(memory)!.rows[0]!;
    memory.onUpsert(COMMUNITY, held(1, 10, {}, 8));
    memory.onUpsert(COMMUNITY, held(1, 10, {}, 5));
    expect(ask(memory)!.rows.map(({ seq }) => seq)).toEqual([8]);
    expect(before.isHeld).toBe(false);
  });

  it('gives no bytes of an event that has gone since it was found, nor of one that came to its place', () => {
    const memory = open();
    memory.onUpsert(COMMUNITY, held(1, 10));
    const [row] = ask(memory)!.rows;
    memory.onDelete(COMMUNITY, hex(1));
    memory.onUpsert(COMMUNITY, held(2, 10));
    expect(row!.payload).toBeUndefined();
    const [other] = ask(memory)!.rows;
    memory.clear();
    expect(other!.payload).toBeUndefined();
  });

  it('does not look at more events than may be', () => {
    const memory = open();
    for (let number = 0; number < STEPS_MAX + 10; number++)
      memory.window.add(COMMUNITY, held(number, number, { tags: [['t', 'tea']] }));
    const [tea, nobody] = [[{ name: 't', values: new Set(['tea']) }], new Set([9])];
    expect(ask(memory, { tags: tea, kinds: new Set([1]) })?.rows).toHaveLength(100);
    expect(ask(memory, { tags: tea, kinds: nobody })).toMatchObject({ rows: [], steps: 0 });
    // The kind and the topic are in everything, and nothing has expired by the time of the question but all
    // of it.
    const expired = open();
    for (let number = 0; number < STEPS_MAX + 10; number++)
      expired.window.add(COMMUNITY, held(number, number, { tags: [['expiration', '0']] }));
    expect(ask(expired)).toBeUndefined();
  });

  it('holds nothing with a budget of 0', () => {
    const memory = open();
    memory.onUpsert(COMMUNITY, held(1, 10));
    memory.allow(0);
    memory.onUpsert(COMMUNITY, held(2, 10));
    expect([memory.window.events, memory.knows(COMMUNITY)]).toEqual([0, false]);
  });
});

describe('one who vanishes', () => {
  const mark = (until: number) => [{ community: COMMUNITY, pubkey: ALICE, until }];
  const BOB = hex(0xb0b);

  it('is hidden up to the time, with gift wraps to them', () => {
    const memory = open();
    memory.onUpsert(COMMUNITY, held(1, 10));
    memory.onUpsert(COMMUNITY, held(2, 20));
    memory.onUpsert(COMMUNITY, held(3, 10, { pubkey: BOB, kind: 1059, tags: [['p', ALICE]] }));
    memory.onUpsert(COMMUNITY, held(4, 10, { pubkey: BOB, tags: [['p', ALICE]] }));
    memory.onMarks(mark(15));
    expect(numbers(memory)).toEqual([2, 4]);
    expect(memory.payload(COMMUNITY, hex(1))).toBeUndefined();
  });

  it('is shown again by what comes after the erasure', () => {
    const memory = open();
    memory.onUpsert(COMMUNITY, held(1, 10));
    memory.onUpsert(COMMUNITY, held(2, 10, { pubkey: BOB, tags: [['p', ALICE]] }));
    memory.onMarks(mark(Number.MAX_SAFE_INTEGER));
    memory.onDelete(COMMUNITY, hex(1));
    memory.onUpsert(COMMUNITY, held(3, 30));
    memory.onUpsert(COMMUNITY, held(4, 30, { pubkey: BOB, kind: 1059, tags: [['p', ALICE]] }));
    expect(numbers(memory)).toEqual([3, 4, 2]);
  });
});

describe('two who vanish', () => {
  it('are each hidden until their own erasure', () => {
    const [memory, bob] = [open(), hex(0xb0b)];
    memory.onUpsert(COMMUNITY, held(1, 10));
    memory.onUpsert(COMMUNITY, held(2, 10, { pubkey: bob, tags: [['p', ALICE]] }));
    memory.onUpsert(COMMUNITY, held(3, 10, { pubkey: hex(3), kind: 1059, tags: [['p', ALICE]] }));
    memory.onUpsert(COMMUNITY, held(4, 20, { pubkey: bob }));
    memory.onMarks([
      { community: COMMUNITY, pubkey: ALICE, until: 15 },
      { community: COMMUNITY, pubkey: bob, until: 15 },
    ]);
    memory.onDelete(COMMUNITY, hex(2));
    memory.onUpsert(COMMUNITY, held(5, 15, { pubkey: bob, tags: [['p', ALICE]] }));
    expect(numbers(memory)).toEqual([4, 5]);
  });
});

describe('the budget', () => {
  const MIB = 1_048_576;
  const large = (number: number, createdAt: number) =>
    held(number, createdAt, { content: 'x'.repeat(20_000) });

  it('is kept by letting the oldest of the largest community go', () => {
    const memory = open(Number.NEGATIVE_INFINITY, 2);
    memory.allow(8);
    for (let number = 0; number < 20; number++) memory.onUpsert(2, large(1_000_000 + number, number));
    for (let number = 1; number <= 2_000; number++) {
      memory.onUpsert(COMMUNITY, large(number, number));
      expect(memory.window.bytes).toBeLessThan(9 * MIB);
    }
    expect(memory.window.extent(2)).toMatchObject({ from: Number.NEGATIVE_INFINITY, events: 20 });
    const { from, events } = memory.window.extent(COMMUNITY);
    expect([from + events, events > 100]).toEqual([2_001, true]);
    expect(numbers(memory)?.slice(0, 3)).toEqual([2_000, 1_999, 1_998]);
  });

  it('that was lowered is kept step by step', () => {
    const memory = open();
    for (let number = 1; number <= 1_000; number++) memory.onUpsert(COMMUNITY, large(number, number));
    memory.allow(4);
    expect(memory.window.trim()).toBe(false);
    for (let tries = 0; !memory.window.trim(); tries++) expect(tries).toBeLessThan(100);
    expect(memory.window.bytes).toBeLessThan(4 * MIB);
    expect(memory.window.events).toBeGreaterThan(50);
  });
});
