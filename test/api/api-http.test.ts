/** Rules for every route of the API: form of refusals, communities, other origins, bodies, rates. */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, resetSetting, writeSetting } from '../../src/communities/communities.sql.js';
import { type SettingKey, settingDefinitions } from '../../src/communities/rules-settings.js';
import { type Api, createApi, type Refused } from '../support/clients/api.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const TOPICS = '/v1/topics';
const LIST = '/v1/topic-subscriptions';
const ASK = '/v1/topic-subscription-requests';
let relay: TestNode;
let api: Api;
const alice = newAuthor();
const operator = newAuthor();

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: operator.pubkey } });
  api = createApi(relay.http);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, { timeout: 100_000 });
});
afterAll(() => relay.close());

const community = () => relay.node.communities.find(undefined, 'default')!;
const changed = new Set<SettingKey>();

async function settle(values: Partial<Record<SettingKey, unknown>>): Promise<void> {
  const entries = Object.entries(values) as [SettingKey, unknown][];
  for (const [key, value] of entries) {
    await writeSetting(relay.database.pool, community().id, key, value, Date.now());
    changed.add(key);
  }
  await expect
    .poll(() => entries.map(([key]) => community().settings[key]), { timeout: 100_000 })
    .toEqual(entries.map(([, value]) => value));
}
afterEach(async () => {
  const keys = [...changed];
  changed.clear();
  for (const key of keys) await resetSetting(relay.database.pool, community().id, key);
  await expect
    .poll(() => keys.map((key) => community().settings[key]), { timeout: 100_000 })
    .toEqual(keys.map((key) => settingDefinitions[key].default));
});

describe('a body', () => {
  const nested = (depth: number) => `{"value":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`;

  it.each([65, 3_000, 20_000])('nested %i levels deep is refused, by every kind of route', async (depth) => {
    const routes = [
      ['POST', '/v1/auth/challenge', undefined],
      ['POST', ASK, alice],
      ['PUT', '/v1/admin/settings/relay.name', operator],
      ['PUT', '/v1/admin/settings/relay.urls', operator],
      ['PUT', '/v1/admin/settings/topic.freeKinds', operator],
    ] as const;
    for (const [method, path, as] of routes) {
      const { body } = await api.refused(400, 'INVALID_REQUEST', method, path, {
        ...(as && { as }),
        body: nested(depth),
      });
      expect(body.details).toEqual({
        problems: [{ path: 'body', message: 'nested more than 64 levels deep' }],
      });
    }
  });

  it('of some levels is validated as usual', async () => {
    const { body } = await api.refused(400, 'INVALID_REQUEST', 'PUT', '/v1/admin/settings/relay.urls', {
      as: operator,
      body: nested(40),
    });
    expect(JSON.stringify(body.details)).not.toContain('levels');
  });
});

describe('a refusal', () => {
  it('of an unknown route has the same shape as any other', async () => {
    for (const path of ['/v1', '/v1/', '/v1/nothing', '/v1/topics/nothing/at/all', '/c/art/v1/nothing'])
      await api.refused(404, 'NOT_FOUND', 'GET', path);
    await api.refused(404, 'NOT_FOUND', 'PUT', TOPICS, { body: {} });
    await api.refused(404, 'NOT_FOUND', 'POST', '/v1/nothing', { body: 'x'.repeat(100_000) });
    await api.refused(404, 'NOT_FOUND', 'PATCH', `${LIST}/kukuri:global`, { as: alice });
  });

  it('of an unknown community has its own code, on every route', async () => {
    await api.refused(404, 'COMMUNITY_NOT_FOUND', 'GET', `/c/nobody${TOPICS}`);
    await api.refused(404, 'COMMUNITY_NOT_FOUND', 'GET', `/c/nobody${LIST}`, { as: alice });
    await api.refused(404, 'COMMUNITY_NOT_FOUND', 'GET', '/c/nobody/v1/nothing');
  });

  it('of a request that has not the expected form says where', async () => {
    const { body } = await api.refused(400, 'INVALID_REQUEST', 'GET', `${TOPICS}?limit=0&cursr=x`);
    const problems = body.details.problems as { path: string; message: string }[];
    expect(problems.map(({ path }) => path).sort()).toEqual(['querystring', 'querystring/limit']);
    expect(JSON.stringify(problems)).toContain('cursr');
    for (const limit of ['201', '1.5', 'x', '', '-1', '1&limit=2'])
      await api.refused(400, 'INVALID_REQUEST', 'GET', `${TOPICS}?limit=${limit}`);
    const posted = await api.refused(400, 'INVALID_REQUEST', 'POST', ASK, {
      as: alice,
      body: { name: 'x', requested_services: ['index', 'magic'] },
    });
    expect(posted.body.details.problems).toMatchObject([{ path: 'body/requested_services/1' }]);
  });

  it('of a path that cannot be decoded has the shape too', async () => {
    const response = await fetch(`${relay.http}${LIST}/%zz`, { method: 'POST' });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ code: 'INVALID_REQUEST', details: {} });
  });

  it('of an internal error does not reveal its cause', async () => {
    const own = await startTestNode({ env: { MINATO_LOG_LEVEL: 'silent' } });
    try {
      await own.database.pool.query('ALTER TABLE topic_subscriptions RENAME TO gone');
      const answer = await createApi(own.http).refused(500, 'INTERNAL', 'GET', LIST, { as: alice });
      expect(JSON.stringify(answer.body)).not.toMatch(/topic_subscriptions|relation|at /);
      expect(answer.body.details).toEqual({});
    } finally {
      await own.close();
    }
  });
});

describe('a body', () => {
  const post = (body: unknown, headers?: Record<string, string>) =>
    api.ask<Refused>('POST', ASK, { as: alice, body, ...(headers ? { headers } : {}) });

  it('must be JSON', async () => {
    for (const body of ['{', 'name=x', '{"name":"x"}}', '[1', '"\u0000"', '']) {
      const answer = await post(body);
      expect({ body, status: answer.status, code: answer.body.code }).toEqual({
        body,
        status: 400,
        code: 'INVALID_REQUEST',
      });
    }
    const answer = await post('{"name":"x"}', { 'content-type': 'text/plain' });
    expect(answer).toMatchObject({ status: 415, body: { code: 'UNSUPPORTED_MEDIA_TYPE' } });
  });

  it('must be an object of the known fields only', async () => {
    const bodies = [
      '[]',
      '1',
      'null',
      '{"name":"x","admin":true}',
      '{"name":"x","__proto__":{"invite":"y"}}',
      '{"name":"x","constructor":{}}',
      '['.repeat(30_000),
      `${'['.repeat(30_000)}${']'.repeat(30_000)}`,
    ];
    for (const body of bodies) {
      const { status } = await post(body);
      expect({ body: body.slice(0, 50), status }).toEqual({ body: body.slice(0, 50), status: 400 });
    }
  });

  it('has at most 64 KiB', async () => {
    await api.refused(413, 'PAYLOAD_TOO_LARGE', 'POST', ASK, { as: alice, body: 'x'.repeat(65_537) });
    expect((await post({ name: 'x', invite: 'y'.repeat(60_000) })).status).toBe(400);
  });

  it('is refused if the route has none', async () => {
    const path = `${LIST}/kukuri:global/pause`;
    await api.refused(400, 'INVALID_REQUEST', 'POST', path, { as: alice, body: { note: 'x' } });
    await api.refused(404, 'NOT_FOUND', 'POST', path, { as: alice });
  });
});

describe('another origin', () => {
  it('may send requests: its preflight allows the signature, but no cookies', async () => {
    for (const path of [TOPICS, `${LIST}/kukuri:global`, `/c/art${ASK}`]) {
      const response = await fetch(relay.http + path, {
        method: 'OPTIONS',
        headers: {
          origin: 'https://app.example',
          'access-control-request-method': 'DELETE',
          'access-control-request-headers': 'authorization, content-type',
        },
      });
      expect(response.status, path).toBe(204);
      expect(response.headers.get('access-control-allow-origin')).toBe('*');
      expect(response.headers.get('access-control-allow-headers')?.toLowerCase()).toContain('authorization');
      expect(response.headers.get('access-control-allow-methods')).toContain('DELETE');
      expect(response.headers.get('access-control-allow-credentials')).toBeNull();
    }
  });

  it('can read answers and refusals alike', async () => {
    const headers = { origin: 'https://app.example' };
    for (const path of [TOPICS, LIST, '/v1/nothing']) {
      const response = await fetch(relay.http + path, { headers });
      expect(response.headers.get('access-control-allow-origin'), path).toBe('*');
      expect(response.headers.get('access-control-expose-headers')?.toLowerCase()).toContain('retry-after');
    }
  });
});

describe('rates', () => {
  let next = 0;
  /** A client that nobody has seen yet, behind a proxy on this machine. */
  const stranger = () => ({ 'x-forwarded-for': `203.0.113.${++next}` });

  async function expectLimited(method: string, path: string, asking: Parameters<Api['ask']>[2]) {
    const { headers, body } = await api.refused(429, 'RATE_LIMITED', method, path, asking);
    const seconds = Number(headers.get('retry-after'));
    expect(Number.isInteger(seconds) && seconds >= 1).toBe(true);
    expect(body.details.retry_after_seconds).toBe(seconds);
    return seconds;
  }

  /** The bucket fills up meanwhile, so that some more may pass than it holds. */
  async function untilLimited(path: string, headers: Record<string, string>) {
    let answer = await api.ask('GET', path, { headers });
    for (let asked = 0; asked < 500 && answer.status !== 429; asked += 1) {
      const several = Array.from({ length: 5 }, () => api.ask('GET', path, { headers }));
      const answers = await Promise.all(several);
      answer = answers.find(({ status }) => status === 429) ?? answer;
    }
    expect(answer.status).toBe(429);
    return answer;
  }

  it('of public requests apply by address, and say when to retry', async () => {
    await settle({ 'rate.httpPublicPerSecond': 1, 'rate.httpPublicBurst': 3 });
    const headers = stranger();
    const limited = await untilLimited(TOPICS, headers);
    expect(Number(limited.headers.get('retry-after'))).toBe(1);
    expect((await api.ask('GET', TOPICS, { headers: stranger() })).status).toBe(200);
  });

  it('of members apply by address before a signature is checked', async () => {
    // One in about three hours: within a test the bucket stays empty.
    await settle({ 'rate.subscriptionRequestsPerHour': 2 });
    const headers = stranger();
    for (let asked = 0; asked < 2; asked += 1)
      await api.refused(401, 'AUTH_REQUIRED', 'POST', ASK, { headers, body: {} });
    const seconds = await expectLimited('POST', ASK, { headers, body: {} });
    expect(seconds).toBeGreaterThan(1_000);
    await expectLimited('POST', ASK, { as: alice, headers, body: { name: 'x' } });
    await api.refused(401, 'AUTH_REQUIRED', 'POST', ASK, { headers: stranger(), body: {} });
    expect((await api.ask('GET', ASK, { as: alice, headers })).status).toBe(200);
  });

  it('of members apply by key, from any address', async () => {
    await settle({ 'rate.subscriptionRequestsPerHour': 2 });
    const bob = newAuthor();
    const ask = { as: bob, body: { topic_id: 'nothing' } };
    for (let asked = 0; asked < 2; asked += 1)
      await api.refused(400, 'INVALID_TOPIC', 'POST', ASK, { ...ask, headers: stranger() });
    await expectLimited('POST', ASK, { ...ask, headers: stranger() });
    await api.refused(400, 'INVALID_TOPIC', 'POST', ASK, { ...ask, as: newAuthor(), headers: stranger() });
  });

  it('of each group and of each community are separate', async () => {
    await settle({ 'rate.httpMemberPerSecond': 1, 'rate.httpMemberBurst': 1 });
    const headers = stranger();
    await untilLimited(LIST, headers);
    expect((await api.ask('GET', TOPICS, { headers })).status).toBe(200);
    await api.refused(401, 'AUTH_REQUIRED', 'GET', `/c/art${LIST}`, { headers });
  });

  it('do not apply to this machine, unless the community says so', async () => {
    await settle({ 'rate.subscriptionRequestsPerHour': 1 });
    for (let asked = 0; asked < 3; asked += 1)
      await api.refused(401, 'AUTH_REQUIRED', 'POST', ASK, { body: {} });
    await settle({ 'rate.exemptLoopback': false });
    await api.refused(401, 'AUTH_REQUIRED', 'POST', ASK, { body: {} });
    await expectLimited('POST', ASK, { body: {} });
  });

  it('apply over all instances', async () => {
    await settle({ 'rate.subscriptionRequestsPerHour': 2 });
    const second = await startTestNode({ on: relay.test });
    try {
      const other = createApi(second.http);
      const headers = stranger();
      for (const each of [api, other])
        await each.refused(401, 'AUTH_REQUIRED', 'POST', ASK, { headers, body: {} });
      for (const each of [api, other])
        await each.refused(429, 'RATE_LIMITED', 'POST', ASK, { headers, body: {} });
    } finally {
      await second.close();
    }
  });
});
