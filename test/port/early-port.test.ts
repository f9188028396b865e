/** The port while a node starts. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { get } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import WebSocket from 'ws';
import { readDescriptorLimit } from '../../src/port/descriptors.js';
import { EarlyPort, type EarlyPortOptions } from '../../src/port/early-port.js';
import { eventually } from '../support/cli.js';
import { startTestNode } from '../support/node.js';

/** Even with fewer files. */
const LEAST_HELD = 32;
const opened: EarlyPort[] = [];
afterEach(() => {
  for (const early of opened.splice(0)) early.close();
});

async function open(options?: EarlyPortOptions): Promise<EarlyPort> {
  const early = await EarlyPort.open('127.0.0.1', 0, options);
  opened.push(early!);
  return early!;
}

const isHolding = (early: EarlyPort, count: number) =>
  eventually(`${count} clients wait`, () => (early.size === count ? true : undefined));

const statusOf = async (port: number, path: string) => {
  const [response] = await once(get({ host: '127.0.0.1', port, path, agent: false }), 'response');
  response.resume();
  return response.statusCode as number;
};

it('holds sockets and requests until the node answers, and then serves them as usual', async () => {
  const early = await open();
  const { port } = early;
  const ws = new WebSocket(`ws://127.0.0.1:${port}`);
  const status = statusOf(port, '/healthz');
  await isHolding(early, 2);
  const node = await startTestNode({ early });
  expect(node.node.port).toBe(port);
  if (ws.readyState !== WebSocket.OPEN) await once(ws, 'open');
  ws.send('["REQ","a",{"kinds":[1],"limit":1}]');
  expect(String((await once(ws, 'message'))[0])).toBe('["EOSE","a"]');
  expect(await status).toBe(200);
  expect(await statusOf(port, '/readyz')).toBe(200);
  expect(early.size).toBe(0);
  const cut = once(ws, 'close');
  await node.close();
  await cut;
  await expect(statusOf(port, '/healthz')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
});

it('holds no more than the files that it may open allow', async () => {
  const limit = (to: string) => execFileSync('prlimit', ['--pid', `${process.pid}`, `--nofile=${to}:`]);
  const before = await readDescriptorLimit();
  limit('200');
  const early = await open().finally(() => limit(`${before}`));
  const sockets = Array.from({ length: LEAST_HELD + 1 }, () => connect(early.port, '127.0.0.1'));
  await Promise.race(
    sockets.map((socket) =>
      once(
        socket.resume().on('error', () => undefined),
        'close',
      ),
    ),
  );
  expect(early.size).toBe(LEAST_HELD);
  for (const socket of sockets) socket.destroy();
});

it('answers clients that wait too long, and holds a limited number', async () => {
  const early = await open({ heldMax: 1, heldMsMax: 200 });
  const first = connect(early.port, '127.0.0.1');
  await isHolding(early, 1);
  const second = connect(early.port, '127.0.0.1');
  second.resume().on('error', () => undefined);
  await once(second, 'close');
  const [answer] = await once(first, 'data');
  expect(String(answer).split('\r\n')).toEqual(
    expect.arrayContaining([
      'HTTP/1.1 503 Service Unavailable',
      'Retry-After: 5',
      'x-content-type-options: nosniff',
    ]),
  );
  await isHolding(early, 0);
});

it('holds a limited number of one address, and others as long as there is room', async () => {
  const early = await open({ trustedProxies: [], perAddressMax: 2 });
  const from = (localAddress: string) =>
    connect({ port: early.port, host: '127.0.0.1', localAddress })
      .resume()
      .on('error', () => undefined);
  from('127.0.0.1');
  from('127.0.0.1');
  await isHolding(early, 2);
  await once(from('127.0.0.1'), 'close');
  from('127.0.0.2');
  await isHolding(early, 3);
  // Those that an instance takes do not count.
  const taken: Socket[] = [];
  early.passTo((socket) => taken.push(socket) <= 3);
  expect(early.size).toBe(0);
  from('127.0.0.1');
  await isHolding(early, 1);
  for (const socket of taken) socket.destroy();
});

it('is not taken from another process: the node gets the error when it listens itself', async () => {
  const early = await open();
  expect(await EarlyPort.open('127.0.0.1', early.port)).toBeUndefined();
});

it('is not opened for a host name, which may stand for several addresses', async () => {
  expect(await EarlyPort.open('localhost', 0)).toBeUndefined();
});

it('is closed by a failed start, with all waiting connections', async () => {
  const early = await open();
  const socket = connect(early.port, '127.0.0.1');
  socket.resume().on('error', () => undefined);
  await isHolding(early, 1);
  early.close();
  await once(socket, 'close');
  await expect(statusOf(early.port, '/')).rejects.toThrow();
});
