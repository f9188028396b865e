/**
 * How the window of the newest events is filled from the database: after a start, within its budget, beside
 * what comes and goes meanwhile (I5, I6, I14).
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { nowSeconds } from '../support/events.js';
import { startTestNode, type TestNode, useWindow } from '../support/node.js';
import { FaultProxy, type Message } from '../support/servers/fault-proxy.js';
import { hash, unsigned } from '../support/stores/life.js';

const WHOLE = Number.NEGATIVE_INFINITY;
const EVENTS = 700;
/** A pooled statement's name begins with q; while nobody asks, those are the pages. */
const isPage = ({ type, body }: Message) => type === 'B' && /^\0q\d+\0/.test(body.toString('latin1', 0, 8));
const options = { jobs: [], consumers: [] };

let writer: TestNode;
let other: number;
let serial = 0;

beforeAll(async () => {
  writer = await startTestNode(options);
  other = await addCommunity(writer.database.pool, 'other', undefined, Date.now());
  // Several events of each second, so that pages end within one.
  const older = Array.from({ length: EVENTS }, (_, place) => nowSeconds() - 1_000 - (place >> 3));
  await Promise.all(older.map((created_at) => post({ created_at })));
  await Promise.all(Array.from({ length: 30 }, () => post({ content: 'elsewhere' }, other)));
});
afterAll(() => writer?.close());

const alice = hash('alice');

async function post(draft: Partial<NostrEvent>, community = 1): Promise<NostrEvent> {
  const made = { kind: 1, pubkey: alice, created_at: nowSeconds(), content: `${++serial}`, ...draft };
  const event = unsigned({ ...made, tags: [['n', String(serial)], ...(draft.tags ?? [])] });
  expect(await writer.node.store.submit({ community, event, payload: serializeEvent(event) })).toBe('stored');
  return event;
}

const from = ({ node }: TestNode, community = 1) => node.memory.window.extent(community).from;
const isWhole = (node: TestNode) =>
  eventually('the window', () => (from(node) === WHOLE && from(node, other) === WHOLE) || undefined);

async function answers({ node }: TestNode, from: string): Promise<number> {
  const { values } = await node.metrics.answers.get();
  return values.find(({ labels }) => labels.from === from)?.value ?? 0;
}

/** The ids of an answer, and how many queries it took. */
async function ask(node: TestNode, filter: object): Promise<{ ids: string[]; queries: number }> {
  const before = await answers(node, 'database');
  const client = await RawClient.connect(node.url);
  const { events, closed } = await client.query(filter);
  await client.close();
  expect(closed).toBeUndefined();
  return { ids: events.map(({ id }) => id), queries: (await answers(node, 'database')) - before };
}

async function stored(limit: number): Promise<string[]> {
  const query = { community: 1, filter: { tags: [] }, limit, now: Date.now() };
  return (await writer.node.store.find(query, 'light')).map(({ id }) => id);
}

describe('a node that starts', () => {
  it('holds every community as a whole after a while, and then needs no query', async () => {
    const node = await startTestNode({ ...options, on: writer.test });
    try {
      await isWhole(node);
      const { rows } = await node.database.pool.query<{ count: number }>(
        'SELECT count(*) AS count FROM events WHERE hidden IS NULL',
      );
      expect(node.node.memory.window.events).toBe(rows[0]!.count);
      expect(await ask(node, { limit: 5_000 })).toEqual({ ids: await stored(5_000), queries: 0 });
      expect(await ask(node, { '#n': ['3'] })).toMatchObject({ ids: [expect.any(String)], queries: 0 });
      expect(await ask(node, { ids: [hash('nothing')] })).toEqual({ ids: [], queries: 0 });
    } finally {
      await node.close();
    }
  });
});

describe('what happens while a page is read', () => {
  let proxy: FaultProxy;
  let node: TestNode;

  beforeAll(async () => {
    proxy = await FaultProxy.start(writer.test.connection);
    node = await startTestNode({ ...options, on: { ...writer.test, connection: proxy.connection } });
  });
  afterAll(async () => {
    await node.close();
    await proxy.stop();
  });

  /** The page is sent to the server, and its answer waits until the work is done. */
  async function meanwhile(work: () => Promise<void>): Promise<void> {
    await isWhole(node);
    // Its reader of the outbox reads events by statements with such names too.
    await node.node.fanout.caughtUp();
    const held = proxy.when(isPage, { kind: 'hold-answer' });
    node.node.memory.clear();
    await held;
    await work();
    await node.node.fanout.caughtUp();
    expect(from(node)).toBe(Number.POSITIVE_INFINITY);
    proxy.release();
    await isWhole(node);
  }

  it('is in it: what was deleted does not come back with the page, and what came is there', async () => {
    const target = await post({ content: 'to be deleted' });
    const asked = [target.id];
    await meanwhile(async () => {
      asked.push((await post({ kind: 5, tags: [['e', target.id]] })).id);
      asked.push((await post({ content: 'late', created_at: nowSeconds() - 1_050 })).id);
    });
    const { ids, queries } = await ask(node, { ids: asked });
    expect([ids.sort(), queries]).toEqual([asked.slice(1).sort(), 0]);
  });

  it('is in it: nothing is shown of one who asked to vanish', async () => {
    const pubkey = hash('carol');
    const target = await post({ pubkey });
    await meanwhile(async () => {
      const event = unsigned({ kind: 62, pubkey, created_at: nowSeconds(), tags: [['relay', 'ALL_RELAYS']] });
      const submission = { community: 1, event, payload: serializeEvent(event), vanishIn: [1] };
      expect(await writer.node.store.submit(submission)).toBe('stored');
    });
    expect(await ask(node, { authors: [pubkey] })).toEqual({ ids: [], queries: 0 });
    expect(await ask(node, { ids: [target.id] })).toEqual({ ids: [], queries: 0 });
  });
});

describe('a budget that is too small', () => {
  let node: TestNode;
  let newest: string[];

  beforeEach(async () => {
    newest = await stored(5_000);
  });
  beforeAll(async () => {
    const content = 'x'.repeat(20_000);
    const times = Array.from({ length: 300 }, (_, place) => nowSeconds() - 500 + place);
    await Promise.all(times.map((created_at) => post({ content, created_at })));
    node = await startTestNode({ ...options, on: writer.test });
    await isWhole(node);
    await useBudget(5);
  });
  afterAll(async () => {
    await useWindow(node, 256);
    await node.close();
  });

  async function useBudget(megabytes: number): Promise<void> {
    await useWindow(node, megabytes, () => from(node) > WHOLE && !node.node.memory.window.isFull);
  }

  it('holds the newest, complete back to a time', async () => {
    expect(node.node.memory.window.events).toBeGreaterThan(50);
    expect(await ask(node, { limit: 40 })).toEqual({ ids: newest.slice(0, 40), queries: 0 });
    expect((await ask(node, { since: from(node) })).queries).toBe(0);
  });

  it('leaves the rest to the database, in one answer', async () => {
    expect(await ask(node, { limit: 5_000 })).toEqual({ ids: newest, queries: 1 });
    expect(await ask(node, { until: from(node) + 5, limit: 200 })).toMatchObject({ queries: 1 });
    const ids = [newest[0]!, newest.at(-1)!, newest.at(-2)!];
    expect(await ask(node, { ids, limit: 2 })).toEqual({ ids: [newest[0], newest.at(-2)], queries: 1 });
  });

  it('has an old event that comes now, held or not', async () => {
    const old = await post({ created_at: nowSeconds() - 90_000 });
    expect(await ask(node, { until: old.created_at })).toMatchObject({ ids: [old.id] });
    expect(await ask(node, { ids: [old.id] })).toMatchObject({ ids: [old.id] });
  });

  it('is used up by new events, and the oldest are let go', async () => {
    const before = from(node);
    const content = 'x'.repeat(20_000);
    await Promise.all(Array.from({ length: 150 }, () => post({ content })));
    await node.node.fanout.caughtUp();
    expect(from(node)).toBeGreaterThan(before);
    expect(node.node.memory.window.bytes).toBeLessThan(6 * 1_048_576);
    expect((await ask(node, { limit: 5_000 })).ids).toEqual(await stored(5_000));
    expect(from(node, other)).toBe(WHOLE);
  });

  it('that is raised is filled again', async () => {
    await useWindow(node, 256);
    await isWhole(node);
    expect(await ask(node, { limit: 5_000 })).toEqual({ ids: newest, queries: 0 });
  });
});
