/** Public routes of topics: the directory and the ids of names. */
import { blake3 } from '@noble/hashes/blake3.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { blockTopic } from '../../src/topics/blocked-topics.sql.js';
import { createNodeTopic } from '../../src/topics/node-topics.sql.js';
import { requestTopic } from '../../src/topics/requests.sql.js';
import { requestRules } from '../../src/topics/rules-requests.js';
import { type Api, type Asking, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const NETWORK_ID = 'kukuri:test:';
let relay: TestNode;
let api: Api;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_NETWORK_ID: NETWORK_ID } });
  api = createApi(relay.http);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, { timeout: 100_000 });
});
afterAll(() => relay.close());

const idOf = (name: string) => `kukuri:${bytesToHex(blake3(utf8ToBytes(NETWORK_ID + name)))}`;
const communityId = (slug: string) => relay.node.communities.find(undefined, slug)!.id;
const carry = (slug: string, name: string, isPublic = false) =>
  createNodeTopic(
    relay.database.pool,
    { community: communityId(slug), topic: idOf(name), name, public: isPublic },
    { enabledMax: 1_000 },
    Date.now(),
  );

/** Returns when the relay follows it: the other tests post without authentication. */
async function setAuthMode(slug: string, mode: 'off' | 'required'): Promise<void> {
  await writeSetting(relay.database.pool, communityId(slug), 'auth.mode', mode, Date.now());
  const current = () => relay.node.communities.find(undefined, slug)!.settings['auth.mode'];
  await vi.waitUntil(() => current() === mode, { timeout: 100_000 });
}

interface ListedTopic {
  topic_id: string;
  name: string | null;
  public: boolean;
  subscribers: number;
  events: number;
  posts_day: number;
  posts_week: number;
  last_post_at: number | null;
}
interface Directory {
  items: ListedTopic[];
  next_cursor: string | null;
}

describe('the directory', () => {
  it('has the global topic from the start, and needs no signature', async () => {
    const { status, body } = await api.ask<Directory>('GET', '/c/art/v1/topics');
    expect(status).toBe(200);
    expect(body).toEqual({
      items: [
        {
          topic_id: 'kukuri:global',
          name: null,
          public: true,
          subscribers: 0,
          events: 0,
          posts_day: 0,
          posts_week: 0,
          last_post_at: null,
        },
      ],
      next_cursor: null,
    });
  });

  it('has the topics that its community carries, page by page, each once', async () => {
    const names = ['one', 'two', 'three', 'four', 'five'];
    for (const name of names) await carry('default', name, name === 'two');
    const seen: Directory['items'] = [];
    let cursor: string | null = '';
    while (cursor !== null) {
      const path: string = `/v1/topics?limit=2${cursor === '' ? '' : `&cursor=${cursor}`}`;
      const { body } = await api.ask<Directory>('GET', path);
      expect(body.items.length).toBeLessThanOrEqual(2);
      seen.push(...body.items);
      cursor = body.next_cursor;
    }
    const ids = seen.map(({ topic_id }) => topic_id);
    expect(ids.sort()).toEqual(['kukuri:global', ...names.map(idOf)].sort());
    expect(seen.find(({ name }) => name === 'two')).toMatchObject({ public: true });
    expect(seen.find(({ name }) => name === 'one')).toMatchObject({ public: false });
    expect((await api.ask<Directory>('GET', '/c/art/v1/topics')).body.items).toHaveLength(1);
  });

  it('has no topic that is blocked', async () => {
    await carry('default', 'spam');
    const { pool } = relay.database;
    const listed = async () =>
      (await api.ask<Directory>('GET', '/v1/topics')).body.items.map(({ name }) => name);
    await expect.poll(listed, { timeout: 100_000 }).toContain('spam');
    await blockTopic(pool, { community: communityId('default'), topic: idOf('spam') }, Date.now());
    await expect.poll(listed, { timeout: 100_000 }).not.toContain('spam');
  });

  it('has only public topics, if clients must authenticate', async () => {
    await carry('default', 'secret');
    const listed = async () =>
      (await api.ask<Directory>('GET', '/v1/topics')).body.items.map(({ topic_id }) => topic_id);
    await expect.poll(listed, { timeout: 100_000 }).toContain(idOf('secret'));
    await setAuthMode('default', 'required');
    await expect.poll(listed, { timeout: 100_000 }).not.toContain(idOf('secret'));
    expect(await listed()).toContain('kukuri:global');
    await setAuthMode('default', 'off');
  });

  it('refuses a foreign cursor', async () => {
    for (const cursor of [
      'x',
      'bnVsbA',
      Buffer.from('["a",1]').toString('base64url'),
      '%00',
      'x'.repeat(2_001),
    ])
      await api.refused(400, 'INVALID_REQUEST', 'GET', `/v1/topics?cursor=${cursor}`);
    const strange = Buffer.from(JSON.stringify(['\u0000'])).toString('base64url');
    await api.refused(400, 'INVALID_REQUEST', 'GET', `/v1/topics?cursor=${strange}`);
  });
});

describe('the activity of a topic', () => {
  const HOUR = 3_600;
  const entryOf = async (topic: string, asking?: Asking) =>
    (await api.ask<ListedTopic>('GET', `/v1/topics/${topic}`, asking)).body;

  it('counts its posts of a day and a week, and names the newest, without hidden ones', async () => {
    const topic = idOf('busy');
    await carry('default', 'busy', true);
    const author = newAuthor();
    const client = await RawClient.connect(relay.url);
    const now = nowSeconds();
    const ages = [0, HOUR, 30 * HOUR, 8 * 24 * HOUR];
    const posts = ages.map((age) => sign(author, { created_at: now - age, tags: [['t', topic]] }));
    const reaction = sign(author, { kind: 7, created_at: now, tags: [['t', topic]] });
    for (const event of [...posts, reaction]) expect(await client.publish(event)).toEqual([true, '']);
    const deletion = sign(author, { kind: 5, tags: [['e', posts[0]!.id]] });
    expect(await client.publish(deletion)).toEqual([true, '']);
    await client.close();
    const activity = { posts_day: 1, posts_week: 2, last_post_at: (now - HOUR) * 1_000 };
    expect(await entryOf(topic)).toMatchObject({ topic_id: topic, name: 'busy', public: true, ...activity });
    const { body } = await api.ask<Directory>('GET', '/v1/topics?limit=200');
    expect(body.items.find(({ topic_id }) => topic_id === topic)).toMatchObject(activity);
  });

  it('is not found for a topic that is not carried', async () => {
    await api.refused(404, 'NOT_FOUND', 'GET', `/v1/topics/${idOf('nowhere')}`);
    await api.refused(404, 'NOT_FOUND', 'GET', '/v1/topics/%07');
  });

  it('is shown to subscribers only for a private topic, if clients must authenticate', async () => {
    const topic = idOf('quiet');
    const [member, stranger] = [newAuthor(), newAuthor()];
    const { pool } = relay.database;
    await carry('default', 'quiet');
    const community = relay.node.communities.find(undefined, 'default')!;
    const ask = { community: community.id, pubkey: member.pubkey, topic, services: [] };
    const rules = { ...requestRules(community.settings), autoApproval: 'within-limits' as const };
    expect(isDenial(await requestTopic(pool, ask, rules, Date.now()))).toBe(false);
    await setAuthMode('default', 'required');
    expect(await entryOf(topic, { as: member })).toMatchObject({ name: 'quiet', subscribers: 1 });
    await api.refused(404, 'NOT_FOUND', 'GET', `/v1/topics/${topic}`);
    await api.refused(404, 'NOT_FOUND', 'GET', `/v1/topics/${topic}`, { as: stranger });
    await setAuthMode('default', 'off');
  });
});

describe('the id of a name', () => {
  const resolve = (name: string, prefix = '') =>
    api.ask('GET', `${prefix}/v1/topics/resolve?name=${encodeURIComponent(name)}`);

  it('is the hash of the id of the network and the normalised name', async () => {
    for (const name of ['Gardens', ' gardens ', 'ＧＡＲＤＥＮＳ', 'gardens']) {
      expect((await resolve(name)).body).toEqual({
        name,
        normalized: 'gardens',
        topic_id: idOf('gardens'),
        gossip_topic: idOf('gardens').slice('kukuri:'.length),
        version: 'v1',
        enabled: false,
        public: false,
        blocked: false,
      });
    }
  });

  it('is the name itself when that is an id', async () => {
    expect((await resolve('kukuri:global')).body).toMatchObject({
      topic_id: 'kukuri:global',
      gossip_topic: bytesToHex(blake3(utf8ToBytes('kukuri:global'))),
      enabled: true,
      public: true,
    });
    expect((await resolve(idOf('x'))).body).toMatchObject({ topic_id: idOf('x') });
  });

  it('comes with whether the topic is carried, public or blocked here', async () => {
    await carry('default', 'resolved', true);
    expect((await resolve('resolved')).body).toMatchObject({ enabled: true, public: true, blocked: false });
    expect((await resolve('resolved', '/c/art')).body).toMatchObject({ enabled: false, public: false });
    const never = { community: communityId('art'), topic: idOf('never') };
    await blockTopic(relay.database.pool, never, Date.now());
    expect((await resolve('never', '/c/art')).body).toMatchObject({ enabled: false, blocked: true });
    expect((await resolve('never')).body).toMatchObject({ blocked: false });
  });

  it('hides from strangers that a private topic is carried, if clients must authenticate', async () => {
    const [member, stranger] = [newAuthor(), newAuthor()];
    const { pool } = relay.database;
    const community = relay.node.communities.find(undefined, 'art')!;
    const ask = { community: community.id, pubkey: member.pubkey, topic: idOf('closed'), services: [] };
    const asked = await requestTopic(
      pool,
      ask,
      { ...requestRules(community.settings), autoApproval: 'within-limits' },
      Date.now(),
    );
    expect(isDenial(asked)).toBe(false);
    const path = `/c/art/v1/topics/resolve?name=closed`;
    const enabled = async (as?: Author) =>
      (await api.ask<{ enabled: boolean }>('GET', path, as ? { as } : {})).body.enabled;
    expect(await enabled()).toBe(true);
    await setAuthMode('art', 'required');
    await expect.poll(() => enabled(), { timeout: 100_000 }).toBe(false);
    expect(await enabled(stranger)).toBe(false);
    expect(await enabled(member)).toBe(true);
    const unknown = await resolve('nobody asked for it', '/c/art');
    const {
      name: _name,
      normalized: _normalized,
      topic_id: _id,
      gossip_topic: _gossip,
      ...told
    } = (await api.ask<Record<string, unknown>>('GET', path)).body;
    expect(unknown.body).toMatchObject(told);
    expect((await resolve('kukuri:global', '/c/art')).body).toMatchObject({ enabled: true });
    await setAuthMode('art', 'off');
  });

  it('is refused for an invalid name', async () => {
    for (const name of ['', '   ', 'a\u0000b', 'line\nbreak', 'x'.repeat(257), 'x'.repeat(5_000)])
      await api.refused(400, 'INVALID_REQUEST', 'GET', `/v1/topics/resolve?name=${encodeURIComponent(name)}`);
    await api.refused(400, 'INVALID_REQUEST', 'GET', '/v1/topics/resolve');
    await api.refused(400, 'INVALID_REQUEST', 'GET', '/v1/topics/resolve?name=a&name=b');
  });
});
