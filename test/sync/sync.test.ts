/** Two nodes that sync: by negentropy and by pages, both ways, with deletions, erasures and topics. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { changeSetting } from '../../src/communities/settings.sql.js';
import { fillFromPeer } from '../../src/sync/fill.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { askFor, jobContext, runErasures } from '../support/domains/erasure.js';
import { idsOf, openSyncing, type Syncing, someEvents, store } from '../support/domains/sync.js';
import { writeTopic } from '../support/domains/topics.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { pinTopics, startTestNode, type TestNode } from '../support/node.js';

interface Side {
  readonly node: TestNode;
  readonly syncing: Syncing;
}

let here: Side;
let there: Side;

async function startSide(): Promise<Side> {
  const node = await startTestNode({ jobs: [] });
  return { node, syncing: await openSyncing(node) };
}

beforeAll(async () => {
  [here, there] = await Promise.all([startSide(), startSide()]);
});
afterAll(async () => {
  for (const { node, syncing } of [here, there]) {
    await syncing.close();
    await node.close();
  }
});

async function set({ node, syncing }: Side, key: Parameters<typeof changeSetting>[1]['key'], value: unknown) {
  const { id } = node.node.communities.find(undefined, undefined)!;
  await changeSetting(node.database.pool, { community: id, key, value }, Date.now());
  for (const communities of [node.node.communities, syncing.writer.communities])
    await eventually(
      `${key} is changed`,
      () => JSON.stringify(communities.get(id)!.settings[key]) === JSON.stringify(value) || undefined,
    );
}

async function served({ node }: Side, filter: object): Promise<string[]> {
  const client = await RawClient.connect(node.url);
  const { events } = await client.query(filter);
  await client.close();
  return idsOf(events);
}

for (const method of ['negentropy', 'pages'] as const) {
  describe(`by ${method}`, () => {
    beforeEach(async () => {
      await set(there, 'limits.negentropySessionsMax', method === 'negentropy' ? 10 : 0);
    });

    it('down: this node gets what it lacks, once', async () => {
      const author = newAuthor();
      const events = someEvents(700, { author, span: 300 });
      await store(there.syncing, events);
      await store(here.syncing, events.slice(0, 300));
      const result = await here.syncing.sync(there.node.url);
      expect(result).toMatchObject({ ended: 'complete', method, stored: 400, sent: 0 });
      expect(await served(here, { authors: [author.pubkey], limit: 5_000 })).toEqual(idsOf(events));
      const again = await here.syncing.sync(there.node.url);
      expect(again).toMatchObject({ ended: 'complete', stored: 0, sent: 0 });
      if (method === 'negentropy') expect(again).toMatchObject({ received: 0, rounds: 2 });
    });

    it('up: the peer gets what it lacks, but nothing private or protected', async () => {
      const author = newAuthor();
      const events = someEvents(60, { author });
      const kept = [
        sign(author, { kind: 4, tags: [['p', newAuthor().pubkey]] }),
        sign(author, { kind: 1059, tags: [['p', newAuthor().pubkey]] }),
        sign(author, { tags: [['-']] }),
      ];
      await store(here.syncing, [...events, ...kept]);
      const result = await here.syncing.sync(there.node.url, { direction: 'up' });
      expect(result).toMatchObject({ ended: 'complete', stored: 0 });
      expect(result.sent).toBeGreaterThanOrEqual(60);
      expect(result.keptBack).toBeGreaterThanOrEqual(3);
      expect(await served(there, { authors: [author.pubkey] })).toEqual(idsOf(events));
    });

    it('both: both sides end with the same view', async () => {
      const author = newAuthor();
      const [mine, theirs] = [someEvents(40, { author }), someEvents(50, { author })];
      await store(here.syncing, mine);
      await store(there.syncing, theirs);
      expect(await here.syncing.sync(there.node.url, { direction: 'both' })).toMatchObject({
        ended: 'complete',
        stored: 50,
        sent: 40,
      });
      const all = idsOf([...mine, ...theirs]);
      expect(await served(here, { authors: [author.pubkey] })).toEqual(all);
      expect(await served(there, { authors: [author.pubkey] })).toEqual(all);
    });

    it('deletions converge in both directions, and nothing deleted comes back', async () => {
      const author = newAuthor();
      const events = someEvents(20, { author });
      const article = sign(author, {
        kind: 30_023,
        created_at: nowSeconds() - 1_000,
        tags: [['d', 'draft']],
      });
      await store(here.syncing, [...events, article]);
      await store(there.syncing, [...events, article]);
      const [one, other] = [events[0]!, events[1]!];
      const mine = sign(author, { kind: 5, tags: [['e', one.id]] });
      const theirs = sign(author, { kind: 5, tags: [['e', other.id]] });
      const byAddress = sign(author, { kind: 5, tags: [['a', `30023:${author.pubkey}:draft`]] });
      await store(here.syncing, [mine]);
      await store(there.syncing, [theirs, byAddress]);
      await here.syncing.sync(there.node.url, { direction: 'both' });
      const left = idsOf([...events.slice(2), mine, theirs, byAddress]);
      expect(await served(here, { authors: [author.pubkey] })).toEqual(left);
      expect(await served(there, { authors: [author.pubkey] })).toEqual(left);
      const again = await here.syncing.sync(there.node.url, { direction: 'both' });
      expect(again).toMatchObject({ ended: 'complete', stored: 0, sent: 0 });
    });

    it('a stale peer cannot bring back what was deleted, expired or erased here', async () => {
      const [author, erased] = [newAuthor(), newAuthor()];
      const deleted = sign(author, { created_at: nowSeconds() - 500 });
      const brief = sign(author, { tags: [['expiration', String(nowSeconds() + 2)]] });
      const lost = someEvents(5, { author: erased });
      await store(here.syncing, [deleted, brief, ...lost]);
      await store(there.syncing, [deleted, brief, ...lost]);
      await store(here.syncing, [sign(author, { kind: 5, tags: [['e', deleted.id]] })]);
      await eraseMember(here, erased.pubkey);
      await eventually('the event expires', () => nowSeconds() > Number(brief.tags[0]![1]) || undefined);
      const result = await here.syncing.sync(there.node.url);
      expect(result).toMatchObject({ ended: 'complete' });
      expect(result.refused.blocked ?? 0).toBeGreaterThanOrEqual(5);
      expect(await served(here, { ids: [deleted.id, brief.id, ...lost.map(({ id }) => id)] })).toEqual([]);
    });

    it('since: older events are left alone', async () => {
      const author = newAuthor();
      const since = nowSeconds() - 1_000;
      const old = sign(author, { created_at: since - 1 });
      const young = sign(author, { created_at: since });
      await store(there.syncing, [old, young]);
      await here.syncing.sync(there.node.url, { since });
      expect(await served(here, { authors: [author.pubkey] })).toEqual([young.id]);
      await here.syncing.sync(there.node.url);
    });

    it('more events of one second than a page are all transferred', async () => {
      const author = newAuthor();
      const events = someEvents(1_300, { author, created_at: nowSeconds() - 5_000, kind: 1_234 });
      await store(there.syncing, events);
      const result = await here.syncing.sync(there.node.url, { since: nowSeconds() - 6_000 });
      expect(result).toMatchObject({ ended: 'complete', incompleteSeconds: 0 });
      expect(await served(here, { authors: [author.pubkey], limit: 5_000 })).toEqual(idsOf(events));
    });
  });
}

async function eraseMember({ node }: Side, pubkey: string): Promise<void> {
  const { id: community } = node.node.communities.find(undefined, undefined)!;
  await askFor(node.database, { community, pubkey });
  await runErasures(jobContext(node));
}

describe('topics', () => {
  const [open, closed] = ['kukuri:open', 'kukuri:closed'];

  beforeAll(async () => {
    for (const side of [here, there]) {
      await set(side, 'limits.negentropySessionsMax', 10);
      await pinTopics(side.node, [open]);
      const { id } = side.node.node.communities.find(undefined, undefined)!;
      const rules = { pinned: true, public: false, priority: 0, policy: {} };
      await writeTopic(side.node.database.pool, id, closed, rules, Date.now());
      await set(side, 'topic.mode', 'required');
      for (const communities of [side.node.node.communities, side.syncing.writer.communities])
        await eventually('the topics are carried', () => {
          const { topics } = communities.get(id)!;
          return (topics.get(open)?.enabled && topics.get(closed)?.enabled) || undefined;
        });
    }
  });

  it('one topic is filled from a peer, with the deletions that are bound to it', async () => {
    const author = newAuthor();
    const events = someEvents(30, { author, tags: [['t', open]] });
    const elsewhere = someEvents(3, { author, tags: [['t', closed]] });
    await store(there.syncing, [...events, ...elsewhere]);
    await store(here.syncing, [events[0]!]);
    const request = sign(author, { kind: 5, tags: [['e', events[0]!.id]] });
    await store(there.syncing, [request]);
    const filled = await fillFromPeer(
      {
        community: here.node.node.communities.find(undefined, undefined)!.id,
        topic: open,
        url: there.node.url,
        direction: 'down',
        signal: new AbortController().signal,
      },
      { ...here.syncing.parts, allowsPrivate: true },
    );
    expect(filled).toMatchObject({ ended: 'complete', method: 'negentropy' });
    const found = await served(here, { authors: [author.pubkey], '#t': [open, closed] });
    expect(found).toEqual(idsOf(events.slice(1)));
    expect(await served(here, { kinds: [5], authors: [author.pubkey] })).toEqual([request.id]);
  });

  it('without a topic: all carried topics, and the kinds that need none', async () => {
    const author = newAuthor();
    const profile = sign(author, { kind: 0, content: '{}' });
    const relays = sign(author, { kind: 10_002, tags: [['r', 'wss://relay.example.org']] });
    const posts = [open, closed].map((topic) => sign(author, { tags: [['t', topic]] }));
    await store(there.syncing, [profile, relays, ...posts]);
    expect(await here.syncing.sync(there.node.url)).toMatchObject({ ended: 'complete' });
    const found = await served(here, { authors: [author.pubkey], '#t': [open, closed] });
    expect(found).toEqual(idsOf(posts));
    expect(await served(here, { authors: [author.pubkey], kinds: [0, 10_002] })).toEqual(
      idsOf([profile, relays]),
    );
  });

  it('where clients must authenticate, a closed topic leaves only if it is named', async () => {
    await set(here, 'auth.mode', 'required');
    const author = newAuthor();
    const events = [open, closed].map((topic) => sign(author, { tags: [['t', topic]] }));
    await store(here.syncing, events);
    await here.syncing.sync(there.node.url, { direction: 'up' });
    const filter = { authors: [author.pubkey], '#t': [open, closed] };
    expect(await served(there, filter)).toEqual([events[0]!.id]);
    await here.syncing.sync(there.node.url, { direction: 'up', topics: [closed] });
    expect(await served(there, filter)).toEqual(idsOf(events));
    await set(here, 'auth.mode', 'off');
  });

  it('a peer that requires it gets the key of the relay (NIP-42)', async () => {
    const author = newAuthor();
    const post = sign(author, { tags: [['t', open]] });
    await store(there.syncing, [post]);
    await set(there, 'auth.mode', 'required');
    const result = await here.syncing.sync(there.node.url, { topics: [open] });
    expect(result).toMatchObject({ ended: 'complete' });
    expect(await served(here, { authors: [author.pubkey], '#t': [open] })).toEqual([post.id]);
    await set(there, 'auth.mode', 'off');
  });
});
