/** I18, I10: an event of many readers is delivered in slices of the event loop, to each once and in order. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { serializeEvent } from '../../src/events/rules/event.js';
import type { Submission } from '../../src/events/rules/facts.js';
import { parseFilters } from '../../src/events/rules/filter.js';
import { isRefusal } from '../../src/events/rules/reply.js';
import type { LiveEvent, LiveReader } from '../../src/relay/fanout.js';
import { eventually } from '../support/cli.js';
import { startTestNode, type TestNode } from '../support/node.js';

const READERS = 2_000;
const SLICE_READERS_MAX = 500;
const LIMITS = { 'limits.filterValuesMax': 100, 'limits.filtersMax': 10 };
const pubkey = randomBytes(32).toString('hex');

let relay: TestNode;
beforeAll(async () => {
  relay = await startTestNode();
});
afterAll(() => relay.close());

/** The lane trusts whoever verified the signature, so these have none. */
function unsigned(): Submission {
  const id = randomBytes(32).toString('hex');
  const event = {
    id,
    pubkey,
    created_at: 1_700_000_000,
    kind: 1,
    tags: [],
    content: '',
    sig: '0'.repeat(128),
  };
  return { community: 1, event, payload: serializeEvent(event) };
}

it('2,000 readers get an event in slices, each once and in order; not who left meanwhile', async () => {
  const filters = parseFilters([{ authors: [pubkey] }], LIMITS);
  if (isRefusal(filters)) throw new Error('a wrong filter');
  const index = relay.node.fanout.index(1);
  /** How many were delivered in each pass of the event loop. */
  const passes: number[] = [];
  let isNewPass = true;
  const got: string[][] = [];
  const left = new Set<LiveReader>();
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
        if (place === 0) left.add(readers[READERS - 1]!);
        return true;
      },
      isDue() {
        return !left.has(this);
      },
    };
  });
  for (const reader of readers) index.add(reader, filters);
  const events = [unsigned(), unsigned(), unsigned()];
  for (const event of events) expect(await relay.node.store.submit(event)).toBe('stored');
  await eventually('all of them', () => (got[READERS - 2]!.length === events.length ? true : undefined));
  for (const reader of readers) index.remove(reader);
  const ids = events.map(({ event }) => event.id);
  expect(got.slice(0, -1).filter((of) => of.join() !== ids.join())).toEqual([]);
  expect(got.at(-1)).toEqual([]);
  expect(Math.max(...passes)).toBeLessThanOrEqual(SLICE_READERS_MAX);
});
