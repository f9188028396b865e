/**
 * The topic modes: in `required`, events and filters must name a carried topic, except for free kinds;
 * `default` and `open` require less.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { deleteNodeTopic } from '../../src/topics/node-topics.sql.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { newAuthor, sign } from '../support/events.js';
import { pinTopics, startTestNode, type TestNode } from '../support/node.js';

let relay: TestNode;
let client: RawClient;
const alice = newAuthor();
const GLOBAL = 'kukuri:global';
const EXAMPLE = `every filter needs #t on this relay, for example {"kinds":[1],"#t":["${GLOBAL}"]}`;
const MISSING = `invalid: missing topic: add ["t","${GLOBAL}"]`;
const CLOSED = `invalid: missing topic: ${EXAMPLE}`;
const NOT_ENABLED = 'restricted: topic not enabled';
const HASHTAG = `${NOT_ENABLED}: add ["t","${GLOBAL}"]`;
const NOT_ASKED = `${NOT_ENABLED}: ${EXAMPLE}`;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_TOPIC_MODE: 'required' } });
  await pinTopics(relay, ['boats', 'passes', 'watched']);
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

const community = () => relay.node.communities.find(undefined, 'default')!;

async function set(key: SettingKey, value: unknown): Promise<void> {
  await writeSetting(relay.database.pool, community().id, key, value, Date.now());
  await expect.poll(() => community().settings[key], { timeout: 100_000 }).toEqual(value);
}

async function count(...filters: object[]): Promise<unknown[]> {
  const from = client.frames.length;
  client.send(['COUNT', 'c', ...filters]);
  return client.waitFor((frame) => frame[1] === 'c', from);
}

const FREE_KINDS = [0, 3, 5, 62, 1059, 10_000, 10_002, 19_999];

describe('an event', () => {
  it.each<[string, string[][]]>([
    ['no tags', []],
    [
      'other tags only',
      [
        ['p', alice.pubkey],
        ['T', 'boats'],
        ['topic', 'boats'],
      ],
    ],
    ['a t tag without a value', [['t']]],
    ['a t tag with an empty value', [['t', '']]],
    ['a topic of 257 characters', [['t', 'x'.repeat(257)]]],
    ['a topic with a control character', [['t', 'a\u0000b']]],
  ])('with %s is refused', async (_what, tags) => {
    expect(await client.publish(sign(alice, { tags }))).toEqual([false, MISSING]);
  });

  it.each([1, 4, 7, 1_111, 20_001, 30_023, 9_999, 40_000])('of kind %i needs a topic', async (kind) => {
    expect(await client.publish(sign(alice, { kind, tags: [['d', '']] }))).toEqual([false, MISSING]);
    const tags = [
      ['d', ''],
      ['t', 'boats'],
    ];
    expect(await client.publish(sign(alice, { kind, tags }))).toEqual([true, '']);
  });

  it.each(FREE_KINDS)('of kind %i needs no topic', async (kind) => {
    const tags = { 62: [['relay', 'ALL_RELAYS']], 1059: [['p', alice.pubkey]] }[kind] ?? [];
    const event = sign(newAuthor(), { kind, tags });
    expect(await client.publish(event)).toEqual([true, '']);
  });

  it('one good topic among bad ones is enough', async () => {
    const event = sign(alice, { tags: [['t', ''], ['t'], ['t', 'boats']] });
    expect(await client.publish(event)).toEqual([true, '']);
    expect((await client.query({ '#t': ['boats'], ids: [event.id] })).events).toEqual([event]);
  });
});

describe('a filter', () => {
  it.each<[string, object]>([
    ['nothing', {}],
    ['kinds that need a topic', { kinds: [1] }],
    ['a free kind and another', { kinds: [0, 1] }],
    ['no kind at all', { kinds: [] }],
    ['ids', { ids: ['a'.repeat(64)] }],
    ['authors', { authors: [alice.pubkey] }],
    ['another tag', { '#e': ['boats'] }],
    ['the letter in upper case', { '#T': ['boats'] }],
    ['limit 0', { limit: 0 }],
  ])('with %s and no #t closes the REQ and the COUNT', async (_what, filter) => {
    expect(await client.query(filter)).toEqual({ events: [], closed: CLOSED });
    expect(await count(filter)).toEqual(['CLOSED', 'c', CLOSED]);
  });

  it('with #t passes whatever else it names', async () => {
    const event = sign(alice, { tags: [['t', 'passes']] });
    await client.publish(event);
    for (const filter of [{}, { kinds: [1] }, { authors: [alice.pubkey] }, { ids: [event.id] }]) {
      expect(await client.query({ ...filter, '#t': ['passes'] })).toEqual({ events: [event] });
      expect(await count({ ...filter, '#t': ['passes'] })).toEqual(['COUNT', 'c', { count: 1 }]);
    }
    expect(await client.query({ '#t': [] })).toEqual({ events: [] });
  });

  it('of free kinds only needs no #t', async () => {
    const author = newAuthor();
    const event = sign(author, { kind: 10_002 });
    await client.publish(event);
    expect(await client.query({ kinds: FREE_KINDS, authors: [author.pubkey] })).toEqual({ events: [event] });
    expect(await count({ kinds: FREE_KINDS, authors: [author.pubkey] })).toEqual([
      'COUNT',
      'c',
      { count: 1 },
    ]);
  });

  it('that is refused closes the whole REQ or COUNT, at any position', async () => {
    const good = { '#t': ['passes'] };
    for (const filters of [
      [good, { kinds: [1] }],
      [{ kinds: [1] }, good],
      [good, { kinds: [0] }, {}],
    ]) {
      expect(await client.query(...filters)).toEqual({ events: [], closed: CLOSED });
      expect(await count(...filters)).toEqual(['CLOSED', 'c', CLOSED]);
    }
    expect((await client.query(good, { kinds: [0] })).closed).toBeUndefined();
  });

  it('that is refused leaves no live subscription', async () => {
    const reader = await RawClient.connect(relay.url);
    reader.send(['REQ', 'refused', { kinds: [1] }]);
    reader.send(['REQ', 'mark', { '#t': ['watched'] }]);
    await reader.waitFor((frame) => frame[0] === 'EOSE');
    await client.publish(sign(alice, { tags: [['t', 'watched']] }));
    await reader.waitFor((frame) => frame[0] === 'EVENT');
    expect(reader.frames.filter((frame) => frame[0] === 'EVENT').map((frame) => frame[1])).toEqual(['mark']);
    await reader.close();
  });
});

describe('a topic', () => {
  const tagged = (...topics: string[]) => sign(alice, { tags: topics.map((topic) => ['t', topic]) });
  const carried = (topic: string) => community().topics.get(topic)?.enabled ?? false;
  const unpin = async (topic: string) => {
    const rules = { pinned: false, public: true, priority: 0, policy: {} };
    await writeTopic(relay.database.pool, community().id, topic, rules, Date.now());
    await expect.poll(() => carried(topic), { timeout: 100_000 }).toBe(false);
  };

  it('for a first post (the global one) is carried from the first boot', async () => {
    const first = tagged(GLOBAL);
    expect(await client.publish(first)).toEqual([true, '']);
    expect(await client.query({ '#t': [GLOBAL], ids: [first.id] })).toEqual({ events: [first] });
  });

  it('that is not carried is refused, in events and in filters', async () => {
    expect(await client.publish(tagged('nobody'))).toEqual([false, HASHTAG]);
    expect(await client.query({ '#t': ['nobody'] })).toEqual({ events: [], closed: NOT_ASKED });
    expect(await count({ '#t': ['nobody'] })).toEqual(['CLOSED', 'c', NOT_ASKED]);
    // A topic is its exact text.
    for (const other of ['Boats', 'boats ', 'boat'])
      expect(await client.publish(tagged(other))).toEqual([false, HASHTAG]);
    expect(await client.publish(tagged('kukuri:nobody'))).toEqual([false, NOT_ENABLED]);
    expect((await client.query({ '#t': ['kukuri:nobody'] })).closed).toBe(NOT_ENABLED);
  });

  it('that is carried is enough for an event with several, found by each carried one', async () => {
    await pinTopics(relay, ['nets']);
    const event = tagged('nobody', 'nets', 'boats');
    expect(await client.publish(event)).toEqual([true, '']);
    for (const topic of ['nets', 'boats'])
      expect(await client.query({ '#t': [topic], ids: [event.id] })).toEqual({ events: [event] });
    expect(await client.query({ '#t': ['nobody', 'nets'], ids: [event.id] })).toEqual({ events: [event] });
    expect((await client.query({ '#t': ['nobody'], ids: [event.id] })).closed).toBe(NOT_ASKED);
  });

  it('is refused when it is no longer carried, and accepted when it is again', async () => {
    await pinTopics(relay, ['tide']);
    const before = tagged('tide');
    expect(await client.publish(before)).toEqual([true, '']);
    await unpin('tide');
    expect(await client.publish(tagged('tide', 'tide'))).toEqual([false, HASHTAG]);
    expect((await client.query({ '#t': ['tide'] })).closed).toBe(NOT_ASKED);
    await pinTopics(relay, ['tide']);
    expect(await client.query({ '#t': ['tide'] })).toEqual({ events: [before] });
    await deleteNodeTopic(relay.database.pool, { community: community().id, topic: 'tide' }, Date.now());
    await expect.poll(() => carried('tide'), { timeout: 100_000 }).toBe(false);
    expect(await client.publish(tagged('tide'))).toEqual([false, HASHTAG]);
  });

  it('that is no longer carried is not served beside one that is, stored, counted or live', async () => {
    await pinTopics(relay, ['ebb', 'flow']);
    const [dropped, kept, both] = [tagged('ebb'), tagged('flow'), tagged('ebb', 'flow')];
    for (const event of [dropped, kept, both]) expect(await client.publish(event)).toEqual([true, '']);
    const asked = { '#t': ['ebb', 'flow'] };
    const ids = async (filter: object) => (await client.query(filter)).events.map(({ id }) => id).sort();
    expect(await ids(asked)).toEqual([dropped.id, kept.id, both.id].sort());
    const reader = await RawClient.connect(relay.url);
    reader.send(['REQ', 'live', { ...asked, limit: 0 }]);
    await reader.waitFor(([verb]) => verb === 'EOSE');
    await unpin('ebb');
    expect((await client.query({ '#t': ['ebb'] })).closed).toBe(NOT_ASKED);
    expect(await ids(asked)).toEqual([kept.id, both.id].sort());
    expect(await ids({ ...asked, ids: [dropped.id] })).toEqual([]);
    expect(await count(asked)).toEqual(['COUNT', 'c', { count: 2 }]);
    const later = sign(alice, { content: 'later', tags: both.tags });
    expect(await client.publish(later)).toEqual([true, '']);
    await reader.waitFor(([verb, , event]) => verb === 'EVENT' && (event as { id: string }).id === later.id);
    await pinTopics(relay, ['ebb']);
    expect(await ids(asked)).toEqual([dropped.id, kept.id, both.id, later.id].sort());
    await reader.close();
  });

  it('of a free kind need not be carried', async () => {
    const event = sign(newAuthor(), { kind: 10_002, tags: [['t', 'nobody']] });
    expect(await client.publish(event)).toEqual([true, '']);
  });
});

describe('a change of the settings', () => {
  it('of topic.mode takes effect on an open connection, both ways', async () => {
    const early = sign(alice, { content: 'without a topic' });
    expect(await client.publish(early)).toEqual([false, MISSING]);
    await set('topic.mode', 'open');
    expect(await client.publish(early)).toEqual([true, '']);
    expect(await client.query({ ids: [early.id] })).toEqual({ events: [early] });
    expect(await count({ ids: [early.id] })).toEqual(['COUNT', 'c', { count: 1 }]);
    await set('topic.mode', 'required');
    expect(await client.publish(sign(alice, { content: 'too late' }))).toEqual([false, MISSING]);
    expect((await client.query({ ids: [early.id] })).closed).toEqual(CLOSED);
    expect(await count({ ids: [early.id] })).toEqual(['CLOSED', 'c', CLOSED]);
  });

  it('of topic.freeKinds takes effect for events and filters, with numbers and ranges', async () => {
    await set('topic.freeKinds', [7, '1000-1002']);
    for (const kind of [7, 1_000, 1_001, 1_002]) {
      expect(await client.publish(sign(newAuthor(), { kind }))).toEqual([true, '']);
      expect((await client.query({ kinds: [kind] })).closed).toBeUndefined();
    }
    for (const kind of [0, 6, 999, 1_003]) {
      expect(await client.publish(sign(newAuthor(), { kind }))).toEqual([false, MISSING]);
      expect((await client.query({ kinds: [kind] })).closed).toEqual(CLOSED);
    }
  });
});

describe('default mode', () => {
  let plain: TestNode;
  let member: RawClient;
  beforeAll(async () => {
    plain = await startTestNode({ env: { MINATO_TOPIC_MODE: 'default' } });
    await pinTopics(plain, ['boats']);
    member = await RawClient.connect(plain.url);
  });
  afterAll(async () => {
    await member.close();
    await plain.close();
  });

  it('accepts events without a topic, found under the global topic and served as sent', async () => {
    const event = sign(alice, { content: 'from an ordinary client', tags: [['t', '']] });
    expect(await member.publish(event)).toEqual([true, '']);
    for (const filter of [{ '#t': [GLOBAL] }, { ids: [event.id] }, { kinds: [1] }, {}])
      expect(await member.query(filter)).toEqual({ events: [event] });
  });

  it('treats a hashtag as a tag: its event is found by it, and under the global topic', async () => {
    const tags = [
      ['t', 'nostr'],
      ['t', 'fishing'],
    ];
    const event = sign(alice, { content: 'with #nostr', tags });
    expect(await member.publish(event)).toEqual([true, '']);
    for (const topic of ['nostr', 'fishing', GLOBAL])
      expect(await member.query({ '#t': [topic], ids: [event.id] })).toEqual({ events: [event] });
    expect(await member.query({ ids: [event.id] })).toEqual({ events: [event] });
    expect(await member.query({ '#t': ['Nostr'] })).toEqual({ events: [] });
  });

  it('accepts only carried ids of the namespace', async () => {
    expect(await member.publish(sign(alice, { tags: [['t', 'kukuri:nobody']] }))).toEqual([
      false,
      NOT_ENABLED,
    ]);
    expect((await member.query({ '#t': ['kukuri:nobody'] })).closed).toBe(NOT_ENABLED);
    const event = sign(alice, { tags: [['t', 'boats']] });
    expect(await member.publish(event)).toEqual([true, '']);
    expect(await member.query({ '#t': [GLOBAL], ids: [event.id] })).toEqual({ events: [] });
    expect(await member.query({ '#t': ['nobody', 'boats'] })).toEqual({ events: [event] });
  });

  it('binds no free kind', async () => {
    const profile = sign(alice, { kind: 0 });
    expect(await member.publish(profile)).toEqual([true, '']);
    expect(await member.query({ kinds: [0], '#t': [GLOBAL] })).toEqual({ events: [] });
    expect(await member.query({ kinds: [0] })).toEqual({ events: [profile] });
  });

  it('uses the namespace at the time an event arrives', async () => {
    const { id } = plain.node.communities.find(undefined, undefined)!;
    await writeSetting(plain.database.pool, id, 'topic.namespace', 'harbour', Date.now());
    const topics = () => plain.node.communities.get(id)!.topics;
    await expect.poll(() => topics().get('harbour:global')?.enabled, { timeout: 100_000 }).toBe(true);
    const event = sign(alice, { content: 'in the new namespace' });
    expect(await member.publish(event)).toEqual([true, '']);
    expect(await member.query({ '#t': ['harbour:global'] })).toEqual({ events: [event] });
    expect((await member.query({ '#t': [GLOBAL], ids: [event.id] })).events).toEqual([]);
  });

  it('refuses events without a topic while the global topic is not carried', async () => {
    const { id } = plain.node.communities.find(undefined, undefined)!;
    await deleteNodeTopic(plain.database.pool, { community: id, topic: 'harbour:global' }, Date.now());
    await expect
      .poll(() => plain.node.communities.get(id)!.topics.has('harbour:global'), { timeout: 100_000 })
      .toBe(false);
    expect(await member.publish(sign(alice, { content: 'too late' }))).toEqual([false, NOT_ENABLED]);
  });
});

describe('open mode', () => {
  it('is a plain relay: neither events nor filters need a topic', async () => {
    const open = await startTestNode({ env: { MINATO_TOPIC_MODE: 'open' } });
    const member = await RawClient.connect(open.url);
    const event = sign(alice, { content: 'plain' });
    expect(await member.publish(event)).toEqual([true, '']);
    expect(await member.query({})).toEqual({ events: [event] });
    expect(await member.query({ kinds: [1] }, { ids: [event.id] })).toEqual({ events: [event] });
    await member.close();
    await open.close();
  });

  it('required is the default mode of a node', async () => {
    const plain = await startTestNode({ env: { MINATO_TOPIC_MODE: '' } });
    const member = await RawClient.connect(plain.url);
    expect(await member.publish(sign(alice))).toEqual([false, MISSING]);
    await member.close();
    await plain.close();
  });

  it('MINATO_TOPIC_MODE is only the first value: a later start does not change the setting', async () => {
    const second = await startTestNode({ on: relay.test, env: { MINATO_TOPIC_MODE: 'open' } });
    const member = await RawClient.connect(second.url);
    expect(await member.publish(sign(alice))).toEqual([false, MISSING]);
    await member.close();
    await second.close();
  });
});
