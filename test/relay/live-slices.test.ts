/**
 * I18, I10: an event of many readers is delivered in slices of the event loop, to each once and in order. I5,
 * I6: what is hidden meanwhile is not.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import type { Submission } from '../../src/events/rules/facts.js';
import { parseFilters } from '../../src/events/rules/filter.js';
import { isRefusal } from '../../src/events/rules/reply.js';
import type { LiveEvent, LiveReader } from '../../src/relay/fanout.js';
import { eventually } from '../support/cli.js';
import { startTestNode, type TestNode } from '../support/node.js';

const READERS = 2_000;
const NOTE_MS = 0.002;
const SLICE_READERS_MAX = 500;
/** So that each reader has a slice of its own. */
const SLICE_MS = 1;
const LIMITS = { 'limits.filterValuesMax': 100, 'limits.filtersMax': 10 };
const pubkey = randomBytes(32).toString('hex');

let relay: TestNode;
beforeAll(async () => {
  relay = await startTestNode();
});
afterAll(() => relay.close());

/** The lane trusts whoever verified the signature, so these have none. */
function unsigned(draft: Partial<NostrEvent> = {}): Submission {
  const id = randomBytes(32).toString('hex');
  const event = {
    ...{ id, pubkey, created_at: 1_700_000_000, kind: 1, tags: [], content: '', sig: '0'.repeat(128) },
    ...draft,
  };
  return { community: 1, event, payload: serializeEvent(event) };
}

const submit = (event: Submission) => relay.node.store.submit(event);

it('2,000 readers get an event in slices, each once and in order; not who left meanwhile', async () => {
  const filters = parseFilters([{ authors: [pubkey] }], LIMITS);
  if (isRefusal(filters)) throw new Error('a wrong filter');
  const index = relay.node.fanout.index(1);
  /** How many were delivered in each pass of the event loop. */
  const passes: number[] = [];
  let isNewPass = true;
  const got: string[][] = [];
  const note = () => {
    if (isNewPass) {
      passes.push(0);
      isNewPass = false;
      setImmediate(() => {
        isNewPass = true;
      });
    }
    passes[passes.length - 1]! += 1;
  };
  const readers = Array.from({ length: READERS }, (_, place): LiveReader => {
    const ids: string[] = [];
    got.push(ids);
    return {
      deliver: (live: LiveEvent) => {
        note();
        ids.push(live.event.id);
        // The first one to get it makes the last one leave.
        if (place === 0) index.remove(readers[READERS - 1]!);
        return NOTE_MS;
      },
    };
  });
  for (const reader of readers) index.add(reader, filters);
  const events = [unsigned(), unsigned(), unsigned()];
  for (const event of events) expect(await submit(event)).toBe('stored');
  await eventually('all of them', () => (got[READERS - 2]!.length === events.length ? true : undefined));
  for (const reader of readers) index.remove(reader);
  const ids = events.map(({ event }) => event.id);
  expect(got.slice(0, -1).filter((of) => of.join() !== ids.join())).toEqual([]);
  expect(got.at(-1)).toEqual([]);
  expect(Math.max(...passes)).toBeLessThanOrEqual(SLICE_READERS_MAX);
});

it('memory has an event before all of its readers, so that queries do not wait for them', async () => {
  const filters = parseFilters([{ authors: [pubkey], kinds: [7] }], LIMITS);
  if (isRefusal(filters)) throw new Error('a wrong filter');
  const index = relay.node.fanout.index(1);
  let told = 0;
  let toldBefore: Promise<number> | undefined;
  const readers = Array.from({ length: READERS }, (): LiveReader => {
    return {
      deliver: () => {
        told += 1;
        toldBefore ??= relay.node.fanout.caughtUp().then(() => told);
        return SLICE_MS;
      },
    };
  });
  for (const reader of readers) index.add(reader, filters);
  const event = unsigned({ kind: 7 });
  expect(await submit(event)).toBe('stored');
  await eventually('all of them', () => (told === READERS ? true : undefined));
  for (const reader of readers) index.remove(reader);
  expect(await toldBefore).toBeLessThan(READERS);
  expect(relay.node.memory.holds(1, event.event.id)).toBe(true);
});

describe('what is hidden while it is delivered', () => {
  const author = randomBytes(32).toString('hex');
  const note = () => unsigned({ pubkey: author });
  const idsOf = (notes: readonly Submission[]) => notes.map(({ event }) => event.id);
  const filters = parseFilters([{ authors: [author, pubkey], kinds: [1] }], LIMITS);

  /** Delivers slowly, hides some when the first note comes, and returns what was delivered after its OK. */
  async function afterHiding(notes: readonly Submission[], hiding: Submission): Promise<string[]> {
    if (isRefusal(filters)) throw new Error('a wrong filter');
    const index = relay.node.fanout.index(1);
    const last = notes.at(-1)!.event.id;
    const after: string[] = [];
    let hidden: Promise<unknown> | undefined;
    let isAnswered = false;
    let left = READERS;
    const readers = Array.from({ length: READERS }, (): LiveReader => {
      return {
        deliver: ({ event: { id } }: LiveEvent) => {
          hidden ??= submit(hiding).then((answer) => {
            expect(answer).toBe('stored');
            isAnswered = true;
          });
          if (isAnswered) after.push(id);
          if (id === last) left -= 1;
          return SLICE_MS;
        },
      };
    });
    for (const reader of readers) index.add(reader, filters);
    await Promise.all(notes.map(submit));
    await eventually('all readers', () => (left === 0 ? true : undefined));
    await hidden;
    for (const reader of readers) index.remove(reader);
    return [...new Set(after)];
  }

  it('is not delivered after the OK of its deletion', async () => {
    const [first, second, kept] = [note(), note(), note()];
    const tags = idsOf([first, second]).map((id) => ['e', id]);
    const delivered = await afterHiding([first, second, kept], unsigned({ pubkey: author, kind: 5, tags }));
    expect(delivered).toEqual([kept.event.id]);
  });

  it('is not delivered after the OK of a request to vanish', async () => {
    const [first, second, kept] = [note(), note(), unsigned()];
    const request = unsigned({ pubkey: author, kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    const delivered = await afterHiding([first, second, kept], { ...request, vanishIn: [1] });
    expect(delivered).toEqual([kept.event.id]);
  });
});
