/**
 * Plans over real HTTP: how operators manage them, what members see of theirs, and how many topics they
 * allow.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { type AuditEntry, listAudit } from '../../src/audit/audit.sql.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { changeMember } from '../../src/members/members.sql.js';
import { countUse, dayText } from '../../src/plans/usage.sql.js';
import { type Api, authorization, createApi, credential } from '../support/clients/api.js';
import { type Author, newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const PLANS = '/v1/admin/plans';
const MEMBERS = '/v1/admin/members';
const USAGE = '/v1/admin/usage';
const ASK = '/v1/topic-subscription-requests';
const SUBSCRIPTIONS = '/v1/topic-subscriptions';

const root = newAuthor();
let relay: TestNode;
let second: TestNode;
let api: Api;
let secondApi: Api;
let home: number;
let art: number;
/** A community that approves every request. */
let quick: number;
let member: Author;

const NO_LIMITS = {
  max_topics: null,
  search_per_day: null,
  trust_per_day: null,
  reports_per_day: null,
  exports_per_day: null,
};
const FREE_LIMITS = {
  max_topics: 100,
  search_per_day: 1_000,
  trust_per_day: 1_000,
  reports_per_day: 50,
  exports_per_day: 3,
};

beforeAll(async () => {
  const env = { MINATO_ADMIN_PUBKEYS: root.pubkey };
  relay = await startTestNode({ env });
  second = await startTestNode({ env, on: relay.test });
  api = createApi(relay.http);
  secondApi = createApi(second.http);
  const { pool } = relay.database;
  home = relay.node.communities.find(undefined, undefined)!.id;
  art = await addCommunity(pool, 'art', undefined, Date.now());
  quick = await addCommunity(pool, 'quick', undefined, Date.now());
  await writeSetting(pool, quick, 'subscription.autoApproval', 'within-limits', Date.now());
  for (const { node } of [relay, second])
    await vi.waitUntil(
      () => node.communities.get(quick)?.settings['subscription.autoApproval'] === 'within-limits',
      { timeout: 100_000 },
    );
});
afterAll(async () => {
  await second?.close();
  await relay?.close();
});
beforeEach(() => {
  member = newAuthor();
});

type Row = Record<string, unknown>;
interface Listed {
  items: Row[];
  next_cursor: string | null;
}

async function done<T = Row>(
  method: string,
  path: string,
  body?: unknown,
  { as = root, status = 200 }: { as?: Author; status?: number } = {},
): Promise<T> {
  const answer = await api.ask<T>(method, path, { as, ...(body === undefined ? {} : { body }) });
  expect({ status: answer.status, body: answer.body }).toEqual({ status, body: expect.anything() });
  return answer.body;
}
const refused = (status: number, code: string, method: string, path: string, body?: unknown, as = root) =>
  api.refused(status, code, method, path, { as, ...(body === undefined ? {} : { body }) });

let plans = 0;
async function newPlan(limits: Row = {}, prefix = ''): Promise<string> {
  plans += 1;
  const plan_id = `plan-${plans}`;
  await done('POST', prefix + PLANS, { plan_id, name: `Plan ${plans}`, limits }, { status: 201 });
  return plan_id;
}
const assign = (plan_id: string, { until, prefix = '' }: { until?: number; prefix?: string } = {}) =>
  done('PUT', `${prefix}${MEMBERS}/${member.pubkey}/plan`, {
    plan_id,
    ...(until === undefined ? {} : { until }),
  });
async function audit(community = home): Promise<readonly AuditEntry[]> {
  const page = await listAudit(relay.database.pool, community, { limit: 200 });
  return isDenial(page) ? [] : page.items;
}

describe('plans', () => {
  it('start with the built-in free plan', async () => {
    const free = { plan_id: 'free', name: 'Free', limits: FREE_LIMITS, created_at: null, updated_at: null };
    expect(await done('GET', `/c/art${PLANS}`)).toEqual({ items: [free], next_cursor: null });
    expect(await done('GET', `/c/art${PLANS}/free`)).toEqual(free);
  });

  it('are made, shown, changed and removed, each time with an audit row', async () => {
    const made = await done(
      'POST',
      PLANS,
      { plan_id: 'supporter', name: 'Supporter', limits: { max_topics: 5, search_per_day: null } },
      { status: 201 },
    );
    expect(made).toMatchObject({ plan_id: 'supporter', limits: { ...NO_LIMITS, max_topics: 5 } });
    expect(await done('GET', `${PLANS}/supporter`)).toEqual(made);
    expect((await audit())[0]).toMatchObject({
      actor: root.pubkey,
      action: 'plan.create',
      target: 'supporter',
      details: { name: 'Supporter', limits: { maxTopics: 5 } },
    });
    const changed = await done('PATCH', `${PLANS}/supporter`, {
      limits: { max_topics: null, exports_per_day: 1 },
    });
    expect(changed).toMatchObject({ name: 'Supporter', limits: { ...NO_LIMITS, exports_per_day: 1 } });
    expect(await done('PATCH', `${PLANS}/supporter`, { name: 'Friend' })).toMatchObject({
      name: 'Friend',
      limits: changed.limits,
    });
    expect((await audit())[0]).toMatchObject({ action: 'plan.change', target: 'supporter' });
    expect(await done('DELETE', `${PLANS}/supporter`)).toMatchObject({ plan_id: 'supporter' });
    expect((await audit())[0]).toMatchObject({ action: 'plan.delete', target: 'supporter' });
    await refused(404, 'NOT_FOUND', 'GET', `${PLANS}/supporter`);
  });

  it('are listed by id in pages, without gaps or duplicates', async () => {
    const ids = [await newPlan(), await newPlan(), await newPlan(), 'free'].sort();
    const seen: unknown[] = [];
    for (let cursor = ''; ; ) {
      const page: Listed = await done<Listed>('GET', `${PLANS}?limit=2${cursor}`);
      seen.push(...page.items.map(({ plan_id }) => plan_id));
      if (page.next_cursor === null) break;
      cursor = `&cursor=${page.next_cursor}`;
    }
    expect(seen.filter((id) => ids.includes(id as string)).sort()).toEqual(ids);
    expect(new Set(seen).size).toBe(seen.length);
    await refused(400, 'INVALID_REQUEST', 'GET', `${PLANS}?cursor=x`);
  });

  it('have an id of their own in each community', async () => {
    const planId = await newPlan();
    await refused(409, 'PLAN_EXISTS', 'POST', PLANS, { plan_id: planId, name: 'x' });
    for (const method of ['GET', 'DELETE'])
      await refused(404, 'NOT_FOUND', method, `/c/art${PLANS}/${planId}`);
    await refused(404, 'NOT_FOUND', 'PATCH', `/c/art${PLANS}/${planId}`, { name: 'x' });
    await refused(404, 'NOT_FOUND', 'PUT', `/c/art${MEMBERS}/${member.pubkey}/plan`, { plan_id: planId });
    await done('POST', `/c/art${PLANS}`, { plan_id: planId, name: 'x' }, { status: 201 });
  });

  it('are refused when they are malformed', async () => {
    const good = { plan_id: 'good', name: 'Good' };
    const wrong = [
      {},
      { ...good, plan_id: 'No!' },
      { ...good, name: '' },
      { ...good, limits: { max_topics: -1 } },
      { ...good, limits: { max_topics: 1.5 } },
      { ...good, limits: { maxTopics: 1 } },
      { ...good, limits: { likes_per_day: 1 } },
    ];
    for (const body of wrong) await refused(400, 'INVALID_REQUEST', 'POST', PLANS, body);
    await refused(404, 'NOT_FOUND', 'PATCH', `${PLANS}/unknown`, { name: 'x' });
    await refused(404, 'NOT_FOUND', 'DELETE', `${PLANS}/unknown`);
  });

  it('are for operators', async () => {
    for (const [method, path] of [
      ['GET', PLANS],
      ['POST', PLANS],
      ['GET', `${PLANS}/free`],
      ['PATCH', `${PLANS}/free`],
      ['DELETE', `${PLANS}/free`],
      ['GET', `${MEMBERS}/${member.pubkey}/plan`],
      ['PUT', `${MEMBERS}/${member.pubkey}/plan`],
      ['GET', USAGE],
    ] as const)
      await refused(403, 'OPERATORS_ONLY', method, path, undefined, member);
    await api.refused(401, 'AUTH_REQUIRED', 'GET', PLANS);
    const url = relay.http + PLANS;
    const headers = { authorization: authorization(credential(root, { method: 'GET', url })) };
    expect((await api.ask('GET', PLANS, { headers })).status).toBe(200);
    await api.refused(401, 'REPLAYED_AUTH', 'GET', PLANS, { headers });
  });
});

describe('the free plan', () => {
  it('can be overridden, and is the built-in one again without the override', async () => {
    await refused(404, 'NOT_FOUND', 'DELETE', `${PLANS}/free`);
    const own = await done('PATCH', `${PLANS}/free`, { limits: { max_topics: 7 } });
    expect(own).toMatchObject({ limits: { ...FREE_LIMITS, max_topics: 7 }, created_at: expect.any(Number) });
    expect(await done('GET', '/v1/usage', undefined, { as: member })).toMatchObject({ topics: { limit: 7 } });
    await refused(409, 'PLAN_EXISTS', 'POST', PLANS, { plan_id: 'free', name: 'x' });
    await assign('free');
    await done('DELETE', `${PLANS}/free`);
    expect(await done('GET', '/v1/usage', undefined, { as: member })).toMatchObject({
      topics: { limit: 100 },
    });
    await done('POST', PLANS, { plan_id: 'free', name: 'Ours', limits: {} }, { status: 201 });
    expect(await done('GET', '/v1/usage', undefined, { as: member })).toMatchObject({
      plan: { name: 'Ours', limits: NO_LIMITS },
    });
    await done('DELETE', `${PLANS}/free`);
  });
});

describe('a member’s plan', () => {
  it('is "free" until the operator assigns another; assigning twice changes nothing', async () => {
    const url = `${MEMBERS}/${member.pubkey}/plan`;
    expect(await done('GET', url)).toMatchObject({ pubkey: member.pubkey, plan_id: 'free', until: null });
    const planId = await newPlan({ max_topics: 1 });
    const until = Date.now() + DAY_MS;
    const given = await assign(planId, { until });
    expect(given).toMatchObject({ plan_id: planId, until, limits: { max_topics: 1 } });
    expect((await audit())[0]).toMatchObject({
      actor: root.pubkey,
      action: 'plan.assign',
      target: member.pubkey,
      details: { plan: planId, until },
    });
    const { length } = await audit();
    expect(await assign(planId, { until })).toEqual(given);
    expect(await audit()).toHaveLength(length);
    expect(await assign(planId)).toMatchObject({ until: null });
    expect(await assign('free', { until })).toMatchObject({ plan_id: 'free', until: null });
  });

  it('is "free" again after it expired, without a job', async () => {
    const planId = await newPlan({ max_topics: 1 });
    await assign(planId, { until: Date.now() + DAY_MS });
    await relay.database.pool.query('UPDATE members SET plan_until = $2 WHERE pubkey = $1', [
      Buffer.from(member.pubkey, 'hex'),
      Date.now(),
    ]);
    expect(await done('GET', '/v1/usage', undefined, { as: member })).toMatchObject({
      plan: { plan_id: 'free', until: null },
    });
    await done('DELETE', `${PLANS}/${planId}`);
  });

  it('cannot be removed while it has members', async () => {
    const planId = await newPlan();
    await assign(planId);
    const { body } = await refused(409, 'PLAN_IN_USE', 'DELETE', `${PLANS}/${planId}`);
    expect(body.details).toEqual({ members: 1 });
    await assign('free');
    await done('DELETE', `${PLANS}/${planId}`);
  });

  it('is refused when the plan is unknown, the time is past, or the account is deleted', async () => {
    const url = `${MEMBERS}/${member.pubkey}/plan`;
    const planId = await newPlan();
    await refused(404, 'NOT_FOUND', 'PUT', url, { plan_id: 'unknown' });
    await refused(400, 'INVALID_REQUEST', 'PUT', url, { plan_id: planId, until: Date.now() - 1 });
    await refused(400, 'INVALID_REQUEST', 'PUT', url, { plan_id: planId, until: 'soon' });
    await refused(400, 'INVALID_REQUEST', 'PUT', `${MEMBERS}/x/plan`, { plan_id: planId });
    const change = { community: home, pubkey: member.pubkey, status: 'deleted' as const };
    await changeMember(relay.database.pool, change, { fixed: [] }, Date.now());
    await refused(410, 'ACCOUNT_DELETED', 'PUT', url, { plan_id: planId });
  });
});

describe('usage', () => {
  const use = (metric: 'search' | 'reports', times: number, now = Date.now(), community = home) =>
    Promise.all(
      Array.from({ length: times }, () =>
        countUse(relay.database.pool, { community, pubkey: member.pubkey, metric, now }),
      ),
    );

  it('shows a member the plan, the topics, and each metric of today', async () => {
    await use('search', 3);
    await use('search', 2, Date.now() - DAY_MS);
    await use('search', 1, Date.now(), art);
    const reset_at = (Math.floor(Date.now() / DAY_MS) + 1) * DAY_MS;
    expect(await done('GET', '/v1/usage', undefined, { as: member })).toEqual({
      plan: { plan_id: 'free', name: 'Free', until: null, limits: FREE_LIMITS },
      topics: { current: 0, pending: 0, limit: 100 },
      metrics: [
        { metric: 'search', used: 3, limit: 1_000, reset_at },
        { metric: 'trust', used: 0, limit: 1_000, reset_at },
        { metric: 'reports', used: 0, limit: 50, reset_at },
        { metric: 'exports', used: 0, limit: 3, reset_at },
      ],
    });
    await api.refused(401, 'AUTH_REQUIRED', 'GET', '/v1/usage');
    const change = { community: home, pubkey: member.pubkey, status: 'disabled' as const };
    await changeMember(relay.database.pool, change, { fixed: [] }, Date.now());
    await refused(403, 'ACCOUNT_DISABLED', 'GET', '/v1/usage', undefined, member);
  });

  it('shows the operator who used what on which day, in pages', async () => {
    const today = Date.now();
    await use('search', 2, today);
    await use('reports', 1, today);
    await use('search', 4, today - DAY_MS);
    const [day, yesterday] = [dayText(Math.floor(today / DAY_MS)), dayText(Math.floor(today / DAY_MS) - 1)];
    const { pubkey } = member;
    const all = [
      { pubkey, metric: 'reports', day, used: 1 },
      { pubkey, metric: 'search', day, used: 2 },
      { pubkey, metric: 'search', day: yesterday, used: 4 },
    ];
    const list = (query: string) => done<Listed>('GET', `${USAGE}?pubkey=${pubkey}${query}`);
    expect(await list('')).toEqual({ items: all, next_cursor: null });
    expect((await list('&metric=reports')).items).toEqual([all[0]]);
    expect((await list(`&day=${yesterday}`)).items).toEqual([all[2]]);
    expect((await done<Listed>('GET', `/c/art${USAGE}?pubkey=${pubkey}`)).items).toEqual([]);
    const first = await list('&limit=2');
    expect(first.items).toEqual(all.slice(0, 2));
    expect((await list(`&cursor=${first.next_cursor}`)).items).toEqual(all.slice(2));
    const ofDay = await done<Listed>('GET', `${USAGE}?day=${yesterday}&metric=search`);
    expect(ofDay.items).toContainEqual(all[2]);
    expect(ofDay.items.every((row) => row.day === yesterday && row.metric === 'search')).toBe(true);
    for (const wrong of ['metric=likes', 'day=2031-13-01', 'day=today', 'pubkey=x', 'cursor=x'])
      await refused(400, 'INVALID_REQUEST', 'GET', `${USAGE}?${wrong}`);
  });
});

describe('topics of a plan', () => {
  let topics = 0;
  const newTopic = () => {
    topics += 1;
    return `kukuri:${topics.toString(16).padStart(64, '0')}`;
  };
  const ask = (topic_id = newTopic(), prefix = '/c/quick', at = api) =>
    at.ask<{ request: { request_id: string }; subscription?: Row; details: Row; code: string }>(
      'POST',
      prefix + ASK,
      { as: member, body: { topic_id } },
    );
  const onPlan = async (max_topics: number, prefix = '/c/quick') => {
    const planId = await newPlan({ max_topics }, prefix);
    await assign(planId, { prefix });
    return planId;
  };
  const expectFull = async (current: number, limit: number, method: string, path: string, body?: unknown) => {
    const answer = await refused(402, 'QUOTA_EXCEEDED', method, path, body, member);
    expect(answer.body.details).toEqual({ metric: 'topics', current, limit, reset_at: null });
  };

  it('are limited exactly, with concurrent requests on two instances', async () => {
    const planId = await onPlan(3);
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, at) => ask(newTopic(), '/c/quick', at % 2 === 0 ? api : secondApi)),
    );
    const passed = answers.filter(({ status }) => status === 201);
    expect(passed.map(({ body }) => body.subscription)).toEqual(
      Array.from({ length: 3 }, () => expect.objectContaining({ plan_id: planId, status: 'active' })),
    );
    expect(answers.filter(({ body }) => body.code === 'QUOTA_EXCEEDED')).toHaveLength(9);
    expect(await done('GET', '/c/quick/v1/usage', undefined, { as: member })).toMatchObject({
      topics: { current: 3, pending: 0, limit: 3 },
    });
  });

  it('that are paused do not count, and resuming needs room', async () => {
    await onPlan(1);
    const [first, next] = [newTopic(), newTopic()];
    const of = (topic: string, action: string) => `/c/quick${SUBSCRIPTIONS}/${topic}${action}`;
    expect((await ask(first)).status).toBe(201);
    await expectFull(1, 1, 'POST', `/c/quick${ASK}`, { topic_id: next });
    await done('POST', of(first, '/pause'), undefined, { as: member });
    expect((await ask(next)).status).toBe(201);
    await expectFull(1, 1, 'POST', of(first, '/resume'));
    await done('DELETE', of(next, ''), undefined, { as: member });
    await done('POST', of(first, '/resume'), undefined, { as: member });
    // It is active already: it takes no more room.
    await done('POST', of(first, '/resume'), undefined, { as: member });
  });

  it('are refused when they are requested, so that nobody waits in vain', async () => {
    await onPlan(1, '');
    expect((await ask(newTopic(), '')).status).toBe(201);
    await expectFull(1, 1, 'POST', ASK, { topic_id: newTopic() });
    expect(await done('GET', '/v1/usage', undefined, { as: member })).toMatchObject({
      topics: { current: 0, pending: 1, limit: 1 },
    });
  });

  it('are not approved beyond the current plan, and a larger plan takes effect at once', async () => {
    await onPlan(2, '');
    const asked = [await ask(newTopic(), ''), await ask(newTopic(), '')];
    const [first, next] = asked.map(
      ({ body }) => `/v1/admin${ASK.slice(3)}/${body.request.request_id}/approve`,
    );
    await onPlan(1, '');
    await done('POST', first!);
    const { length } = await audit();
    const { body } = await refused(402, 'QUOTA_EXCEEDED', 'POST', next!);
    expect(body.details).toEqual({ metric: 'topics', current: 1, limit: 1, reset_at: null });
    expect(await audit()).toHaveLength(length);
    await onPlan(2, '');
    await done('POST', next!);
    // Approving twice changes nothing and needs no room.
    await onPlan(1, '');
    await done('POST', next!);
  });

  it('with limit 0 allow none', async () => {
    await onPlan(0);
    await expectFull(0, 0, 'POST', `/c/quick${ASK}`, { topic_id: newTopic() });
  });
});
