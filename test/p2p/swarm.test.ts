/**
 * Five nodes on loopback, two of which bridge two topics; and two machines on one database, of which one has
 * the endpoint. The number of messages per event is counted and bounded.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/cli.js';
import { connect, GossipNode, newTopic } from '../support/domains/gossip.js';
import { newAuthor, sign } from '../support/events.js';
import { type Loopback, openLoopback } from '../support/servers/loopback.js';

const LEFT = newTopic();
const RIGHT = newTopic();
/** A node that did not answer is dialled again after up to a minute. */
const DIALS_MS = 300_000;
const FAR = { timeout: 170_000 };

let net: Loopback;
let nodes: GossipNode[];

beforeAll(async () => {
  net = await openLoopback();
  // The first two bridge; one is only left, two are only right.
  const carried = [[LEFT, RIGHT], [LEFT, RIGHT], [LEFT], [RIGHT], [RIGHT]];
  nodes = [];
  for (const topics of carried) nodes.push(await GossipNode.start(net, { topics }));
  await connect(nodes);
  for (const node of nodes)
    await eventually(
      'every node has neighbours in each of its topics',
      async () => {
        const state = await node.state();
        const seen = state?.neighbours.reduce((sum, { topics }) => sum + topics, 0) ?? 0;
        return state !== undefined && seen >= state.topics + 1 ? true : undefined;
      },
      DIALS_MS,
    );
}, 2 * DIALS_MS);

afterAll(async () => {
  for (const node of nodes ?? []) await node.close();
  await net?.close();
});

const idsAt = async (node: GossipNode, author: string, topics: readonly string[]): Promise<string[]> => {
  const client = await node.connect();
  const { events } = await client.query({ authors: [author], '#t': topics });
  await client.close();
  return events.map(({ id }) => id).sort();
};

describe('five nodes', () => {
  it('end with the same events, and each event costs a bounded number of messages', async () => {
    const author = newAuthor();
    const both = [
      ['t', LEFT],
      ['t', RIGHT],
    ];
    const sentBefore = await Promise.all(
      nodes.map(async (node) => (await node.state())!.counts.sentMessages),
    );
    const events = Array.from({ length: 40 }, () => sign(author, { tags: both }));
    // From every side: posted at a bridge, at a node that has only one of the topics, and at two at once.
    for (const [place, event] of events.entries()) {
      const client = await nodes[place % nodes.length]!.connect();
      expect(await client.publish(event)).toEqual([true, '']);
      await client.close();
    }
    const wanted = events.map(({ id }) => id).sort();
    const topics = [[LEFT, RIGHT], [LEFT, RIGHT], [LEFT], [RIGHT], [RIGHT]];
    for (const [place, node] of nodes.entries())
      await expect.poll(() => idsAt(node, author.pubkey, topics[place]!), FAR).toEqual(wanted);
    for (const node of nodes) await node.drained();
    const count = async () =>
      Promise.all(nodes.map(async (node) => (await node.state())!.counts.sentMessages));
    // Nothing goes round: the counters stand still.
    let last = await count();
    await eventually('the counters stand still', async () => {
      await new Promise((resolve) => setTimeout(resolve, 3_000));
      const now = await count();
      const isStill = now.every((sent, place) => sent === last[place]);
      last = now;
      return isStill || undefined;
    });
    const sent = last.map((now, place) => now - sentBefore[place]!);
    const perEvent = sent.reduce((sum, each) => sum + each, 0) / events.length;
    console.log(`messages sent per event in two topics: ${perEvent.toFixed(2)} by five nodes`);
    // The author's node sends into its topics, and a bridge sends into the other topic at most once.
    expect(perEvent).toBeGreaterThanOrEqual(1);
    expect(perEvent).toBeLessThanOrEqual(2 + 2);
    for (const each of sent) expect(each).toBeLessThanOrEqual(events.length * 2);
  });
});

describe('an endpoint that hangs', () => {
  it('is replaced, the node serves meanwhile, and what waited is sent', async () => {
    const author = newAuthor();
    const [, , third, fourth, fifth] = nodes as [GossipNode, GossipNode, GossipNode, GossipNode, GossipNode];
    const [frozen] = fourth.endpoints();
    process.kill(frozen!, 'SIGSTOP');
    const client = await fourth.connect();
    const event = sign(author, { tags: [['t', RIGHT]] });
    expect(await client.publish(event)).toEqual([true, '']);
    await client.close();
    await expect.poll(() => idsAt(fifth, author.pubkey, [RIGHT]), FAR).toEqual([event.id]);
    expect(fourth.endpoints()).not.toContain(frozen);
    expect(third.endpoints()).toHaveLength(1);
  });
});

describe('two machines on one database', () => {
  it('have one endpoint; when its machine dies the other takes over, and nothing is skipped', async () => {
    const author = newAuthor();
    const [, first, , fourth] = nodes as [GossipNode, GossipNode, GossipNode, GossipNode, GossipNode];
    const second = await GossipNode.start(net, { topics: [], beside: first });
    try {
      const machines = await eventually('the ticket has both machines', async () => {
        const { ticket } = await first.ticket();
        return ticket.machines.length === 2 ? ticket.machines : undefined;
      });
      expect(new Set(machines.map(({ id }) => id)).size).toBe(2);
      const client = await second.connect();
      const events = Array.from({ length: 10 }, () => sign(author, { tags: [['t', RIGHT]] }));
      for (const event of events.slice(0, 5)) expect(await client.publish(event)).toEqual([true, '']);
      const arrived = () => idsAt(fourth, author.pubkey, [RIGHT]);
      await expect.poll(async () => (await arrived()).length, FAR).toBe(5);
      await first.end('SIGKILL');
      for (const event of events.slice(5)) expect(await client.publish(event)).toEqual([true, '']);
      await expect.poll(arrived, FAR).toEqual(events.map(({ id }) => id).sort());
      // And back: events of the others arrive at the machine that took over.
      const other = await fourth.connect();
      const answer = sign(author, { tags: [['t', RIGHT]] });
      await other.publish(answer);
      await other.close();
      await expect.poll(() => idsAt(second, author.pubkey, [RIGHT]), FAR).toContain(answer.id);
      await client.close();
    } finally {
      await second.close();
    }
  });
});
