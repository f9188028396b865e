/**
 * What takes time of the event loop for a client runs in the turns of its network (I18): opening its
 * connection, its requests, its answers. `src/limits/loop-turns.test.ts` tests the turns themselves.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { serializeEvent } from '../../src/events/rules/event.js';
import type { Submission } from '../../src/events/rules/facts.js';
import { GreedyShare } from '../../src/limits/greedy-share.js';
import { LoopTurns } from '../../src/limits/loop-turns.js';
import { SLICE_BYTES } from '../../src/port/entrance.js';
import { Memory } from '../../src/relay/memory.js';
import { Outgoing } from '../../src/relay/outgoing.js';
import { PAGE_ROWS } from '../../src/relay/stored-rows.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { startTestNode, type TestNode } from '../support/node.js';

const ADDRESS = '2001:db8:7:1::1';
const CLIENT = { rateKey: '2001:db8:7:1::/64', networkKey: '2001:db8:7::/48' };
const FROM = { 'x-forwarded-for': ADDRESS };
const EVENTS = 1_500;
const EVENT_BYTES = 4_000;
const author = randomBytes(32).toString('hex');

let relay: TestNode;
beforeAll(async () => {
  relay = await startTestNode();
  for (let number = 0; number < EVENTS; number += 100)
    await Promise.all(Array.from({ length: 100 }, (_, n) => relay.node.store.submit(unsigned(number + n))));
});
afterAll(() => relay.close());
afterEach(() => {
  vi.restoreAllMocks();
});

/** The lane trusts whoever verified the signature, so these have none. */
function unsigned(number: number): Submission {
  const event = {
    id: randomBytes(32).toString('hex'),
    pubkey: author,
    created_at: 1_700_000_000 + number,
    kind: 1,
    tags: [],
    content: 'x'.repeat(EVENT_BYTES),
    sig: '0'.repeat(128),
  };
  return { community: 1, event, payload: serializeEvent(event) };
}

const eventsIn = ({ frames }: RawClient) => frames.filter((frame) => frame[0] === 'EVENT').length;

describe('a large frame', () => {
  const wide = { authors: Array.from({ length: 400 }, () => randomBytes(32).toString('hex')), limit: 1 };
  const usesIn = async (filter: object, headers?: Record<string, string>) => {
    const client = await RawClient.connect(relay.url, headers);
    const use = vi.spyOn(GreedyShare.prototype, 'use');
    client.send(['REQ', 'wide', filter]);
    await client.waitFor((frame) => frame[0] === 'EOSE');
    await client.close();
    return use.mock.calls.length;
  };

  it('is processed like one of a greedy client, whoever sends it', async () => {
    const from = { 'x-forwarded-for': '192.0.2.17' };
    expect(await usesIn(wide, from)).toBe(1);
    vi.restoreAllMocks();
    expect(await usesIn({ ...wide, authors: wide.authors.slice(0, 100) }, from)).toBe(0);
  });

  it('of a client on this machine is not', async () => {
    expect(await usesIn(wide)).toBe(0);
  });
});

describe('a turn of its network is', () => {
  it('opening a websocket', async () => {
    const run = vi.spyOn(LoopTurns.prototype, 'run');
    const client = await RawClient.connect(relay.url, FROM);
    expect(run).toHaveBeenCalledWith(expect.objectContaining({ ...CLIENT, community: 1 }), expect.anything());
    await client.close();
  });

  it('looking for an answer in memory, and sending each portion of a long one', async () => {
    const client = await RawClient.connect(relay.url, FROM);
    const run = vi.spyOn(LoopTurns.prototype, 'run');
    client.send(['REQ', 'short', { authors: [author], limit: 5 }]);
    await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'short');
    expect(run).toHaveBeenCalledTimes(1);
    client.send(['REQ', 'long', { authors: [author], limit: EVENTS }]);
    await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'long');
    // 6 MB in portions of 256 KiB.
    expect(run.mock.calls.length).toBeGreaterThan(20);
    for (const [whose] of run.mock.calls) expect(whose).toEqual({ ...CLIENT, community: 1 });
    expect(eventsIn(client)).toBe(EVENTS + 5);
    await client.close();
  });

  it('an HTTP request, and each slice of a large answer, by what writing it takes', async () => {
    const wait = vi.spyOn(LoopTurns.prototype, 'wait');
    await fetch(`${relay.http}/healthz`, { headers: FROM });
    expect(wait).toHaveBeenCalledTimes(1);
    const charge = vi.spyOn(relay.node.work, 'charge');
    const answer = await fetch(`${relay.http}/docs/yaml`, {
      headers: { ...FROM, 'accept-encoding': 'identity' },
    });
    const text = await answer.text();
    expect(answer.headers.get('content-length')).toBe(String(Buffer.byteLength(text)));
    const slices = wait.mock.calls.slice(2);
    expect(slices).toHaveLength(Math.ceil(Buffer.byteLength(text) / SLICE_BYTES));
    expect(slices.length).toBeGreaterThan(3);
    // A response writes after the turn: a turn that measures itself would count nothing of it.
    expect(slices[0]![1]).toBeGreaterThan(0.05);
    for (const [whose] of wait.mock.calls) expect(whose).toMatchObject({ ...CLIENT, community: 1 });
    expect(charge.mock.calls.length, 'the request and its answer').toBe(2);
  });
});

it('a long answer is looked up page by page, with each event once, in order', async () => {
  // Most of them are of two seconds, so that pages begin in the middle of one.
  const [first, second] = [randomBytes(32).toString('hex'), randomBytes(32).toString('hex')];
  const of = (pubkey: string, number: number) => {
    const { event } = unsigned(number);
    const short = {
      ...event,
      pubkey,
      created_at: 1_600_000_000 + Math.floor(number / 600),
      content: `${number}`,
    };
    return { community: 1, event: short, payload: serializeEvent(short) };
  };
  const all = Array.from({ length: 1_300 }, (_, number) => of(number % 2 === 0 ? first : second, number));
  await Promise.all(all.map((submission) => relay.node.store.submit(submission)));
  const expected = all
    .map(({ event }) => event)
    .sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1));
  const looked = vi.spyOn(Memory.prototype, 'read');
  const client = await RawClient.connect(relay.url, FROM);
  const idsOf = (id: string) =>
    client.frames
      .filter((frame) => frame[0] === 'EVENT' && frame[1] === id)
      .map((frame) => (frame[2] as { id: string }).id);
  const ask = async (id: string, ...filters: object[]) => {
    looked.mockClear();
    client.send(['REQ', id, ...filters]);
    await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === id);
    return idsOf(id);
  };
  const authors = [first, second];
  expect(await ask('one', { authors, limit: 1_250 })).toEqual(expected.slice(0, 1_250).map(({ id }) => id));
  // A page of rows and then another one each, beside those of the same second that were found before.
  expect(looked.mock.calls.map(([, { limit }]) => limit)[0]).toBe(PAGE_ROWS);
  expect(looked.mock.calls.length).toBe(3);
  const union = await ask('two', { authors: [first] }, { authors, limit: 700 });
  const wanted = expected.filter(
    ({ pubkey }, at) =>
      at < 700 || (pubkey === first && expected.slice(0, at).filter((e) => e.pubkey === first).length < 500),
  );
  expect(union).toEqual(wanted.map(({ id }) => id));
  await client.close();
});

it('an answer is not looked up further than its socket takes', async () => {
  const sendEvent = vi.spyOn(Outgoing.prototype, 'sendEvent');
  const client = await RawClient.connect(relay.url, FROM);
  client.ws.pause();
  // More than the buffers of the system take: 6 MB each.
  for (let number = 0; number < 10; number++)
    client.send(['REQ', `unread ${number}`, { authors: [author], limit: EVENTS }]);
  let before = -1;
  const outgoing = await eventually('it stops', () => {
    const { calls, contexts } = sendEvent.mock;
    const [first] = contexts as Outgoing[];
    const stands = first?.isFed && calls.length === before;
    before = calls.length;
    return stands ? first : undefined;
  });
  expect(before).toBeLessThan(10 * EVENTS);
  const { ws } = outgoing as unknown as { ws: { bufferedAmount: number } };
  expect(ws.bufferedAmount).toBeLessThan(400_000);
  client.ws.resume();
  await client.until(() => eventsIn(client) === 10 * EVENTS, 60_000);
  expect(outgoing.isFed).toBe(false);
  await client.close();
});
