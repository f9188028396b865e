/**
 * Rate limits of addresses, authors and new connections, on one instance and on several: messages beyond them
 * are refused, other clients are not affected, and the order of a client's frames is kept.
 */

import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import WebSocket from 'ws';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase } from '../support/servers/database.js';
import { FaultProxy } from '../support/servers/fault-proxy.js';
import { TestRedis } from '../support/servers/redis.js';

const RATES = {
  'rate.eventsPerSecond': 1,
  'rate.eventsBurst': 5,
  'rate.queriesPerSecond': 1,
  'rate.queriesBurst': 3,
};
const LIMITED = expect.stringMatching(/^rate-limited: too many .*, try again in \d+ s$/);
/** Clocks stand still unless a test moves them, so that no bucket refills. */
let nowMs = Date.now();
const now = () => nowMs;
const clients: RawClient[] = [];
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});

type Values = Partial<Record<SettingKey, unknown>>;
/** Writes settings once and waits for them on every instance. */
async function setOn(nodes: readonly TestNode[], id: number, values: Values): Promise<void> {
  const entries = Object.entries(values) as [SettingKey, unknown][];
  for (const [key, value] of entries) await writeSetting(nodes[0]!.database.pool, id, key, value, Date.now());
  const holds = ({ node }: TestNode) =>
    entries.every(([key, value]) => node.communities.get(id)?.settings[key] === value);
  await vi.waitUntil(() => nodes.every(holds), { timeout: 100_000 });
}

async function connectTo(
  { url }: TestNode,
  address: string | undefined,
  { path = '', header = 'x-forwarded-for' } = {},
): Promise<RawClient> {
  const client = await RawClient.connect(url + path, address === undefined ? {} : { [header]: address });
  clients.push(client);
  return client;
}
const post = (client: RawClient, count: number, author?: Author) =>
  Promise.all(
    Array.from({ length: count }, () =>
      client.publish(sign(author ?? newAuthor(), { content: `${Math.random()}` })),
    ),
  );
const accepted = (replies: [boolean, string][]) => replies.filter(([ok]) => ok).length;

describe('an address', () => {
  let relay: TestNode;
  const community = () => relay.node.communities.find(undefined, 'default')!;
  const set = (id: number, values: Values) => setOn([relay], id, values);
  const from = (address: string | undefined, path = '') => connectTo(relay, address, { path });

  beforeAll(async () => {
    relay = await startTestNode({ now });
    await set(community().id, RATES);
  });
  afterAll(() => relay.close());

  it('gets OK false for events beyond its burst, and none of them is stored', async () => {
    const client = await from('203.0.113.9');
    const events = Array.from({ length: 8 }, () => sign(newAuthor()));
    const replies: [boolean, string][] = [];
    for (const event of events) replies.push(await client.publish(event));
    expect(replies).toEqual([...new Array(5).fill([true, '']), ...new Array(3).fill([false, LIMITED])]);
    const reader = await from(undefined);
    expect((await reader.query({ ids: events.map((event) => event.id) })).events).toHaveLength(5);
  });

  it('has one burst over all of its connections, and refills with time', async () => {
    const first = await from('203.0.113.10');
    const second = await from('203.0.113.10');
    expect(accepted(await post(first, 3))).toBe(3);
    expect(accepted(await post(second, 3))).toBe(2);
    nowMs += 2_000;
    expect(accepted(await post(first, 4))).toBe(2);
  });

  it('gets CLOSED for REQ and COUNT beyond its burst, and may still post', async () => {
    const client = await from('203.0.113.11');
    expect(await client.query({ kinds: [7_777] })).toEqual({ events: [] });
    expect(await client.query({ kinds: [7_777] })).toEqual({ events: [] });
    const start = client.frames.length;
    client.send(['COUNT', 'c', { kinds: [1] }]);
    expect((await client.waitFor((frame) => frame[1] === 'c', start))[0]).toBe('COUNT');
    expect(await client.query({ kinds: [7_777] })).toEqual({ events: [], closed: LIMITED });
    const next = client.frames.length;
    client.send(['COUNT', 'c', { kinds: [1] }]);
    expect(await client.waitFor((frame) => frame[1] === 'c', next)).toEqual(['CLOSED', 'c', LIMITED]);
    expect(await post(client, 1)).toEqual([[true, '']]);
  });

  it('is charged for malformed events too', async () => {
    const client = await from('203.0.113.12');
    const bad = () => client.publish({ id: `${Math.random()}` });
    for (let at = 0; at < 5; at++) expect((await bad())[1]).toMatch(/^invalid: /);
    expect(await bad()).toEqual([false, LIMITED]);
    expect(await post(client, 1)).toEqual([[false, LIMITED]]);
  });

  it('does not slow down another address', async () => {
    const busy = await from('203.0.113.13');
    expect(accepted(await post(busy, 7))).toBe(5);
    expect(accepted(await post(await from('203.0.113.14'), 5))).toBe(5);
    expect(accepted(await post(await from('2001:db8::1'), 5))).toBe(5);
  });

  it('is the last one that the proxy names; earlier ones, written by the client, do not count', async () => {
    expect(accepted(await post(await from('198.51.100.1, 203.0.113.15'), 5))).toBe(5);
    expect(accepted(await post(await from('127.0.0.1, 203.0.113.15'), 1))).toBe(0);
    expect(accepted(await post(await from('203.0.113.15'), 1))).toBe(0);
  });

  it('of IPv6 is its network, because a host can use all of its addresses', async () => {
    expect(accepted(await post(await from('2001:db8:0:7::1'), 3))).toBe(3);
    expect(accepted(await post(await from('2001:DB8:0:7:ffff::2'), 3))).toBe(2);
    expect(accepted(await post(await from('2001:db8:0:8::1'), 3))).toBe(3);
    expect(accepted(await post(await from('::ffff:203.0.113.17'), 3))).toBe(3);
    expect(accepted(await post(await from('203.0.113.17'), 3))).toBe(2);
  });

  it('learns when to try again, and is accepted then', async () => {
    const client = await from('203.0.113.18');
    await post(client, 5);
    expect(await post(client, 1)).toEqual([[false, 'rate-limited: too many events, try again in 1 s']]);
    nowMs += 1_000;
    expect(await post(client, 1)).toEqual([[true, '']]);
  });

  it('has a separate burst in each community', async () => {
    const id = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
    await set(id, { ...RATES, 'topic.mode': 'open' });
    expect(accepted(await post(await from('203.0.113.16'), 6))).toBe(5);
    expect(accepted(await post(await from('203.0.113.16', '/c/art'), 6))).toBe(5);
  });

  it('of a stranger who sends events of an author does not limit the author', async () => {
    const alice = newAuthor();
    const events = Array.from({ length: 12 }, (_, at) => sign(alice, { content: `${at}` }));
    const own = await from('198.51.100.50');
    await set(community().id, { 'rate.eventsBurst': 5 });
    for (const event of events.slice(0, 5)) expect((await own.publish(event))[0]).toBe(true);
    // Another instance does not have them in its cache, so they reach the lane.
    const fresh = await startTestNode({ on: relay.test, now: () => nowMs });
    const strangers = await RawClient.connect(fresh.url, { 'x-forwarded-for': '198.51.100.51' });
    nowMs += 3_600_000;
    for (const event of events.slice(0, 5))
      expect(await strangers.publish(event)).toEqual([true, expect.stringMatching(/^duplicate: /)]);
    const other = await from('198.51.100.52');
    expect(accepted(await Promise.all(events.slice(5, 9).map((event) => other.publish(event))))).toBe(4);
    await strangers.close();
    await fresh.close();
  });

  it('of requests to delete and to vanish is that of the address, whoever signs them', async () => {
    await set(community().id, { 'rate.eventsBurst': 100, 'rate.deletionRequestsPerHour': 3 });
    const client = await from('203.0.113.60');
    const request = (kind: number) => sign(newAuthor(), { kind, tags: [['e', 'f'.repeat(64)]] });
    const tooMany = (what: string) => [
      false,
      `rate-limited: too many requests to ${what}, try again in 1200 s`,
    ];
    const refused = tooMany('delete');
    for (const kind of [5, 5, 5, 62, 62, 62])
      expect((await client.publish(request(kind)))[1]).not.toMatch(/rate-limited/);
    expect(await client.publish(request(5))).toEqual(refused);
    expect(await client.publish(request(62))).toEqual(tooMany('vanish'));
    expect((await (await from('203.0.113.61')).publish(request(5)))[0]).toBe(true);
    nowMs += 1_200_000;
    expect((await client.publish(request(5)))[0]).toBe(true);
    // A large one counts by its weight.
    nowMs += 3_600_000;
    const large = sign(newAuthor(), { kind: 5, content: 'x'.repeat(9_000) });
    expect((await client.publish(large))[0]).toBe(true);
    expect(await client.publish(request(5))).toEqual(refused);
    await set(community().id, { ...RATES, 'rate.deletionRequestsPerHour': 2_000 });
  });

  it('has its part of the requests for topics of its network, an IPv6 /48', async () => {
    await set(community().id, { 'rate.subscriptionRequestsPerHour': 2 });
    const ask = async (address: string) => {
      const headers = { 'x-forwarded-for': address };
      return (await fetch(`${relay.http}/v1/topic-subscription-requests`, { method: 'POST', headers }))
        .status;
    };
    const times = async (address: string, count: number) => {
      const statuses: number[] = [];
      for (let time = 0; time < count; time += 1) statuses.push(await ask(address));
      return statuses;
    };
    // Not signed: the rate comes first. An address that is refused takes nothing from its network.
    expect(await times('2001:db8:70:1::1', 6)).toEqual([401, 401, 429, 429, 429, 429]);
    for (const host of [2, 3, 4]) expect(await times(`2001:db8:70:${host}::1`, 2)).toEqual([401, 401]);
    for (const host of [5, 6]) expect(await times(`2001:db8:70:${host}::1`, 1)).toEqual([429]);
    expect(await times('2001:db8:71:1::1', 1)).toEqual([401]);
    expect(await times('198.51.100.70', 3)).toEqual([401, 401, 429]);
    await set(community().id, { 'rate.subscriptionRequestsPerHour': 60 });
  });

  it('keeps its rate of events when a request to delete is refused', async () => {
    await set(community().id, { 'rate.eventsPerSecond': 1, 'rate.eventsBurst': 5 });
    await set(community().id, { 'rate.deletionRequestsPerHour': 1 });
    const client = await from('203.0.113.62');
    const request = () => sign(newAuthor(), { kind: 5, tags: [['e', 'f'.repeat(64)]] });
    expect((await client.publish(request()))[0]).toBe(true);
    for (let again = 0; again < 6; again += 1)
      expect((await client.publish(request()))[1]).toMatch(/too many requests to delete/);
    expect(accepted(await post(client, 5))).toBe(4);
    expect((await client.publish(request()))[1]).toMatch(/too many events/);
    await set(community().id, { ...RATES, 'rate.deletionRequestsPerHour': 2_000 });
  });

  it('on this machine is exempt, until the setting says otherwise', async () => {
    const client = await from(undefined);
    expect(accepted(await post(client, 12))).toBe(12);
    for (let at = 0; at < 6; at++) expect((await client.query({ kinds: [7_777] })).closed).toBeUndefined();
    await set(community().id, { 'rate.exemptLoopback': false });
    expect(accepted(await post(client, 12))).toBe(5);
    await set(community().id, { 'rate.exemptLoopback': true });
    expect(accepted(await post(client, 12))).toBe(12);
  });
});

describe('an author', () => {
  let relay: TestNode;
  beforeAll(async () => {
    relay = await startTestNode({ now });
    await setOn([relay], 1, RATES);
  });
  afterAll(() => relay.close());

  it('has one burst over all addresses', async () => {
    const [author, other] = [newAuthor(), newAuthor()];
    expect(accepted(await post(await connectTo(relay, '203.0.113.20'), 3, author))).toBe(3);
    const second = await connectTo(relay, '203.0.113.21');
    expect((await post(second, 3, author)).sort()).toEqual([
      [false, 'rate-limited: too many events by this author, try again in 1 s'],
      [true, ''],
      [true, ''],
    ]);
    expect(accepted(await post(second, 2, other))).toBe(2);
  });

  it('is not charged for events that others send with a wrong signature', async () => {
    const author = newAuthor();
    for (const address of ['203.0.113.22', '203.0.113.23']) {
      const forger = await connectTo(relay, address);
      for (let at = 0; at < 5; at++) {
        const forged = { ...sign(author, { content: `${Math.random()}` }), sig: '0'.repeat(128) };
        expect((await forger.publish(forged))[1]).toMatch(/^invalid: /);
      }
    }
    expect(accepted(await post(await connectTo(relay, '203.0.113.24'), 5, author))).toBe(5);
  });

  it('is not charged for repeats', async () => {
    const author = newAuthor();
    const event = sign(author);
    expect(await (await connectTo(relay, '203.0.113.25')).publish(event)).toEqual([true, '']);
    await relay.node.fanout.caughtUp();
    for (const address of ['203.0.113.26', '203.0.113.27']) {
      const client = await connectTo(relay, address);
      for (let at = 0; at < 4; at++) expect((await client.publish(event))[1]).toMatch(/^duplicate: /);
    }
    expect(accepted(await post(await connectTo(relay, '203.0.113.28'), 4, author))).toBe(4);
  });

  it('on this machine is exempt', async () => {
    expect(accepted(await post(await connectTo(relay, undefined), 12, newAuthor()))).toBe(12);
  });
});

describe('new connections', () => {
  let relay: TestNode;
  beforeAll(async () => {
    relay = await startTestNode({ now });
    await setOn([relay], 1, { 'rate.connectionsPerSecond': 1, 'rate.connectionsBurst': 3 });
  });
  afterAll(() => relay.close());

  /** The answer to an upgrade that was refused. */
  const refused = (address: string) =>
    new Promise<{ status: number | undefined; retryAfter: string | undefined }>((resolve, reject) => {
      const ws = new WebSocket(relay.url, { headers: { 'x-forwarded-for': address } });
      ws.once('open', () => reject(new Error('it was not refused')));
      ws.once('error', () => undefined);
      ws.once('unexpected-response', (_request, { statusCode, headers }) => {
        resolve({ status: statusCode, retryAfter: headers['retry-after'] });
        ws.terminate();
      });
    });

  it('of one address beyond its burst get 429 with Retry-After', async () => {
    for (let at = 0; at < 3; at++) await connectTo(relay, '203.0.113.30');
    expect(await refused('203.0.113.30')).toEqual({ status: 429, retryAfter: '1' });
    await connectTo(relay, '203.0.113.31');
    nowMs += 1_000;
    await connectTo(relay, '203.0.113.30');
    expect(await refused('203.0.113.30')).toEqual({ status: 429, retryAfter: '1' });
  });

  it('that arrive together get no more than the burst', async () => {
    const tries = await Promise.allSettled(
      Array.from({ length: 10 }, () => connectTo(relay, '203.0.113.32')),
    );
    expect(tries.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
  });

  it('from this machine are exempt', async () => {
    for (let at = 0; at < 6; at++) await connectTo(relay, undefined);
  });

  it('that arrive together never exceed the limit of open ones', async () => {
    await setOn([relay], 1, { 'rate.connectionsBurst': 100, 'limits.connectionsPerAddressMax': 4 });
    const tries = await Promise.allSettled(
      Array.from({ length: 10 }, () => connectTo(relay, '203.0.113.33')),
    );
    expect(tries.filter(({ status }) => status === 'fulfilled')).toHaveLength(4);
  });
});

describe('a proxy', () => {
  it('that is not trusted counts as the client itself', async () => {
    const relay = await startTestNode({ now, env: { MINATO_TRUSTED_PROXIES: '10.0.0.0/8' } });
    await setOn([relay], 1, RATES);
    expect(accepted(await post(await connectTo(relay, '203.0.113.40'), 5))).toBe(5);
    expect(accepted(await post(await connectTo(relay, '203.0.113.41'), 5))).toBe(0);
    await relay.close();
  });

  it('behind another trusted proxy is skipped', async () => {
    const relay = await startTestNode({ now, env: { MINATO_TRUSTED_PROXIES: 'loopback, 10.0.0.0/8' } });
    await setOn([relay], 1, RATES);
    expect(accepted(await post(await connectTo(relay, '203.0.113.42, 10.1.2.3'), 5))).toBe(5);
    expect(accepted(await post(await connectTo(relay, '203.0.113.43, 10.1.2.3'), 5))).toBe(5);
    expect(accepted(await post(await connectTo(relay, '203.0.113.43'), 1))).toBe(0);
    const real = { header: 'x-real-ip' };
    expect(accepted(await post(await connectTo(relay, '203.0.113.44', real), 6))).toBe(5);
    expect(accepted(await post(await connectTo(relay, '203.0.113.44'), 1))).toBe(0);
    await relay.close();
  });
});

describe('two instances', () => {
  const both = async (env: Record<string, string>): Promise<[TestNode, TestNode]> => {
    const one = await startTestNode({ now, env });
    const other = await startTestNode({ now, env, on: one.test });
    await setOn([one, other], 1, { ...RATES, 'rate.connectionsPerSecond': 1, 'rate.connectionsBurst': 4 });
    return [one, other];
  };
  const postOnBoth = async ([one, other]: [TestNode, TestNode], address: string, count: number) => {
    const [here, there] = [await connectTo(one, address), await connectTo(other, address)];
    return accepted([...(await post(here, count)), ...(await post(there, count))]);
  };

  async function shareEverything(nodes: [TestNode, TestNode]): Promise<void> {
    const [one, other] = nodes;
    expect(await postOnBoth(nodes, '203.0.113.50', 4)).toBe(5);
    const author = newAuthor();
    expect(accepted(await post(await connectTo(one, '203.0.113.51'), 4, author))).toBe(4);
    expect(accepted(await post(await connectTo(other, '203.0.113.52'), 4, author))).toBe(1);
    const [here, there] = [await connectTo(one, '203.0.113.53'), await connectTo(other, '203.0.113.53')];
    const closed = [];
    for (const client of [here, there, here, there]) closed.push((await client.query({ kinds: [1] })).closed);
    expect(closed).toEqual([undefined, undefined, undefined, LIMITED]);
    await connectTo(one, '203.0.113.53');
    await connectTo(other, '203.0.113.53');
    await expect(connectTo(one, '203.0.113.53')).rejects.toThrow('429');
    await expect(connectTo(other, '203.0.113.53')).rejects.toThrow('429');
  }

  it('on one database share every bucket', async () => {
    const nodes = await both({});
    await shareEverything(nodes);
    await nodes[1].close();
    await nodes[0].close();
  });

  it('share them in Redis, count separately while it is down, and share again when it is back', async () => {
    const redis = await TestRedis.start();
    const nodes = await both({ REDIS_URL: redis.url });
    await shareEverything(nodes);
    await redis.goDown();
    expect(await postOnBoth(nodes, '203.0.113.54', 7)).toBe(10);
    await redis.comeBack();
    let next = 100;
    await expect.poll(() => postOnBoth(nodes, `203.0.113.${next++}`, 4), { timeout: 100_000 }).toBe(5);
    await nodes[1].close();
    await nodes[0].close();
    await redis.stop();
  });
});

describe('while the shared bucket is queried', () => {
  let relay: TestNode;
  let proxy: FaultProxy;
  beforeAll(async () => {
    const test = await createTestDatabase();
    proxy = await FaultProxy.start(test.connection);
    relay = await startTestNode({ now, on: { ...test, connection: proxy.connection } });
  });
  afterAll(async () => {
    await relay.close();
    await proxy.stop();
    await relay.test.drop();
  });

  it('no later frame of the client overtakes the waiting one, and no other client is delayed', async () => {
    const client = await connectTo(relay, '203.0.113.60');
    const frozen = proxy.when('take-tokens', { kind: 'freeze' });
    client.send(['REQ', 'first', 'not a filter']);
    client.send('not JSON');
    await frozen;
    client.send(['REQ', 'second', 'not a filter']);
    client.send(['CLOSE', 7]);
    const here = await connectTo(relay, undefined);
    expect(await post(here, 1)).toEqual([[true, '']]);
    expect((await here.query({ kinds: [7_777] })).closed).toBeUndefined();
    proxy.release();
    await client.until(() => client.frames.length === 4);
    expect(client.frames.map(([verb, name]) => [verb, name])).toEqual([
      ['CLOSED', 'first'],
      ['NOTICE', 'invalid: message is not JSON'],
      ['CLOSED', 'second'],
      ['NOTICE', 'invalid: CLOSE needs a subscription id'],
    ]);
  });

  it('a client that disconnects leaves no subscription', async () => {
    const [client, next] = [await connectTo(relay, '203.0.113.61'), await connectTo(relay, '203.0.113.61')];
    const frozen = proxy.when('take-tokens', { kind: 'freeze' });
    client.send(['REQ', 'a', { kinds: [1] }]);
    await frozen;
    const answered = next.query({ kinds: [1] });
    await client.close();
    proxy.release();
    expect((await answered).closed).toBeUndefined();
    await expect.poll(() => relay.node.fanout.index(1).size).toBe(0);
  });

  it('with a database that does not answer each client has a local bucket', async () => {
    await setOn([relay], 1, RATES);
    const client = await connectTo(relay, '203.0.113.62');
    const frozen = proxy.when('take-tokens', { kind: 'freeze' });
    const replies: string[] = [];
    for (let at = 0; at < 5; at++) replies.push((await client.query({ kinds: ['x'] })).closed!);
    await frozen;
    expect(replies).toEqual([...new Array(3).fill(expect.stringMatching(/^invalid: /)), LIMITED, LIMITED]);
    proxy.release();
  });
});
