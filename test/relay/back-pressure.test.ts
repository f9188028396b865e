/**
 * I14 at the sockets: whatever a client does or fails to do, the node holds a bounded amount for it and
 * serves the other clients.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import WebSocket from 'ws';
import { LANE_LOCK } from '../../src/events/postgres/lane/lock.js';
import { serializeEvent } from '../../src/events/rules/event.js';
import type { Submission } from '../../src/events/rules/facts.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
let relay: TestNode;

beforeAll(async () => {
  relay = await startTestNode();
});
afterAll(async () => {
  await relay.close();
});

async function eventually(condition: () => boolean | Promise<boolean>, what: string, timeoutMs = 20_000) {
  const deadline = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`did not happen: ${what}`);
    await delay(20);
  }
}

async function metric(name: string): Promise<number> {
  const { values } = (await relay.node.metrics.registry.getSingleMetric(name)?.get()) ?? { values: [] };
  return values.reduce((sum, { value }) => sum + value, 0);
}

/** The lane trusts whoever verified the signature, so these have none. */
function unsigned(pubkey: string, bytes: number, kind = 1): Submission {
  const event = {
    id: randomBytes(32).toString('hex'),
    pubkey,
    created_at: 1_700_000_000,
    kind,
    tags: [],
    content: 'x'.repeat(bytes),
    sig: '0'.repeat(128),
  };
  return { community: 1, event, payload: serializeEvent(event) };
}

describe('a reader that does not read', () => {
  it('is sent a bounded amount, then closed with the reason; others get everything', async () => {
    const pubkey = randomBytes(32).toString('hex');
    const [lazy, keen] = [await RawClient.connect(relay.url), await RawClient.connect(relay.url)];
    for (const client of [lazy, keen]) {
      client.send(['REQ', 'live', { authors: [pubkey], limit: 0 }]);
      await client.waitFor((frame) => frame[0] === 'EOSE');
    }
    lazy.ws.pause();
    const before = await metric('minato_slow_readers_total');
    let published = 0;
    const EVENT_BYTES = 50_000;
    while ((await metric('minato_slow_readers_total')) === before) {
      if (published >= 800) throw new Error('40 MB of live events waited for one reader');
      await Promise.all(
        Array.from({ length: 20 }, () => relay.node.store.submit(unsigned(pubkey, EVENT_BYTES))),
      );
      published += 20;
      await keen.until(() => keen.frames.filter((frame) => frame[0] === 'EVENT').length === published);
    }
    // It still sends something while it is being closed: no other client is affected.
    lazy.ws.ping();
    lazy.send(['CLOSE', 'other']);
    expect(await keen.publish(sign(newAuthor()))).toEqual([true, '']);
    lazy.ws.resume();
    await lazy.until(() => lazy.closed !== undefined);
    const notice = lazy.frames.at(-1)!;
    expect(notice[0]).toBe('NOTICE');
    expect(notice[1]).toMatch(/^error: .*too slowly/);
    expect(lazy.closed).toEqual({ code: 4_408, reason: 'slow reader' });
    // What it received has no gap: its backlog was dropped as a whole.
    const ids = (client: RawClient) =>
      client.frames.filter((frame) => frame[0] === 'EVENT').map((frame) => (frame[2] as { id: string }).id);
    const got = ids(lazy);
    expect(got.length).toBeLessThan(published);
    expect(got).toEqual(ids(keen).slice(0, got.length));
    await keen.close();
  });

  it('of its own OKs is not read any further until it reads', async () => {
    const client = await RawClient.connect(relay.url);
    await client.query({ ids: ['0'.repeat(64)] });
    client.ws.pause();
    const COUNT = 150_000;
    const id = 'f'.repeat(128);
    for (let sent = 0; sent < COUNT; sent++) client.send(`["EVENT",{"id":"${id}"}]`);
    // Its replies fill its share; from then on the node reads nothing more from this socket.
    let received = -1;
    await eventually(async () => {
      const now = await metric('minato_received_bytes_total');
      const stands = now === received && client.ws.bufferedAmount > 0;
      received = now;
      await delay(300);
      return stands;
    }, 'the node stops reading');
    const other = await RawClient.connect(relay.url);
    expect(await other.publish(sign(newAuthor()))).toEqual([true, '']);
    await other.close();
    const frames = client.frames.length;
    client.ws.resume();
    const oks = () => client.frames.length - frames;
    await client.until(() => oks() === COUNT, 150_000);
    expect(client.frames.slice(frames).every((frame) => frame[0] === 'OK' && frame[2] === false)).toBe(true);
    await client.close();
  });
});

describe('a socket', () => {
  it('is not compressed, even when the client offers it', async () => {
    const ws = new WebSocket(relay.url, { perMessageDeflate: true });
    let extensions: string | undefined = 'no answer';
    ws.on('upgrade', ({ headers }) => {
      extensions = headers['sec-websocket-extensions'];
    });
    await once(ws, 'open');
    expect(extensions).toBeUndefined();
    expect(ws.extensions).toBe('');
    ws.close();
    await once(ws, 'close');
  });

  describe('at the heartbeat', () => {
    let node: TestNode;
    // Only the clock of the heartbeat is ours; everything else runs in real time.
    const beat = async () => {
      vi.advanceTimersByTime(30_000);
      await delay(200);
    };
    beforeAll(async () => {
      vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
      node = await startTestNode();
    });
    afterAll(async () => {
      vi.useRealTimers();
      await node.close();
    });

    it('that never pongs is closed, and one that does stays open', async () => {
      const mute = new WebSocket(node.url, { autoPong: false });
      let dropped = false;
      mute.on('close', () => {
        dropped = true;
      });
      await once(mute, 'open');
      const healthy = await RawClient.connect(node.url);
      await beat();
      expect(dropped).toBe(false);
      await beat();
      await eventually(() => dropped, 'the mute socket is dropped');
      await beat();
      expect(healthy.closed).toBeUndefined();
      expect(await healthy.publish(sign(newAuthor()))).toEqual([true, '']);
      await healthy.close();
    });

    it('that the node itself has paused is not closed', async () => {
      const holder = new pg.Client(node.test.connection);
      await holder.connect();
      await holder.query('SELECT pg_advisory_lock($1)', [LANE_LOCK]);
      const client = await RawClient.connect(node.url);
      const author = newAuthor();
      const events = Array.from({ length: 300 }, (_, place) => sign(author, { content: `${place}` }));
      for (const event of events) client.send(['EVENT', event]);
      // As many events as one client may have in progress wait for the lane; its pongs wait behind the rest.
      await eventually(() => node.node.store.depth >= 200, 'events wait for the lane');
      await beat();
      await beat();
      await holder.query('SELECT pg_advisory_unlock($1)', [LANE_LOCK]);
      await holder.end();
      await client.until(() => client.closed !== undefined || client.frames.length === events.length);
      expect(client.closed).toBeUndefined();
      expect(client.frames.filter((frame) => frame[0] === 'OK' && frame[2] === true)).toHaveLength(300);
      await client.close();
    });
  });
});

describe('a flood', () => {
  it('of bad signatures and duplicates is answered one by one, and another client gets its OK', async () => {
    const author = newAuthor();
    const known = sign(author, { content: 'known' });
    const client = await RawClient.connect(relay.url);
    expect(await client.publish(known)).toEqual([true, '']);
    const flooders = await Promise.all(Array.from({ length: 20 }, () => RawClient.connect(relay.url)));
    const template = sign(author, { content: 'forged' });
    const PAIRS = 200;
    const forged = (flooder: number, place: number) => ({
      ...template,
      sig: [flooder, place].map((n) => n.toString(16).padStart(4, '0')).join('') + template.sig.slice(8),
    });
    flooders.forEach((flooder, number) => {
      for (let place = 0; place < PAIRS; place++) {
        flooder.send(['EVENT', forged(number, place)]);
        flooder.send(['EVENT', known]);
      }
    });
    expect(await client.publish(sign(author, { content: 'in the middle' }))).toEqual([true, '']);
    for (const flooder of flooders) {
      await flooder.until(() => flooder.frames.length === 2 * PAIRS, 30_000);
      const answers = new Map<string, number>();
      for (const [type, id, accepted, message] of flooder.frames) {
        const key = [
          type,
          id === known.id ? 'known' : 'forged',
          accepted,
          String(message).split(':')[0],
        ].join(' ');
        answers.set(key, (answers.get(key) ?? 0) + 1);
      }
      expect(Object.fromEntries(answers)).toEqual({
        'OK known true duplicate': PAIRS,
        'OK forged false invalid': PAIRS,
      });
      await flooder.close();
    }
    expect((await client.query({ ids: [template.id] })).events).toEqual([]);
    await client.close();
  });

  it('of subscriptions opened and closed leaves nothing behind', async () => {
    const client = await RawClient.connect(relay.url);
    const index = relay.node.fanout.index(1);
    const open = index.size;
    for (let number = 0; number < 3_000; number++) {
      client.send(['REQ', `s${number}`, { kinds: [number % 50] }, { '#t': [`t${number}`] }]);
      client.send(['CLOSE', `s${number}`]);
    }
    expect((await client.query({ ids: ['0'.repeat(64)], limit: 1 })).events).toEqual([]);
    await eventually(() => index.size === open, 'every subscription is gone from the index');
    await eventually(async () => (await metric('minato_subscriptions')) === open, 'and from the metrics');
    await client.close();
  });

  it('of subscriptions left open is bounded per connection, and they end with the socket', async () => {
    const client = await RawClient.connect(relay.url);
    const index = relay.node.fanout.index(1);
    const open = index.size;
    for (let number = 0; number < 250; number++)
      client.send(['REQ', `s${number}`, { kinds: [7_000 + number], limit: 1 }]);
    await client.until(
      () => client.frames.filter((frame) => frame[0] === 'EOSE' || frame[0] === 'CLOSED').length === 250,
    );
    const closed = client.frames.filter((frame) => frame[0] === 'CLOSED');
    expect(closed).toHaveLength(50);
    for (const frame of closed) expect(frame[2]).toMatch(/^rate-limited: more than 200 open subscriptions/);
    expect(index.size).toBe(open + 200);
    await client.close();
    await eventually(() => index.size === open, 'the subscriptions are gone');
  });
});

describe('the memory of a node', () => {
  let child: ChildProcess;
  let url: string;
  let logged = '';

  beforeAll(async () => {
    child = spawn(process.execPath, ['bin/minato.js', 'serve'], {
      cwd: root,
      env: {
        ...process.env,
        DATABASE_URL: relay.test.url,
        MINATO_DATA_DIR: `${relay.test.folder}-served`,
        MINATO_PORT: '0',
        MINATO_TOPIC_MODE: 'open',
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    child.stderr!.on('data', (data) => {
      logged += data;
    });
    for await (const line of createInterface({ input: child.stdout! })) {
      logged += `${line}\n`;
      const address = /"address":"(ws:[^"]+)"/.exec(line)?.[1];
      if (address !== undefined) {
        url = address;
        break;
      }
    }
    if (url === undefined) throw new Error(`the node did not start: ${logged}`);
    child.stdout!.resume();
  });
  afterAll(async () => {
    if (child.exitCode !== null) return;
    child.kill('SIGTERM');
    await once(child, 'exit');
  });

  const memoryMB = async (field: 'VmRSS' | 'VmHWM') => {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
    return Number(new RegExp(`${field}:\\s+(\\d+) kB`).exec(status)?.[1]) / 1_024;
  };
  /** The kernel then counts the peak from now on. */
  const forgetPeak = () => writeFile(`/proc/${child.pid}/clear_refs`, '5');
  const isLinux = process.platform === 'linux';

  it.runIf(isLinux)('stays flat while a slow reader takes 5,000 events of 20 kB', async () => {
    const pubkey = randomBytes(32).toString('hex');
    for (let batch = 0; batch < 25; batch++) {
      await Promise.all(Array.from({ length: 200 }, () => relay.node.store.submit(unsigned(pubkey, 20_000))));
    }
    const reader = await RawClient.connect(url);
    await reader.query({ ids: ['0'.repeat(64)] });
    await forgetPeak();
    const before = await memoryMB('VmRSS');
    reader.ws.pause();
    reader.send(['REQ', 'all', { authors: [pubkey], limit: 5_000 }]);
    await delay(1_500);
    const others = await RawClient.connect(url);
    expect(await others.publish(sign(newAuthor()))).toEqual([true, '']);
    const stalled = await memoryMB('VmRSS');
    expect(stalled - before).toBeLessThan(60);
    // Reads a little, rests a little.
    let resting = true;
    const sip = (async () => {
      while (resting) {
        reader.ws.resume();
        await delay(10);
        reader.ws.pause();
        await delay(10);
      }
      reader.ws.resume();
    })();
    await reader.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'all', 0, 40_000);
    resting = false;
    await sip;
    expect(reader.frames.filter((frame) => frame[0] === 'EVENT')).toHaveLength(5_000);
    expect((await memoryMB('VmHWM')) - before).toBeLessThan(150);
    await reader.close();
    await others.close();
  });

  it.runIf(isLinux)('stays flat while clients send and never read', async () => {
    await forgetPeak();
    const before = await memoryMB('VmRSS');
    const clients = await Promise.all(Array.from({ length: 6 }, () => RawClient.connect(url)));
    const frame = `["EVENT",{"id":"${'e'.repeat(128)}"}]`;
    // Each asks for some 28 MB of answers, more than the kernel's buffers hold.
    for (const client of clients) {
      client.ws.pause();
      for (let sent = 0; sent < 150_000; sent++) client.send(frame);
    }
    await delay(2_500);
    const healthy = await RawClient.connect(url);
    expect(await healthy.publish(sign(newAuthor()))).toEqual([true, '']);
    for (const client of clients) expect(client.ws.bufferedAmount).toBeGreaterThan(0);
    expect((await memoryMB('VmHWM')) - before).toBeLessThan(80);
    for (const client of clients) client.ws.terminate();
    await healthy.close();
  });
});
