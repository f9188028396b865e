/**
 * Clients that a proxy names at the start of each connection (PROXY protocol), for HTTP and WebSockets on the
 * same port.
 */
import { once } from 'node:events';
import { connect as connectSocket, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { block } from '../../src/blocks/blocks.sql.js';
import { eventually, runCli } from '../support/cli.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const BLOCKED = '203.0.113.9';
const V1 = (from: string) => Buffer.from(`PROXY TCP4 ${from} 192.0.2.1 40000 7447\r\n`);
const V2 = (from: string) =>
  Buffer.from([
    ...[0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a],
    ...[0x21, 0x11, 0, 12],
    ...from.split('.').map(Number),
    ...[192, 0, 2, 1, 0x9c, 0x40, 0x1d, 0x17],
  ]);
const request = (path: string, headers = '') =>
  Buffer.from(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${headers}\r\n`);

let relay: TestNode;
beforeAll(async () => {
  relay = await startTestNode({
    env: { MINATO_PROXY_PROTOCOL: 'on' },
    httpBounds: { proxyHeaderMsMax: 1_000 },
  });
  const { pool } = relay.database;
  const community = () => relay.node.communities.find(undefined, undefined)!;
  const blocking = {
    kind: 'address',
    community: community().id,
    value: BLOCKED,
    actor: newAuthor().pubkey,
  } as const;
  await block(pool, blocking, { fixed: [] }, Date.now());
  await eventually('the block holds', () => (community().blocks.addresses.has(BLOCKED) ? true : undefined));
});
afterAll(() => relay.close());

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** Sends these bytes in parts and returns the answer until the node closes. */
async function send(...parts: Buffer[]): Promise<string> {
  const socket = connectSocket(relay.node.port, '127.0.0.1');
  sockets.push(socket);
  socket.setNoDelay(true);
  let answer = '';
  socket.on('error', () => undefined).on('data', (data) => (answer += data));
  await once(socket, 'connect');
  for (const part of parts) {
    socket.write(part);
    if (parts.length > 1) await delay(2);
  }
  await eventually('it is closed', () => (socket.destroyed || socket.readableEnded ? true : undefined));
  return answer;
}

describe('a connection of a trusted proxy', () => {
  it.each([
    ['1', V1],
    ['2', V2],
  ])('is of the client that version %s names, wherever the packets are cut', async (_version, header) => {
    expect(await send(Buffer.concat([header(BLOCKED), request('/stats')]))).toMatch(/^HTTP\/1\.1 403 /);
    const bytes = Buffer.concat([header('198.51.100.7'), request('/stats')]);
    expect(await send(bytes)).toMatch(/^HTTP\/1\.1 200 /);
    for (let cut = 1; cut < bytes.length; cut += 5)
      expect(await send(bytes.subarray(0, cut), bytes.subarray(cut)), `cut at ${cut}`).toMatch(
        /^HTTP\/1\.1 200 /,
      );
  });

  it('is closed without an answer when it does not begin with the header', async () => {
    expect(await send(request('/stats'))).toBe('');
    expect(await send(Buffer.from('PROXY TCP4 nonsense\r\n'), request('/stats'))).toBe('');
    expect(await send(Buffer.from(`PROXY UNKNOWN ${'x'.repeat(200)}`))).toBe('');
    expect(await send(Buffer.from('PROXY TC')), 'too late').toBe('');
  });

  it('has the address of the connection, not one that its client writes in a header', async () => {
    const claim = 'X-Forwarded-For: 198.51.100.7\r\nX-Real-IP: 198.51.100.7\r\n';
    expect(await send(Buffer.concat([V1(BLOCKED), request('/stats', claim)]))).toMatch(/^HTTP\/1\.1 403 /);
  });

  it('is never a local client', async () => {
    for (const header of [V1('127.0.0.1'), V2('127.0.0.1'), Buffer.from('PROXY UNKNOWN\r\n')]) {
      expect(await send(Buffer.concat([header, request('/metrics')]))).toMatch(/^HTTP\/1\.1 403 /);
      expect(await send(Buffer.concat([header, request('/healthz')]))).toMatch(/^HTTP\/1\.1 200 /);
    }
  });

  it('can become a WebSocket', async () => {
    const connectAs = (from: string) =>
      new WebSocket(relay.url, {
        createConnection: () => {
          const socket = connectSocket(relay.node.port, '127.0.0.1');
          socket.write(V2(from));
          return socket;
        },
      });
    const socket = connectAs('198.51.100.8');
    await once(socket, 'open');
    socket.send(JSON.stringify(['REQ', 'a', { limit: 1 }]));
    const [answer] = await once(socket, 'message');
    expect(String(answer)).toMatch(/^\["EOSE","a"/);
    socket.close();
    const [refused] = await once(connectAs(BLOCKED), 'error');
    expect(String(refused)).toContain('403');
  });

  it('is also used by doctor to check the node', async () => {
    const env = {
      DATABASE_URL: relay.test.url,
      MINATO_PORT: String(relay.node.port),
      MINATO_PROXY_PROTOCOL: 'on',
    };
    const { stdout } = await runCli(['doctor'], env);
    expect(stdout).toMatch(/^ok {3}Minato \S+ answers at 127\.0\.0\.1:\d+ and is ready$/m);
  });
});

describe('a connection of any other client', () => {
  it('is plain HTTP, and the header is not read', async () => {
    const own = await startTestNode({
      env: { MINATO_PROXY_PROTOCOL: 'on', MINATO_TRUSTED_PROXIES: '10.0.0.0/8' },
    });
    expect((await fetch(`${own.http}/stats`)).status).toBe(200);
    const socket = connectSocket(own.node.port, '127.0.0.1');
    sockets.push(socket);
    let answer = '';
    socket.on('error', () => undefined).on('data', (data) => (answer += data));
    socket.write(Buffer.concat([V1('127.0.0.1'), request('/stats')]));
    await eventually('it is closed', () => (socket.destroyed || socket.readableEnded ? true : undefined));
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    await own.close();
  });
});
