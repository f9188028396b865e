/** Rights to topics on the relay: what they allow, and that this ends with them, on every instance. */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { settingsFrom } from '../../src/communities/rules-settings.js';
import { changeMember } from '../../src/members/members.sql.js';
import { blockTopic, unblockTopic } from '../../src/topics/blocked-topics.sql.js';
import { changeNodeTopic } from '../../src/topics/node-topics.sql.js';
import { approveRequest, requestTopic } from '../../src/topics/requests.sql.js';
import { requestRules } from '../../src/topics/rules-requests.js';
import {
  endSubscription,
  pauseSubscription,
  resumeSubscription,
} from '../../src/topics/subscriptions.sql.js';
import { authenticate } from '../support/clients/auth.js';
import { type Frame, RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const topicOf = (digit: string) => `kukuri:${digit.repeat(64)}`;
const [BOATS, NETS, OPEN] = [topicOf('a'), topicOf('b'), topicOf('c')];
const CAP = { enabledMax: 1_000 };
const rules = requestRules(settingsFrom(new Map()));

let relay: TestNode;
let second: TestNode;
const clients: RawClient[] = [];
const community = () => relay.node.communities.find(undefined, 'default')!;
const pool = () => relay.database.pool;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_TOPIC_MODE: 'required', MINATO_AUTH_MODE: 'required' } });
  second = await startTestNode({ on: relay.test });
  const base = { pinned: true, priority: 0, policy: {} };
  await writeTopic(pool(), community().id, BOATS, { ...base, public: false }, Date.now());
  await writeTopic(pool(), community().id, NETS, { ...base, public: false }, Date.now());
  await writeTopic(pool(), community().id, OPEN, { ...base, public: true }, Date.now());
  await vi.waitUntil(() => [relay, second].every(({ node }) => node.communities.all()[0]!.topics.has(OPEN)));
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});
afterAll(async () => {
  await second.close();
  await relay.close();
});

async function done<T>(work: Promise<T>): Promise<T> {
  const result = await work;
  if (isDenial(result)) throw new Error(JSON.stringify(result));
  return result;
}

async function subscribe(member: Author, topic: string): Promise<void> {
  const ask = { community: community().id, pubkey: member.pubkey, topic, services: [] };
  const requested = await requestTopic(pool(), ask, rules, Date.now());
  if (isDenial(requested)) throw new Error(requested.denied);
  const { requestId } = requested.request;
  await done(approveRequest(pool(), { community: community().id, requestId }, CAP, Date.now()));
}
const ref = (member: Author, topic: string) => ({
  community: community().id,
  pubkey: member.pubkey,
  topic,
});

/** Connected and authenticated. */
async function connect(node: TestNode, ...members: Author[]): Promise<RawClient> {
  const client = await RawClient.connect(node.url);
  clients.push(client);
  for (const member of members) expect(await authenticate(client, member, node.url)).toEqual([true, '']);
  return client;
}

async function open(client: RawClient, id: string, filter: object): Promise<Frame> {
  const from = client.frames.length;
  client.send(['REQ', id, { limit: 0, ...filter }]);
  return client.waitFor(([verb, of]) => (verb === 'EOSE' || verb === 'CLOSED') && of === id, from);
}
const post = (...topics: string[]) =>
  sign(newAuthor(), { content: `${Math.random()}`, tags: topics.map((topic) => ['t', topic]) });
const RESTRICTED = expect.stringMatching(/^restricted: /);
const idOf = (frame: Frame) => (frame[2] as { id: string }).id;

describe('a member', () => {
  it('reads and posts in subscribed and public topics, and nowhere else', async () => {
    const alice = newAuthor();
    await subscribe(alice, BOATS);
    for (const node of [relay, second]) {
      const client = await connect(node, alice);
      for (const topics of [[BOATS], [OPEN], ['kukuri:global'], [BOATS, OPEN], [BOATS, 'sunset']]) {
        expect(await client.publish(post(...topics))).toEqual([true, '']);
        expect((await client.query({ '#t': topics })).closed).toBeUndefined();
      }
      for (const topics of [[NETS], [BOATS, NETS], [NETS, OPEN]]) {
        expect(await client.publish(post(...topics))).toEqual([false, RESTRICTED]);
        expect((await client.query({ '#t': topics })).closed).toEqual(RESTRICTED);
      }
      const [, , words] = await open(client, 'mixed', { '#t': [BOATS, NETS] });
      expect(words).toEqual(RESTRICTED);
    }
  });

  it('has the rights of every key that authenticated on the connection', async () => {
    const [alice, bob] = [newAuthor(), newAuthor()];
    await subscribe(alice, BOATS);
    await subscribe(bob, NETS);
    const client = await connect(relay, alice, bob);
    expect(await client.publish(post(BOATS, NETS))).toEqual([true, '']);
    expect((await client.query({ '#t': [BOATS, NETS] })).closed).toBeUndefined();
  });

  it('finds no events of another topic by a hashtag, by a free kind, or by COUNT', async () => {
    const [alice, bob] = [newAuthor(), newAuthor()];
    await subscribe(alice, NETS);
    const inside = await connect(relay, alice);
    const hidden = sign(alice, {
      tags: [
        ['t', NETS],
        ['t', 'dusk'],
      ],
    });
    const shown = sign(alice, {
      tags: [
        ['t', OPEN],
        ['t', 'dusk'],
      ],
    });
    const profile = sign(alice, { kind: 10_002, tags: [['t', NETS]] });
    const outside = await connect(relay, bob);
    await open(outside, 'dusk', { '#t': ['dusk', OPEN] });
    await open(outside, 'lists', { kinds: [10_002] });
    for (const event of [hidden, profile, shown]) expect(await inside.publish(event)).toEqual([true, '']);
    await outside.waitFor((frame) => frame[0] === 'EVENT' && idOf(frame) === shown.id);
    expect(outside.frames.filter(([verb]) => verb === 'EVENT').map(idOf)).toEqual([shown.id]);
    const filter = { authors: [alice.pubkey], '#t': ['dusk', OPEN] };
    expect((await outside.query(filter)).events).toEqual([shown]);
    expect((await inside.query(filter)).events).toHaveLength(2);
    expect((await outside.query({ kinds: [10_002], authors: [alice.pubkey] })).events).toEqual([]);
    expect((await inside.query({ kinds: [10_002], authors: [alice.pubkey] })).events).toEqual([profile]);
    const from = outside.frames.length;
    outside.send(['COUNT', 'c', filter]);
    expect((await outside.waitFor((frame) => frame[1] === 'c', from))[2]).toEqual({ count: 1 });
  });

  it('sees a deletion in the topics of its targets, only with the right to them', async () => {
    const [alice, bob] = [newAuthor(), newAuthor()];
    await subscribe(alice, NETS);
    const inside = await connect(relay, alice);
    const outside = await connect(second, bob);
    const target = sign(alice, { tags: [['t', NETS]] });
    const request = sign(alice, { kind: 5, tags: [['e', target.id]] });
    await inside.publish(target);
    expect(await inside.publish(request)).toEqual([true, '']);
    expect((await inside.query({ kinds: [5], '#t': [NETS] })).events).toContainEqual(request);
    expect((await inside.query({ kinds: [5], authors: [alice.pubkey] })).events).toEqual([request]);
    expect((await outside.query({ kinds: [5], authors: [alice.pubkey] })).events).toEqual([]);
  });
});

describe('a right that ends closes what it opened, on the other instance, and nothing else', () => {
  const endings: [string, (member: Author) => Promise<unknown>, (member: Author) => Promise<unknown>][] = [
    [
      'when the subscription is paused',
      (member) => pauseSubscription(pool(), ref(member, BOATS), Date.now()),
      (member) => resumeSubscription(pool(), ref(member, BOATS), CAP, Date.now()),
    ],
    [
      'when the subscription is ended',
      (member) => endSubscription(pool(), ref(member, BOATS), Date.now()),
      (member) => subscribe(member, BOATS),
    ],
    [
      'when the topic is blocked',
      () => blockTopic(pool(), { community: community().id, topic: BOATS }, Date.now()),
      () => unblockTopic(pool(), { community: community().id, topic: BOATS }, Date.now()),
    ],
  ];
  it.each(endings)('%s', async (_when, end, beginAgain) => {
    const [alice, bob] = [newAuthor(), newAuthor()];
    await subscribe(alice, BOATS);
    await subscribe(bob, NETS);
    const client = await connect(second, alice);
    const other = await connect(second, bob);
    for (const [id, filter] of [
      ['ends', { '#t': [BOATS] }],
      ['stays', { '#t': [OPEN] }],
    ] as const)
      expect((await open(client, id, filter))[0]).toBe('EOSE');
    expect((await open(other, 'stays', { '#t': [NETS] }))[0]).toBe('EOSE');
    await done(end(alice));
    expect(await client.waitFor(([verb]) => verb === 'CLOSED')).toEqual(['CLOSED', 'ends', RESTRICTED]);
    expect(await client.publish(post(BOATS))).toEqual([false, RESTRICTED]);
    expect((await client.query({ '#t': [BOATS] })).closed).toEqual(RESTRICTED);
    const [mark, foreign] = [post(OPEN), post(NETS)];
    await client.publish(mark);
    await other.publish(foreign);
    expect(idOf(await client.waitFor(([verb, id]) => verb === 'EVENT' && id === 'stays'))).toBe(mark.id);
    expect(idOf(await other.waitFor(([verb, id]) => verb === 'EVENT' && id === 'stays'))).toBe(foreign.id);
    await done(beginAgain(alice));
    await vi.waitUntil(async () => (await open(client, 'again', { '#t': [BOATS] }))[0] === 'EOSE');
    expect(await client.publish(post(BOATS))).toEqual([true, '']);
  });

  it('when the topic is no longer public', async () => {
    const client = await connect(second, newAuthor());
    await open(client, 'ends', { '#t': [OPEN] });
    const make = (isPublic: boolean) => {
      const change = { community: community().id, topic: OPEN, changes: { public: isPublic } };
      return done(changeNodeTopic(pool(), change, CAP, Date.now()));
    };
    await make(false);
    expect(await client.waitFor(([verb]) => verb === 'CLOSED')).toEqual(['CLOSED', 'ends', RESTRICTED]);
    await make(true);
    await vi.waitUntil(async () => (await open(client, 'again', { '#t': [OPEN] }))[0] === 'EOSE');
  });

  it('when the account is disabled: no right is left on any connection', async () => {
    const alice = newAuthor();
    await subscribe(alice, BOATS);
    const client = await connect(second, alice);
    await open(client, 'ends', { '#t': [BOATS] });
    await open(client, 'public', { '#t': [OPEN] });
    const change = { community: community().id, pubkey: alice.pubkey, status: 'disabled' as const };
    await done(changeMember(pool(), change, { fixed: [] }, Date.now()));
    await client.until(() => client.frames.filter(([verb]) => verb === 'CLOSED').length === 2);
    const knows = ({ node }: TestNode) => node.communities.get(community().id)!.refused.has(alice.pubkey);
    await vi.waitUntil(() => knows(relay) && knows(second), { timeout: 100_000 });
    const own = sign(alice, { tags: [['t', OPEN]] });
    expect((await client.publish(own))[0]).toBe(false);
    expect((await (await connect(relay, newAuthor())).publish(own))[1]).toMatch(/^restricted: this account/);
    const again = await RawClient.connect(relay.url);
    clients.push(again);
    expect(await authenticate(again, alice, relay.url)).toEqual([true, '']);
    expect((await again.query({ '#t': [OPEN] })).closed).toBe('restricted: this account is disabled');
  });

  it('and an enabled account continues on its connections without a new AUTH', async () => {
    const alice = newAuthor();
    await subscribe(alice, BOATS);
    const before = await connect(relay, alice);
    const change = (status: 'active' | 'disabled') =>
      done(changeMember(pool(), { ...ref(alice, BOATS), status }, { fixed: [] }, Date.now()));
    const asks = async (client: RawClient) => (await client.query({ '#t': [BOATS] })).closed;
    await change('disabled');
    await vi.waitUntil(async () => (await asks(before)) === 'restricted: this account is disabled');
    const meanwhile = await connect(relay, alice);
    expect(await asks(meanwhile)).toBe('restricted: this account is disabled');
    await change('active');
    for (const client of [before, meanwhile]) {
      await vi.waitUntil(async () => (await asks(client)) === undefined);
      expect(
        await client.publish(sign(alice, { content: `${Math.random()}`, tags: [['t', BOATS]] })),
      ).toEqual([true, '']);
    }
  });

  it('but disabled and deleted members may still delete and vanish', async () => {
    for (const status of ['disabled', 'deleted'] as const) {
      const alice = newAuthor();
      await subscribe(alice, BOATS);
      const client = await connect(relay, alice);
      const posts = ['one', 'two'].map((content) => sign(alice, { content, tags: [['t', OPEN]] }));
      for (const event of posts) expect(await client.publish(event)).toEqual([true, '']);
      await done(changeMember(pool(), { ...ref(alice, BOATS), status }, { fixed: [] }, Date.now()));
      await vi.waitUntil(() => relay.node.communities.get(community().id)!.refused.has(alice.pubkey));
      const words = status === 'disabled' ? 'this account is disabled' : 'this account has been deleted';
      const refused = [false, `restricted: ${words}`];
      expect(await client.publish(sign(alice, { content: 'more', tags: [['t', OPEN]] }))).toEqual(refused);
      const reader = await connect(relay, newAuthor());
      const left = async () =>
        (await reader.query({ '#t': [OPEN], authors: [alice.pubkey] })).events.map(({ id }) => id);
      expect((await left()).sort()).toEqual(posts.map(({ id }) => id).sort());
      const request = (kind: number, tags: string[][]) =>
        sign(alice, { kind, tags, created_at: Math.floor(Date.now() / 1_000) + 1 });
      expect(await client.publish(request(5, [['e', posts[0]!.id]]))).toEqual([true, '']);
      expect(await left()).toEqual([posts[1]!.id]);
      expect(await client.publish(request(5, [['-'], ['e', posts[1]!.id]]))).toEqual([true, '']);
      expect(await left()).toEqual([]);
      expect(await client.publish(request(62, [['relay', 'ALL_RELAYS']]))).toEqual([true, '']);
    }
  });
});

it('saving auth.mode=required again gives nobody a new grace period', async () => {
  const alice = newAuthor();
  await subscribe(alice, BOATS);
  const outsider = await connect(second, newAuthor());
  const stranger = await connect(second);
  const { id } = community();
  for (const [key, value] of [
    ['auth.mode', 'required'],
    ['auth.graceSeconds', 600],
    ['auth.enforceAt', Math.floor(Date.now() / 1_000)],
  ] as const) {
    await writeSetting(pool(), id, key, value, Date.now() + 1_000);
  }
  await vi.waitUntil(() => second.node.communities.get(id)?.settings['auth.graceSeconds'] === 600, {
    timeout: 100_000,
  });
  expect((await outsider.query({ '#t': [BOATS] })).closed).toEqual(RESTRICTED);
  expect((await stranger.query({ '#t': [OPEN] })).closed).toMatch(/^auth-required: /);
});

it('a topic that becomes private hides its events from open subscriptions of any filter', async () => {
  const [alice, bob] = [newAuthor(), newAuthor()];
  const [author, reader] = [await connect(relay, alice), await connect(second, bob)];
  await open(reader, 'lists', { kinds: [10_004], authors: [alice.pubkey] });
  const base = { pinned: true, public: false, priority: 0, policy: {} };
  await writeTopic(pool(), community().id, 'secret', base, Date.now());
  await subscribe(alice, 'secret');
  await vi.waitUntil(
    () => [relay, second].every(({ node }) => node.communities.all()[0]!.topics.has('secret')),
    { timeout: 100_000 },
  );
  const hidden = sign(alice, { kind: 10_004, created_at: 1_000, tags: [['t', 'secret']] });
  const shown = sign(alice, { kind: 10_004, created_at: 1_001, tags: [['t', 'sunset']] });
  await vi.waitUntil(async () => (await author.publish(hidden))[0], { timeout: 100_000 });
  await author.publish(shown);
  await reader.waitFor((frame) => frame[0] === 'EVENT' && idOf(frame) === shown.id);
  expect(reader.frames.filter(([verb]) => verb === 'EVENT').map(idOf)).toEqual([shown.id]);
});

it('a new right shows more to an open subscription without a new REQ', async () => {
  const [alice, bob] = [newAuthor(), newAuthor()];
  await subscribe(bob, NETS);
  const reader = await connect(second, alice);
  const author = await connect(relay, bob);
  await open(reader, 'lists', { kinds: [10_003], authors: [bob.pubkey] });
  await author.publish(sign(bob, { kind: 10_003, created_at: 1_000, tags: [['t', NETS]] }));
  await subscribe(alice, NETS);
  let version = 1_000;
  await vi.waitUntil(
    async () => {
      version += 1;
      const list = sign(bob, { kind: 10_003, created_at: version, tags: [['t', NETS]] });
      await author.publish(list);
      return reader.frames.some((frame) => frame[0] === 'EVENT');
    },
    { timeout: 100_000, interval: 100 },
  );
  expect(reader.frames.some(([verb]) => verb === 'CLOSED')).toBe(false);
});

it('while authentication is off, carried topics are open to everybody', async () => {
  const { id } = community();
  await writeSetting(pool(), id, 'auth.mode', 'off', Date.now());
  await vi.waitUntil(() => second.node.communities.get(id)?.settings['auth.mode'] === 'off', {
    timeout: 100_000,
  });
  const client = await connect(second);
  expect(await client.publish(post(NETS))).toEqual([true, '']);
  expect((await client.query({ '#t': [NETS] })).events.length).toBeGreaterThan(0);
  expect(await client.publish(post(topicOf('d')))).toEqual([false, 'restricted: topic not enabled']);
  await writeSetting(pool(), id, 'auth.mode', 'required', Date.now());
});
