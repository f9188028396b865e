/**
 * A member's requests and subscriptions over HTTP: every route and each of its refusals. Rows of others stay
 * hidden.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { createInvite, revokeInvite } from '../../src/members/invites.sql.js';
import { blockTopic, unblockTopic } from '../../src/topics/blocked-topics.sql.js';
import { approveRequest, rejectRequest } from '../../src/topics/requests.sql.js';
import { requestRules } from '../../src/topics/rules-requests.js';
import { type Api, createApi } from '../support/clients/api.js';
import { type Author, newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const REQUESTS = '/v1/topic-subscription-requests';
const SUBSCRIPTIONS = '/v1/topic-subscriptions';
/** The longest namespace. */
const LONG_NAMESPACE = 'n'.repeat(32);
let relay: TestNode;
let api: Api;

beforeAll(async () => {
  relay = await startTestNode();
  api = createApi(relay.http);
  for (const slug of ['art', 'free', 'invited', 'long', 'small'])
    await addCommunity(relay.database.pool, slug, undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'small') !== undefined, {
    timeout: 100_000,
  });
  await settle('free', 'subscription.autoApproval', 'within-limits');
  await settle('long', 'subscription.autoApproval', 'within-limits');
  await settle('long', 'topic.namespace', LONG_NAMESPACE);
  await settle('invited', 'subscription.autoApproval', 'invite');
  await settle('small', 'topic.enabledMax', 2);
});
afterAll(() => relay.close());

const communityOf = (slug: string) => relay.node.communities.find(undefined, slug)!;

async function settle(slug: string, key: SettingKey, value: unknown): Promise<void> {
  await writeSetting(relay.database.pool, communityOf(slug).id, key, value, Date.now());
  await vi.waitUntil(() => communityOf(slug).settings[key] === value, { timeout: 100_000 });
}

interface Request {
  request_id: string;
  topic_id: string;
  status: string;
  [field: string]: unknown;
}
interface Subscription {
  subscription_id: string;
  topic_id: string;
  status: string;
  [field: string]: unknown;
}
interface Requested {
  request: Request;
  subscription?: Subscription;
}
interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

const newTopic = () => `kukuri:${randomUUID().replaceAll('-', '').repeat(2)}`;

async function ask(as: Author, topic_id = newTopic(), prefix = ''): Promise<Request> {
  const answer = await api.ask<Requested>('POST', prefix + REQUESTS, { as, body: { topic_id } });
  expect(answer.status).toBe(201);
  return answer.body.request;
}

async function approve({ request_id }: Request, slug = 'default'): Promise<void> {
  const { id, settings } = communityOf(slug);
  const review = { community: id, requestId: request_id };
  const done = await approveRequest(relay.database.pool, review, requestRules(settings), Date.now());
  expect(isDenial(done)).toBe(false);
}

/** A member with an active subscription. */
async function subscribed(slug = 'default'): Promise<{ member: Author; topic: string; path: string }> {
  const member = newAuthor();
  const prefix = slug === 'default' ? '' : `/c/${slug}`;
  const request = await ask(member, newTopic(), prefix);
  await approve(request, slug);
  return { member, topic: request.topic_id, path: `${prefix}${SUBSCRIPTIONS}/${request.topic_id}` };
}

describe('requesting a topic', () => {
  it('by its id makes a pending request', async () => {
    const member = newAuthor();
    const topic = newTopic();
    const before = Date.now();
    const { status, body } = await api.ask<Requested>('POST', REQUESTS, {
      as: member,
      body: { topic_id: topic, requested_services: ['trust', 'index', 'trust'] },
    });
    expect(status).toBe(201);
    expect(body).toEqual({
      request: {
        request_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        requester_pubkey: member.pubkey,
        topic_id: topic,
        name: null,
        requested_services: ['trust', 'index'],
        status: 'pending',
        review_note: null,
        created_at: expect.any(Number),
        reviewed_at: null,
      },
    });
    const at = body.request.created_at as number;
    expect(at >= before && at <= Date.now()).toBe(true);
  });

  it('by a name requests the id of the name, and stores its normalised form', async () => {
    const member = newAuthor();
    const resolved = await api.ask<{ topic_id: string }>('GET', '/v1/topics/resolve?name=Kites');
    const { body } = await api.ask<Requested>('POST', REQUESTS, { as: member, body: { name: ' KITES' } });
    expect(body.request).toMatchObject({ topic_id: resolved.body.topic_id, name: 'kites' });
    const global = await api.ask<Requested>('POST', REQUESTS, {
      as: member,
      body: { name: 'kukuri:global' },
    });
    expect(global.body.request).toMatchObject({ topic_id: 'kukuri:global', name: null });
  });

  it('needs either an id or a name', async () => {
    const as = newAuthor();
    for (const body of [
      {},
      { topic_id: newTopic(), name: 'x' },
      { name: '' },
      { name: 'a\u0000b' },
      { name: 1 },
    ])
      await api.refused(400, 'INVALID_REQUEST', 'POST', REQUESTS, { as, body });
  });

  it('refuses an id of another form or namespace', async () => {
    const as = newAuthor();
    const hex = 'a'.repeat(64);
    for (const topic_id of [
      'gardens',
      'kukuri:',
      `kukuri:${hex.toUpperCase()}`,
      `other:${hex}`,
      `kukuri:${hex}a`,
      'kukuri:user:x',
      'kukuri:\u0000',
    ])
      await api.refused(400, 'INVALID_TOPIC', 'POST', REQUESTS, { as, body: { topic_id } });
    expect((await ask(as, `kukuri:user:${as.pubkey}`)).status).toBe('pending');
  });

  it('that is pending, subscribed or blocked is refused with the reason', async () => {
    const { member, topic } = await subscribed();
    const again = { as: member, body: { topic_id: topic } };
    await api.refused(409, 'ALREADY_SUBSCRIBED', 'POST', REQUESTS, again);
    const waiting = await ask(member);
    const { body } = await api.refused(409, 'REQUEST_PENDING', 'POST', REQUESTS, {
      as: member,
      body: { topic_id: waiting.topic_id },
    });
    expect(body.details.request_id).toBe(waiting.request_id);
    const blocked = newTopic();
    await blockTopic(
      relay.database.pool,
      { community: communityOf('default').id, topic: blocked },
      Date.now(),
    );
    await api.refused(403, 'TOPIC_BLOCKED', 'POST', REQUESTS, { as: member, body: { topic_id: blocked } });
    expect((await ask(member, blocked, '/c/art')).status).toBe('pending');
  });

  it('is limited to five pending requests of a member in each community', async () => {
    const member = newAuthor();
    for (let asked = 0; asked < 5; asked += 1) await ask(member);
    const refused = await api.refused(429, 'PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED', 'POST', REQUESTS, {
      as: member,
      body: { topic_id: newTopic() },
    });
    expect(refused.body.details).toMatchObject({ limit: 5 });
    expect((await ask(member, newTopic(), '/c/art')).status).toBe('pending');
    expect((await ask(newAuthor())).status).toBe('pending');
  });

  it('is approved at once by a setting of the community, with its subscription', async () => {
    const member = newAuthor();
    const topic = newTopic();
    const { status, body } = await api.ask<Requested>('POST', `/c/free${REQUESTS}`, {
      as: member,
      body: { topic_id: topic, requested_services: ['index'] },
    });
    expect(status).toBe(201);
    expect(body.request).toMatchObject({ status: 'active', reviewed_at: expect.any(Number) });
    expect(body.subscription).toEqual({
      subscription_id: expect.any(String),
      request_id: body.request.request_id,
      subscriber_pubkey: member.pubkey,
      topic_id: topic,
      name: null,
      services: ['index'],
      plan_id: 'free',
      status: 'active',
      started_at: expect.any(Number),
      ended_at: null,
    });
  });

  it('with an invite is approved once; a wrong one is refused', async () => {
    const { id } = communityOf('invited');
    const made = await createInvite(
      relay.database.pool,
      { community: id, expiresAt: Date.now() + 3_600_000 },
      Date.now(),
    );
    if (isDenial(made)) throw new Error(made.denied);
    const path = `/c/invited${REQUESTS}`;
    const asking = (invite: string) => ({ as: newAuthor(), body: { topic_id: newTopic(), invite } });
    await api.refused(409, 'INVALID_INVITE', 'POST', path, asking('wrong'));
    expect((await api.ask<Requested>('POST', path, asking(made.code))).body.subscription?.status).toBe(
      'active',
    );
    await api.refused(409, 'INVALID_INVITE', 'POST', path, asking(made.code));
  });

  it('can be prepared with an invite, which says what it is for', async () => {
    const { pool } = relay.database;
    const { id: community } = communityOf('invited');
    const topic = newTopic();
    const invite = async (ttlMs: number, only?: string) => {
      const now = Date.now();
      const made = await createInvite(pool, { community, topic: only, expiresAt: now + ttlMs }, now);
      if (isDenial(made)) throw new Error(made.denied);
      return made;
    };
    const shown = async (code: string) => (await api.ask('GET', `/c/invited/v1/invites/${code}`)).body;
    const { code, invite: bound } = await invite(3_600_000, topic);
    const offer = { topic_id: topic, name: null, expires_at: bound.expiresAt };
    expect(await shown(code)).toEqual({ ...offer, status: 'valid' });
    const redeem = `/c/invited/v1/invites/${code}/redeem`;
    const joined = await api.ask<Requested>('POST', redeem, { as: newAuthor() });
    expect(joined.body).toMatchObject({ request: { topic_id: topic }, subscription: { status: 'active' } });
    expect(await shown(code)).toEqual({ ...offer, status: 'used' });
    await api.refused(409, 'INVALID_INVITE', 'POST', redeem, { as: newAuthor() });
    const revoked = await invite(3_600_000);
    await revokeInvite(pool, { community, inviteId: revoked.invite.inviteId }, Date.now());
    expect(await shown(revoked.code)).toMatchObject({ topic_id: null, status: 'revoked' });
    // An invite for any topic approves at once, also where requests are reviewed.
    await settle('invited', 'subscription.autoApproval', 'off');
    const [any, chosen] = [await invite(3_600_000), newTopic()];
    const choosing = { as: newAuthor(), body: { topic_id: chosen } };
    const approved = await api.ask<Requested>('POST', `/c/invited/v1/invites/${any.code}/redeem`, choosing);
    expect(approved.body.subscription).toMatchObject({ topic_id: chosen, status: 'active' });
    await settle('invited', 'subscription.autoApproval', 'invite');
    const short = await invite(1);
    await expect.poll(() => shown(short.code)).toMatchObject({ status: 'expired' });
    await api.refused(404, 'NOT_FOUND', 'GET', '/c/invited/v1/invites/wrong');
    // Codes are valid in their community only.
    await api.refused(404, 'NOT_FOUND', 'GET', `/c/art/v1/invites/${code}`);
  });
});

describe("a member's requests", () => {
  it('are listed newest first, page by page, and by status', async () => {
    const member = newAuthor();
    const asked: string[] = [];
    for (let count = 0; count < 5; count += 1) asked.unshift((await ask(member)).request_id);
    await api.ask('POST', `${REQUESTS}/${asked[0]}/cancel`, { as: member });
    const seen: string[] = [];
    let path = `${REQUESTS}?limit=2`;
    for (let pages = 0; pages < 3; pages += 1) {
      const { body } = await api.ask<Page<Request>>('GET', path, { as: member });
      seen.push(...body.items.map(({ request_id }) => request_id));
      path = `${REQUESTS}?limit=2&cursor=${body.next_cursor}`;
      expect(body.next_cursor === null).toBe(pages === 2);
    }
    expect([...seen].sort()).toEqual([...asked].sort());
    const listed = async (status: string) =>
      (await api.ask<Page<Request>>('GET', `${REQUESTS}?status=${status}`, { as: member })).body.items.length;
    expect([await listed('pending'), await listed('cancelled'), await listed('active')]).toEqual([4, 1, 0]);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${REQUESTS}?status=open`, { as: member });
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${REQUESTS}?cursor=x`, { as: member });
  });

  it('are read one by one, with the note of the operator', async () => {
    const member = newAuthor();
    const request = await ask(member);
    const path = `${REQUESTS}/${request.request_id}`;
    expect(await api.ask('GET', path, { as: member })).toMatchObject({ status: 200, body: request });
    await rejectRequest(
      relay.database.pool,
      { community: communityOf('default').id, requestId: request.request_id, note: 'not here' },
      Date.now(),
    );
    expect((await api.ask('GET', path, { as: member })).body).toMatchObject({
      status: 'rejected',
      review_note: 'not here',
      reviewed_at: expect.any(Number),
    });
    await api.refused(404, 'NOT_FOUND', 'GET', `${REQUESTS}/${randomUUID()}`, { as: member });
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${REQUESTS}/1`, { as: member });
  });

  it('are cancelled while pending, repeatably, and not later', async () => {
    const member = newAuthor();
    const request = await ask(member);
    const path = `${REQUESTS}/${request.request_id}/cancel`;
    for (let times = 0; times < 2; times += 1)
      expect(await api.ask('POST', path, { as: member })).toMatchObject({
        status: 200,
        body: { request_id: request.request_id, status: 'cancelled' },
      });
    const second = await ask(member, request.topic_id);
    await approve(second);
    const late = `${REQUESTS}/${second.request_id}/cancel`;
    const { body } = await api.refused(409, 'STATUS_CONFLICT', 'POST', late, { as: member });
    expect(body.details.status).toBe('active');
    await api.refused(404, 'NOT_FOUND', 'POST', `${REQUESTS}/${randomUUID()}/cancel`, { as: member });
  });

  it('do not exist for anybody else, nor in another community', async () => {
    const member = newAuthor();
    const stranger = newAuthor();
    const { request_id } = await ask(member);
    const path = `${REQUESTS}/${request_id}`;
    const unknown = randomUUID();
    const missing = await api.refused(404, 'NOT_FOUND', 'GET', `${REQUESTS}/${unknown}`, { as: stranger });
    const withoutId = (body: unknown) =>
      JSON.stringify(body).replaceAll(unknown, '').replaceAll(request_id, '');
    for (const [method, each] of [
      ['GET', path],
      ['POST', `${path}/cancel`],
    ] as const) {
      const foreign = await api.refused(404, 'NOT_FOUND', method, each, { as: stranger });
      expect(withoutId(foreign.body)).toBe(withoutId(missing.body));
      await api.refused(404, 'NOT_FOUND', method, `/c/art${each}`, { as: member });
    }
    for (const [as, prefix] of [
      [stranger, ''],
      [member, '/c/art'],
    ] as const)
      expect((await api.ask('GET', prefix + REQUESTS, { as })).body).toEqual({
        items: [],
        next_cursor: null,
      });
    expect((await api.ask('GET', path, { as: member })).body).toMatchObject({ status: 'pending' });
  });
});

describe("a member's subscriptions", () => {
  it('are listed, also by status', async () => {
    const { member, topic, path } = await subscribed();
    const other = await ask(member);
    await approve(other);
    await api.ask('POST', `${path}/pause`, { as: member });
    const listed = async (query = '') =>
      (await api.ask<Page<Subscription>>('GET', SUBSCRIPTIONS + query, { as: member })).body.items.map(
        ({ topic_id }) => topic_id,
      );
    expect((await listed()).sort()).toEqual([topic, other.topic_id].sort());
    expect(await listed('?status=paused')).toEqual([topic]);
    expect(await listed('?status=active')).toEqual([other.topic_id]);
    expect(await listed('?status=ended')).toEqual([]);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${SUBSCRIPTIONS}?status=x`, { as: member });
    const page = await api.ask<Page<Subscription>>('GET', `${SUBSCRIPTIONS}?limit=1`, { as: member });
    expect(page.body.items).toHaveLength(1);
    expect(await listed(`?cursor=${page.body.next_cursor}`)).toHaveLength(1);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${SUBSCRIPTIONS}?cursor=x`, { as: member });
  });

  it('are paused and resumed, repeatably', async () => {
    const { member, path } = await subscribed();
    for (const [action, status] of [
      ['pause', 'paused'],
      ['pause', 'paused'],
      ['resume', 'active'],
      ['resume', 'active'],
    ])
      expect(await api.ask('POST', `${path}/${action}`, { as: member })).toMatchObject({
        status: 200,
        body: { status, ended_at: null, subscriber_pubkey: member.pubkey },
      });
  });

  it('are ended, and can be requested again', async () => {
    const { member, topic, path } = await subscribed();
    expect(await api.ask('DELETE', path, { as: member })).toMatchObject({
      status: 200,
      body: { topic_id: topic, status: 'ended', ended_at: expect.any(Number) },
    });
    for (const [method, each] of [
      ['DELETE', path],
      ['POST', `${path}/pause`],
      ['POST', `${path}/resume`],
    ] as const)
      await api.refused(404, 'NOT_FOUND', method, each, { as: member });
    const again = await ask(member, topic);
    await approve(again);
    const { body } = await api.ask<Page<Subscription>>('GET', SUBSCRIPTIONS, { as: member });
    expect(body.items.map(({ status }) => status).sort()).toEqual(['active', 'ended']);
  });

  it('are named by their topic, raw or percent-encoded, in the path and in the signature', async () => {
    const { member, topic, path } = await subscribed();
    const encoded = `${SUBSCRIPTIONS}/${encodeURIComponent(topic)}`;
    expect(encoded).toContain('%3A');
    for (const each of [`${path}/pause`, `${encoded}/resume`])
      expect((await api.ask('POST', each, { as: member })).status).toBe(200);
    const all = [...topic].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join('');
    expect((await api.ask('POST', `${SUBSCRIPTIONS}/${all}/pause`, { as: member })).status).toBe(200);
    expect((await api.ask('DELETE', encoded, { as: member })).body).toMatchObject({ status: 'ended' });
    for (const bad of ['gardens', 'kukuri:', 'other:global', `${topic}x`, '%00', 'kukuri%3Aglobal%2Fx'])
      for (const [method, rest] of [
        ['DELETE', ''],
        ['POST', '/pause'],
        ['POST', '/resume'],
      ] as const)
        await api.refused(404, 'NOT_FOUND', method, `${SUBSCRIPTIONS}/${bad}${rest}`, { as: member });
  });

  it('are found by the longest possible topic id; a longer one is not an id', async () => {
    const member = newAuthor();
    const topic = `${LONG_NAMESPACE}:user:${member.pubkey}`;
    await ask(member, topic, '/c/long');
    for (const each of [topic, encodeURIComponent(topic)])
      expect((await api.ask('POST', `/c/long${SUBSCRIPTIONS}/${each}/pause`, { as: member })).status).toBe(
        200,
      );
    for (const length of [300, 2_000])
      await api.refused(400, 'INVALID_REQUEST', 'DELETE', `${SUBSCRIPTIONS}/${'x'.repeat(length)}`, {
        as: member,
      });
  });

  it('do not exist for anybody else, nor in another community', async () => {
    const { member, path } = await subscribed();
    const stranger = newAuthor();
    for (const [method, each] of [
      ['POST', `${path}/pause`],
      ['POST', `${path}/resume`],
      ['DELETE', path],
    ] as const) {
      await api.refused(404, 'NOT_FOUND', method, each, { as: stranger });
      await api.refused(404, 'NOT_FOUND', method, `/c/art${each}`, { as: member });
    }
    for (const [as, prefix] of [
      [stranger, ''],
      [member, '/c/art'],
    ] as const)
      expect((await api.ask('GET', prefix + SUBSCRIPTIONS, { as })).body).toEqual({
        items: [],
        next_cursor: null,
      });
    const { body } = await api.ask<Page<Subscription>>('GET', SUBSCRIPTIONS, { as: member });
    expect(body.items).toMatchObject([{ status: 'active' }]);
  });

  it('are not resumed while the topic is blocked', async () => {
    const { member, topic, path } = await subscribed();
    const community = communityOf('default').id;
    await api.ask('POST', `${path}/pause`, { as: member });
    await blockTopic(relay.database.pool, { community, topic }, Date.now());
    await api.refused(403, 'TOPIC_BLOCKED', 'POST', `${path}/resume`, { as: member });
    await unblockTopic(relay.database.pool, { community, topic }, Date.now());
    expect((await api.ask('POST', `${path}/resume`, { as: member })).status).toBe(200);
  });

  it('are not resumed when the node carries as many topics as it can', async () => {
    const first = await subscribed('small');
    await api.ask('POST', `${first.path}/pause`, { as: first.member });
    await subscribed('small');
    const { body } = await api.refused(429, 'TOPIC_LIMIT_REACHED', 'POST', `${first.path}/resume`, {
      as: first.member,
    });
    expect(body.details).toEqual({ limit: 2 });
  });
});
