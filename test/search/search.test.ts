/**
 * NIP-50 over real sockets, with the index of the node. A search finds what a REQ would return at this
 * moment, whether the index has read everything, has stopped before, or has not started (I6, I7, I8, I10,
 * I13).
 */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { serializeEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { pauseConsumer, resumeConsumer } from '../../src/outbox/consumers/admin.sql.js';
import { askRebuild, readLease } from '../../src/outbox/consumers/consumers.sql.js';
import { assignPlan, createPlan } from '../../src/plans/plans.sql.js';
import { readUsage } from '../../src/plans/usage.sql.js';
import { approveRequest, requestTopic } from '../../src/topics/requests.sql.js';
import { requestRules } from '../../src/topics/rules-requests.js';
import { eventually } from '../support/cli.js';
import { authenticate } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, type Draft, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { unsigned } from '../support/stores/life.js';

let relay: TestNode;
let client: RawClient;
let skewMs = 0;
const clients: RawClient[] = [];
const now = () => Date.now() + skewMs;
const seconds = () => Math.floor(now() / 1_000);
const alice = newAuthor();
const community = (slug = 'default') => relay.node.communities.find(undefined, slug)!;

/** A word that nobody else uses. */
let words = 0;
const newWord = () => `zq${(words++).toString(36)}x${Math.random().toString(36).slice(2, 8)}`;

async function connect(path = ''): Promise<RawClient> {
  const made = await RawClient.connect(relay.url + path);
  clients.push(made);
  return made;
}

async function post(draft: Draft, author = alice, at = client) {
  const event = sign(author, { created_at: seconds(), ...draft });
  expect(await at.publish(event)).toEqual([true, '']);
  return event;
}

const idsOf = async (reply: Promise<{ events: { id: string }[]; closed?: string }>) => {
  const { events, closed } = await reply;
  expect(closed).toBeUndefined();
  return events.map(({ id }) => id);
};
const find = (search: string, more: object = {}, at = client) => idsOf(at.query({ search, ...more }));

let counts = 0;
async function count(filters: object[], at = client): Promise<unknown> {
  const id = `count${counts++}`;
  at.send(['COUNT', id, ...filters]);
  const frame = await at.waitFor(([verb, name]) => (verb === 'COUNT' || verb === 'CLOSED') && name === id);
  return frame[0] === 'COUNT' ? (frame[2] as { count: number }).count : frame[2];
}

async function set(values: Partial<Record<SettingKey, unknown>>, slug = 'default'): Promise<void> {
  const entries = Object.entries(values) as [SettingKey, unknown][];
  for (const [key, value] of entries)
    await writeSetting(relay.database.pool, community(slug).id, key, value, now());
  await vi.waitUntil(
    () =>
      entries.every(
        ([key, value]) => JSON.stringify(community(slug).settings[key]) === JSON.stringify(value),
      ),
    { timeout: 100_000 },
  );
}

async function setTopic(topic: string, isPublic: boolean, retentionDays = 20): Promise<void> {
  const rules = { pinned: true, public: isPublic, priority: 0, policy: { retentionDays } };
  await writeTopic(relay.database.pool, community().id, topic, rules, now());
  await vi.waitUntil(
    () => {
      const known = community().topics.get(topic);
      return known?.public === isPublic && known.policy.retentionDays === retentionDays;
    },
    { timeout: 100_000 },
  );
}

async function subscribe(member: Author, topic: string): Promise<void> {
  const { pool } = relay.database;
  const ask = { community: community().id, pubkey: member.pubkey, topic, services: [] };
  const requested = await requestTopic(pool, ask, requestRules(community().settings), now());
  if (isDenial(requested)) throw new Error(requested.denied);
  const { requestId } = requested.request;
  expect(
    isDenial(
      await approveRequest(pool, { community: community().id, requestId }, { enabledMax: 1_000 }, now()),
    ),
  ).toBe(false);
}

/** Stops the index at its position. */
const pause = () => pauseConsumer(relay.database.pool, 'search', now());
const resume = () => resumeConsumer(relay.database.pool, 'search');
const indexed = () => relay.node.consumers!.drained();

beforeAll(async () => {
  relay = await startTestNode({ now });
  client = await RawClient.connect(relay.url);
});
afterEach(async () => {
  await resume();
  skewMs = 0;
  await Promise.all(clients.splice(0).map((each) => each.close()));
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

const stopped = async (): Promise<void> => {
  await indexed();
  await pause();
};
const nothing = async (): Promise<void> => undefined;

/** After the posts the index has read them, or not; in both cases it is stopped from then on. */
const STATES = [
  ['has read the posts and stands still since', { before: nothing, after: stopped }],
  ['has not read the posts', { before: stopped, after: nothing }],
] as const;

describe.each(STATES)('while the index %s', (_state, { before, after }) => {
  it('a post is found by its words, and counted', async () => {
    const word = newWord();
    await before();
    const event = await post({ content: `the ${word} of 東京都` });
    await after();
    expect(await find(word)).toEqual([event.id]);
    expect(await find(`京都 ${word}`)).toEqual([event.id]);
    expect(await find(`"${word} of"`)).toEqual([event.id]);
    expect(await find(`${word} -東京`)).toEqual([]);
    expect(await count([{ search: word }])).toBe(1);
  });

  it('each condition of the filter holds beside the words', async () => {
    const word = newWord();
    const bob = newAuthor();
    await before();
    const old = await post({
      content: word,
      created_at: seconds() - 1_000,
      tags: [
        ['t', 'tea'],
        ['p', bob.pubkey],
      ],
    });
    const article = await post(
      {
        content: word,
        kind: 30_023,
        tags: [
          ['d', 'x'],
          ['t', 'Tea party'],
        ],
      },
      bob,
    );
    await after();
    expect(await find(word, { kinds: [30_023] })).toEqual([article.id]);
    expect(await find(word, { authors: [alice.pubkey] })).toEqual([old.id]);
    expect(await find(word, { ids: [article.id] })).toEqual([article.id]);
    expect(await find(word, { '#p': [bob.pubkey] })).toEqual([old.id]);
    expect(await find(word, { '#t': ['tea'] })).toEqual([old.id]);
    expect(await find(word, { '#t': ['Tea party'] })).toEqual([article.id]);
    expect(await find(word, { '#t': ['tea party'] })).toEqual([]);
    expect(await find(word, { since: old.created_at + 1 })).toEqual([article.id]);
    expect(await find(word, { until: old.created_at })).toEqual([old.id]);
    expect(await find(word, { limit: 1 })).toHaveLength(1);
    expect(await find(word, { kinds: [] })).toEqual([]);
    expect(
      await count([{ search: word, kinds: [1] }, { search: word, authors: [bob.pubkey] }, { ids: [old.id] }]),
    ).toBe(2);
  });

  it('a deleted post is not found after the OK of its deletion (I6)', async () => {
    const word = newWord();
    await before();
    const event = await post({ content: word });
    await after();
    await post({ kind: 5, tags: [['e', event.id]] });
    expect(await find(word)).toEqual([]);
    expect(await find(word, { ids: [event.id] })).toEqual([]);
    expect(await count([{ search: word }])).toBe(0);
  });

  it('a replaced version is not found, and the new one only by its own words (I4)', async () => {
    const [one, other] = [newWord(), newWord()];
    const carol = newAuthor();
    await before();
    await post({ kind: 0, content: JSON.stringify({ name: one }), created_at: seconds() - 10 }, carol);
    await after();
    const newer = await post({ kind: 0, content: JSON.stringify({ name: other }) }, carol);
    expect(await find(one)).toEqual([]);
    expect(await find(other)).toEqual([newer.id]);
  });

  it('from the second of its expiry an event is not found (I7)', async () => {
    const word = newWord();
    await before();
    const event = await post({ content: word, tags: [['expiration', String(seconds() + 100)]] });
    await after();
    expect(await find(word)).toEqual([event.id]);
    skewMs += 101_000;
    expect(await find(word)).toEqual([]);
    expect(await count([{ search: word }])).toBe(0);
  });

  it('retention is exact, by the days of the topic in the filter (I8)', async () => {
    const word = newWord();
    await setTopic('short', true, 3);
    await before();
    const event = await post({
      content: word,
      tags: [
        ['t', 'short'],
        ['t', 'long'],
      ],
    });
    await after();
    skewMs += 4 * DAY_MS;
    expect(await find(word, { '#t': ['short'] })).toEqual([]);
    expect(await find(word, { '#t': ['long'] })).toEqual([event.id]);
    skewMs += 40 * DAY_MS;
    expect(await find(word)).toEqual([]);
  });

  it('posts of a vanished author are not found, even before they are erased (I6)', async () => {
    const word = newWord();
    const dora = newAuthor();
    await before();
    await post({ content: word, created_at: seconds() - 5 }, dora);
    await after();
    await post({ kind: 62, tags: [['relay', 'ALL_RELAYS']] }, dora);
    expect(await find(word)).toEqual([]);
    expect(await count([{ search: word }])).toBe(0);
  });

  it('private kinds are never found, not even by their author (I13)', async () => {
    const word = newWord();
    const erin = newAuthor();
    await before();
    await post({ kind: 4, content: word, tags: [['p', alice.pubkey]] }, erin);
    await after();
    const author = await connect();
    await authenticate(author, erin, relay.url);
    for (const each of [client, author]) {
      expect(await find(word, {}, each)).toEqual([]);
      expect(await count([{ search: word }], each)).toBe(0);
    }
    expect(await idsOf(author.query({ kinds: [4], authors: [erin.pubkey] }))).toHaveLength(1);
  });

  it('stored and live posts are each sent exactly once (I10)', async () => {
    const word = newWord();
    await before();
    const first = await post({ content: `${word} first` });
    await after();
    const reader = await connect();
    reader.send(['REQ', 's', { search: `${word} -not` }]);
    const sent = [first.id];
    for (const content of [`${word} two`, `not ${word}`, `${word} three`, `else ${newWord()}`]) {
      const event = await post({ content });
      if (content.startsWith(word)) sent.push(event.id);
    }
    await resume();
    await indexed();
    const last = await post({ content: `${word} last` });
    await reader.waitFor(([verb, , event]) => verb === 'EVENT' && (event as { id: string }).id === last.id);
    const got = reader.frames.flatMap(([verb, , event]) =>
      verb === 'EVENT' ? [(event as { id: string }).id] : [],
    );
    expect(got.sort()).toEqual([...sent, last.id].sort());
  });
});

describe('a result', () => {
  it('is in the order of its scores: words first, then freshness and references', async () => {
    const word = newWord();
    const old = seconds() - 20 * 86_400;
    const plain = await post({ content: `${word} and some other words about boats`, created_at: old });
    const fresh = await post({ content: `${word} and some other words about boats` });
    const popular = await post({ content: `${word} and some other words about boats`, created_at: old - 5 });
    const titled = await post({
      kind: 30_023,
      content: 'and some other words about boats',
      created_at: old,
      tags: [
        ['d', word],
        ['title', word],
      ],
    });
    for (let each = 0; each < 30; each += 1)
      await post({ kind: 7, content: '+', tags: [['e', popular.id]] }, newAuthor());
    await indexed();
    expect(await find(word)).toEqual([titled.id, fresh.id, popular.id, plain.id]);
    expect(await find(word, { limit: 2 })).toEqual([titled.id, fresh.id]);
  });

  it('of several filters has the results of each in sequence, without duplicates', async () => {
    const [one, other] = [newWord(), newWord()];
    const both = await post({ content: `${one} ${other}`, created_at: seconds() - 50 });
    const first = await post({ content: one, created_at: seconds() - 100 });
    const second = await post({ content: other });
    await indexed();
    const filters = [{ search: one }, { search: other }, { ids: [second.id, first.id] }];
    expect(await idsOf(client.query(...filters))).toEqual([first.id, both.id, second.id]);
  });

  it('of an empty search is that of no search, and a search without a word finds nothing', async () => {
    const event = await post({ content: '!!! ???' });
    expect(await idsOf(client.query({ ids: [event.id], search: ' ' }))).toEqual([event.id]);
    expect(await idsOf(client.query({ ids: [event.id], search: 'language:en' }))).toEqual([event.id]);
    expect(await idsOf(client.query({ ids: [event.id], search: '!!!' }))).toEqual([]);
    expect(await count([{ search: '!!!' }])).toBe(0);
  });

  it.each([
    ["'", `it's "quoted" '' \\' \\`],
    ['operators', 'a & b | !c <-> (d) :* e:A <2> f'],
    ['wildcards', '% _ %% __ * ?'],
    ['NUL and lone surrogates', 'x\u0000y \ud800 \udc00 z'],
    ['emoji', '🌊 👩‍👩‍👧 ☕'],
    ['Japanese punctuation', '「東京」、。・〜…'],
    ['only exclusions', '-a -"b c" -東京'],
    ['open quotes', '"a "b" "'],
    ['SQL', "'; DROP TABLE events; -- $1 {} NULL"],
    ['one letter', 'ー'],
    ['256 characters', 'x'.repeat(256)],
  ])('%s in a search fail nothing, stored, counted and live', async (_what, search) => {
    const found = await client.query({ search, limit: 5 });
    expect(found.closed).toBeUndefined();
    expect(await count([{ search }])).toEqual(expect.any(Number));
    const text = search.toWellFormed();
    const event = await post({
      content: `${text} 東京`,
      tags: [
        ['t', text],
        ['title', text],
      ],
    });
    await indexed();
    expect((await client.query({ search, ids: [event.id] })).closed).toBeUndefined();
  });

  it('of a post with any content never stops the index', async () => {
    const word = newWord();
    await post({ content: `${'東京'.repeat(9_000)}` });
    await post({ content: Array.from({ length: 9_000 }, (_, at) => at).join(' ') });
    await post({ kind: 0, content: '{"name": "\\u0000\\ud800"}' }, newAuthor());
    const event = await post({ content: word });
    await indexed();
    await pause();
    expect(await find(word)).toEqual([event.id]);
    const { rows } = await relay.database.pool.query('SELECT 1 FROM consumer_dead_letters');
    expect(rows).toEqual([]);
  });
});

describe('when the index is far behind or missing', () => {
  it('the result says so, and has the newest of the unread posts', async () => {
    const [lost, near] = [newWord(), newWord()];
    await indexed();
    await pause();
    const first = await post({ content: lost });
    const { store } = relay.node;
    const [pubkey, created_at] = [alice.pubkey, seconds()];
    await Promise.all(
      Array.from({ length: 1_000 }, (_, at) => {
        const event = unsigned({ pubkey, created_at, kind: 1, content: `${lost} ${at}` });
        return store.submit({ community: community().id, event, payload: serializeEvent(event) });
      }),
    );
    const event = await post({ content: near });
    const reader = await connect();
    expect(await find(near, {}, reader)).toEqual([event.id]);
    expect(await find(lost, { ids: [first.id] }, reader)).toEqual([]);
    reader.send(['COUNT', 'lost', { search: lost }]);
    const [, , counted] = await reader.waitFor(([verb, id]) => verb === 'COUNT' && id === 'lost');
    expect(counted).toMatchObject({ approximate: true });
    const found = await fetch(`${relay.http}/v1/search?q=${near}&topic=kukuri:global`);
    expect(await found.json()).toMatchObject({ index: { behind: 2, rebuilding: false } });
    const notices = reader.frames.filter(([verb]) => verb === 'NOTICE');
    expect(notices).toHaveLength(2);
    expect(notices[0]![1]).toMatch(/^error: search is behind: [^\d]+$/);
    await resume();
    await indexed();
    expect(await find(lost, { ids: [first.id] })).toEqual([first.id]);
    expect(await find(lost)).toHaveLength(500);
    expect(await find(lost, { limit: 5_000 })).toHaveLength(1_000);
    expect(await count([{ search: lost }])).toBe(1_001);
  });

  it('and was made by older rules, it is rebuilt automatically, and results say so until then', async () => {
    const { pool } = relay.database;
    const word = newWord();
    const event = await post({ content: word });
    await indexed();
    const { generation } = (await readLease(pool, 'search'))!;
    await pause();
    await pool.query(`UPDATE search_rules SET rules = rules || '{"words": 1}' WHERE generation = $1`, [
      generation,
    ]);
    const reader = await connect();
    expect(await find(word, {}, reader)).toEqual([event.id]);
    const notices = reader.frames.filter(([verb]) => verb === 'NOTICE');
    expect(notices).toEqual([['NOTICE', expect.stringMatching(/^error: search is being rebuilt/)]]);
    reader.send(['COUNT', 'old', { search: word }]);
    const [, , counted] = await reader.waitFor(([verb, id]) => verb === 'COUNT' && id === 'old');
    expect(counted).toEqual({ count: 1, approximate: true });
    const found = await fetch(`${relay.http}/v1/search?q=${word}&topic=kukuri:global`);
    expect(await found.json()).toMatchObject({ index: { behind: 0, rebuilding: true } });
    await resume();
    await eventually('it is rebuilt', async () =>
      (await readLease(pool, 'search'))!.generation > generation ? true : undefined,
    );
    const again = await connect();
    expect(await find(word, {}, again)).toEqual([event.id]);
    expect(again.frames.filter(([verb]) => verb === 'NOTICE')).toEqual([]);
  });

  it('a new one replaces it, and no search finds less or anything twice', async () => {
    const { pool } = relay.database;
    const word = newWord();
    const event = await post({ content: word });
    await indexed();
    const generationOf = async () => (await readLease(pool, 'search'))!.generation;
    const before = await generationOf();
    await askRebuild(pool, 'search', 'a test asks for it', now());
    while ((await generationOf()) === before) expect(await find(word)).toEqual([event.id]);
    expect(await find(word)).toEqual([event.id]);
  });

  it('during the first build a search is closed with an error, and costs nothing', async () => {
    const { pool } = relay.database;
    const member = newAuthor();
    const reader = await connect();
    await authenticate(reader, member, relay.url);
    await pause();
    const { generation } = (await readLease(pool, 'search'))!;
    await pool.query(`UPDATE consumer_offsets SET generation = 0 WHERE consumer = 'search'`);
    try {
      expect((await reader.query({ search: 'boat' })).closed).toMatch(/^error: what can be searched/);
      expect(await count([{ search: 'boat' }], reader)).toMatch(/^error: what can be searched/);
      expect((await reader.query({ kinds: [1], limit: 1 })).closed).toBeUndefined();
    } finally {
      await pool.query(`UPDATE consumer_offsets SET generation = $1 WHERE consumer = 'search'`, [generation]);
    }
    const { metrics } = await readUsage(pool, { community: community().id, pubkey: member.pubkey }, now());
    expect(metrics.find(({ metric }) => metric === 'search')?.used).toBe(0);
  });
});

describe('a plan', () => {
  it('counts each search of an authenticated client, and closes those beyond the limit', async () => {
    const { pool } = relay.database;
    const member = newAuthor();
    const planId = 'three';
    await createPlan(pool, { community: community().id, planId, limits: { searchPerDay: 3 } }, now());
    await assignPlan(pool, { community: community().id, pubkey: member.pubkey, planId }, now());
    const reader = await connect();
    await authenticate(reader, member, relay.url);
    expect(await find('boat', {}, reader)).toEqual(expect.any(Array));
    expect(await count([{ search: 'boat' }, { search: 'ship' }], reader)).toEqual(expect.any(Number));
    expect(await idsOf(reader.query({ kinds: [1], limit: 1 }))).toHaveLength(1);
    expect((await reader.query({ search: 'boat' }, { search: 'ship' })).closed).toBeUndefined();
    const used = 'rate-limited: quota exceeded: search, 3 a day';
    expect((await reader.query({ search: 'boat' })).closed).toBe(used);
    expect(await count([{ search: 'boat' }], reader)).toBe(used);
    expect(await idsOf(reader.query({ kinds: [1], limit: 1 }))).toHaveLength(1);
    expect((await client.query({ search: 'boat' })).closed).toBeUndefined();
  });
});

describe('what may be found', () => {
  it('two communities do not find posts of each other (I13)', async () => {
    await addCommunity(relay.database.pool, 'art', undefined, now());
    await vi.waitUntil(() => community('art') !== undefined, { timeout: 100_000 });
    await set({ 'topic.mode': 'open' }, 'art');
    const art = await connect('/c/art');
    const word = newWord();
    const here = await post({ content: word });
    const there = await post({ content: word }, alice, art);
    const both = sign(alice, { content: `${word} both`, created_at: seconds() });
    for (const each of [client, art]) expect(await each.publish(both)).toEqual([true, '']);
    await post({ kind: 5, tags: [['e', both.id]] }, alice, art);
    for (const wait of [async () => undefined, indexed]) {
      await wait();
      expect((await find(word)).sort()).toEqual([here.id, both.id].sort());
      expect(await find(word, {}, art)).toEqual([there.id]);
      expect(await count([{ search: word }], art)).toBe(1);
    }
  });

  it('a post is found in the topic that it is bound to without naming it', async () => {
    const word = newWord();
    await set({ 'topic.mode': 'default' });
    const event = await post({ content: word });
    for (const wait of [nothing, indexed]) {
      await wait();
      expect(await find(word, { '#t': ['kukuri:global'] })).toEqual([event.id]);
      expect(await find(`${word} #kukuri:global`)).toEqual([event.id]);
    }
    await set({ 'topic.mode': 'open' });
    await stopped();
    expect(await find(word, { '#t': ['kukuri:global'] })).toEqual([event.id]);
  });

  it('only searchable kinds are found, as soon as the setting is loaded', async () => {
    const word = newWord();
    const note = await post({ content: word });
    await post({ kind: 30_818, content: word, tags: [['d', word]] });
    await indexed();
    expect(await find(word)).toEqual([note.id]);
    const live = await connect();
    live.send(['REQ', 'live', { search: word, limit: 0 }]);
    await live.waitFor(([verb]) => verb === 'EOSE');
    await set({ 'search.kinds': [0, 30_818] });
    expect(await find(word)).toEqual([]);
    await post({ content: `${word} again` });
    const wiki = await post({ kind: 30_818, content: word, tags: [['d', `${word}2`]] });
    const [, , event] = await live.waitFor(([verb]) => verb === 'EVENT');
    expect((event as { id: string }).id).toBe(wiki.id);
    expect(await find(word)).toEqual([wiki.id]);
    await set({ 'search.kinds': [0, 1, 11, 1111, 30_023] });
  });

  it('posts of closed topics are found only by their members once auth is required', async () => {
    const word = newWord();
    const [open, closed] = ['kukuri:open', 'kukuri:closed'];
    const reader = newAuthor();
    await setTopic(open, true);
    await setTopic(closed, false);
    const plain = await post({ content: word, tags: [['t', 'sunset']] });
    const public1 = await post({ content: word, tags: [['t', open]] });
    const secret = await post({ content: word, tags: [['t', closed]] });
    const mixed = await post({
      content: word,
      tags: [
        ['t', closed],
        ['t', open],
      ],
    });
    await indexed();
    expect(await find(word)).toHaveLength(4);
    await set({ 'auth.mode': 'required', 'auth.graceSeconds': 0 });
    try {
      const member = await connect();
      expect((await member.query({ search: word })).closed).toMatch(/^auth-required:/);
      await authenticate(member, reader, relay.url);
      const seen = [plain.id, public1.id, mixed.id].sort();
      expect((await find(word, {}, member)).sort()).toEqual(seen);
      expect(await count([{ search: word }], member)).toBe(3);
      expect(await find(word, { ids: [secret.id] }, member)).toEqual([]);
      expect(await find(word, { authors: [alice.pubkey], '#t': [open] }, member)).toHaveLength(2);
      expect((await member.query({ search: word, '#t': [closed] })).closed).toMatch(/needs a subscription$/);
      await subscribe(reader, closed);
      await vi.waitUntil(async () => (await member.query({ '#t': [closed] })).events.length === 2);
      for (const wait of [nothing, indexed]) {
        await wait();
        expect((await find(word, { '#t': [closed] }, member)).sort()).toEqual([secret.id, mixed.id].sort());
        expect(await count([{ search: word, '#t': [closed] }], member)).toBe(2);
        expect(await find(word, { ids: [secret.id] }, member)).toEqual([secret.id]);
        expect((await find(word, {}, member)).sort()).toEqual([...seen, secret.id].sort());
      }
      const stranger = await connect();
      await authenticate(stranger, newAuthor(), relay.url);
      expect((await find(word, {}, stranger)).sort()).toEqual(seen);
      expect(await count([{ search: word }], stranger)).toBe(3);
      expect((await stranger.query({ search: word, '#t': [closed] })).closed).toMatch(
        /needs a subscription$/,
      );
      for (const [id, each] of [member, stranger].entries()) {
        each.send(['REQ', `live${id}`, { search: word, limit: 0 }]);
        await each.waitFor(([verb, name]) => verb === 'EOSE' && name === `live${id}`);
      }
      const tagged = (topic: string) => sign(reader, { content: `${word} live`, tags: [['t', topic]] });
      const [hidden, shown] = [tagged(closed), tagged(open)];
      for (const event of [hidden, shown]) expect(await member.publish(event)).toEqual([true, '']);
      const live = async (at: RawClient, id: number) => {
        const isLive = ([verb, name]: unknown[]) => verb === 'EVENT' && name === `live${id}`;
        await at.waitFor((frame) => isLive(frame) && (frame[2] as { id: string }).id === shown.id);
        return at.frames.filter(isLive).map((frame) => (frame[2] as { id: string }).id);
      };
      expect(await live(member, 0)).toEqual([hidden.id, shown.id]);
      expect(await live(stranger, 1)).toEqual([shown.id]);
    } finally {
      await set({ 'auth.mode': 'off' });
    }
  });
});
