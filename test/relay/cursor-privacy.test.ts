/**
 * GONE is for those who could see the event, and for nobody else: private kinds, topics, held and removed
 * events, erased authors, rights that change (I13, I16).
 */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { settingsFrom } from '../../src/communities/rules-settings.js';
import { expire } from '../../src/events/jobs/expire.js';
import { runJob } from '../../src/jobs/run.js';
import { approveRequest, requestTopic } from '../../src/topics/requests.sql.js';
import { requestRules } from '../../src/topics/rules-requests.js';
import { endSubscription } from '../../src/topics/subscriptions.sql.js';
import { eventually } from '../support/cli.js';
import { authenticate } from '../support/clients/auth.js';
import { type Frame, RawClient } from '../support/clients/client.js';
import { Follower, SUB } from '../support/clients/follower.js';
import { jobContext, runErasures } from '../support/domains/erasure.js';
import { switchRule, writeRule } from '../support/domains/moderation.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

let aheadMs = 0;
const now = () => Date.now() + aheadMs;
const LOST = 'error: changes after the cursor are no longer kept; begin again with "cursor": ""';
const OTHER =
  'invalid: the cursor is of another query, or what you may see has changed; begin again with "cursor": ""';

let relay: TestNode;
let writer: RawClient;
const open: Follower[] = [];

beforeAll(async () => {
  relay = await startTestNode({ now, jobs: [], roles: ['relay', 'api'] });
  writer = await RawClient.connect(relay.url);
});
afterEach(async () => {
  for (const follower of open.splice(0)) await follower.leave();
});
afterAll(async () => {
  await writer.close();
  await relay.close();
});

async function publish(author: Author, draft: Parameters<typeof sign>[1] = {}) {
  const event = sign(author, { created_at: Math.floor(now() / 1_000), ...draft });
  expect(await writer.publish(event)).toEqual([true, '']);
  return event;
}
function follow(...filters: object[]): Follower {
  const follower = new Follower(filters);
  open.push(follower);
  return follower;
}
const as =
  (author: Author, node = relay) =>
  (client: RawClient) =>
    authenticate(client, author, node.url);
const gone = (follower: Follower) =>
  follower.client!.frames.filter((frame) => frame[0] === 'GONE' && frame[1] === SUB).map((frame) => frame[2]);

/** What was committed before this has been delivered, and has arrived. */
async function settled(...followers: Follower[]): Promise<void> {
  const author = newAuthor();
  const client = await RawClient.connect(relay.url);
  client.send(['REQ', 'mark', { authors: [author.pubkey], limit: 0 }]);
  await client.waitFor(([verb]) => verb === 'EOSE');
  const mark = await publish(author);
  await client.waitFor(([verb]) => verb === 'EVENT');
  await client.close();
  for (const follower of followers) await follower.client!.query({ ids: [mark.id] });
}

describe('private kinds', () => {
  it('are announced to their author and recipients, live and on return, and to nobody else', async () => {
    const [alice, bob, carol] = [newAuthor(), newAuthor(), newAuthor()];
    for (const reason of ['deletion', 'expiration']) {
      const expiration = [['expiration', String(Math.floor(now() / 1_000) + 60)]];
      const tags = [['p', bob.pubkey], ...(reason === 'expiration' ? expiration : [])];
      const wrap = await publish(alice, { kind: 1_059, tags });
      // Each of these may match it; the filters of the third name it as directly as they can.
      const readers: [Author | undefined, Follower][] = [
        [alice, follow({ kinds: [1_059], authors: [alice.pubkey] })],
        [bob, follow({ kinds: [1_059], '#p': [bob.pubkey] })],
        [carol, follow({ kinds: [1_059] }, { ids: [wrap.id] })],
        [undefined, follow({ authors: [alice.pubkey] }, { '#p': [bob.pubkey] })],
      ];
      const connect = ([author, follower]: (typeof readers)[number]) =>
        follower.connect(relay.url, author && as(author));
      for (const reader of readers) await connect(reader);
      const cursors = readers.map(([, follower]) => follower.cursor);
      if (reason === 'deletion') await publish(alice, { kind: 5, tags: [['e', wrap.id]] });
      else {
        aheadMs += 100_000;
        await runJob(expire, jobContext(relay, { now }));
      }
      await eventually('the recipient gets GONE', () => gone(readers[1]![1]).length > 0 || undefined);
      await settled(...readers.map(([, follower]) => follower));
      expect(
        readers.map(([, follower]) => gone(follower)),
        reason,
      ).toEqual([[wrap.id], [wrap.id], [], []]);
      for (const [at, reader] of readers.entries()) {
        await reader[1].leave();
        reader[1].cursor = cursors[at]!;
        await connect(reader);
      }
      expect(
        readers.map(([, follower]) => gone(follower)),
        reason,
      ).toEqual([[wrap.id], [wrap.id], [], []]);
      for (const [, follower] of readers) await follower.leave();
    }
  });
});

describe('moderation', () => {
  it('a post that a rule holds is never announced, also when it is deleted', async () => {
    const at = { pool: relay.database.pool, community: 1, now: Date.now() };
    const rule = await writeRule(at, { name: 'held', action: 'hold', conditions: { words: ['casino'] } });
    await switchRule(at, rule.ruleId, true);
    const author = newAuthor();
    const follower = follow({ authors: [author.pubkey], kinds: [1] });
    await follower.connect(relay.url);
    const first = follower.cursor;
    const held = await publish(author, { content: 'casino' });
    const shown = await publish(author, { content: 'harbour' });
    await publish(author, { kind: 5, tags: [['e', held.id]] });
    await follower.client!.waitFor((frame) => frame[0] === 'EVENT');
    await settled(follower);
    expect(gone(follower)).toEqual([]);
    await follower.leave();
    follower.cursor = first;
    await follower.connect(relay.url);
    const frames = follower.client!.frames.filter(([verb]) => verb !== 'EOSE');
    expect(frames.map(([verb, , about]) => [verb, (about as { id: string }).id])).toEqual([
      ['EVENT', shown.id],
    ]);
  });

  it('a removed post is announced to those who saw it, and comes again when it is restored', async () => {
    const author = newAuthor();
    const post = await publish(author);
    const [live, away] = [follow({ authors: [author.pubkey] }), follow({ authors: [author.pubkey] })];
    await live.connect(relay.url);
    await away.connect(relay.url);
    await away.leave();
    const refs = [{ community: 1, id: post.id }];
    await relay.node.store.hide({ hidden: 'removed', purge: false, which: { by: 'ids', refs } });
    await live.client!.waitFor((frame) => frame[0] === 'GONE');
    live.apply();
    expect(live.held.size).toBe(0);
    await relay.node.store.restore(refs);
    await live.client!.until(() => live.apply().length >= 0 && live.held.size === 1);
    await away.connect(relay.url);
    expect(away.client!.frames.map(([verb]) => verb)).toEqual(['GONE', 'EVENT', 'EOSE']);
    expect([...away.held.keys()]).toEqual([post.id]);
  });
});

describe('an erasure', () => {
  it('is announced live; who comes back after it begins again', async () => {
    const [author, other] = [newAuthor(), newAuthor()];
    const post = await publish(author, { tags: [['t', 'erased']] });
    const kept = await publish(other, { tags: [['t', 'erased']] });
    const [live, away] = [follow({ '#t': ['erased'] }), follow({ '#t': ['erased'] })];
    await live.connect(relay.url);
    await away.connect(relay.url);
    await away.leave();
    await publish(author, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    await runErasures(jobContext(relay, { now }));
    await live.client!.until(() => live.apply().length >= 0 && (!live.held.has(post.id) || live.isClosed));
    expect(await away.connect(relay.url)).toEqual(['CLOSED', SUB, LOST]);
    await away.beginAgain();
    expect([...away.held.keys()]).toEqual([kept.id]);
  });
});

describe('where clients must authenticate', () => {
  const topicOf = (digit: string) => `kukuri:${digit.repeat(64)}`;
  const [BOATS, NETS] = [topicOf('a'), topicOf('b')];
  const [alice, bob] = [newAuthor(), newAuthor()];
  let closed: TestNode;
  let inside: RawClient;

  async function subscribe({ pubkey }: Author, topic: string): Promise<void> {
    const { pool } = closed.database;
    const rules = requestRules(settingsFrom(new Map()));
    const asked = await requestTopic(pool, { community: 1, pubkey, topic, services: [] }, rules, Date.now());
    if (isDenial(asked)) throw new Error(asked.denied);
    const { requestId } = asked.request;
    const done = await approveRequest(pool, { community: 1, requestId }, { enabledMax: 1_000 }, Date.now());
    if (isDenial(done)) throw new Error(done.denied);
  }

  beforeAll(async () => {
    closed = await startTestNode({
      jobs: [],
      env: { MINATO_TOPIC_MODE: 'required', MINATO_AUTH_MODE: 'required' },
    });
    const base = { pinned: true, public: false, priority: 0, policy: {} };
    for (const topic of [BOATS, NETS]) await writeTopic(closed.database.pool, 1, topic, base, Date.now());
    await vi.waitUntil(() => closed.node.communities.all()[0]!.topics.has(NETS));
    await subscribe(alice, BOATS);
    await subscribe(alice, NETS);
    await subscribe(bob, BOATS);
    inside = await RawClient.connect(closed.url);
    await authenticate(inside, alice, closed.url);
  });
  afterAll(async () => {
    await inside.close();
    await closed.close();
  });
  const post = async (draft: Parameters<typeof sign>[1]) => {
    const event = sign(alice, draft);
    expect(await inside.publish(event)).toEqual([true, '']);
    return event;
  };

  it('a deletion in a topic is announced to its readers only', async () => {
    const [inBoats, inNets] = [await post({ tags: [['t', BOATS]] }), await post({ tags: [['t', NETS]] })];
    const profile = await post({ kind: 0, tags: [['t', NETS]], created_at: nowSeconds() - 5 });
    const [reader, other] = [
      follow({ '#t': [BOATS] }, { kinds: [0] }),
      follow({ '#t': [NETS] }, { kinds: [0] }),
    ];
    await reader.connect(closed.url, as(bob, closed));
    await other.connect(closed.url, as(alice, closed));
    const cursor = reader.cursor;
    await post({ kind: 5, tags: [['e', inNets.id]] });
    await post({ kind: 0, tags: [['t', NETS]] });
    await post({ kind: 5, tags: [['e', inBoats.id]] });
    await reader.client!.waitFor((frame) => frame[0] === 'GONE' && frame[2] === inBoats.id);
    await other.client!.waitFor((frame) => frame[0] === 'GONE' && frame[2] === inNets.id);
    expect(gone(reader)).toEqual([inBoats.id]);
    expect(gone(other)).toEqual([inNets.id, profile.id]);
    await reader.leave();
    reader.cursor = cursor;
    await reader.connect(closed.url, as(bob, closed));
    expect(gone(reader)).toEqual([inBoats.id]);
  });

  it('a right that ends closes the subscription, and its cursor gives nothing any more', async () => {
    const dora = newAuthor();
    await subscribe(dora, BOATS);
    const follower = follow({ '#t': [BOATS] });
    await follower.connect(closed.url, as(dora, closed));
    expect(follower.isClosed).toBe(false);
    await endSubscription(
      closed.database.pool,
      { community: 1, pubkey: dora.pubkey, topic: BOATS },
      Date.now(),
    );
    const [, , why] = await follower.client!.waitFor((frame) => frame[0] === 'CLOSED' && frame[1] === SUB);
    expect(why).toMatch(/^restricted: /);
    await follower.leave();
    await post({ tags: [['t', BOATS]] });
    const end: Frame = await follower.connect(closed.url, as(dora, closed));
    expect(end).toEqual(['CLOSED', SUB, expect.stringMatching(/^restricted: /)]);
    expect(follower.client!.frames.filter(([verb]) => verb === 'EVENT')).toEqual([]);
  });

  it('a view that changes ends the subscription, and a cursor from before is refused', async () => {
    const erin = newAuthor();
    await subscribe(erin, BOATS);
    // Without topics: the view is all that this member may read.
    const follower = follow({ kinds: [0] });
    await follower.connect(closed.url, as(erin, closed));
    const before = follower.cursor;
    await subscribe(erin, NETS);
    const [, , why] = await follower.client!.waitFor((frame) => frame[0] === 'CLOSED' && frame[1] === SUB);
    expect(why).toBe('error: what you may see has changed; begin again with "cursor": ""');
    await follower.leave();
    follower.cursor = before;
    expect(await follower.connect(closed.url, as(erin, closed))).toEqual(['CLOSED', SUB, OTHER]);
    expect((await follower.beginAgain())[0]).toBe('EOSE');
  });

  it('a change of the private kinds is a change of the view', async () => {
    const follower = follow({ kinds: [0, 1_234], '#t': [BOATS] });
    await follower.connect(closed.url, as(bob, closed));
    await follower.leave();
    await writeSetting(closed.database.pool, 1, 'auth.privateKinds', [4, 1_059, 1_234], Date.now());
    await eventually(
      'the setting',
      () => closed.node.communities.get(1)!.settings['auth.privateKinds'].includes(1_234) || undefined,
    );
    expect(await follower.connect(closed.url, as(bob, closed))).toEqual(['CLOSED', SUB, OTHER]);
  });
});
