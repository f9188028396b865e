/** Peers that hang, lie or flood: they never hang or flood the node. And peers on a schedule. */
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type WebSocket from 'ws';
import { WebSocketServer } from 'ws';
import { changeNodeSetting } from '../../src/communities/node-settings.sql.js';
import { changeSetting } from '../../src/communities/settings.sql.js';
import { lookupFor } from '../../src/sync/address.js';
import { startPeerSchedule } from '../../src/sync/schedule.js';
import { readRuns } from '../../src/sync/sync.sql.js';
import { eventually, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { idsOf, openSyncing, type Syncing, someEvents, store } from '../support/domains/sync.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase } from '../support/servers/database.js';
import { freePort } from '../support/servers/free-port.js';

let node: TestNode;
let syncing: Syncing;
/** Short, because these peers never answer. */
const ANSWER_MS = 400;

beforeAll(async () => {
  node = await startTestNode({ jobs: [] });
  syncing = await openSyncing(node);
  await store(syncing, someEvents(200));
});
afterAll(async () => {
  await syncing.close();
  await node.close();
});

type Frame = [string, ...unknown[]];
type Answer = (frame: Frame, send: (frame: unknown) => void, socket: WebSocket) => void;

/** A relay that says what a test wants, and claims NIP-77. */
async function liar(
  answer: Answer,
  nips = [1, 77],
  greeting?: unknown,
): Promise<{ url: string; close: () => Promise<void> }> {
  const http = createHttpServer((_request, response) => {
    response.setHeader('content-type', 'application/nostr+json');
    response.end(JSON.stringify({ supported_nips: nips }));
  }).listen(0, '127.0.0.1');
  await once(http, 'listening');
  const wss = new WebSocketServer({ server: http });
  wss.on('connection', (socket) => {
    if (greeting !== undefined) socket.send(JSON.stringify(greeting));
    socket.on('message', (data) =>
      answer(JSON.parse(String(data)) as Frame, (frame) => socket.send(JSON.stringify(frame)), socket),
    );
    socket.on('error', () => undefined);
  });
  const { port } = http.address() as AddressInfo;
  return {
    url: `ws://127.0.0.1:${port}`,
    close: () => {
      for (const socket of wss.clients) socket.terminate();
      http.closeAllConnections();
      return new Promise((resolve) => http.close(() => resolve()));
    },
  };
}

async function syncWith(answer: Answer, nips?: number[], greeting?: unknown) {
  const peer = await liar(answer, nips, greeting);
  try {
    return await syncing.sync(peer.url, { answerMs: ANSWER_MS, direction: 'both' });
  } finally {
    await peer.close();
  }
}

/** A list of ids for everything, as negentropy spells it. */
const idList = (ids: readonly string[]) => {
  const count = ids.length;
  const digits = count < 128 ? [count] : [(count >> 7) | 128, count & 127];
  return `61000002${Buffer.from(digits).toString('hex')}${ids.join('')}`;
};
const randomId = () => Buffer.from(Array.from({ length: 32 }, () => Math.random() * 256)).toString('hex');

describe('a peer that hangs', () => {
  it('before the handshake', async () => {
    const server: Server = createServer(() => undefined).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as { port: number };
    const result = await syncing.sync(`ws://127.0.0.1:${port}`, { answerMs: ANSWER_MS });
    expect(result).toMatchObject({ ended: 'failed', why: expect.stringContaining('cannot be reached') });
    server.close();
  });

  it('after the handshake, and in the middle of a session', async () => {
    expect(await syncWith(() => undefined)).toMatchObject({
      ended: 'failed',
      why: expect.stringContaining('did not answer'),
    });
    const once = await syncWith((frame, send) => {
      // Another fingerprint for everything: then silence.
      if (frame[0] === 'NEG-OPEN') send(['NEG-MSG', frame[1], `61000001${'00'.repeat(16)}`]);
    });
    expect(once).toMatchObject({ ended: 'failed', why: expect.stringContaining('did not answer') });
  });

  it('but talks about something else all the time', async () => {
    const result = await syncWith((frame, send, socket) => {
      if (frame[0] !== 'NEG-OPEN') return;
      const timer = setInterval(() => send(['NOTICE', 'one moment']), 20);
      socket.on('close', () => clearInterval(timer));
    });
    expect(result).toMatchObject({ ended: 'failed', why: expect.stringContaining('did not answer') });
  });

  it('because its process is stopped (SIGSTOP)', async () => {
    const database = await createTestDatabase();
    const port = await freePort();
    const relay = startCli(['serve'], {
      DATABASE_URL: database.url,
      MINATO_PORT: String(port),
      MINATO_DATA_DIR: database.folder,
      MINATO_LOG_LEVEL: 'error',
    });
    const url = `ws://127.0.0.1:${port}`;
    try {
      await eventually('the relay answers', async () => {
        const client = await RawClient.connect(url).catch(() => undefined);
        await client?.close();
        return client;
      });
      relay.child.kill('SIGSTOP');
      const result = await syncing.sync(url, { answerMs: ANSWER_MS });
      expect(result.ended).toBe('failed');
    } finally {
      relay.child.kill('SIGCONT');
      relay.child.kill('SIGTERM');
      await relay.ended;
      await database.drop();
    }
  });
});

describe('a peer that lies', () => {
  it('about ids: what it promises and does not deliver is counted, and bounded', async () => {
    let opened = 0;
    const result = await syncWith((frame, send) => {
      if (frame[0] === 'NEG-OPEN') {
        opened += 1;
        send(['NEG-MSG', frame[1], idList(Array.from({ length: 500 }, randomId))]);
      }
      if (frame[0] === 'REQ') send(['EOSE', frame[1]]);
      if (frame[0] === 'EVENT') send(['OK', (frame[1] as { id: string }).id, false, 'blocked: no']);
    });
    expect(result).toMatchObject({ ended: 'complete', stored: 0, sent: 0 });
    expect(result.missing).toBe(500 * opened);
  });

  it('with rounds that never end', async () => {
    let rounds = 0;
    const result = await syncWith((frame, send) => {
      if (frame[0] === 'NEG-CLOSE') return;
      rounds += 1;
      send(['NEG-MSG', frame[1], `61000001${rounds.toString(16).padStart(32, '0')}`]);
    });
    expect(result).toMatchObject({ ended: 'failed', why: expect.stringContaining('do not come to an end') });
    expect(rounds).toBeLessThan(500);
  });

  it('with events that nobody asked for', async () => {
    const strange = someEvents(300);
    const result = await syncWith((frame, send) => {
      if (frame[0] === 'NEG-OPEN') send(['NEG-MSG', frame[1], idList([randomId()])]);
      if (frame[0] === 'EVENT') send(['OK', (frame[1] as { id: string }).id, true, '']);
      if (frame[0] === 'REQ') for (const event of strange) send(['EVENT', frame[1], event]);
    });
    expect(result).toMatchObject({
      ended: 'failed',
      stored: 0,
      why: expect.stringContaining('not asked for'),
    });
    const client = await RawClient.connect(node.url);
    expect((await client.query({ ids: idsOf(strange).slice(0, 100) })).events).toEqual([]);
    await client.close();
  });

  it('with forged events', async () => {
    const forged = someEvents(100).map((event) => ({ ...event, content: 'not what was signed' }));
    const result = await syncWith((frame, send) => {
      if (frame[0] === 'NEG-OPEN') send(['NEG-MSG', frame[1], idList(forged.map(({ id }) => id))]);
      if (frame[0] !== 'REQ') return;
      const { ids = [] } = frame[2] as { ids?: string[] };
      for (const event of forged) if (ids.includes(event.id)) send(['EVENT', frame[1], event]);
      send(['EOSE', frame[1]]);
    });
    expect(result).toMatchObject({ ended: 'failed', stored: 0, why: expect.stringContaining('forged') });
  });

  it('with a giant frame, broken JSON, or a broken message', async () => {
    const giant = await syncWith((frame, _send, socket) => {
      if (frame[0] === 'NEG-OPEN')
        socket.send(`["NEG-MSG","${String(frame[1])}","${'61'.repeat(2_000_000)}"]`);
    });
    expect(giant.ended).toBe('failed');
    const broken = await syncWith((_frame, _send, socket) => {
      for (let at = 0; at < 200; at += 1) socket.send('{');
    });
    expect(broken).toMatchObject({ ended: 'failed', why: expect.stringContaining('misbehaves') });
    const nonsense = await syncWith((frame, send) => send(['NEG-MSG', frame[1], '6100ff']));
    expect(nonsense).toMatchObject({ ended: 'failed', why: expect.stringContaining('misbehaves') });
  });

  it('by pages: it ignores until, and sends the same page again and again', async () => {
    const page = someEvents(50, { span: 1 });
    let requests = 0;
    const result = await syncWith(
      (frame, send) => {
        if (frame[0] === 'EVENT') send(['OK', (frame[1] as { id: string }).id, true, '']);
        if (frame[0] !== 'REQ') return;
        requests += 1;
        for (const event of page) send(['EVENT', frame[1], event]);
        send(['EOSE', frame[1]]);
      },
      [1],
    );
    expect(result).toMatchObject({ method: 'pages' });
    expect(requests).toBeLessThan(50);
  });
});

describe('a peer that does not know negentropy', () => {
  it('and says so in a notice, or says nothing, is read by pages', async () => {
    const [event] = someEvents(1);
    const pages = (frame: Frame, send: (frame: unknown) => void) => {
      if (frame[0] === 'EVENT') send(['OK', (frame[1] as { id: string }).id, true, '']);
      if (frame[0] !== 'REQ') return;
      const { until = 0, kinds } = frame[2] as { until?: number; kinds?: number[] };
      if (until >= event!.created_at && kinds === undefined) send(['EVENT', frame[1], event]);
      send(['EOSE', frame[1]]);
    };
    const notice = await syncWith((frame, send) => {
      if (frame[0] === 'NEG-OPEN') send(['NOTICE', 'unknown command NEG-OPEN']);
      else pages(frame, send);
    });
    expect(notice).toMatchObject({ ended: 'complete', method: 'pages', stored: 1 });
    const silent = await syncWith((frame, send) => {
      if (frame[0] !== 'NEG-OPEN') pages(frame, send);
    }, []);
    expect(silent).toMatchObject({ ended: 'complete', method: 'pages' });
  });
});

describe('a relay without topics', () => {
  it('is asked by their targets for the deletions of events that only this node has', async () => {
    const author = newAuthor();
    const [deleted, kept] = someEvents(2, { author, tags: [['t', 'harbour']] });
    const article = sign(author, {
      kind: 30_023,
      created_at: nowSeconds() - 100,
      tags: [
        ['d', 'a'],
        ['t', 'harbour'],
      ],
    });
    await store(syncing, [deleted!, kept!, article]);
    const address = `30023:${author.pubkey}:a`;
    const requests = [
      sign(author, { kind: 5, tags: [['e', deleted!.id]] }),
      sign(author, { kind: 5, tags: [['a', address]] }),
    ];
    const peer = await liar(
      (frame, send) => {
        if (frame[0] === 'EVENT') send(['OK', (frame[1] as { id: string }).id, true, '']);
        if (frame[0] !== 'REQ') return;
        const { '#e': ids = [], '#a': addresses = [] } = frame[2] as { '#e'?: string[]; '#a'?: string[] };
        if (ids.includes(deleted!.id)) send(['EVENT', frame[1], requests[0]]);
        if (addresses.includes(address)) send(['EVENT', frame[1], requests[1]]);
        send(['EOSE', frame[1]]);
      },
      [1],
    );
    const result = await syncing.sync(peer.url, { direction: 'both', topics: ['harbour'] });
    await peer.close();
    expect(result).toMatchObject({ ended: 'complete', method: 'pages', stored: 2, sent: 1 });
    const client = await RawClient.connect(node.url);
    const { events } = await client.query({ authors: [author.pubkey], '#t': ['harbour'] });
    expect(idsOf(events)).toEqual([kept!.id]);
    await client.close();
  });
});

describe('a peer that asks for a key', () => {
  it('only at the beginning gets the proof once an answer needs it, and one only', async () => {
    const proofs: { kind: number; tags: string[][] }[] = [];
    const result = await syncWith(
      (frame, send) => {
        if (frame[0] === 'AUTH') {
          const proof = frame[1] as { id: string; kind: number; tags: string[][] };
          proofs.push(proof);
          send(['OK', proof.id, true, '']);
        } else if (proofs.length === 0) send(['NEG-ERR', frame[1], 'auth-required: who are you?']);
        else if (frame[0] === 'NEG-OPEN') send(['NEG-MSG', frame[1], '61']);
      },
      [1, 77],
      ['AUTH', 'a challenge'],
    );
    expect(result).toMatchObject({ ended: 'complete', method: 'negentropy' });
    expect(proofs).toHaveLength(1);
    expect(proofs[0]).toMatchObject({
      kind: 22_242,
      tags: expect.arrayContaining([['challenge', 'a challenge']]),
    });
  });
});

describe('addresses', () => {
  it('peers are not on this machine or in a private network, unless the node allows it', () => {
    for (const host of [
      '127.0.0.1',
      '10.1.2.3',
      '192.168.0.1',
      '[::1]',
      '[fd00::1]',
      '169.254.169.254',
      '0.0.0.0',
    ])
      expect(() => lookupFor(`ws://${host}:7447`, false), host).toThrow(/private network/);
    expect(lookupFor('ws://127.0.0.1:7447', true)).toBeUndefined();
    const lookup = lookupFor('ws://localhost:7447', false)!;
    return new Promise<void>((resolve) => {
      lookup('localhost', {}, (error) => {
        expect(String(error)).toMatch(/private network/);
        resolve();
      });
    });
  });
});

describe('the schedule', () => {
  it('a due peer is synced by one instance and recorded; a private one needs the node', async () => {
    const other = await startTestNode({ jobs: [] });
    const filling = await openSyncing(other);
    const author = newAuthor();
    const events = someEvents(5, { author });
    await store(filling, events);
    const community = node.node.communities.find(undefined, undefined)!.id;
    const url = `${other.url}/`;
    const peers = [{ url, direction: 'down', everyMinutes: 1, topics: [] }];
    await changeSetting(node.database.pool, { community, key: 'sync.peers', value: peers }, Date.now());
    const stops = [1, 2].map(() =>
      startPeerSchedule({ database: node.database, parts: syncing.parts, lookMs: 20 }),
    );
    const ended = (outcome: RegExp) =>
      eventually('the sync ended', async () => {
        const [run] = await readRuns(node.database.pool, community);
        return run !== undefined && run.finishedAt !== null && outcome.test(run.outcome) ? run : undefined;
      });
    await ended(/^failed: .*private network/);
    await changeNodeSetting(node.database.pool, { key: 'node.syncPrivatePeers', value: true }, Date.now());
    await eventually(
      'private peers are allowed',
      () => syncing.writer.communities.node()['node.syncPrivatePeers'] || undefined,
    );
    await node.database.pool.query('UPDATE sync_runs SET started_at = 0');
    expect(await ended(/^complete$/)).toMatchObject({ url, counts: { stored: 5 } });
    await Promise.all(stops.map((stop) => stop()));
    const client = await RawClient.connect(node.url);
    expect(idsOf((await client.query({ authors: [author.pubkey] })).events)).toEqual(idsOf(events));
    await client.close();
    await filling.close();
    await other.close();
  });
});

describe('low priority', () => {
  it('stops first when capacity is short, and says so', async () => {
    const other = await startTestNode({ jobs: [] });
    const filling = await openSyncing(other);
    await store(filling, [sign(newAuthor(), { created_at: nowSeconds() - 10 })]);
    const parts = { ...syncing.parts, diskLevel: () => 1 as const };
    const { syncWithPeer } = await import('../../src/sync/exchange.js');
    const result = await syncWithPeer(
      { community: node.node.communities.find(undefined, undefined)!.id, url: other.url, direction: 'down' },
      parts,
      { signal: new AbortController().signal, isLowPriority: true, allowsPrivate: true },
    );
    expect(result).toMatchObject({
      ended: 'stopped',
      stored: 0,
      why: 'capacity is short: backfill stops first',
    });
    await filling.close();
    await other.close();
  });
});
