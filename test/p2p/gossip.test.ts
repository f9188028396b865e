/**
 * Three nodes as processes on loopback: what is posted at one reaches clients of the others, and acts there
 * as it does here. The first node knows nobody; the others have its ticket.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually, runCli } from '../support/cli.js';
import type { RawClient } from '../support/clients/client.js';
import { connect, GossipNode, newTopic } from '../support/domains/gossip.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { type Loopback, openLoopback } from '../support/servers/loopback.js';

const CHAT = newTopic();
const NEWS = newTopic();
const FAR = { timeout: 100_000 };

let net: Loopback;
let nodes: [GossipNode, GossipNode, GossipNode];
let clients: RawClient[];

beforeAll(async () => {
  net = await openLoopback();
  const topics = [CHAT, NEWS];
  nodes = [
    await GossipNode.start(net, { topics }),
    await GossipNode.start(net, { topics }),
    await GossipNode.start(net, { topics }),
  ];
  await connect(nodes);
  // The shipped node carries kukuri:global too.
  for (const node of nodes) await node.settled(2, 3);
  clients = [];
  for (const node of nodes) clients.push(await node.connect());
});

afterAll(async () => {
  for (const client of clients ?? []) await client.close();
  for (const node of nodes ?? []) await node.close();
  await net?.close();
});

const inTopic = (author: Author, draft: Parameters<typeof sign>[1] = {}, topic = CHAT) =>
  sign(author, { ...draft, tags: [['t', topic], ...(draft.tags ?? [])] });

/** Waits until the clients of these nodes have found it. */
async function arrives(id: string, at: readonly number[] = [1, 2]): Promise<void> {
  for (const place of at)
    await eventually(`node ${place} has the event`, async () => {
      const { events } = await clients[place]!.query({ ids: [id], '#t': [CHAT, NEWS] });
      return events.length === 1 ? true : undefined;
    });
}

const idsAt = async (place: number, filter: object) =>
  (await clients[place]!.query(filter)).events.map(({ id }) => id);

describe('an event posted at one node', () => {
  it.each([1, 3_000, 5_000, 90_000])(
    'arrives at the others with %i characters of content',
    async (length) => {
      const event = inTopic(newAuthor(), { content: 'ü'.repeat(Math.ceil(length / 2)) });
      expect(await clients[0]!.publish(event)).toEqual([true, '']);
      await arrives(event.id);
      const { events } = await clients[1]!.query({ ids: [event.id], '#t': [CHAT] });
      expect(events).toEqual([event]);
    },
  );

  it('arrives live, also ephemeral, from every node to every other', async () => {
    const author = newAuthor();
    for (const client of clients) {
      client.send(['REQ', 'live', { authors: [author.pubkey], '#t': [CHAT], limit: 0 }]);
      await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'live');
    }
    const sent = clients.flatMap((client) =>
      [1, 20_001].map((kind) => ({ client, event: inTopic(author, { kind }) })),
    );
    for (const { client, event } of sent) expect(await client.publish(event)).toEqual([true, '']);
    const ids = sent.map(({ event }) => event.id).sort();
    for (const client of clients) {
      const live = () =>
        client.frames.flatMap((f) =>
          f[0] === 'EVENT' && f[1] === 'live' ? [(f[2] as { id: string }).id] : [],
        );
      await client.until(() => live().length >= ids.length, 60_000);
      expect(live().sort()).toEqual(ids);
      client.send(['CLOSE', 'live']);
    }
  });

  it('takes its deletion along, which needs no topic', async () => {
    const author = newAuthor();
    const event = inTopic(author);
    await clients[0]!.publish(event);
    await arrives(event.id);
    const deletion = sign(author, { kind: 5, tags: [['e', event.id]] });
    expect(await clients[0]!.publish(deletion)).toEqual([true, '']);
    for (const place of [1, 2]) {
      await expect.poll(() => idsAt(place, { ids: [event.id], '#t': [CHAT] }), FAR).toEqual([]);
      expect(await idsAt(place, { kinds: [5], authors: [author.pubkey] })).toEqual([deletion.id]);
      expect(await clients[place]!.publish(event)).toEqual([false, 'blocked: deleted by its author']);
    }
  });

  it('stays out of topics where it does not belong, and of private ones', async () => {
    const author = newAuthor();
    const secret = newTopic();
    await nodes[0].carry(secret, {}, false);
    await nodes[1].carry(secret, {}, false);
    const both = inTopic(author, { tags: [['t', secret]] });
    await eventually('the topic is carried', async () => {
      const [accepted] = await clients[0]!.publish(inTopic(author, {}, secret));
      return accepted || undefined;
    });
    expect(await clients[0]!.publish(both)).toEqual([true, '']);
    const last = inTopic(author);
    await clients[0]!.publish(last);
    await arrives(last.id);
    expect(await idsAt(1, { authors: [author.pubkey], '#t': [CHAT, secret] })).toEqual([last.id]);
  });

  it('is not sent if it is private, protected or without a topic', async () => {
    const author = newAuthor();
    const other = newAuthor();
    const kept = [
      inTopic(author, { kind: 4, tags: [['p', other.pubkey]] }),
      inTopic(author, { kind: 1_059, tags: [['p', other.pubkey]] }),
      sign(author, { kind: 0, content: '{}' }),
    ];
    for (const event of kept) expect(await clients[0]!.publish(event)).toEqual([true, '']);
    const last = inTopic(author);
    await clients[0]!.publish(last);
    await arrives(last.id);
    const { rows } = await nodes[1].pool.query<{ id: string }>(
      `SELECT encode(event_id, 'hex') AS id FROM event_dedupe WHERE author = decode($1, 'hex')`,
      [author.pubkey],
    );
    expect(rows.map(({ id }) => id)).toEqual([last.id]);
  });
});

describe('requests to vanish', () => {
  it('travel with ALL_RELAYS only', async () => {
    const [gone, stays] = [newAuthor(), newAuthor()];
    const events = [inTopic(gone), inTopic(stays)];
    for (const event of events) {
      await clients[0]!.publish(event);
      await arrives(event.id);
    }
    const vanish = (author: Author, relay: string) => sign(author, { kind: 62, tags: [['relay', relay]] });
    const { ticket } = await nodes[0].ticket();
    expect(await clients[0]!.publish(vanish(stays, ticket.urls[0]!))).toEqual([true, '']);
    expect(await clients[0]!.publish(vanish(gone, 'ALL_RELAYS'))).toEqual([true, '']);
    for (const place of [1, 2]) {
      await expect.poll(() => idsAt(place, { authors: [gone.pubkey], '#t': [CHAT] }), FAR).toEqual([]);
      expect(await idsAt(place, { authors: [stays.pubkey], '#t': [CHAT] })).toEqual([events[1]!.id]);
    }
  });
});

describe('topics', () => {
  it('are joined and left as the node carries them, up to the cap', async () => {
    const author = newAuthor();
    const late = newTopic();
    for (const place of [0, 1] as const) await nodes[place].carry(late);
    await eventually('both have joined', async () => {
      const states = await Promise.all([nodes[0].state(), nodes[1].state()]);
      return states.every((state) => state?.topics === 4) || undefined;
    });
    await expect
      .poll(async () => {
        const event = inTopic(author, {}, late);
        await clients[0]!.publish(event);
        return (await idsAt(1, { authors: [author.pubkey], '#t': [late] })).length;
      }, FAR)
      .toBeGreaterThan(0);
    await nodes[1].set('p2p.topicsMax', 2);
    await expect.poll(async () => (await nodes[1].state())?.topics, FAR).toBe(2);
    expect((await nodes[1].state())?.topicsWanted).toBe(4);
    await nodes[1].set('p2p.topicsMax', 200);
    await expect.poll(async () => (await nodes[1].state())?.topics, FAR).toBe(4);
  });
});

describe('a restart', () => {
  it('sends what was committed meanwhile once, and nothing again', async () => {
    const author = newAuthor();
    const before = inTopic(author);
    await clients[1]!.publish(before);
    await arrives(before.id, [0, 2]);
    await nodes[1].drained();
    await clients[1]!.close();
    await nodes[1].end();
    const lines = Array.from({ length: 20 }, () => inTopic(author));
    const text = lines.map((event) => `${JSON.stringify(event)}\n`).join('');
    const env = { DATABASE_URL: nodes[1].test.url, MINATO_TOPIC_MODE: 'required' };
    const imported = await runCli(['import', '-'], env, text);
    expect(imported.code).toBe(0);
    await nodes[1].run();
    clients[1] = await nodes[1].connect();
    for (const event of lines) await arrives(event.id, [0, 2]);
    await nodes[1].drained();
    await expect.poll(async () => (await nodes[1].state())?.counts.sentEvents, FAR).toBe(lines.length);
  });

  it('after a kill skips nothing', async () => {
    const author = newAuthor();
    const sent = Array.from({ length: 30 }, () => inTopic(author));
    await Promise.all(sent.slice(0, 15).map((event) => clients[2]!.publish(event)));
    await nodes[2].end('SIGKILL');
    await nodes[2].run();
    clients[2] = await nodes[2].connect();
    await Promise.all(sent.slice(15).map((event) => clients[2]!.publish(event)));
    for (const event of sent) await arrives(event.id, [0, 1]);
  });
});

describe('an operator', () => {
  it('sees what gossip does, joins by ticket and leaves', async () => {
    const env = { DATABASE_URL: nodes[2].test.url };
    // Its peers may just have come back.
    const printed = (command: string) =>
      expect.poll(async () => (await runCli(['p2p', command], env)).stdout, { interval: 500 });
    await printed('status').toMatch(/topics +3\n/);
    await printed('status').toMatch(/gossip +on\n/);
    await printed('status').toContain('which this binding cannot switch off');
    await printed('peers').toContain('connected');
    const ticket = (await runCli(['p2p', 'ticket'], env)).stdout.trim();
    expect(ticket).toBe((await nodes[2].ticket()).text);
    expect(await runCli(['p2p', 'join', 'minato1nonsense'], env)).toMatchObject({ code: 1 });
    const joined = await runCli(['p2p', 'join', ticket], { DATABASE_URL: nodes[1].test.url });
    expect(joined).toMatchObject({ code: 0 });
    const left = await runCli(['p2p', 'leave'], { DATABASE_URL: nodes[1].test.url });
    expect(left.stdout).toBe('left; 0 known\n');
  });
});
