/**
 * HTTP clients that send slowly, do not read, hold many connections or send endless requests: the node closes
 * their connections and serves the others.
 */
import { once } from 'node:events';
import { connect as connectSocket, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { block } from '../../src/blocks/blocks.sql.js';
import { resetSetting, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { WORK_BURST_MS, WORK_MS_PER_SECOND } from '../../src/limits/work.js';
import { eventually } from '../support/cli.js';
import { authorization, credential } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const FLOODER = '203.0.113.66';
const HONEST = '198.51.100.7';
const BUNDLE = '/docs/static/swagger-ui-bundle.js';
/** Every kind of page and file, known or not, except health. */
const PATHS = [
  '/',
  '/stats',
  '/docs',
  '/docs/json',
  '/docs/yaml',
  BUNDLE,
  '/.well-known/nostr.json?name=_',
  '/metrics',
  '/nothing',
  '/c/nobody',
  '/c/nobody/stats',
  '/v1/topics',
  '/v1/nothing',
  '/c/nobody/v1/nothing',
];

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** A connection that sends this and no more. Its answer is collected, or not read. */
async function open(
  relay: TestNode,
  text: string,
  reads = true,
): Promise<{ socket: Socket; read: () => string }> {
  const socket = connectSocket(relay.node.port, '127.0.0.1');
  sockets.push(socket);
  socket.on('error', () => undefined);
  let received = '';
  if (reads) socket.on('data', (data) => (received += data));
  await once(socket, 'connect');
  if (text !== '') socket.write(text);
  return { socket, read: () => received };
}
const head = (method: string, path: string, headers: Record<string, string> = {}) =>
  [
    `${method} ${path} HTTP/1.1`,
    'Host: localhost',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    '\r\n',
  ].join('\r\n');
const from = (address: string) => ({ 'x-forwarded-for': address });
const slowPost = (address: string) =>
  `${head('POST', '/v1/auth/challenge', {
    ...from(address),
    'content-type': 'application/json',
    'content-length': '1000',
  })}{`;
const get = (relay: TestNode, path: string, headers: Record<string, string> = from(HONEST)) =>
  fetch(relay.http + path, { headers });
const closed = ({ socket }: { socket: Socket }) =>
  eventually('the connection is closed', () => (isGone({ socket }) ? true : undefined));
const isGone = ({ socket }: { socket: Socket }) => socket.destroyed || socket.readableEnded;

describe('a request that does not end', () => {
  let relay: TestNode;
  beforeAll(async () => {
    const httpBounds = { headMsMax: 1_000, requestMsMax: 2_000, keepAliveMsMax: 1_000, answerMsMax: 2_000 };
    relay = await startTestNode({ httpBounds });
  });
  afterAll(() => relay.close());

  it('is answered with 408 and closed, also when single bytes arrive', async () => {
    const silent = await open(relay, slowPost(FLOODER));
    const trickling = await open(relay, slowPost(FLOODER));
    const drip = setInterval(() => trickling.socket.write(' '), 100);
    await Promise.all([closed(silent), closed(trickling)]);
    clearInterval(drip);
    expect(silent.read()).toMatch(/^HTTP\/1\.1 408 /);
    expect(trickling.read()).toMatch(/^HTTP\/1\.1 408 /);
  });

  it('is closed in the middle of its head, before its first byte, and between two requests', async () => {
    const halfHead = await open(relay, 'GET / HTTP/1.1\r\nHost: localhost\r\nX-A');
    const nothing = await open(relay, '');
    const between = await open(relay, head('GET', '/healthz'));
    await Promise.all([halfHead, nothing, between].map(closed));
    expect(halfHead.read()).toMatch(/^HTTP\/1\.1 408 /);
    expect(between.read()).toMatch(/^HTTP\/1\.1 200 /);
  });

  it('does not end a WebSocket, which has its own time-outs', async () => {
    const client = await RawClient.connect(relay.url);
    const idle = await open(relay, '');
    await closed(idle);
    expect(relay.node.httpConnections(), 'a websocket is not counted').toBe(0);
    await client.query({ limit: 1 });
    await client.close();
  });

  it('with unread answers ends too, and the answers use no extra memory', async () => {
    await get(relay, BUNDLE, { ...from(HONEST), 'accept-encoding': 'identity' });
    const before = process.memoryUsage().external;
    let most = 0;
    // More than the system buffers for an unread connection: 24 MB for each.
    const asking = Array.from({ length: 40 }, (_, n) =>
      open(relay, head('GET', BUNDLE, from(`203.0.113.${n}`)).repeat(16), false),
    );
    await Promise.all(asking);
    await eventually('they are asking', () => (relay.node.httpConnections() >= 10 ? true : undefined));
    await eventually('they are closed', () => {
      most = Math.max(most, process.memoryUsage().external);
      return relay.node.httpConnections() === 0 ? true : undefined;
    });
    expect(most - before, 'almost 1 GB if each had its own').toBeLessThan(200 * 1_024 ** 2);
  });
});

describe('connections', () => {
  let relay: TestNode;
  beforeAll(async () => {
    relay = await startTestNode({ httpBounds: { connectionsMax: 40, perAddressMax: 10 } });
  });
  afterAll(() => relay.close());

  it('of one address are limited: the longest waiting are closed, and others are served', async () => {
    const slow: Awaited<ReturnType<typeof open>>[] = [];
    for (let n = 0; n < 30; n++) slow.push(await open(relay, slowPost(FLOODER)));
    await eventually('the first are closed', () => (slow.filter(isGone).length === 20 ? true : undefined));
    expect(relay.node.httpConnections()).toBeLessThanOrEqual(10);
    expect((await get(relay, '/healthz')).status).toBe(200);
    expect(isGone(slow.at(-1)!), 'the newest stay').toBe(false);
  });

  it('of an IPv6 network are limited too, with any of its addresses', async () => {
    const slow: Awaited<ReturnType<typeof open>>[] = [];
    for (let n = 0; n < 45; n++) slow.push(await open(relay, slowPost(`2001:db8:7:${n.toString(16)}::1`)));
    await eventually('the first are closed', () => (isGone(slow[0]!) ? true : undefined));
    expect(relay.node.httpConnections()).toBeLessThanOrEqual(40);
  });

  it('have a total limit: a new client replaces one that waits', async () => {
    const idle = [];
    for (let n = 0; n < 120; n++) idle.push(await open(relay, ''));
    expect(relay.node.httpConnections()).toBeLessThanOrEqual(40);
    for (let n = 0; n < 5; n++) expect((await get(relay, '/stats')).status).toBe(200);
    const client = await RawClient.connect(relay.url);
    await client.query({ limit: 1 });
    await client.close();
  });

  it('answer only few pipelined requests', async () => {
    const ahead = await open(relay, head('GET', '/stats', from(FLOODER)).repeat(500));
    await closed(ahead);
    expect(ahead.read().split('HTTP/1.1 ').length - 1).toBeLessThanOrEqual(17);
  });

  it('with too many pipelined requests are offences: soon the address is refused', async () => {
    const address = '203.0.113.90';
    const client = { rateKey: address, networkKey: address };
    for (let n = 0; n < 9 && relay.node.work.refusedMs(client) === 0; n++)
      await closed(await open(relay, head('GET', '/stats', from(address)).repeat(500)));
    expect(relay.node.work.refusedMs(client)).toBeGreaterThan(0);
    expect((await get(relay, '/stats', from(address))).status).toBe(429);
  });

  it('with an unknown expectation pass every limit that others pass', async () => {
    const asking = head('GET', '/stats', { ...from(FLOODER), expect: 'something' });
    const ahead = await open(relay, asking.repeat(500));
    await closed(ahead);
    expect(ahead.read().split('HTTP/1.1 ').length - 1).toBeLessThanOrEqual(17);
    expect(ahead.read()).not.toContain('417');
  });

  it('of a client in debt wait in a limited number, and the others are refused at once', async () => {
    const address = '203.0.113.91';
    const client = { rateKey: address, networkKey: address };
    relay.node.work.charge(client, WORK_BURST_MS + 1.8 * WORK_MS_PER_SECOND);
    const statuses = await Promise.all(
      Array.from({ length: 10 }, async () => (await get(relay, '/stats', from(address))).status),
    );
    expect(statuses.filter((status) => status === 429)).toHaveLength(2);
    expect(statuses.filter((status) => status === 200)).toHaveLength(8);
  });

  it('of a client with a penalty wait for /healthz too', async () => {
    const address = '203.0.113.92';
    const client = { rateKey: address, networkKey: address };
    for (let n = 0; n < 3; n++) relay.node.work.offend(client, 1_000);
    const begunMs = performance.now();
    expect((await get(relay, '/healthz', from(address))).status).toBe(200);
    expect(performance.now() - begunMs).toBeGreaterThan(900);
  });
});

describe('every route', () => {
  let relay: TestNode;
  /** While it is set, the clock stands still and no bucket refills. */
  let stoppedAt: number | undefined;
  beforeAll(async () => {
    const env = { MINATO_METRICS_TOKEN: 'a-token-of-the-metrics' };
    relay = await startTestNode({ env, now: () => stoppedAt ?? Date.now() });
  });
  afterAll(() => relay.close());
  const community = () => relay.node.communities.find(undefined, undefined)!;

  async function withSettings(values: Partial<Record<SettingKey, unknown>>, work: () => Promise<void>) {
    const { pool } = relay.database;
    const entries = Object.entries(values) as [SettingKey, unknown][];
    const hold = (isSet: boolean) =>
      eventually('the settings hold', () =>
        entries.every(([key, value]) => (community().settings[key] === value) === isSet) ? true : undefined,
      );
    for (const [key, value] of entries) await writeSetting(pool, community().id, key, value, Date.now());
    await hold(true);
    stoppedAt = Date.now();
    await work().finally(async () => {
      stoppedAt = undefined;
      for (const [key] of entries) await resetSetting(pool, community().id, key);
    });
    await hold(false);
  }

  it.each(PATHS)('%s has a rate limit by address', async (path) => {
    const limits = { 'rate.httpPublicPerSecond': 1, 'rate.httpPublicBurst': 3 };
    await withSettings(limits, async () => {
      // A separate client for each path, and another one.
      const [client, other] = [`192.0.2.${PATHS.indexOf(path)}`, `192.0.2.${100 + PATHS.indexOf(path)}`];
      const statuses = [];
      for (let n = 0; n < 5; n++) statuses.push((await get(relay, path, from(client))).status);
      expect(statuses.slice(0, 3)).not.toContain(429);
      expect(statuses.slice(3)).toEqual([429, 429]);
      const refused = await get(relay, path, from(client));
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
      expect(await refused.json()).toMatchObject({ code: 'RATE_LIMITED' });
      expect((await get(relay, path, from(other))).status).not.toBe(429);
      for (const health of ['/healthz', '/readyz'])
        expect((await get(relay, health, from(client))).status).toBe(200);
    });
  });

  it.each(PATHS)('%s refuses blocked addresses, also one behind a second header', async (path) => {
    const actor = newAuthor().pubkey;
    const blocking = { kind: 'address', community: community().id, value: FLOODER, actor } as const;
    await block(relay.database.pool, blocking, { fixed: [] }, Date.now());
    await eventually('the block holds', () => (community().blocks.addresses.has(FLOODER) ? true : undefined));
    for (const headers of [
      from(FLOODER),
      { 'x-real-ip': FLOODER },
      { 'x-real-ip': FLOODER, ...from('127.0.0.1') },
      { 'x-real-ip': '192.0.2.200', ...from(FLOODER) },
    ] as Record<string, string>[]) {
      const response = await get(relay, path, headers);
      expect({ headers, status: response.status }).toEqual({
        headers,
        status: 403,
      });
    }
    expect((await get(relay, '/healthz', from(FLOODER))).status).toBe(200);
  });

  it.each([...PATHS, '/healthz', '/readyz'])('%s forbids content sniffing and framing', async (path) => {
    const { headers } = await get(relay, path);
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('referrer-policy')).toBe('no-referrer');
    expect(headers.get('x-frame-options')).toBe('DENY');
    expect(headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
  });

  it.each(['/stats', '/docs/json', '/v1/topics', '/nothing', '/%zz'])(
    '%s makes a client over its budget wait until the budget refills',
    async (path) => {
      const address = `192.0.2.${150 + path.length}`;
      const client = { rateKey: address, networkKey: address };
      relay.node.work.charge(client, WORK_BURST_MS + 1.6 * WORK_MS_PER_SECOND);
      expect(relay.node.work.waitMs(client)).toBeGreaterThan(1_000);
      await get(relay, path, from(address));
      expect(relay.node.work.waitMs(client)).toBeLessThan(500);
    },
  );

  it('is refused to an address with a penalty', async () => {
    const client = { rateKey: '192.0.2.78', networkKey: '192.0.2.78' };
    for (let n = 0; n < 3; n++) relay.node.work.offend(client, 1_000);
    const response = await get(relay, '/stats', from(client.rateKey));
    expect(response.status).toBe(429);
    expect(response.headers.get('connection')).toBe('close');
  });

  it('checks few signatures of an address that sends many wrong ones', async () => {
    const verify = vi.spyOn(relay.node.verifier, 'verify');
    await withSettings({ 'rate.httpMemberPerSecond': 1, 'rate.httpMemberBurst': 5 }, async () => {
      const url = `${relay.http}/v1/topic-subscriptions`;
      const statuses = [];
      for (let n = 0; n < 40; n++) {
        const event = credential(newAuthor(), { method: 'GET', url });
        const wrong = authorization({ ...event, sig: '0'.repeat(128) });
        const headers = { ...from(FLOODER.replace('66', '67')), authorization: wrong };
        statuses.push((await fetch(url, { headers })).status);
      }
      expect(statuses.filter((status) => status === 401)).toHaveLength(5);
      expect(statuses.filter((status) => status === 429)).toHaveLength(35);
    });
    expect(verify).toHaveBeenCalledTimes(5);
    verify.mockRestore();
  });

  it('is not exempt for a client that claims to be local', async () => {
    const limits = { 'rate.httpPublicPerSecond': 1, 'rate.httpPublicBurst': 1 };
    await withSettings(limits, async () => {
      const claims: Record<string, string>[] = [
        from('127.0.0.1'),
        { 'x-real-ip': '192.0.2.201', ...from('127.0.0.1') },
        { 'x-real-ip': '192.0.2.201', ...from('::1') },
        { forwarded: 'for=127.0.0.1' },
        { via: '1.1 localhost', ...from('127.0.0.1') },
      ];
      const statuses = [];
      for (const claim of [...claims, ...claims]) statuses.push((await get(relay, '/stats', claim)).status);
      expect(statuses.slice(claims.length)).toEqual(claims.map(() => 429));
      expect((await get(relay, '/stats', {})).status, 'one who really is').toBe(200);
      for (const claim of claims) expect((await get(relay, '/metrics', claim)).status).not.toBe(200);
    });
  });

  it('/metrics refuses a foreign host name (DNS rebinding) and an untrusted loopback', async () => {
    const status = async (headers: Record<string, string>) => {
      const { read } = await open(
        relay,
        head('GET', '/metrics', { connection: 'close', ...headers }).replace(
          'Host: localhost',
          `Host: ${headers.named}`,
        ),
      );
      return eventually('an answer', () => /^HTTP\/1\.1 (\d+)/.exec(read())?.[1]);
    };
    const bearer = { authorization: 'Bearer a-token-of-the-metrics' };
    expect(await status({ named: 'localhost:7447' })).toBe('200');
    expect(await status({ named: 'rebound.example' })).toBe('403');
    expect(await status({ named: 'rebound.example', ...bearer })).toBe('200');
    const forwards = await relay.node.metrics.unnamedForwards.get();
    expect(forwards.values[0]!.value).toBeGreaterThan(0);
    await withSettings({ 'rate.exemptLoopback': false }, async () => {
      expect(await status({ named: 'localhost:7447' })).toBe('403');
      expect(await status({ named: 'localhost:7447', ...bearer })).toBe('200');
    });
  });
});
