/**
 * Nodes end with the same view of a topic, by the real engine of sync: one that was away, whether it knows
 * the others or they know it, and a new one. Views are compared by a hash of everything that a client is
 * served.
 */
import { createHash, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, GossipNode, newTopic } from '../support/domains/gossip.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { type Loopback, openLoopback } from '../support/servers/loopback.js';

const TOPIC = newTopic();
const FAR = { timeout: 170_000 };
const settings = { 'node.syncPrivatePeers': true };

let net: Loopback;
let first: GossipNode;
let second: GossipNode;

beforeAll(async () => {
  net = await openLoopback();
  first = await GossipNode.start(net, { topics: [TOPIC], settings });
  second = await GossipNode.start(net, { topics: [TOPIC], settings });
  // The second one knows the first one; the first one knows nobody.
  await connect([first, second]);
  for (const node of [first, second]) await node.settled(1, 2);
});

afterAll(async () => {
  for (const node of [first, second]) await node?.close();
  await net?.close();
});

async function view(node: GossipNode): Promise<{ readonly ids: string[]; readonly hash: string }> {
  const client = await node.connect();
  const { events } = await client.query({ '#t': [TOPIC], limit: 5_000 });
  await client.close();
  const served = events.map((event) => JSON.stringify(event)).sort();
  const hash = createHash('sha256').update(served.join('\n')).digest('hex');
  return { ids: events.map(({ id }) => id), hash };
}

async function sameView(node: GossipNode, other: GossipNode): Promise<string[]> {
  const wanted = await view(other);
  await expect.poll(async () => (await view(node)).hash, FAR).toBe(wanted.hash);
  return wanted.ids;
}

const inTopic = (author: Author, draft: Parameters<typeof sign>[1] = {}) =>
  sign(author, { ...draft, tags: [['t', TOPIC], ...(draft.tags ?? [])] });

/** Posts, a replacement and a deletion of the oldest of the given events. Returns the posts that are left. */
async function live(node: GossipNode, author: Author, oldest?: string): Promise<string[]> {
  const client = await node.connect();
  const created_at = Math.floor(Date.now() / 1_000) - 5;
  const posts = Array.from({ length: 20 }, (_, at) =>
    inTopic(author, { content: `${at} ${randomUUID()}`, created_at }),
  );
  const versions = [0, 1].map((at) =>
    inTopic(author, { kind: 30_023, created_at: created_at + at, tags: [['d', posts[0]!.id]] }),
  );
  const doomed = oldest ?? posts.pop()!.id;
  if (oldest === undefined) await client.publish(inTopic(author, { content: randomUUID(), created_at }));
  for (const event of [...posts, ...versions]) expect(await client.publish(event)).toEqual([true, '']);
  expect(await client.publish(sign(author, { kind: 5, tags: [['e', doomed]] }))).toEqual([true, '']);
  await client.close();
  return posts.map(({ id }) => id);
}

describe('a node that was away', () => {
  it('ends with the same view as the node whose ticket it has', async () => {
    const author = newAuthor();
    const [old] = await live(first, author);
    await sameView(second, first);
    await second.end('SIGKILL');
    const posts = await live(first, author, old);
    await second.run();
    const ids = await sameView(second, first);
    expect(ids).toEqual(expect.arrayContaining(posts));
    expect(ids).not.toContain(old);
  });

  it('ends with the same view as a node that has its ticket, though it knows nobody', async () => {
    const author = newAuthor();
    const [old] = await live(second, author);
    await sameView(first, second);
    await first.end('SIGKILL');
    const posts = await live(second, author, old);
    await first.run();
    const ids = await sameView(first, second);
    expect(ids).toEqual(expect.arrayContaining(posts));
    expect(ids).not.toContain(old);
  });
});

describe('a node that comes back later than iroh dials', () => {
  it('is linked again, and both end with the same view', async () => {
    const author = newAuthor();
    // It comes back at the same port, and the other one knows it.
    const { ticket } = await first.ticket();
    const port = Number(ticket.machines[0]!.addresses[0]!.split(':').at(-1));
    await first.set('p2p.port', port);
    await connect([first, second]);
    await second.settled(1, 2);
    await first.end('SIGKILL');
    // Its endpoint dials once, in vain.
    await second.end('SIGKILL');
    await second.run();
    await expect.poll(async () => (await second.state())?.neighbours, FAR).toEqual([]);
    await new Promise((resolve) => setTimeout(resolve, 45_000));
    expect((await second.state())?.neighbours).toEqual([]);
    await first.run();
    await live(second, author);
    await live(first, author);
    const isOneView = async () => (await view(first)).hash === (await view(second)).hash;
    await expect.poll(isOneView, FAR).toBe(true);
    await second.settled(1, 2);
    await live(first, author);
    await expect.poll(isOneView, FAR).toBe(true);
  }, 400_000);
});

describe('a new node', () => {
  it('fills the topic, ends with the same view, and nothing deleted comes back', async () => {
    const third = await GossipNode.start(net, { topics: [TOPIC], settings });
    try {
      await third.set('p2p.peers', [(await first.ticket()).text]);
      expect((await sameView(third, first)).length).toBeGreaterThan(50);
      await sameView(second, third);
    } finally {
      await third.close();
    }
  });
});
