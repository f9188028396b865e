/** Heads and bodies of HTTP requests: what they hold and cost is counted as they arrive (I14, I18). */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { LoopTurns } from '../../src/limits/loop-turns.js';
import { Work } from '../../src/limits/work.js';
import { createAddressOf } from '../../src/port/client-address.js';
import { Entrance } from '../../src/port/entrance.js';
import { Http } from '../../src/port/http.js';
import { HeldBytes } from '../../src/relay/input/held-bytes.js';
import { eventually } from '../support/cli.js';
import { startTestNode, type TestNode } from '../support/node.js';

const INPUT_BYTES_MAX = 300_000;
const GREEDY = '203.0.113.66';
const MODEST = '198.51.100.7';

let relay: TestNode;
let http: Http;
let port: number;
const work = new Work();
const input = new HeldBytes(INPUT_BYTES_MAX);

beforeAll(async () => {
  relay = await startTestNode();
  const addressOf = createAddressOf(['loopback']);
  http = new Http({
    metrics: relay.node.metrics,
    metricsToken: undefined,
    ready: async () => undefined,
    work,
    entrance: new Entrance({
      communities: relay.node.communities,
      rates: { take: () => ({ allowed: true, retryAfterMs: 0 }) },
      work,
      turns: new LoopTurns(),
      input,
      addressOf,
      now: Date.now,
    }),
  });
  http.app.addContentTypeParser('text/x', { parseAs: 'buffer' }, (_request, bytes, done) =>
    done(null, bytes),
  );
  http.app.post('/bytes', { config: { entry: 'own' } }, (request) => ({
    bytes: (request.body as Buffer).length,
  }));
  port = await http.listen('127.0.0.1', 0);
});
afterAll(async () => {
  await http.close();
  await relay.close();
});

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

async function post(address: string, headers: readonly string[], body: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  sockets.push(socket);
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  const head = ['POST /bytes HTTP/1.1', 'Host: x', 'Content-Type: text/x', `X-Forwarded-For: ${address}`];
  socket.write(`${[...head, ...headers].join('\r\n')}\r\n\r\n${body}`);
  return socket;
}
const chunk = (bytes: number) => `${bytes.toString(16)}\r\n${'x'.repeat(bytes)}\r\n`;
const chargedTo = (spy: { mock: { calls: [{ rateKey: string }, number][] } }, address: string) =>
  spy.mock.calls.reduce((sum, [{ rateKey }, ms]) => sum + (rateKey === address ? ms : 0), 0);

describe('a head', () => {
  const chargeOf = async (path: string, headers: Record<string, string>) => {
    const charge = vi.spyOn(relay.node.work, 'charge');
    await (await fetch(relay.http + path, { headers: { ...headers, 'x-forwarded-for': MODEST } })).text();
    const charged = chargedTo(charge, MODEST);
    charge.mockRestore();
    return charged;
  };

  it('that is large is charged by its bytes, wherever they are', async () => {
    const small = await chargeOf('/healthz', {});
    expect(await chargeOf('/healthz', { cookie: 'a=b; '.repeat(100) })).toBe(small);
    const large = [
      await chargeOf('/healthz', { cookie: 'a=b; '.repeat(3_000) }),
      await chargeOf(`/healthz?${'q=a&'.repeat(3_750)}`, {}),
      await chargeOf('/healthz', { 'if-none-match': ','.repeat(15_000) }),
    ];
    for (const charged of large) expect(charged).toBeGreaterThan(small + 4);
  });
});

describe('a body', () => {
  it('that is not complete counts towards the input of all clients, until its connection ends', async () => {
    const partial = await post(MODEST, ['Content-Length: 50000'], 'x'.repeat(20_000));
    await eventually('it counts', () => (input.bytes === 20_000 ? true : undefined));
    const chunked = await post(MODEST, ['Transfer-Encoding: chunked'], chunk(10_000));
    await eventually('a chunked one too', () => (input.bytes > 30_000 ? true : undefined));
    partial.destroy();
    chunked.destroy();
    await eventually('nothing is held', () => (input.bytes === 0 ? true : undefined));
  });

  it('that is answered does not count any more', async () => {
    const socket = await post(MODEST, ['Content-Length: 20000'], 'x'.repeat(20_000));
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toContain('{"bytes":20000}');
    await eventually('nothing is held', () => (input.bytes === 0 ? true : undefined));
  });

  it('of a client with more than a fair share is cut off when the budget is used up', async () => {
    const modest = await post(MODEST, ['Content-Length: 50000'], 'x'.repeat(20_000));
    await eventually('it counts', () => (input.bytes === 20_000 ? true : undefined));
    const greedy: Socket[] = [];
    for (let number = 0; number < 8; number++)
      greedy.push(await post(GREEDY, ['Content-Length: 50000'], 'x'.repeat(49_000)));
    await eventually('some are closed', () => (greedy.some(({ destroyed }) => destroyed) ? true : undefined));
    expect(modest.destroyed).toBe(false);
    modest.write('x'.repeat(30_000));
    const [answer] = (await once(modest, 'data')) as [Buffer];
    expect(answer.toString()).toContain('{"bytes":50000}');
  });

  it('is charged by its bytes, also when its length is not known before', async () => {
    const charge = vi.spyOn(work, 'charge');
    const [known, unknown] = ['192.0.2.1', '192.0.2.2'];
    await once(await post(known, ['Content-Length: 40000'], 'x'.repeat(40_000)), 'data');
    await once(await post(unknown, ['Transfer-Encoding: chunked'], `${chunk(40_000)}0\r\n\r\n`), 'data');
    expect(chargedTo(charge, known)).toBeGreaterThan(0.4);
    expect(chargedTo(charge, unknown)).toBeCloseTo(chargedTo(charge, known), 1);
    charge.mockRestore();
  });

  it('in tiny chunks ends its connection, before they take memory', async () => {
    const offend = vi.spyOn(work, 'offend');
    const socket = await post('192.0.2.3', ['Transfer-Encoding: chunked'], chunk(1).repeat(5_000));
    await eventually('it is closed', () => (socket.destroyed ? true : undefined));
    expect(offend).toHaveBeenCalledTimes(1);
    expect(input.bytes).toBe(0);
    offend.mockRestore();
    const bodies = [chunk(1).repeat(60) + chunk(30_000), chunk(64).repeat(500)];
    for (const body of bodies) {
      const honest = await post('192.0.2.4', ['Transfer-Encoding: chunked'], `${body}0\r\n\r\n`);
      const [answer] = (await once(honest, 'data')) as [Buffer];
      expect(answer.toString()).toMatch(/\{"bytes":3\d{4}\}/);
    }
  });
});

describe('a body that no route wants', () => {
  const METHODS = ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'GET'];
  const send = async (method: string, path: string, body: string, isChunked = false) => {
    const socket = connect(relay.node.port, '127.0.0.1');
    sockets.push(socket);
    socket.on('error', () => undefined);
    let answer = '';
    socket.on('data', (data) => (answer += data));
    await once(socket, 'connect');
    const length = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length + 1}`;
    const head = [
      `${method} ${path} HTTP/1.1`,
      'Host: x',
      'Content-Type: application/json',
      `X-Forwarded-For: ${MODEST}`,
    ];
    socket.write(`${[...head, length].join('\r\n')}\r\n\r\n${body}`);
    await eventually('an answer', () => (answer.includes('\r\n\r\n') ? true : undefined));
    return { socket, status: Number(answer.slice(9, 12)), head: answer.split('\r\n\r\n')[0]! };
  };

  it.each(METHODS)('is not parsed: %s', async (method) => {
    const parse = vi.spyOn(JSON, 'parse');
    for (const path of ['/nothing', '/stats/nothing', '/c/nobody/nothing', '/docs/nothing']) {
      const { status } = await send(method, path, '['.repeat(60_000));
      expect({ path, status }).toEqual({ path, status: 404 });
    }
    expect(parse.mock.calls.filter(([text]) => text.length > 10_000)).toEqual([]);
    parse.mockRestore();
  });

  it('ends its connection if it is long or has no length', async () => {
    const long = await send('POST', '/nothing', '['.repeat(100_000));
    const chunked = await send('POST', '/nothing', chunk(1_000), true);
    for (const { socket, head } of [long, chunked]) {
      expect(head.toLowerCase()).toContain('connection: close');
      await eventually('it is closed', () => (socket.destroyed ? true : undefined));
    }
    const short = await send('POST', '/nothing', '[]');
    expect(short.head.toLowerCase()).not.toContain('connection: close');
  });
});

describe('JSON in a body', () => {
  const send = (body: string) =>
    fetch(`${relay.http}/v1/auth/challenge`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-forwarded-for': MODEST },
      body,
    });

  it('is charged by its shape before it is parsed', async () => {
    const charge = vi.spyOn(relay.node.work, 'charge');
    await send(JSON.stringify({ list: new Array(3_000).fill('    ') }));
    const flat = chargedTo(charge, MODEST);
    charge.mockClear();
    await send(JSON.stringify({ list: new Array(7_000).fill([]) }));
    // Fewer bytes, and more than twice as many values.
    expect(chargedTo(charge, MODEST)).toBeGreaterThan(flat + 0.5);
    charge.mockRestore();
  });

  it('of too many keys is refused before it is parsed', async () => {
    const parse = vi.spyOn(JSON, 'parse');
    const response = await send(`{${'"":1,'.repeat(10_001)}"":1}`);
    expect(parse.mock.calls.filter(([text]) => text.length > 10_000)).toEqual([]);
    parse.mockRestore();
    expect(response.status).toBe(400);
    expect(await response.text()).toContain('more than 10000 keys');
  });
});
