/**
 * Search over real HTTP: results, pages, who may search, what it costs, and the code of each refusal.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isUnavailable } from '../../src/api/answer.js';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { assignPlan, createPlan } from '../../src/plans/plans.sql.js';
import { SessionPool } from '../../src/postgres/session.js';
import { requestTopic } from '../../src/topics/requests.sql.js';
import { requestRules } from '../../src/topics/rules-requests.js';
import { eventually } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const SEARCH = '/v1/search';
const OPEN = 'kukuri:global';
const CLOSED = `kukuri:${'c'.repeat(64)}`;
const BLOCKED = `kukuri:${'b'.repeat(64)}`;
const root = newAuthor();
const alice = newAuthor();

interface Found {
  readonly items: {
    readonly event: { readonly id: string; readonly content: string };
    readonly score: number;
  }[];
  readonly next_cursor: string | null;
}

let relay: TestNode;
let api: Api;
let client: RawClient;
const community = (slug = 'default') => relay.node.communities.find(undefined, slug)!;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey } });
  api = createApi(relay.http);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await eventually('the community is there', () => relay.node.communities.find(undefined, 'art'));
  for (const [topic, isPublic] of [
    [OPEN, true],
    [CLOSED, false],
    [BLOCKED, true],
  ] as const) {
    const rules = { pinned: true, public: isPublic, priority: 0, policy: {} };
    await writeTopic(relay.database.pool, community().id, topic, rules, Date.now());
  }
  await api.ask('PUT', `/v1/admin/blocked-topics/${BLOCKED}`, { as: root, body: {} });
  await eventually('the topics are known', () =>
    community().topics.get(BLOCKED)?.blocked && community().topics.get(CLOSED)?.enabled ? true : undefined,
  );
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

async function post(draft: Draft, by: Author = alice) {
  const event = sign(by, { tags: [['t', OPEN]], ...draft });
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
}
async function withSettings(values: Partial<Record<SettingKey, unknown>>, work: () => Promise<void>) {
  const before = { ...community().settings } as Record<string, unknown>;
  const set = async (key: string, value: unknown) => {
    await writeSetting(relay.database.pool, community().id, key as SettingKey, value, Date.now());
    await eventually(`${key} is set`, () =>
      (community().settings as Record<string, unknown>)[key] === value ? true : undefined,
    );
  };
  for (const [key, value] of Object.entries(values)) await set(key, value);
  try {
    await work();
  } finally {
    for (const key of Object.keys(values)) await set(key, before[key]);
  }
}
async function subscribe(member: Author, topic: string): Promise<void> {
  const { pool } = relay.database;
  const wanted = { community: community().id, pubkey: member.pubkey, topic, services: [] };
  const rules = { ...requestRules(community().settings), autoApproval: 'within-limits' } as const;
  expect(isDenial(await requestTopic(pool, wanted, rules, Date.now()))).toBe(false);
}
const searchPath = (query: Record<string, string | number>) => {
  const named = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) named.set(name, String(value));
  return `${SEARCH}?${named}`;
};
async function search(query: Record<string, string | number>, as?: Author, headers = {}): Promise<Found> {
  const answer = await api.ask<Found>('GET', searchPath(query), { ...(as ? { as } : {}), headers });
  expect(answer).toMatchObject({ status: 200 });
  return answer.body;
}
const contents = ({ items }: Found) => items.map(({ event }) => event.content);
async function used(who: Author): Promise<number> {
  const { body } = await api.ask<{ metrics: { metric: string; used: number }[] }>('GET', '/v1/usage', {
    as: who,
  });
  return body.metrics.find(({ metric }) => metric === 'search')?.used ?? 0;
}

describe('a search', () => {
  it('finds whole events by their words, the best first, at once', async () => {
    const at = nowSeconds();
    const older = await post({ content: 'a lighthouse by the sea', created_at: at - 500_000 });
    const newer = await post({ content: 'the lighthouse, again', created_at: at });
    await post({ content: 'only the sea' });
    const found = await search({ q: 'lighthouse', topic: OPEN });
    expect(found.items.map(({ event }) => event)).toEqual([newer, older]);
    expect(found.items[0]!.score).toBeGreaterThan(found.items[1]!.score);
    expect(found.next_cursor).toBeNull();
    expect(contents(await search({ q: 'lighthouse -again' }))).toEqual([older.content]);
    expect(contents(await search({ q: '"by the sea"' }))).toEqual([older.content]);
    expect(await search({ q: 'lighthouse', topic: CLOSED })).toEqual({
      items: [],
      next_cursor: null,
      index: { behind: 0, rebuilding: false },
    });
  });

  it('does not find what was deleted, private kinds, or another community (I6, I13)', async () => {
    const lost = await post({ content: 'anchorage lost' });
    const kept = await post({ content: 'anchorage kept' });
    await post({ kind: 4, content: 'anchorage secret', tags: [['p', root.pubkey]] });
    await post({ kind: 5, tags: [['e', lost.id]] });
    expect(contents(await search({ q: 'anchorage' }))).toEqual([kept.content]);
    expect(contents(await search({ q: 'anchorage' }, root))).toEqual([kept.content]);
    const there = await api.ask<Found>('GET', `/c/art${searchPath({ q: 'anchorage', topic: OPEN })}`);
    expect(there).toMatchObject({ status: 200, body: { items: [] } });
  });

  it('comes in pages, each post once', async () => {
    const posted = [];
    for (let at = 0; at < 7; at += 1) posted.push((await post({ content: `mooring ${at}` })).id);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const found: Found = await search({ q: 'mooring', limit: 3, ...(cursor === null ? {} : { cursor }) });
      expect(found.items.length).toBeLessThanOrEqual(3);
      seen.push(...found.items.map(({ event }) => event.id));
      cursor = found.next_cursor;
      // New posts do not change the remaining pages.
      if (seen.length === 3) await post({ content: 'mooring later' });
    } while (cursor !== null);
    expect(seen.toSorted()).toEqual(posted.toSorted());
  });

  it('is refused when its parameters are invalid', async () => {
    const wrong = [
      '',
      'q=',
      `q=${'x'.repeat(257)}`,
      'q=a&limit=0',
      'q=a&limit=101',
      'q=a&cursor=x',
      'q=a&order=new',
    ];
    for (const query of [...wrong, 'q=%20', 'q=language:en', `q=${'a+'.repeat(20)}`])
      await api.refused(400, 'INVALID_REQUEST', 'GET', `${SEARCH}?${query}`);
    const { body } = await api.refused(400, 'INVALID_REQUEST', 'GET', `${SEARCH}?q=language:en`);
    expect(body.details).toEqual({ problems: [{ path: 'querystring/q', message: expect.any(String) }] });
    // It has no word, so nothing is found.
    expect(await search({ q: '!?' })).toEqual({
      items: [],
      next_cursor: null,
      index: { behind: 0, rebuilding: false },
    });
  });
});

describe('topics', () => {
  it('that are blocked, not carried or missing are refused as in a REQ', async () => {
    await api.refused(403, 'TOPIC_BLOCKED', 'GET', searchPath({ q: 'x', topic: BLOCKED }));
    const unknown = `kukuri:${'0'.repeat(64)}`;
    await withSettings({ 'topic.mode': 'required' }, async () => {
      const { body } = await api.refused(
        403,
        'TOPIC_NOT_ENABLED',
        'GET',
        searchPath({ q: 'x', topic: unknown }),
      );
      expect(body.details).toEqual({ topic_id: unknown });
      await api.refused(403, 'TOPIC_BLOCKED', 'GET', searchPath({ q: 'x', topic: BLOCKED }));
      const missing = await api.refused(400, 'INVALID_REQUEST', 'GET', searchPath({ q: 'x' }));
      expect(missing.body.details).toEqual({
        problems: [{ path: 'querystring/topic', message: expect.stringContaining('missing topic') }],
      });
      await search({ q: 'x', topic: OPEN });
    });
  });

  it('that are not public are searched only by their subscribers when auth is required', async () => {
    const [member, stranger] = [newAuthor(), newAuthor()];
    const closed = await post({ content: 'a hidden slipway', tags: [['t', CLOSED]] });
    const open = await post({ content: 'an open slipway' });
    await subscribe(member, CLOSED);
    await withSettings({ 'auth.mode': 'required' }, async () => {
      const inTopic = await search({ q: 'slipway', topic: CLOSED }, member);
      expect(contents(inTopic)).toEqual([closed.content]);
      const both = [closed.content, open.content].sort();
      expect(contents(await search({ q: 'slipway' }, member)).sort()).toEqual(both);
      const path = searchPath({ q: 'slipway', topic: CLOSED });
      const { body } = await api.refused(403, 'SUBSCRIPTION_REQUIRED', 'GET', path, { as: stranger });
      expect(body.details).toEqual({ topic_id: CLOSED });
      expect(contents(await search({ q: 'slipway' }, stranger))).toEqual([open.content]);
    });
    expect(contents(await search({ q: 'slipway', topic: CLOSED }))).toEqual([closed.content]);
  });
});

describe('the client', () => {
  it('must sign only where clients must authenticate', async () => {
    await search({ q: 'x' });
    await withSettings({ 'auth.mode': 'required' }, async () => {
      await api.refused(401, 'AUTH_REQUIRED', 'GET', searchPath({ q: 'x' }));
      await search({ q: 'x' }, newAuthor());
      const later = Math.floor(Date.now() / 1_000) + 3_600;
      await withSettings({ 'auth.enforceAt': later }, async () => {
        await search({ q: 'x' });
      });
    });
  });

  it('is refused with a wrong or used signature, or a disabled account', async () => {
    const path = searchPath({ q: 'x' });
    await api.refused(401, 'INVALID_AUTH', 'GET', path, { headers: { authorization: 'Nostr x' } });
    await api.refused(401, 'INVALID_TOKEN', 'GET', path, { headers: { authorization: 'Bearer x' } });
    const disabled = newAuthor();
    await api.ask('PATCH', `/v1/admin/members/${disabled.pubkey}`, {
      as: root,
      body: { status: 'disabled' },
    });
    await api.refused(403, 'ACCOUNT_DISABLED', 'GET', path, { as: disabled });
  });

  it('must have agreed to the current policies where clients must authenticate', async () => {
    const policy = { type: 'terms', version: '1' };
    await api.ask('POST', '/v1/admin/policies', { as: root, body: policy });
    await api.ask('PUT', '/v1/admin/policies/terms/1/texts/en', {
      as: root,
      body: { title: 'Terms', content: 'Be kind.' },
    });
    await api.ask('POST', '/v1/admin/policies/terms/1/publish', { as: root });
    const current = await api.ask('POST', '/v1/admin/policies/terms/1/make-current', { as: root });
    expect(current).toMatchObject({ status: 200 });
    const member = newAuthor();
    await search({ q: 'x' }, member);
    await withSettings({ 'auth.mode': 'required' }, async () => {
      await api.refused(428, 'CONSENT_REQUIRED', 'GET', searchPath({ q: 'x' }), { as: member });
    });
  });

  it('uses one search of the plan per request, none when it is refused or sent again', async () => {
    const member = newAuthor();
    const { pool } = relay.database;
    const plan = { community: community().id, planId: 'small', limits: { searchPerDay: 2 } };
    const made = await createPlan(pool, { name: undefined, ...plan }, Date.now());
    expect(isDenial(made)).toBe(false);
    const given = { community: community().id, pubkey: member.pubkey, planId: 'small' };
    expect(isDenial(await assignPlan(pool, given, Date.now()))).toBe(false);
    await search({ q: 'x' }, member);
    await api.refused(403, 'TOPIC_BLOCKED', 'GET', searchPath({ q: 'x', topic: BLOCKED }), { as: member });
    expect(await used(member)).toBe(1);
    await search({ q: 'y' }, member, { 'x-request-id': 'one' });
    await search({ q: 'y' }, member, { 'x-request-id': 'one' });
    expect(await used(member)).toBe(2);
    const { body } = await api.refused(402, 'QUOTA_EXCEEDED', 'GET', searchPath({ q: 'z' }), { as: member });
    expect(body.details).toMatchObject({ metric: 'search', limit: 2 });
    // Without a key there is no plan.
    await search({ q: 'z' });
  });
});

it('is refused until the index is built', async () => {
  const { pool } = relay.database;
  await relay.node.consumers!.drained();
  const set = (generation: number) =>
    pool.query("UPDATE consumer_offsets SET generation = $1 WHERE consumer = 'search'", [generation]);
  await set(0);
  await api.refused(503, 'SEARCH_NOT_READY', 'GET', searchPath({ q: 'x' }));
  await set(1);
  await search({ q: 'x' });
});

it('counts unsigned requests by address', async () => {
  const limits = { 'rate.exemptLoopback': false, 'rate.httpPublicPerSecond': 1, 'rate.httpPublicBurst': 2 };
  await withSettings(limits, async () => {
    const statuses = [];
    for (let at = 0; at < 6; at += 1) statuses.push((await api.ask('GET', searchPath({ q: 'x' }))).status);
    expect(statuses).toContain(429);
  });
});

it('a search that times out or gets no connection is refused and can be repeated later', async () => {
  await post({ content: 'a quayside' });
  await relay.node.consumers!.drained();
  const blocker = await relay.database.connect();
  await blocker.query('BEGIN; LOCK TABLE post_search_documents IN ACCESS EXCLUSIVE MODE');
  const answer = api.ask('GET', searchPath({ q: 'quayside', topic: OPEN }));
  await eventually('it waits', async () => {
    const { rowCount } = await relay.database.ownPool.query(
      `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
         AND query LIKE '%encode(event_id%post_search_documents%tsquery%' AND datname = current_database()`,
    );
    return rowCount === 0 ? undefined : true;
  });
  await blocker.query('ROLLBACK');
  await blocker.end();
  expect(await answer).toMatchObject({ status: 503, body: { code: 'UNAVAILABLE' } });

  const pool = new SessionPool({
    ...relay.database.searchPool.options,
    max: 1,
    connectionTimeoutMillis: 2_000,
  });
  const held = await pool.connect();
  const [refused] = await Promise.allSettled([pool.query('SELECT 1')]);
  held.release();
  await pool.end();
  expect(refused).toMatchObject({ status: 'rejected' });
  expect(isUnavailable((refused as PromiseRejectedResult).reason)).toBe(true);
  expect(isUnavailable(new TypeError('a fault of our own'))).toBe(false);
  expect(isUnavailable(Object.assign(new Error('syntax'), { code: '42601' }))).toBe(false);
});
