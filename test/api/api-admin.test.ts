/** The routes of operators over real HTTP: success and each refusal; nobody else may use them. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { settingKeys } from '../../src/communities/rules-settings.js';
import { lockJobs } from '../../src/jobs/job-runs.sql.js';
import { requestTopic } from '../../src/topics/requests.sql.js';
import { readRights, rightsKey } from '../../src/topics/subscriptions.sql.js';
import {
  type Api,
  type Asking,
  authorization,
  codesOf,
  createApi,
  credential,
  type OpenApi,
  type Refused,
  readOpenApi,
} from '../support/clients/api.js';
import { type Author, newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { ADMIN_ROUTES } from './admin-routes.js';

const REQUESTS = '/v1/admin/topic-subscription-requests';
const TOPICS = '/v1/admin/node-subscriptions';
const BLOCKED = '/v1/admin/blocked-topics';
const MEMBERS = '/v1/admin/members';
const SETTINGS = '/v1/admin/settings';
const OPERATORS = '/v1/admin/operators';
const INVITES = '/v1/admin/invites';
const AUDIT = '/v1/admin/audit-log';
const UNKNOWN = '00000000-0000-4000-8000-000000000000';

const root = newAuthor();
const artist = newAuthor();
const member = newAuthor();

let relay: TestNode;
let api: Api;
let document: OpenApi;
let home: number;
let art: number;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey } });
  api = createApi(relay.http);
  document = await readOpenApi(relay.http);
  art = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, { timeout: 100_000 });
  home = relay.node.communities.find(undefined, undefined)!.id;
  // An operator of one community only.
  expect((await api.ask('PUT', `/c/art${OPERATORS}/${artist.pubkey}`, { as: root })).status).toBe(200);
  await vi.waitUntil(() => relay.node.communities.get(art)?.operators.has(artist.pubkey), {
    timeout: 100_000,
  });
});
afterAll(() => relay.close());

let topics = 0;
/** A topic id that no other test uses. */
function newTopic(): string {
  topics += 1;
  return `kukuri:${topics.toString(16).padStart(64, '0')}`;
}

type Row = Record<string, unknown>;
interface Listed {
  readonly items: Row[];
  readonly next_cursor: string | null;
}

/** The answer of a success, as the first operator. */
async function done<T = Row>(method: string, path: string, body?: unknown, as: Author = root): Promise<T> {
  const answer = await api.ask<T>(method, path, { as, ...(body === undefined ? {} : { body }) });
  expect({ status: answer.status, body: answer.body }).toEqual({
    status: method === 'POST' && !/approve|reject/.test(path) ? 201 : 200,
    body: expect.anything(),
  });
  return answer.body;
}

const met = new Set<string>();
/** Expects a refusal and records it: a last test checks that none was left out. */
async function refused(status: number, code: string, method: string, path: string, asking: Asking = {}) {
  const answer = await api.refused(status, code, method, path, { as: root, ...asking });
  met.add(`${method} ${templateOf(path)} ${code}`);
  return answer;
}
function templateOf(path: string): string {
  const asked = path.replace(/^\/c\/[^/]+/, '').replace(/\?.*$/, '');
  const matching = (template: string) =>
    new RegExp(`^${template.replace(/\{[^}]+\}/g, '[^/]+')}$`).test(asked);
  return Object.keys(document.paths).find(matching) ?? asked;
}

async function ask(topic: string, who: Author = member, community = home): Promise<string> {
  const wanted = { community, pubkey: who.pubkey, topic, services: ['index'] };
  const rules = {
    pendingMax: 100,
    pendingTotalMax: 10_000,
    enabledMax: 1_000,
    autoApproval: 'off',
    allowList: [],
  } as const;
  const asked = await requestTopic(relay.database.pool, wanted, rules, Date.now());
  if (isDenial(asked)) throw new Error(asked.denied);
  return asked.request.requestId;
}
async function subscribe(topic: string, who: Author = member): Promise<void> {
  await done('POST', `${REQUESTS}/${await ask(topic, who)}/approve`);
}
const audit = async (limit = 1) => (await done<Listed>('GET', `${AUDIT}?limit=${limit}`)).items;

async function withSetting(key: string, value: unknown, work: () => Promise<void>): Promise<void> {
  const { version } = await done('PUT', `${SETTINGS}/${key}`, {
    value,
    version: (await done('GET', `${SETTINGS}/${key}`)).version,
  });
  const settings = () => relay.node.communities.get(home)!.settings as Record<string, unknown>;
  await expect.poll(() => settings()[key], { timeout: 100_000 }).toEqual(value);
  await work();
  const { value: before } = await done('DELETE', `${SETTINGS}/${key}?version=${version}`);
  await expect.poll(() => settings()[key], { timeout: 100_000 }).toEqual(before);
}

// ─── Every route ───────────────────────────────────────────────────────────────────────────────────────────

const BODIES: Record<string, unknown> = {
  [`POST ${TOPICS}`]: { topic_id: 'kukuri:global' },
  [`PATCH ${TOPICS}/{topic_id}`]: { priority: 0 },
  [`PATCH ${MEMBERS}/{pubkey}`]: { note: null },
  [`PUT ${SETTINGS}/{key}`]: { value: 'x', version: 999_999_999 },
  [`POST ${INVITES}`]: { expires_at: 1 },
  'POST /v1/admin/consumers/{name}/replay': { from: 1 },
  'PUT /v1/admin/followers/{name}': {},
  'POST /v1/admin/followers/{name}/acknowledge': { seq: 0 },
  'POST /v1/admin/erasures': { community: 'default' },
  'POST /v1/admin/erasures/{erasure_id}/hold': { reason: 'x' },
};

interface Sample {
  readonly method: string;
  readonly template: string;
  readonly path: string;
  readonly body?: unknown;
}

/** A request to each route of operators that changes nothing. */
function samples(): Sample[] {
  return Object.entries(document.paths)
    .filter(([template]) => template.startsWith('/v1/admin/'))
    .flatMap(([template, methods]) =>
      Object.keys(methods).map((name) => {
        const method = name.toUpperCase();
        const path = template
          .replace(/\{(request|invite|erasure)_id\}/, UNKNOWN)
          .replace('{topic_id}', newTopic())
          .replace('{pubkey}', root.pubkey)
          .replace('{key}', 'relay.name');
        const body = BODIES[`${method} ${template}`];
        const query = method === 'DELETE' && template.startsWith(SETTINGS) ? '?version=999999999' : '';
        return { method, template, path: path + query, ...(body === undefined ? {} : { body }) };
      }),
    );
}

/** No job changes the steps of a test while this session holds their lock. */
async function holdJobs() {
  const session = await relay.database.connect();
  expect(await lockJobs(session)).toBe(true);
  return session;
}

describe('every route of operators', () => {
  it('exists', () => {
    const routes = samples().map(({ method, template }) => `${method} ${template.replace('/v1/admin', '')}`);
    expect(routes.sort()).toEqual([...ADMIN_ROUTES].sort());
  });

  it('refuses an unsigned request, a member, and an operator of another community', async () => {
    for (const { method, path, body } of samples()) {
      const asking = body === undefined ? {} : { body };
      await api.refused(401, 'AUTH_REQUIRED', method, path, asking);
      await api.refused(403, 'OPERATORS_ONLY', method, path, { as: member, ...asking });
      await api.refused(403, 'OPERATORS_ONLY', method, path, { as: artist, ...asking });
    }
  });

  it('accepts a signature once, and not one for another community', async () => {
    for (const { method, path, body } of samples()) {
      const send = (signedFor: string, at: string) => {
        const url = relay.http + signedFor;
        const header = authorization(credential(root, { method, url, body }));
        const asking = { headers: { authorization: header }, ...(body === undefined ? {} : { body }) };
        return () => api.ask<Refused>(method, at, asking);
      };
      const twice = send(path, path);
      expect((await twice()).status, `${method} ${path}`).not.toBe(401);
      expect(await twice()).toMatchObject({ status: 401, body: { code: 'REPLAYED_AUTH' } });
      const foreign = { status: 401, body: { code: 'INVALID_AUTH', details: { reason: 'url' } } };
      expect(await send(path, `/c/art${path}`)()).toMatchObject(foreign);
      expect(await send(`/c/art${path}`, path)()).toMatchObject(foreign);
    }
  });

  it('refuses an operator whose account is disabled', async () => {
    const second = newAuthor();
    await done('PUT', `${OPERATORS}/${second.pubkey}`);
    await expect
      .poll(async () => (await api.ask('GET', AUDIT, { as: second })).status, { timeout: 100_000 })
      .toBe(200);
    await done('PATCH', `${MEMBERS}/${second.pubkey}`, { status: 'disabled' });
    await api.refused(403, 'ACCOUNT_DISABLED', 'GET', AUDIT, { as: second });
    await done('PATCH', `${MEMBERS}/${second.pubkey}`, { status: 'deleted' });
    await api.refused(410, 'ACCOUNT_DELETED', 'GET', AUDIT, { as: second });
  });

  it('that is a list refuses an invalid limit, an invalid cursor and unknown parameters', async () => {
    for (const path of [REQUESTS, TOPICS, BLOCKED, MEMBERS, OPERATORS, INVITES, AUDIT]) {
      for (const query of ['limit=0', 'limit=x', 'limit=201', 'cursor=x', 'order=up']) {
        await refused(400, 'INVALID_REQUEST', 'GET', `${path}?${query}`);
      }
    }
    await refused(400, 'INVALID_REQUEST', 'GET', `${REQUESTS}?status=lost`);
    await refused(400, 'INVALID_REQUEST', 'GET', `${MEMBERS}?status=lost`);
  });
});

// ─── Requests ──────────────────────────────────────────────────────────────────────────────────────────────

describe('requests', () => {
  it('are listed by status, in pages, and shown one by one', async () => {
    const ids = [await ask(newTopic()), await ask(newTopic()), await ask(newTopic())];
    const seen: unknown[] = [];
    for (let cursor = ''; ; ) {
      const page = await done<Listed>('GET', `${REQUESTS}?limit=2${cursor}`);
      seen.push(...page.items.map((item) => item.request_id));
      if (page.next_cursor === null) break;
      cursor = `&cursor=${encodeURIComponent(page.next_cursor)}`;
    }
    expect(seen).toEqual(expect.arrayContaining(ids));
    expect(new Set(seen).size).toBe(seen.length);
    expect(await done('GET', `${REQUESTS}/${ids[0]}`)).toEqual({
      request_id: ids[0],
      requester_pubkey: member.pubkey,
      topic_id: expect.stringMatching(/^kukuri:/),
      name: null,
      requested_services: ['index'],
      status: 'pending',
      review_note: null,
      reviewed_by: null,
      created_at: expect.any(Number),
      reviewed_at: null,
    });
    await refused(404, 'NOT_FOUND', 'GET', `${REQUESTS}/${UNKNOWN}`);
    await refused(400, 'INVALID_REQUEST', 'GET', `${REQUESTS}/x`);
  });

  it('are approved with a note, repeatably, and give the right', async () => {
    const topic = newTopic();
    const id = await ask(topic);
    const first = await done<{ request: Row; subscription: Row }>('POST', `${REQUESTS}/${id}/approve`, {
      note: 'Welcome',
    });
    expect(first).toMatchObject({
      request: { status: 'active', review_note: 'Welcome', reviewed_by: root.pubkey },
      subscription: { topic_id: topic, subscriber_pubkey: member.pubkey, plan_id: 'free', status: 'active' },
    });
    expect(await done('POST', `${REQUESTS}/${id}/approve`, { note: 'again' })).toEqual(first);
    const holder = { community: home, pubkey: member.pubkey };
    expect((await readRights(relay.database.pool, [holder])).get(rightsKey(holder))?.topics).toContain(topic);
    expect(await audit()).toEqual([
      expect.objectContaining({
        actor: root.pubkey,
        action: 'request.approve',
        target: id,
        details: { pubkey: member.pubkey, topic, note: 'Welcome' },
      }),
    ]);
    const active = await done<Listed>('GET', `${REQUESTS}?status=active`);
    expect(active.items[0]).toMatchObject({ request_id: id });
    await refused(409, 'STATUS_CONFLICT', 'POST', `${REQUESTS}/${id}/reject`);
  });

  it('are rejected with a note, repeatably, and not approved afterwards', async () => {
    const id = await ask(newTopic());
    const rejected = await done('POST', `${REQUESTS}/${id}/reject`, { note: 'Not here' });
    expect(rejected).toMatchObject({
      status: 'rejected',
      review_note: 'Not here',
      reviewed_by: root.pubkey,
      reviewed_at: expect.any(Number),
    });
    expect(await done('POST', `${REQUESTS}/${id}/reject`)).toEqual(rejected);
    const { body } = await refused(409, 'STATUS_CONFLICT', 'POST', `${REQUESTS}/${id}/approve`);
    expect(body.details).toEqual({ status: 'rejected' });
  });

  it('that are unknown or of another community are not found', async () => {
    const foreign = await ask(newTopic(), member, art);
    for (const id of [UNKNOWN, foreign]) {
      await refused(404, 'NOT_FOUND', 'GET', `${REQUESTS}/${id}`);
      await refused(404, 'NOT_FOUND', 'POST', `${REQUESTS}/${id}/approve`);
      await refused(404, 'NOT_FOUND', 'POST', `${REQUESTS}/${id}/reject`);
    }
    const here = await done<Listed>('GET', `${REQUESTS}?limit=200`);
    expect(here.items.map((item) => item.request_id)).not.toContain(foreign);
    const there = await done<Listed>('GET', `/c/art${REQUESTS}`, undefined, artist);
    expect(there.items.map((item) => item.request_id)).toEqual([foreign]);
  });

  it('are not approved for a blocked topic, a refused account, above the cap, or twice', async () => {
    const blocked = newTopic();
    const ofBlocked = await ask(blocked);
    await done('PUT', `${BLOCKED}/${blocked}`);
    await refused(403, 'TOPIC_BLOCKED', 'POST', `${REQUESTS}/${ofBlocked}/approve`);
    const other = newAuthor();
    const ofOther = await ask(newTopic(), other);
    await done('PATCH', `${MEMBERS}/${other.pubkey}`, { status: 'disabled' });
    await refused(403, 'ACCOUNT_DISABLED', 'POST', `${REQUESTS}/${ofOther}/approve`);
    await relay.database.pool.query("UPDATE members SET status = 'deleted' WHERE pubkey = $1", [
      Buffer.from(other.pubkey, 'hex'),
    ]);
    await refused(410, 'ACCOUNT_DELETED', 'POST', `${REQUESTS}/${ofOther}/approve`);
    const third = await ask(newTopic());
    await withSetting('topic.enabledMax', 1, async () => {
      const { body } = await refused(429, 'TOPIC_LIMIT_REACHED', 'POST', `${REQUESTS}/${third}/approve`);
      expect(body.details).toEqual({ limit: 1 });
    });
    const topic = newTopic();
    const again = await ask(topic);
    await relay.database.pool.query(
      `INSERT INTO topic_subscriptions
         (subscription_id, community, pubkey, topic, status, started_at, updated_at)
       VALUES (gen_random_uuid(), $1, $2, $3, 'active', 1, 1)`,
      [home, Buffer.from(member.pubkey, 'hex'), topic],
    );
    await refused(409, 'ALREADY_SUBSCRIBED', 'POST', `${REQUESTS}/${again}/approve`);
  });

  it('refuse a note that is too long, that the database cannot keep, and other fields', async () => {
    const id = await ask(newTopic());
    for (const body of [
      { note: 'x'.repeat(1_001) },
      { note: 'a\u0000' },
      { note: '\ud800' },
      { nota: 'x' },
      [],
    ]) {
      await refused(400, 'INVALID_REQUEST', 'POST', `${REQUESTS}/${id}/approve`, { body });
      await refused(400, 'INVALID_REQUEST', 'POST', `${REQUESTS}/${id}/reject`, { body });
    }
  });
});

// ─── Topics ────────────────────────────────────────────────────────────────────────────────────────────────

describe('topics of the node', () => {
  it('are created, listed, shown, changed and deleted, each with an audit row', async () => {
    const topic = newTopic();
    const created = await done('POST', TOPICS, {
      topic_id: topic,
      name: 'Ships',
      public: true,
      ingest_policy: { retentionDays: 3 },
    });
    expect(created).toEqual({
      topic_id: topic,
      name: 'Ships',
      enabled: true,
      pinned: true,
      public: true,
      blocked: false,
      ref_count: 0,
      priority: 0,
      ingest_policy: { retentionDays: 3 },
      events: 0,
      bytes: 0,
      capacity: { step: 0, since: null, percent: 0, full: false },
      created_at: expect.any(Number),
      updated_at: expect.any(Number),
    });
    expect(await done('GET', `${TOPICS}/${topic}`)).toEqual(created);
    expect(await done('GET', `${TOPICS}/${encodeURIComponent(topic)}`)).toEqual(created);
    const listed = await done<Listed>('GET', `${TOPICS}?limit=200`);
    expect(listed.items).toContainEqual(created);
    const changed = await done('PATCH', `${TOPICS}/${topic}`, { priority: 2, name: null, ingest_policy: {} });
    expect(changed).toMatchObject({ priority: 2, name: null, ingest_policy: {}, public: true, pinned: true });
    expect(await done('DELETE', `${TOPICS}/${topic}`)).toEqual(changed);
    await refused(404, 'NOT_FOUND', 'GET', `${TOPICS}/${topic}`);
    await refused(404, 'NOT_FOUND', 'PATCH', `${TOPICS}/${topic}`, { body: {} });
    await refused(404, 'NOT_FOUND', 'DELETE', `${TOPICS}/${topic}`);
    expect((await audit(3)).map(({ actor, action, target }) => ({ actor, action, target }))).toEqual(
      ['topic.delete', 'topic.change', 'topic.create'].map((action) => ({
        actor: root.pubkey,
        action,
        target: topic,
      })),
    );
  });

  it('show their capacity step, and null removes a limit', async () => {
    const topic = newTopic();
    const policy = { maxEvents: 20, maxBytes: 1_000, maxDelaySeconds: 60, allowBackfill: true };
    const held = await holdJobs();
    await done('POST', TOPICS, { topic_id: topic, ingest_policy: policy });
    const { pool } = relay.database;
    // Limits do not count the three deletion requests.
    await pool.query(
      `INSERT INTO topic_totals (community, topic, events, bytes, requests, request_bytes)
       VALUES (1, $1, 22, 590, 3, 90)`,
      [topic],
    );
    await pool.query(`INSERT INTO capacity_steps (community, topic, step, since) VALUES (1, $1, 1, 5000)`, [
      topic,
    ]);
    expect(await done('GET', `${TOPICS}/${topic}`)).toMatchObject({
      ingest_policy: policy,
      capacity: { step: 1, since: 5_000, percent: 95, full: false },
    });
    const cleared = {
      ...policy,
      maxEvents: null,
      maxDelaySeconds: null,
      allowBackfill: null,
      retentionDays: null,
    };
    expect(await done('PATCH', `${TOPICS}/${topic}`, { ingest_policy: cleared })).toMatchObject({
      ingest_policy: { maxBytes: 1_000 },
      capacity: { step: 1, percent: 50 },
    });
    const { rows } = await pool.query('SELECT ingest_policy FROM node_subscriptions WHERE topic = $1', [
      topic,
    ]);
    expect(rows).toEqual([{ ingest_policy: { maxBytes: 1_000 } }]);
    await pool.query(`DELETE FROM capacity_steps WHERE topic = $1`, [topic]);
    await pool.query(`DELETE FROM topic_totals WHERE topic = $1`, [topic]);
    await held.end();
  });

  it('are not created twice, above the cap, or with an invalid id', async () => {
    const topic = newTopic();
    await done('POST', TOPICS, { topic_id: topic, enabled: false });
    await refused(409, 'TOPIC_EXISTS', 'POST', TOPICS, { body: { topic_id: topic } });
    for (const bad of ['ships', 'other:global', `kukuri:${'A'.repeat(64)}`]) {
      await refused(400, 'INVALID_TOPIC', 'POST', TOPICS, { body: { topic_id: bad } });
    }
    await withSetting('topic.enabledMax', 1, async () => {
      await refused(429, 'TOPIC_LIMIT_REACHED', 'POST', TOPICS, { body: { topic_id: newTopic() } });
      await refused(429, 'TOPIC_LIMIT_REACHED', 'PATCH', `${TOPICS}/${topic}`, { body: { enabled: true } });
      await refused(429, 'TOPIC_LIMIT_REACHED', 'PATCH', `${TOPICS}/${topic}`, { body: { pinned: true } });
      await done('POST', TOPICS, { topic_id: newTopic(), pinned: false });
    });
  });

  it('are switched by enabled; one that members use is only unpinned, and not deleted', async () => {
    const topic = newTopic();
    expect(await done('POST', TOPICS, { topic_id: topic, enabled: false })).toMatchObject({ enabled: false });
    expect(await done('PATCH', `${TOPICS}/${topic}`, { enabled: true })).toMatchObject({
      enabled: true,
      pinned: true,
    });
    await subscribe(topic);
    const { body } = await refused(409, 'TOPIC_IN_USE', 'PATCH', `${TOPICS}/${topic}`, {
      body: { enabled: false },
    });
    expect(body.details).toEqual({ ref_count: 1 });
    await refused(409, 'TOPIC_IN_USE', 'DELETE', `${TOPICS}/${topic}`);
    expect(await done('PATCH', `${TOPICS}/${topic}`, { pinned: false })).toMatchObject({
      enabled: true,
      pinned: false,
      ref_count: 1,
    });
  });

  it('refuse what does not fit', async () => {
    const topic = newTopic();
    const bad = [
      { enabled: true, pinned: true },
      { priority: 32_768 },
      { priority: 1.5 },
      { name: '' },
      { name: 'a\u0000' },
      { ingest_policy: { retentionDays: -1 } },
      { ingest_policy: { days: 1 } },
      { ref_count: 5 },
    ];
    for (const body of bad) {
      await refused(400, 'INVALID_REQUEST', 'POST', TOPICS, { body: { topic_id: topic, ...body } });
      await refused(400, 'INVALID_REQUEST', 'PATCH', `${TOPICS}/${topic}`, { body });
    }
    await refused(400, 'INVALID_REQUEST', 'GET', `${TOPICS}/${encodeURIComponent('a\u0000')}`);
    await refused(400, 'INVALID_REQUEST', 'POST', TOPICS, { body: {} });
  });

  it('of another community are neither seen nor changed', async () => {
    const topic = newTopic();
    await done('POST', `/c/art${TOPICS}`, { topic_id: topic }, artist);
    await refused(404, 'NOT_FOUND', 'GET', `${TOPICS}/${topic}`);
    await refused(404, 'NOT_FOUND', 'PATCH', `${TOPICS}/${topic}`, { body: { public: true } });
    await refused(404, 'NOT_FOUND', 'DELETE', `${TOPICS}/${topic}`);
    expect(await done('GET', `/c/art${TOPICS}/${topic}`, undefined, artist)).toMatchObject({ public: false });
  });
});

describe('capacity', () => {
  it('of a community has its step, size, limits and thresholds, and nothing of another one', async () => {
    const { pool } = relay.database;
    const held = await holdJobs();
    await pool.query(`INSERT INTO capacity_steps (community, topic, step, since, cause)
      VALUES (1, '', 2, 7000, 'space'), (1, '', 1, 8000, 'lag')`);
    const { rows } = await pool.query<{ events: number; bytes: number }>(
      'SELECT events, bytes FROM community_totals WHERE community = 1',
    );
    const { events, bytes } = rows[0] ?? { events: 0, bytes: 0 };
    await withSetting('capacity.maxEvents', 1_000_000, async () => {
      expect(await done('GET', '/v1/admin/capacity')).toEqual({
        space: { step: 2, since: 7_000, percent: 0, events, bytes, max_events: 1_000_000, max_bytes: 0 },
        lag: { step: 1, since: 8_000 },
        marks: { 1: { from: 90, until: 85 }, 2: { from: 95, until: 90 }, 3: { from: 100, until: 90 } },
        disk: { level: expect.any(Number), free_percent: expect.any(Number), min_percent: 5 },
      });
    });
    expect(await done('GET', '/c/art/v1/admin/capacity', undefined, artist)).toMatchObject({
      space: { step: 0, since: null },
      lag: { step: 0, since: null },
    });
    await pool.query(`DELETE FROM capacity_steps WHERE topic = ''`);
    await held.end();
  });
});

describe('blocked topics', () => {
  it('are blocked with a reason, listed, and unblocked; what members use waits meanwhile', async () => {
    const topic = newTopic();
    await subscribe(topic);
    expect(await done('PUT', `${BLOCKED}/${topic}`, { reason: 'spam' })).toEqual({
      topic_id: topic,
      reason: 'spam',
      created_at: expect.any(Number),
    });
    expect(await done('GET', `${TOPICS}/${topic}`)).toMatchObject({
      blocked: true,
      enabled: false,
      ref_count: 1,
    });
    expect(await done('PUT', `${BLOCKED}/${topic}`)).toMatchObject({ reason: 'spam' });
    const { items } = await done<Listed>('GET', `${BLOCKED}?limit=200`);
    expect(items.map((item) => item.topic_id)).toContain(topic);
    expect(await done('DELETE', `${BLOCKED}/${topic}`)).toMatchObject({ topic_id: topic });
    expect(await done('GET', `${TOPICS}/${topic}`)).toMatchObject({ blocked: false, enabled: true });
    await refused(404, 'NOT_FOUND', 'DELETE', `${BLOCKED}/${topic}`);
    expect((await audit(2)).map(({ action, details }) => ({ action, details }))).toEqual([
      { action: 'topic.unblock', details: {} },
      { action: 'topic.block', details: { reason: 'spam' } },
    ]);
  });

  it('must be topics, and are those of one community', async () => {
    await refused(400, 'INVALID_TOPIC', 'PUT', `${BLOCKED}/ships`);
    await refused(400, 'INVALID_REQUEST', 'PUT', `${BLOCKED}/${newTopic()}`, { body: { reason: 1 } });
    const topic = newTopic();
    await done('PUT', `/c/art${BLOCKED}/${topic}`, undefined, artist);
    await refused(404, 'NOT_FOUND', 'DELETE', `${BLOCKED}/${topic}`);
  });
});

// ─── People ────────────────────────────────────────────────────────────────────────────────────────────────

describe('members', () => {
  it('are listed by status and shown with what they have', async () => {
    const one = newAuthor();
    await subscribe(newTopic(), one);
    await ask(newTopic(), one);
    expect(await done('GET', `${MEMBERS}/${one.pubkey}`)).toEqual({
      pubkey: one.pubkey,
      status: 'active',
      note: null,
      name: null,
      profile: null,
      plan_id: 'free',
      left_at: null,
      pending_requests: 1,
      active_subscriptions: 1,
      paused_subscriptions: 0,
      created_at: expect.any(Number),
      updated_at: expect.any(Number),
    });
    const keys = async (status: string) =>
      (await done<Listed>('GET', `${MEMBERS}?limit=200&status=${status}`)).items.map((item) => item.pubkey);
    expect(await keys('active')).toContain(one.pubkey);
    await done('PATCH', `${MEMBERS}/${one.pubkey}`, { status: 'disabled', note: 'spam' });
    expect(await keys('active')).not.toContain(one.pubkey);
    expect(await keys('disabled')).toContain(one.pubkey);
    await refused(404, 'NOT_FOUND', 'GET', `${MEMBERS}/${newAuthor().pubkey}`);
    await done('PATCH', `${MEMBERS}/${one.pubkey}`, { name: 'harbour.master' });
    const named = { body: { name: 'harbour.master' } };
    await refused(409, 'NAME_TAKEN', 'PATCH', `${MEMBERS}/${newAuthor().pubkey}`, named);
    await refused(404, 'NOT_FOUND', 'GET', `/c/art${MEMBERS}/${one.pubkey}`);
  });

  it('that are disabled are refused in this community on every instance, until enabled', async () => {
    const one = newAuthor();
    await done('PATCH', `${MEMBERS}/${one.pubkey}`, { status: 'disabled' });
    await api.refused(403, 'ACCOUNT_DISABLED', 'GET', '/v1/topic-subscriptions', { as: one });
    expect((await api.ask('GET', '/c/art/v1/topic-subscriptions', { as: one })).status).toBe(200);
    await expect
      .poll(() => relay.node.communities.get(home)?.refused.has(one.pubkey), { timeout: 100_000 })
      .toBe(true);
    await done('PATCH', `${MEMBERS}/${one.pubkey}`, { status: 'active' });
    expect((await api.ask('GET', '/v1/topic-subscriptions', { as: one })).status).toBe(200);
  });

  it('that are deleted stay deleted, and keep their notes', async () => {
    const one = newAuthor();
    await subscribe(newTopic(), one);
    expect(
      await done('PATCH', `${MEMBERS}/${one.pubkey}`, { status: 'deleted', note: 'asked' }),
    ).toMatchObject({
      status: 'deleted',
      active_subscriptions: 0,
    });
    await api.refused(410, 'ACCOUNT_DELETED', 'GET', '/v1/topic-subscriptions', { as: one });
    const { body } = await refused(409, 'STATUS_CONFLICT', 'PATCH', `${MEMBERS}/${one.pubkey}`, {
      body: { status: 'active' },
    });
    expect(body.details).toEqual({ status: 'deleted' });
    expect(await done('PATCH', `${MEMBERS}/${one.pubkey}`, { note: null })).toMatchObject({ note: null });
    expect((await audit())[0]).toMatchObject({
      actor: root.pubkey,
      action: 'member.change',
      target: one.pubkey,
      details: { status: 'deleted', note: null },
    });
  });

  it('that are fixed operators cannot be locked out; an invalid key or status is refused', async () => {
    for (const status of ['disabled', 'deleted']) {
      await refused(409, 'FIXED_OPERATOR', 'PATCH', `/c/art${MEMBERS}/${root.pubkey}`, {
        as: artist,
        body: { status },
      });
    }
    await refused(400, 'INVALID_REQUEST', 'PATCH', `${MEMBERS}/${member.pubkey}`, {
      body: { status: 'gone' },
    });
    await refused(400, 'INVALID_REQUEST', 'PATCH', `${MEMBERS}/alice`, { body: { note: null } });
    await refused(400, 'INVALID_REQUEST', 'PATCH', `${MEMBERS}/${member.pubkey}`, { body: {} });
    await refused(400, 'INVALID_REQUEST', 'GET', `${MEMBERS}/${member.pubkey.toUpperCase()}`);
  });
});

describe('operators', () => {
  it('are added, act, and are removed, each within a second and with an audit row', async () => {
    const second = newAuthor();
    const status = async () => (await api.ask('GET', AUDIT, { as: second })).status;
    expect(await done('PUT', `${OPERATORS}/${second.pubkey}`)).toEqual({
      pubkey: second.pubkey,
      role: 'operator',
      added_by: root.pubkey,
      created_at: expect.any(Number),
    });
    await done('PUT', `${OPERATORS}/${second.pubkey}`);
    await expect.poll(status, { timeout: 100_000 }).toBe(200);
    const listed = await done<Listed & { fixed: string[] }>('GET', `${OPERATORS}?limit=200`);
    expect(listed.fixed).toEqual([root.pubkey]);
    expect(listed.items.map((item) => item.pubkey)).toContain(second.pubkey);
    expect(await done('DELETE', `${OPERATORS}/${second.pubkey}`)).toMatchObject({ pubkey: second.pubkey });
    await expect.poll(status, { timeout: 100_000 }).toBe(403);
    await refused(404, 'NOT_FOUND', 'DELETE', `${OPERATORS}/${second.pubkey}`);
    expect((await audit(2)).map(({ actor, action, target }) => ({ actor, action, target }))).toEqual([
      { actor: root.pubkey, action: 'operator.remove', target: second.pubkey },
      { actor: root.pubkey, action: 'operator.add', target: second.pubkey },
    ]);
  });

  it('of the boot settings are neither added nor removed; of another community are unknown', async () => {
    await refused(409, 'FIXED_OPERATOR', 'PUT', `${OPERATORS}/${root.pubkey}`);
    await refused(409, 'FIXED_OPERATOR', 'DELETE', `${OPERATORS}/${root.pubkey}`);
    await refused(404, 'NOT_FOUND', 'DELETE', `${OPERATORS}/${artist.pubkey}`);
    await refused(400, 'INVALID_REQUEST', 'PUT', `${OPERATORS}/alice`);
    const king = { body: { role: 'king' } };
    await refused(400, 'INVALID_REQUEST', 'PUT', `${OPERATORS}/${member.pubkey}`, king);
  });
});

describe('invites', () => {
  const inADay = () => Date.now() + 86_400_000;

  it('are created with a code that is shown once, approve one request, and are used up', async () => {
    const topic = newTopic();
    const holder = newAuthor();
    const made = await done<{ invite: Row; code: string }>('POST', INVITES, {
      topic_id: topic,
      expires_at: inADay(),
    });
    expect(made.invite).toMatchObject({
      topic_id: topic,
      created_by: root.pubkey,
      used_at: null,
      revoked_at: null,
    });
    expect(JSON.stringify(await done('GET', INVITES))).not.toContain(made.code);
    await withSetting('subscription.autoApproval', 'invite', async () => {
      const asked = { topic_id: topic, invite: made.code };
      expect(await done('POST', '/v1/topic-subscription-requests', asked, holder)).toMatchObject({
        request: { status: 'active' },
        subscription: { status: 'active' },
      });
    });
    const { items } = await done<Listed>('GET', INVITES);
    expect(items[0]).toMatchObject({ ...made.invite, used_by: holder.pubkey, used_at: expect.any(Number) });
    await refused(409, 'STATUS_CONFLICT', 'DELETE', `${INVITES}/${made.invite.invite_id}`);
  });

  it('are revoked, repeatably; one of another community is unknown', async () => {
    const { invite } = await done<{ invite: Row }>('POST', INVITES, { expires_at: inADay() });
    const path = `${INVITES}/${invite.invite_id}`;
    await refused(404, 'NOT_FOUND', 'DELETE', `/c/art${path}`, { as: artist });
    const revoked = await done('DELETE', path);
    expect(revoked).toEqual({ ...invite, revoked_at: expect.any(Number) });
    expect(await done('DELETE', path)).toEqual(revoked);
    await refused(404, 'NOT_FOUND', 'DELETE', `${INVITES}/${UNKNOWN}`);
    await refused(400, 'INVALID_REQUEST', 'DELETE', `${INVITES}/x`);
    expect((await audit(2)).map(({ action }) => action)).toEqual(['invite.revoke', 'invite.create']);
  });

  it('end in the future, and are for a topic if they name one', async () => {
    await refused(400, 'INVALID_REQUEST', 'POST', INVITES, { body: { expires_at: Date.now() - 1 } });
    await refused(400, 'INVALID_REQUEST', 'POST', INVITES, { body: { expires_at: 1.5 } });
    await refused(400, 'INVALID_REQUEST', 'POST', INVITES, { body: { expires_at: 1e300 } });
    await refused(400, 'INVALID_REQUEST', 'POST', INVITES, { body: {} });
    await refused(400, 'INVALID_TOPIC', 'POST', INVITES, {
      body: { topic_id: 'ships', expires_at: inADay() },
    });
  });
});

// ─── Settings and the audit log ────────────────────────────────────────────────────────────────────────────

describe('settings', () => {
  const NAME = `${SETTINGS}/relay.name`;

  it('are listed with value, default, meaning and version', async () => {
    const { items } = await done<Listed>('GET', SETTINGS);
    expect(items.map((item) => item.key)).toEqual(settingKeys);
    const mode = items.find((item) => item.key === 'topic.mode');
    expect(mode).toMatchObject({ value: 'open', default: 'required', version: expect.any(Number) });
    expect(await done('GET', NAME)).toEqual({
      key: 'relay.name',
      value: 'Minato',
      in_force: 'Minato',
      ceiling: null,
      default: 'Minato',
      about: expect.any(String),
      version: 0,
      updated_at: null,
      changed: null,
    });
    await refused(404, 'NOT_FOUND', 'GET', `${SETTINGS}/no.such`);
    await refused(404, 'NOT_FOUND', 'GET', `${SETTINGS}/__proto__`);
  });

  it('change only over the version that was read; otherwise the current state is sent', async () => {
    const changed = await done('PUT', NAME, { value: 'Our 港', version: 0 });
    expect(changed).toMatchObject({ value: 'Our 港', updated_at: expect.any(Number) });
    const current = { value: 'Our 港', version: changed.version };
    const stale = await refused(409, 'VERSION_MISMATCH', 'PUT', NAME, { body: { value: 'x', version: 0 } });
    expect(stale.body.details).toEqual(current);
    const staleReset = await refused(409, 'VERSION_MISMATCH', 'DELETE', `${NAME}?version=0`);
    expect(staleReset.body.details).toEqual(current);
    const name = async () => {
      const response = await fetch(relay.http, { headers: { accept: 'application/nostr+json' } });
      return ((await response.json()) as { name: string }).name;
    };
    await expect.poll(name, { timeout: 100_000 }).toBe('Our 港');
    expect(await done('DELETE', `${NAME}?version=${changed.version}`)).toMatchObject({
      value: 'Minato',
      version: 0,
      updated_at: null,
    });
    expect((await audit(2)).map(({ actor, action, details }) => ({ actor, action, details }))).toEqual([
      { actor: root.pubkey, action: 'setting.reset', details: { from: 'Our 港' } },
      { actor: root.pubkey, action: 'setting.change', details: { from: 'Minato', to: 'Our 港' } },
    ]);
  });

  it('of the node also change only over the version that was read', async () => {
    const key = '/v1/admin/node-settings/node.outboxStreamsMax';
    for (const method of ['GET', 'PUT', 'DELETE']) {
      const body = method === 'PUT' ? { body: { value: 16, version: 0 } } : {};
      const query = method === 'DELETE' ? '?version=0' : '';
      await refused(404, 'NOT_FOUND', method, `/v1/admin/node-settings/node.none${query}`, body);
    }
    await refused(409, 'VERSION_MISMATCH', 'PUT', key, { body: { value: 16, version: 9 } });
    await refused(409, 'VERSION_MISMATCH', 'DELETE', `${key}?version=9`);
  });

  it('of one community change nothing in another', async () => {
    const changed = await done('PUT', `/c/art${NAME}`, { value: 'Art', version: 0 }, artist);
    expect(await done('GET', NAME)).toMatchObject({ value: 'Minato', version: 0 });
    await done('DELETE', `/c/art${NAME}?version=${changed.version}`, undefined, artist);
  });

  it('refuse a value that does not fit, and a request without a version', async () => {
    for (const value of [1, null, 'x'.repeat(201), 'a\u0000', '\ud800']) {
      const { body } = await refused(400, 'INVALID_REQUEST', 'PUT', NAME, { body: { value, version: 0 } });
      expect(body.details.problems).toEqual([
        { path: 'body/value', message: expect.stringMatching(/^relay\.name: /) },
      ]);
    }
    await refused(400, 'INVALID_REQUEST', 'PUT', NAME, { body: { version: 0 } });
    await refused(400, 'INVALID_REQUEST', 'PUT', NAME, { body: { value: 'x' } });
    await refused(400, 'INVALID_REQUEST', 'PUT', NAME, { body: { value: 'x', version: -1 } });
    await refused(400, 'INVALID_REQUEST', 'DELETE', NAME);
    await refused(400, 'INVALID_REQUEST', 'DELETE', `${NAME}?version=x`);
    await refused(404, 'NOT_FOUND', 'PUT', `${SETTINGS}/no.such`, { body: { value: 1, version: 0 } });
    await refused(404, 'NOT_FOUND', 'DELETE', `${SETTINGS}/no.such?version=0`);
  });

  it('take the longest list that a setting allows', async () => {
    const keys = Array.from({ length: 10_000 }, (_, at) => at.toString(16).padStart(64, '0'));
    const path = `${SETTINGS}/subscription.allowList`;
    const { version } = await done('PUT', path, { value: keys, version: 0 });
    await done('DELETE', `${path}?version=${version}`);
  });
});

describe('the audit log', () => {
  it('has one community only, in pages, the newest first', async () => {
    const positions: number[] = [];
    let cursor = '';
    for (let page = 0; page < 3; page += 1) {
      const { items, next_cursor } = await done<Listed>('GET', `${AUDIT}?limit=3${cursor}`);
      positions.push(...items.map((item) => Number(item.position)));
      cursor = `&cursor=${encodeURIComponent(next_cursor!)}`;
    }
    expect(positions).toEqual([...new Set(positions)].sort((one, two) => two - one));
    const { items } = await done<Listed>('GET', `/c/art${AUDIT}?limit=200`, undefined, artist);
    expect(items.length).toBeGreaterThan(0);
    const { rows } = await relay.database.pool.query(
      'SELECT position FROM audit_log WHERE community = $1 ORDER BY position DESC',
      [art],
    );
    expect(items.map((item) => item.position)).toEqual(rows.map((row) => row.position));
  });
});

it('every declared refusal of a route of operators occurs above', () => {
  // Those of every route: of its form, its signature, its rate, and of failures.
  const common = [
    'INVALID_REQUEST',
    'ADDRESS_BLOCKED',
    'PAYLOAD_TOO_LARGE',
    'UNSUPPORTED_MEDIA_TYPE',
    'AUTH_REQUIRED',
    'INVALID_AUTH',
    'REPLAYED_AUTH',
    'INVALID_TOKEN',
    'INVALID_SESSION',
    'CSRF_REQUIRED',
    'OPERATORS_ONLY',
    'RATE_LIMITED',
    'UNAVAILABLE',
    'INTERNAL',
    // Of plans, which have their own files.
    'QUOTA_EXCEEDED',
    // Of searches: test/moderation/stores.test.ts.
    'SEARCH_NOT_READY',
    // Of erasures: test/erasure/erasure-stages.test.ts.
    'BEING_ERASED',
  ];
  const reviewed = `${REQUESTS}/{request_id}/approve`;
  // These have their own test files.
  const elsewhere = [
    'session|reports|blocks|policies|consents|plans|usage|webhook-secret',
    'p2p|personal|erasures|outbox|followers|consumers|moderation|events|jobs|labels|communities',
    'erasure-certificates|members/{pubkey}/personal|node-subscriptions/{topic_id}/preview',
  ];
  const isElsewhere = new RegExp(`^/v1/admin/(${elsewhere.join('|')})|/(plan|sessions)$`);
  const here = samples().filter(({ template }) => !isElsewhere.test(template));
  const named = here.flatMap(({ method, template }) => {
    const operation = document.paths[template]![method.toLowerCase()]!;
    const codes = Object.keys(operation.responses).flatMap((status) =>
      Number(status) < 400 ? [] : codesOf(operation, Number(status)),
    );
    return codes
      .filter((code) => !common.includes(code))
      .filter((code) => !code.startsWith('ACCOUNT_') || template === reviewed)
      .map((code) => `${method} ${template} ${code}`);
  });
  expect(named.filter((one) => !met.has(one))).toEqual([]);
});
