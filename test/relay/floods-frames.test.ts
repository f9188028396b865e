/**
 * I14 and I18 at the sockets: whatever arrives is charged to its address before it is processed, and
 * unfinished messages are bounded for all clients together. Each address here comes from a proxy header, so
 * that none is exempt.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { OFFENCES_BURST, REFUSED_MS, WORK_BURST_MS, WORK_MS_PER_SECOND } from '../../src/limits/work.js';
import { CONTROLS_BURST, FRAGMENTS_MAX, UNFINISHED_MS_MAX } from '../../src/relay/input/arrivals.js';
import { INPUT_BYTES_MAX } from '../../src/relay/input/held-bytes.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import {
  BINARY,
  CLOSE,
  CONTINUATION,
  frame,
  PING,
  PONG,
  RawSocket,
  TEXT,
} from '../support/clients/raw-socket.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const POLICY = 1_008;
let relay: TestNode;
let addresses = 0;
const sockets: RawSocket[] = [];
const clients: RawClient[] = [];

/** An address that no other test uses. */
function newAddress(): string {
  addresses += 1;
  return `198.51.${100 + Math.floor(addresses / 250)}.${addresses % 250}`;
}

async function socketFrom(address: string): Promise<RawSocket> {
  const socket = await RawSocket.connect(relay.node.port, address);
  sockets.push(socket);
  return socket;
}
async function clientFrom(address: string): Promise<RawClient> {
  const client = await RawClient.connect(relay.url, { 'x-forwarded-for': address });
  clients.push(client);
  return client;
}
const keyed = (address: string) => ({ rateKey: address, networkKey: address });
const closingOf = (socket: RawSocket) => eventually('the socket is closed', () => socket.closed);
async function goesOn(client: RawClient): Promise<void> {
  expect(await client.publish(sign(newAuthor()))).toEqual([true, '']);
}

beforeAll(async () => {
  relay = await startTestNode();
});
afterAll(() => relay.close());
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.end();
  await Promise.all(clients.splice(0).map((client) => client.close()));
});

describe('control frames', () => {
  it('beyond what a client needs are counted, and a flood of them is closed with a reason', async () => {
    for (const opcode of [PING, PONG]) {
      const [flooder, honest] = [await socketFrom(newAddress()), await clientFrom(newAddress())];
      const flood = new Array<Buffer>(CONTROLS_BURST + OFFENCES_BURST + 1).fill(frame(opcode));
      flooder.write(...flood);
      expect(await closingOf(flooder)).toEqual({
        code: POLICY,
        reason: 'rate-limited: too many pings and pongs',
      });
      await eventually('it is cut off', () => (flooder.gone ? true : undefined));
      await goesOn(honest);
    }
  });

  it('of a client that pings every second are answered, however long it goes on', async () => {
    const client = await socketFrom(newAddress());
    for (let sent = 1; sent <= CONTROLS_BURST; sent += 1) {
      client.write(frame(PING, `ping ${sent}`));
      await eventually('the pong', () =>
        client.frames.find(({ opcode, payload }) => opcode === PONG && String(payload) === `ping ${sent}`),
      );
    }
    expect(client.closed).toBeUndefined();
  });

  it('that come together are answered by one pong, to the last of them', async () => {
    const client = await socketFrom(newAddress());
    client.write(...Array.from({ length: 50 }, (_, place) => frame(PING, String(place))));
    const pongs = () => client.frames.filter(({ opcode }) => opcode === PONG);
    await eventually('a pong', () => pongs().find(({ payload }) => String(payload) === '49'));
    expect(pongs().length).toBeLessThan(10);
  });

  it('are charged before they are answered', async () => {
    const address = newAddress();
    const client = await socketFrom(address);
    const charge = vi.spyOn(relay.node.work, 'charge');
    client.write(frame(PING));
    await eventually('a pong', () => client.frames[0]);
    const charged = charge.mock.calls.filter(([{ rateKey }]) => rateKey === address);
    charge.mockRestore();
    expect(charged.map(([, costMs]) => costMs > 0)).toEqual([true]);
  });

  it('after the last one of a client, its close, are not read', async () => {
    const address = newAddress();
    const client = await RawSocket.connect(relay.node.port, address, { halfOpen: true });
    sockets.push(client);
    client.write(frame(CLOSE, Buffer.from([0x03, 0xe8])));
    await closingOf(client);
    const charge = vi.spyOn(relay.node.work, 'charge');
    await eventually('it is cut off', async () => {
      client.write(frame(PING));
      await delay(20);
      return client.gone ? true : undefined;
    });
    const charged = charge.mock.calls.filter(([{ rateKey }]) => rateKey === address);
    charge.mockRestore();
    expect(charged).toEqual([]);
  });
});

describe('malformed messages', () => {
  const MALFORMED: [string, Buffer][] = [
    ['frames must be text', frame(BINARY, '["PING"]')],
    ['message is not JSON', frame(TEXT, '[')],
    ['message is not JSON', frame(TEXT, '')],
    ['message must be a JSON array', frame(TEXT, '{}')],
    ['unknown message type', frame(TEXT, '["WHAT"]')],
    ['EVENT needs an event with an id', frame(TEXT, '["EVENT",{}]')],
    ['a subscription id must be a non-empty string', frame(TEXT, '["REQ"]')],
    ['nested deeper than 16 levels', frame(TEXT, '['.repeat(60_000))],
    ['nested deeper than 16 levels', frame(TEXT, `["REQ","x",${'{"a":'.repeat(16)}1${'}'.repeat(16)}]`)],
    ['more than 10000 keys', frame(TEXT, `["REQ","x",{${'"a":1,'.repeat(10_001)}}]`)],
    ['more than 100000 values', frame(TEXT, `["REQ","x",[${'1,'.repeat(100_001)}1]]`)],
  ];

  it('get a NOTICE with the reason, and each is an offence', async () => {
    // Each is one too many.
    const offend = vi.spyOn(relay.node.work, 'offend').mockReturnValue(true);
    for (const [what, bytes] of MALFORMED) {
      const address = newAddress();
      const client = await socketFrom(address);
      client.write(bytes);
      expect(await closingOf(client), what).toEqual({
        code: POLICY,
        reason: 'rate-limited: too many malformed messages',
      });
      const notice = client.frames.find(({ opcode }) => opcode === TEXT)!;
      expect(String(notice.payload), what).toContain(what);
      expect(
        client.frames.filter(({ opcode }) => opcode === TEXT),
        what,
      ).toHaveLength(1);
      expect(offend.mock.calls.filter(([{ rateKey }]) => rateKey === address)).toHaveLength(1);
    }
    offend.mockRestore();
  });

  it('that are rare are only answered', async () => {
    const client = await clientFrom(newAddress());
    for (let times = 0; times < OFFENCES_BURST / 2; times += 1) client.send('[');
    await client.until(() => client.frames.length === OFFENCES_BURST / 2);
    await goesOn(client);
  });

  it('close the connection, then the address is refused for a while, and no other', async () => {
    const address = newAddress();
    const flood = new Array<Buffer>(OFFENCES_BURST + 2).fill(frame(TEXT, '['));
    for (let times = 0; times < 3; times += 1) {
      const client = await socketFrom(address);
      expect(client.status).toBe(101);
      client.write(...flood);
      expect((await closingOf(client)).code).toBe(POLICY);
    }
    const { status, head } = await socketFrom(address);
    expect(status).toBe(429);
    const [, seconds] = /retry-after: (\d+)/i.exec(head)!;
    expect(Number(seconds)).toBeGreaterThan(0);
    expect(Number(seconds)).toBeLessThanOrEqual(REFUSED_MS / 1_000);
    await goesOn(await clientFrom(newAddress()));
  });

  it('after those that close the connection are not processed', async () => {
    const client = await socketFrom(newAddress());
    client.write(...new Array<Buffer>(2_000).fill(frame(TEXT, '[')));
    await closingOf(client);
    const notices = client.frames.filter(({ opcode }) => opcode === TEXT).length;
    expect(notices).toBeLessThanOrEqual(OFFENCES_BURST + 2);
  });

  it('that break the protocol close the connection, and are offences', async () => {
    const BROKEN = [
      Buffer.from([0xf1, 0x80, 0, 0, 0, 0]),
      Buffer.from([0x81, 0x00]),
      frame(TEXT, Buffer.from([0xff, 0xfe])),
      frame(CONTINUATION, 'x'),
      frame(CLOSE, Buffer.from([0x03])),
      frame(TEXT, '', { claimed: 2_000_000 }),
    ];
    const address = newAddress();
    for (const bytes of BROKEN) {
      const client = await socketFrom(address);
      client.write(bytes);
      await eventually('it is closed', () => (client.gone ? true : undefined));
    }
    expect(relay.node.work.offend(keyed(address), OFFENCES_BURST - 10 * BROKEN.length + 10)).toBe(true);
  });
});

describe('invalid signatures', () => {
  const forged = () => ({ ...sign(newAuthor()), sig: '0'.repeat(128) });

  it('of events are charged and are offences', async () => {
    const address = newAddress();
    const client = await clientFrom(address);
    relay.node.work.offend(keyed(address), OFFENCES_BURST);
    expect(await client.publish(forged())).toEqual([false, 'invalid: signature verification failed']);
    await client.until(() => client.closed !== undefined);
    expect(client.closed).toEqual({
      code: POLICY,
      reason: 'rate-limited: too many signatures that do not hold',
    });
  });

  it('of AUTH too', async () => {
    const address = newAddress();
    const client = await clientFrom(address);
    client.askForChallenge();
    await client.until(() => client.challenge !== undefined);
    const tags = [
      ['relay', relay.url],
      ['challenge', client.challenge!],
    ];
    const event = { ...sign(newAuthor(), { kind: 22_242, tags }), sig: '0'.repeat(128) };
    relay.node.work.offend(keyed(address), OFFENCES_BURST);
    client.send(['AUTH', event]);
    await client.until(() => client.closed !== undefined);
    expect(client.frames.at(-1)).toEqual(['OK', event.id, false, 'invalid: signature verification failed']);
  });
});

describe('a client in debt', () => {
  it('is not read or processed until the debt is paid, and other addresses are', async () => {
    const address = newAddress();
    const [client, neighbour] = [await clientFrom(address), await clientFrom(newAddress())];
    const { work } = relay.node;
    // Paid off in ten seconds.
    work.charge(keyed(address), WORK_BURST_MS + 10 * WORK_MS_PER_SECOND);
    client.send(['REQ', 'late', { ids: ['0'.repeat(64)] }]);
    client.send(['REQ', 'later', { ids: ['0'.repeat(64)] }]);
    await goesOn(neighbour);
    expect(work.waitMs(keyed(address))).toBeGreaterThan(0);
    expect(client.frames).toEqual([]);
    await client.waitFor((answer) => answer[0] === 'EOSE' && answer[1] === 'later');
    expect(client.frames.map(([verb, id]) => [verb, id])).toEqual([
      ['EOSE', 'late'],
      ['EOSE', 'later'],
    ]);
    await goesOn(client);
  });

  it('that disconnects, later or at once, leaves nothing behind', async () => {
    for (const pauseMs of [50, 0]) {
      const address = newAddress();
      const client = await socketFrom(address);
      relay.node.work.charge(keyed(address), WORK_BURST_MS * 3);
      const before = await metric('minato_received_bytes_total');
      client.write(...new Array<Buffer>(100).fill(frame(TEXT, '["PING"]')));
      if (pauseMs > 0) await delay(pauseMs);
      client.socket.end();
      await eventually('it is gone', () => (client.gone ? true : undefined));
      await eventually('nobody is held', () => (relay.node.input.addresses === 0 ? true : undefined));
      expect(await metric('minato_received_bytes_total')).toBe(before);
    }
  });
});

async function metric(name: string): Promise<number> {
  const { values } = (await relay.node.metrics.registry.getSingleMetric(name)?.get()) ?? { values: [] };
  return values.reduce((sum, { value }) => sum + value, 0);
}

describe('an unfinished message', () => {
  it('of many fragments is closed with a reason', async () => {
    const client = await socketFrom(newAddress());
    client.write(
      frame(TEXT, '[', { fin: false }),
      ...new Array<Buffer>(FRAGMENTS_MAX + 1).fill(frame(CONTINUATION, ' ', { fin: false })),
    );
    expect(await closingOf(client)).toEqual({
      code: POLICY,
      reason: `invalid: a message of more than ${FRAGMENTS_MAX} fragments`,
    });
  });

  it('of as many fragments as some libraries make is taken', async () => {
    const client = await socketFrom(newAddress());
    const event = sign(newAuthor(), { content: 'x'.repeat(FRAGMENTS_MAX) });
    const text = JSON.stringify(['EVENT', event]);
    const size = Math.ceil(text.length / (FRAGMENTS_MAX - 1));
    const pieces = text.match(new RegExp(`.{1,${size}}`, 'gs'))!;
    for (const [place, piece] of pieces.entries()) {
      client.write(frame(place === 0 ? TEXT : CONTINUATION, piece, { fin: place === pieces.length - 1 }));
      // A ping between the fragments of a message is allowed.
      if (place % 50 === 0) client.write(frame(PING));
    }
    const ok = await eventually('its OK', () => client.frames.find(({ opcode }) => opcode === TEXT));
    expect(JSON.parse(String(ok.payload))).toEqual(['OK', event.id, true, '']);
  });

  it('has a deadline, and one that is finished has none', async () => {
    const [stuck, idle] = [await socketFrom(newAddress()), await clientFrom(newAddress())];
    await goesOn(idle);
    stuck.write(frame(TEXT, '["EVENT"', { claimed: 1_000 }));
    await eventually('it waits', () => (relay.node.input.bytes > 0 ? true : undefined));
    const real = performance.now.bind(performance);
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => real() + UNFINISHED_MS_MAX + 1_000);
    expect(await closingOf(stuck)).toEqual({
      code: POLICY,
      reason: 'invalid: a message was not finished in time',
    });
    await goesOn(idle);
    clock.mockRestore();
  });

  it('of many clients is held up to a budget, and those who hold most lose theirs', async () => {
    const PIECE = Buffer.alloc(900_000, 'x');
    const [greedy, modest] = [[newAddress(), newAddress()], newAddress()];
    const honest = await clientFrom(newAddress());
    const slow = await socketFrom(modest);
    const event = sign(newAuthor(), { content: 'x'.repeat(50_000) });
    const upload = JSON.stringify(['EVENT', event]);
    // A fragment, not a part of a frame: the socket may answer a ping in between.
    slow.write(frame(TEXT, upload.slice(0, 40_000), { fin: false }));
    const holders: RawSocket[] = [];
    while (holders.length < 160)
      holders.push(...(await Promise.all([...greedy, ...greedy, ...greedy, ...greedy].map(socketFrom))));
    let most = 0;
    for (const holder of holders) {
      holder.write(frame(TEXT, PIECE, { fin: false }));
      await new Promise((resolve) => setImmediate(resolve));
      most = Math.max(most, relay.node.input.bytes);
    }
    const rejected = () => holders.filter(({ closed }) => closed !== undefined);
    await eventually('some are closed', () => (rejected().length > 0 ? true : undefined));
    expect(most).toBeLessThanOrEqual(INPUT_BYTES_MAX);
    expect(rejected().length).toBeLessThan(holders.length);
    for (const { closed } of rejected())
      expect(closed).toEqual({
        code: POLICY,
        reason: 'rate-limited: too much input waits here; try again in a moment',
      });
    await goesOn(honest);
    // A client that holds little keeps it.
    slow.write(frame(CONTINUATION, upload.slice(40_000)));
    const ok = await eventually('its OK', () => slow.frames.find(({ opcode }) => opcode === TEXT));
    expect(JSON.parse(String(ok.payload))).toEqual(['OK', event.id, true, '']);
    for (const socket of [...holders, slow]) socket.end();
    await honest.close();
    await eventually('nothing and nobody is held', () =>
      relay.node.input.bytes + relay.node.input.addresses === 0 ? true : undefined,
    );
  });
});

describe('readers that do not read', () => {
  it('hold one portion of their answers in memory, and others are not affected', async () => {
    const author = newAuthor();
    const poster = await RawClient.connect(relay.url);
    clients.push(poster);
    const posted = Array.from({ length: 200 }, (_, place) =>
      sign(author, { content: `${place} ${'x'.repeat(60_000)}` }),
    );
    for (const event of posted) await poster.publish(event);
    const address = newAddress();
    const readers = await Promise.all(Array.from({ length: 60 }, () => clientFrom(address)));
    for (const reader of readers) {
      reader.ws.pause();
      reader.send(['REQ', 'unread', { authors: [author.pubkey] }]);
    }
    const { output } = relay.node;
    // Of each at least 64 KiB wait here.
    await eventually('they are behind', () => (output.bytes > readers.length * 65_536 ? true : undefined));
    const honest = await clientFrom(newAddress());
    for (let times = 0; times < 10; times += 1) {
      await goesOn(honest);
      expect((await honest.query({ ids: [posted[times]!.id] })).events).toHaveLength(1);
      // What each may always hold: 64 KiB, and one portion of its answer.
      expect(output.bytes).toBeLessThan(readers.length * 400_000);
    }
    for (const client of clients) client.ws.terminate();
    await eventually('nothing and nobody is held', () =>
      output.bytes + output.addresses === 0 ? true : undefined,
    );
  });
});

describe('heartbeats', () => {
  let node: TestNode;
  const TICKS = 30;
  /** Only the clock of the heartbeat is ours; everything else runs in real time. */
  const tick = async (times: number) => {
    vi.advanceTimersByTime(times * 1_000);
    await delay(100);
  };
  beforeAll(async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    node = await startTestNode();
  });
  afterAll(async () => {
    vi.useRealTimers();
    await node.close();
  });

  it('of many sockets are spread over time, one each', async () => {
    const idle = await Promise.all(
      Array.from({ length: 300 }, () => RawSocket.connect(node.node.port, newAddress())),
    );
    sockets.push(...idle);
    const pings = () => idle.map(({ frames }) => frames.filter(({ opcode }) => opcode === PING).length);
    const sum = (counts: number[]) => counts.reduce((total, count) => total + count, 0);
    for (let second = 1; second <= TICKS; second += 1) {
      await tick(1);
      await eventually('the pings of this second', () => (sum(pings()) === second * 10 ? true : undefined));
    }
    expect(pings().every((count) => count === 1)).toBe(true);
  });

  it('do not end a client that is in debt, whose pongs are not read', async () => {
    const address = newAddress();
    const client = await RawClient.connect(node.url, { 'x-forwarded-for': address });
    clients.push(client);
    node.node.work.charge(keyed(address), WORK_BURST_MS + 2_000);
    client.send(['REQ', 'paid', { ids: ['0'.repeat(64)] }]);
    await eventually('it waits', () => (node.node.input.bytes > 0 ? true : undefined));
    await tick(TICKS);
    await tick(TICKS);
    await tick(TICKS);
    await client.waitFor((answer) => answer[0] === 'EOSE');
    expect(client.closed).toBeUndefined();
  });
});
