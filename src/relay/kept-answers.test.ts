import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { NostrEvent } from '../core/event.js';
import type { Filter } from '../core/filter.js';
import { type HeldEvent, hold, Reading } from './held-events.js';
import { Memory } from './memory.js';

const COMMUNITY = 1;
const AUTHOR = 'a'.repeat(64);
const FILTER: Filter = { authors: new Set([AUTHOR]), tags: [] };
const RULES = { settings: { 'retention.regularDays': 30 }, topics: new Map() };
const asked = { limit: 3, nowSeconds: 0, rules: RULES, aged: () => false };

const idOf = (number: number) => number.toString(16).padStart(64, '0');

function eventOf(number: number, created_at: number, tags: string[][] = []): NostrEvent {
  return { id: idOf(number), pubkey: AUTHOR, created_at, kind: 1, tags, content: '', sig: '' };
}
function held(event: NostrEvent, seq = 1): HeldEvent {
  return hold(seq, 0, event, Buffer.from(JSON.stringify(event)));
}
function numbers(rows: readonly HeldEvent[] | undefined): number[] | undefined {
  return rows?.map(({ id }) => Number.parseInt(id, 16));
}

/** Fills the answer with what the store has when the query runs, while `meanwhile` happens. */
async function fill(memory: Memory, store: readonly HeldEvent[], meanwhile: () => void = () => undefined) {
  const filling = memory.answers.begin(COMMUNITY, FILTER, asked)!;
  await memory.events.reading(async (reading: Reading) => {
    const rows = newestFirst(store.filter((event) => !event.gone)).slice(0, filling.limit);
    meanwhile();
    filling.done({ rows, whole: rows.length < filling.limit }, reading);
  });
}
const newestFirst = (rows: readonly HeldEvent[]) =>
  [...rows].sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? -1 : 1));

describe('a kept answer', () => {
  it('brings no event back that went while its rows were read', async () => {
    const memory = new Memory();
    const event = eventOf(1, 10);
    await fill(memory, [held(event), held(eventOf(2, 9))], () => memory.onDelete(COMMUNITY, event.id));
    expect(numbers(memory.answers.read(COMMUNITY, FILTER, asked))).toEqual([2]);
  });

  it('has what came while its rows were read, once', async () => {
    const memory = new Memory();
    const seen = eventOf(1, 10);
    const unseen = eventOf(2, 11);
    await fill(memory, [held(seen)], () => {
      memory.onUpsert(COMMUNITY, held(seen), seen);
      memory.onUpsert(COMMUNITY, held(unseen), unseen);
    });
    expect(numbers(memory.answers.read(COMMUNITY, FILTER, asked))).toEqual([2, 1]);
  });

  it('is not kept when everything was let go while its rows were read', async () => {
    const memory = new Memory();
    await fill(memory, [held(eventOf(1, 10))], () => memory.clear());
    expect(memory.answers.has(COMMUNITY, FILTER)).toBe(false);
  });

  it('is not a way to an event that is gone', async () => {
    const memory = new Memory();
    const event = eventOf(1, 10);
    await fill(memory, [held(event)]);
    memory.onDelete(COMMUNITY, event.id);
    expect(memory.events.get(COMMUNITY, event.id)).toBeUndefined();
  });

  it('loses an event also after its bytes were let go elsewhere', async () => {
    const memory = new Memory();
    const event = eventOf(1, 10);
    await fill(memory, [held(event)]);
    memory.events.clear();
    memory.onDelete(COMMUNITY, event.id);
    expect(numbers(memory.answers.read(COMMUNITY, FILTER, asked))).toEqual([]);
  });

  it('does not take in an event that came and went while its rows were read, though nobody held it any more', async () => {
    const memory = new Memory();
    const event = eventOf(1, 10);
    await fill(memory, [], () => {
      memory.answers.onUpsert(COMMUNITY, held(event), event);
      memory.onDelete(COMMUNITY, event.id);
    });
    expect(numbers(memory.answers.read(COMMUNITY, FILTER, asked))).toEqual([]);
  });

  it('keeps its event when the same one goes from another community', async () => {
    const memory = new Memory();
    const event = eventOf(1, 10);
    const here = held(event);
    await fill(memory, [here], () => memory.onDelete(2, event.id));
    expect(numbers(memory.answers.read(COMMUNITY, FILTER, asked))).toEqual([1]);
    expect(here.gone).toBe(false);
  });

  it('is read anew when the rules of retention have changed', async () => {
    const memory = new Memory();
    await fill(memory, [held(eventOf(1, 10))]);
    expect(memory.answers.read(COMMUNITY, FILTER, { ...asked, rules: { ...RULES } })).toBeUndefined();
  });

  it('does not show an expired event, from its second on', async () => {
    const memory = new Memory();
    await fill(memory, [held(eventOf(1, 10, [['expiration', '100']]))]);
    const at = (nowSeconds: number) =>
      numbers(memory.answers.read(COMMUNITY, FILTER, { ...asked, nowSeconds }));
    expect(at(99)).toEqual([1]);
    expect(at(100)).toEqual([]);
  });

  it('leaves to the database what may be past its days', async () => {
    const memory = new Memory();
    await fill(memory, [held(eventOf(1, 10))]);
    expect(memory.answers.read(COMMUNITY, FILTER, { ...asked, aged: () => true })).toBeUndefined();
  });

  it('does not answer for more than it has', async () => {
    const memory = new Memory();
    await fill(
      memory,
      Array.from({ length: 100 }, (_, number) => held(eventOf(number, number))),
    );
    const read = (limit: number, times: Partial<Filter> = {}) =>
      memory.answers.read(COMMUNITY, { ...FILTER, ...times }, { ...asked, limit });
    expect(read(3)).toHaveLength(3);
    expect(read(50)).toBeUndefined();
    expect(numbers(read(50, { since: 98 }))).toEqual([99, 98]);
    expect(numbers(read(1, { until: 90 }))).toEqual([90]);
    expect(read(1, { until: 10 })).toBeUndefined();
    expect(read(50, { since: 77 })).toBeUndefined();
  });

  it('is of its community alone', async () => {
    const memory = new Memory();
    await fill(memory, [held(eventOf(1, 10))]);
    expect(memory.answers.read(2, FILTER, asked)).toBeUndefined();
  });

  it('is let go, with its bytes, when others are asked for', async () => {
    const memory = new Memory();
    await fill(memory, [held(eventOf(1, 10))]);
    for (let number = 0; number < 5_000; number++) {
      const filter = { kinds: new Set([number]), tags: [] };
      memory.answers.begin(COMMUNITY, filter, asked)!.done({ rows: [], whole: true }, new Reading());
    }
    expect(memory.answers.has(COMMUNITY, FILTER)).toBe(false);
  });
});

type Step = { readonly do: 'post' | 'delete' | 'ask' | 'fill'; readonly number: number; readonly at: number };

const steps = fc.array(
  fc.record({
    do: fc.constantFrom<Step['do']>('post', 'post', 'post', 'delete', 'ask', 'fill'),
    number: fc.integer({ min: 0, max: 60 }),
    at: fc.integer({ min: 0, max: 8 }),
  }),
  { maxLength: 200 },
);

describe('memory', () => {
  it('answers as the store would, or not at all, whatever happens in whatever order', async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (taken) => {
        const memory = new Memory();
        const store = new Map<string, HeldEvent>();
        const everStored = new Set<number>();
        for (const step of taken) {
          if (step.do === 'post' && !everStored.has(step.number)) {
            everStored.add(step.number);
            const event = eventOf(step.number, step.at);
            store.set(event.id, held(event));
            memory.onUpsert(COMMUNITY, held(event), event);
          } else if (step.do === 'delete' && store.delete(idOf(step.number))) {
            memory.onDelete(COMMUNITY, idOf(step.number));
          } else if (step.do === 'fill') {
            // Objects of its own, as rows from the database are.
            await fill(
              memory,
              [...store.values()].map((row) => held(JSON.parse(row.payload.toString()) as NostrEvent)),
            );
          } else if (step.do === 'ask') {
            const limit = 1 + (step.number % 30);
            const rows = memory.answers.read(COMMUNITY, FILTER, { ...asked, limit });
            const due = newestFirst([...store.values()]).slice(0, limit);
            if (rows !== undefined) expect(numbers(rows)).toEqual(numbers(due));
          }
        }
      }),
      { numRuns: 300 },
    );
  });
});
