/**
 * Calls of a payment provider over real HTTP: only a signed, fresh and unchanged call sets a plan, and each
 * event is carried out once.
 */
import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { listAudit } from '../../src/audit/audit.sql.js';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { changeMember } from '../../src/members/members.sql.js';
import { assignPlan, createPlan, readMemberPlan } from '../../src/plans/plans.sql.js';
import { type Api, createApi } from '../support/clients/api.js';
import { type Author, newAuthor, nowSeconds } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const PATH = '/v1/webhooks/plan';
const SECRET = '/v1/admin/webhook-secret';
const root = newAuthor();
let relay: TestNode;
let second: TestNode;
let api: Api;
let secondApi: Api;
let home: number;
let art: number;
let secret: string;
let member: Author;
let events = 0;

beforeAll(async () => {
  const env = { MINATO_ADMIN_PUBKEYS: root.pubkey };
  relay = await startTestNode({ env });
  second = await startTestNode({ env, on: relay.test });
  api = createApi(relay.http);
  secondApi = createApi(second.http);
  home = relay.node.communities.find(undefined, undefined)!.id;
  art = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, { timeout: 100_000 });
  for (const community of [home, art])
    await createPlan(relay.database.pool, { community, planId: 'gold', name: 'Gold' }, Date.now());
  secret = await newSecret();
});
afterAll(async () => {
  await second?.close();
  await relay?.close();
});
beforeEach(() => {
  member = newAuthor();
});

async function newSecret(prefix = ''): Promise<string> {
  const { status, body } = await api.ask<{ secret: string }>('POST', prefix + SECRET, { as: root });
  expect(status).toBe(201);
  return body.secret;
}

interface Signing {
  readonly time?: number;
  readonly by?: string;
  /** The signed text, when it differs from the sent one. */
  readonly over?: string;
}
function signed(text: string, { time = nowSeconds(), by = secret, over = text }: Signing = {}) {
  const seal = createHmac('sha256', by).update(`${time}.${over}`).digest('hex');
  return { body: text, headers: { 'x-minato-signature': `t=${time},v1=${seal}` } };
}
const eventOf = (changes: Record<string, unknown> = {}) => {
  events += 1;
  return JSON.stringify({ event_id: `evt_${events}`, pubkey: member.pubkey, plan_id: 'gold', ...changes });
};
const call = (text: string, signing?: Signing, at = api) =>
  at.ask<Record<string, unknown>>('POST', PATH, signed(text, signing));
const planOf = async (community = home) =>
  (await readMemberPlan(relay.database.pool, { community, pubkey: member.pubkey }, Date.now())).planId;
async function audit() {
  const page = await listAudit(relay.database.pool, home, { limit: 200 });
  return isDenial(page) ? [] : page.items;
}
const auditOf = async (pubkey: string) => (await audit()).filter(({ target }) => target === pubkey);
async function expectUnsigned(reason: string, asking: Parameters<Api['ask']>[2], path = PATH): Promise<void> {
  const { headers, body } = await api.refused(401, 'INVALID_SIGNATURE', 'POST', path, asking);
  expect(body.details).toEqual({ reason });
  expect(headers.get('www-authenticate')).toBe('Minato-Signature');
  expect(await planOf()).toBe('free');
}

describe('a signed call', () => {
  it('sets the plan of a key, until a time or for ever, and is audited', async () => {
    const until = Date.now() + 60_000;
    const text = eventOf({ until });
    expect(await call(text)).toMatchObject({ status: 200, body: { ...JSON.parse(text), until } });
    expect(await planOf()).toBe('gold');
    expect(await auditOf(member.pubkey)).toMatchObject([
      {
        actor: null,
        action: 'plan.assign',
        details: { source: 'webhook', event_id: JSON.parse(text).event_id, plan: 'gold', until },
      },
    ]);
    expect((await call(eventOf({ plan_id: 'free' }))).body).toMatchObject({ plan_id: 'free', until: null });
    expect(await planOf()).toBe('free');
    expect((await call(eventOf())).body).toMatchObject({ plan_id: 'gold', until: null });
  });

  it('that is sent again gets the same response and changes nothing, on any instance', async () => {
    const text = eventOf({ until: Date.now() + 60_000 });
    const first = await call(text);
    await assignPlan(
      relay.database.pool,
      { community: home, pubkey: member.pubkey, planId: 'free' },
      Date.now(),
    );
    for (const at of [api, secondApi]) {
      const again = await call(text, { time: nowSeconds() - 1 }, at);
      expect(again).toMatchObject({ status: 200, body: first.body });
    }
    // Even with other content.
    const { event_id } = JSON.parse(text);
    expect((await call(eventOf({ event_id, plan_id: 'free' }))).body).toEqual(first.body);
    expect(await planOf()).toBe('free');
    expect((await auditOf(member.pubkey)).map(({ details }) => details.source)).toEqual([
      undefined,
      'webhook',
    ]);
  });

  it('is carried out once under concurrency', async () => {
    const text = eventOf();
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, at) => call(text, {}, at % 2 === 0 ? api : secondApi)),
    );
    expect(new Set(answers.map(({ status, body }) => JSON.stringify([status, body]))).size).toBe(1);
    expect(await auditOf(member.pubkey)).toHaveLength(1);
  });

  it('that was refused can be sent again once the reason no longer applies', async () => {
    const text = eventOf({ plan_id: 'silver' });
    await api.refused(404, 'NOT_FOUND', 'POST', PATH, signed(text));
    expect(await planOf()).toBe('free');
    await createPlan(relay.database.pool, { community: home, planId: 'silver' }, Date.now());
    expect((await call(text)).status).toBe(200);
    expect(await planOf()).toBe('silver');
  });

  it('is refused for a deleted account, and with a time in the past', async () => {
    const past = signed(eventOf({ until: nowSeconds() }));
    await api.refused(400, 'INVALID_REQUEST', 'POST', PATH, past);
    const change = { community: home, pubkey: member.pubkey, status: 'deleted' as const };
    await changeMember(relay.database.pool, change, { fixed: [] }, Date.now());
    await api.refused(410, 'ACCOUNT_DELETED', 'POST', PATH, signed(eventOf()));
  });

  it('is refused when its body is malformed', async () => {
    const wrong = ['not json', '{}', JSON.stringify({ event_id: 'x', plan_id: 'gold' })];
    for (const text of [
      ...wrong,
      eventOf({ pubkey: 'x' }),
      eventOf({ plan_id: 'Gold!' }),
      eventOf({ extra: 1 }),
    ])
      await api.refused(400, 'INVALID_REQUEST', 'POST', PATH, signed(text));
    await api.refused(400, 'INVALID_REQUEST', 'POST', PATH, signed(eventOf({ event_id: '' })));
    await api.refused(400, 'INVALID_REQUEST', 'POST', PATH, signed(eventOf({ event_id: 'a\u0000' })));
    await api.refused(400, 'INVALID_REQUEST', 'POST', PATH, signed(eventOf({ until: 'soon' })));
  });
});

describe('a call is refused', () => {
  it('when it is not signed, or its signature cannot be read', async () => {
    const text = eventOf();
    const { 'x-minato-signature': right } = signed(text).headers;
    await expectUnsigned('header', { body: text });
    for (const header of [
      '',
      'x',
      right.replace('t=', 't=x'),
      right.slice(0, -1),
      right.toUpperCase(),
      `v1=${right}`,
    ])
      await expectUnsigned('header', { body: text, headers: { 'x-minato-signature': header } });
    await expectUnsigned('header', { body: 'not json' });
    await expectUnsigned('header', {});
  });

  it('when its time is more than five minutes from now', async () => {
    for (const apart of [-310, 310])
      await expectUnsigned('time', signed(eventOf(), { time: nowSeconds() + apart }));
    expect((await call(eventOf(), { time: nowSeconds() - 290 })).status).toBe(200);
  });

  it('when it is signed with another secret', async () => {
    await expectUnsigned('signature', signed(eventOf(), { by: 'whsec_another' }));
  });

  it('when its body or its time was changed', async () => {
    const text = eventOf();
    await expectUnsigned('signature', signed(text.replace('gold', 'free'), { over: text }));
    await expectUnsigned('signature', signed(`${text} `, { over: text }));
    const { headers } = signed(text);
    const later = headers['x-minato-signature'].replace(/t=\d+/, `t=${nowSeconds() + 1}`);
    await expectUnsigned('signature', { body: text, headers: { 'x-minato-signature': later } });
  });

  it('when it is for another community, with or without its own secret', async () => {
    await expectUnsigned('signature', signed(eventOf()), `/c/art${PATH}`);
    const ofArt = await newSecret('/c/art');
    await expectUnsigned('signature', signed(eventOf()), `/c/art${PATH}`);
    await expectUnsigned('signature', signed(eventOf(), { by: ofArt }));
    const there = await api.ask('POST', `/c/art${PATH}`, signed(eventOf(), { by: ofArt }));
    expect(there.status).toBe(200);
    expect([await planOf(), await planOf(art)]).toEqual(['free', 'gold']);
  });
});

describe('the secret', () => {
  it('is shown once; later only whether it exists, and since when', async () => {
    const made = await api.ask<{ secret: string; created_at: number }>('POST', SECRET, { as: root });
    expect(made.body.secret).toMatch(/^whsec_[\w-]{43}$/);
    secret = made.body.secret;
    const { body } = await api.ask('GET', SECRET, { as: root });
    expect(body).toEqual({ is_set: true, created_at: made.body.created_at });
  });

  it('that is replaced is invalid at once on every instance', async () => {
    const before = secret;
    secret = await newSecret();
    await expectUnsigned('signature', signed(eventOf(), { by: before }));
    expect((await call(eventOf(), {}, secondApi)).status).toBe(200);
  });

  it('can be removed, and then no call is accepted', async () => {
    expect((await api.ask('DELETE', SECRET, { as: root })).body).toEqual({ is_set: false, created_at: null });
    expect((await api.ask('GET', SECRET, { as: root })).body).toEqual({ is_set: false, created_at: null });
    await api.refused(404, 'NOT_FOUND', 'DELETE', SECRET, { as: root });
    await expectUnsigned('signature', signed(eventOf()));
    secret = await newSecret();
    const actions = await audit();
    const about = actions.filter(({ action }) => action.startsWith('webhook-secret.'));
    expect(about.slice(0, 2)).toMatchObject([
      { action: 'webhook-secret.create', actor: root.pubkey, details: {} },
      { action: 'webhook-secret.delete', actor: root.pubkey, details: {} },
    ]);
    expect(JSON.stringify(actions)).not.toContain('whsec_');
  });

  it('is for operators', async () => {
    for (const method of ['GET', 'POST', 'DELETE'])
      await api.refused(403, 'OPERATORS_ONLY', method, SECRET, { as: member });
    await api.refused(401, 'AUTH_REQUIRED', 'POST', SECRET);
  });
});
