/**
 * With required authentication, members must agree to the current policies: over HTTP and on the socket, on
 * every instance.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity, readConfigVersions, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { type Consent, giveConsent } from '../../src/policies/consents.sql.js';
import { createPolicy, makeCurrent, publishPolicy, writeText } from '../../src/policies/policies.sql.js';
import { type PolicyRef, policyKey } from '../../src/policies/rules.js';
import { type Api, createApi, readOpenApi } from '../support/clients/api.js';
import { authenticate } from '../support/clients/auth.js';
import { type Frame, RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const OPEN = `kukuri:${'c'.repeat(64)}`;
const BOATS = `kukuri:${'b'.repeat(64)}`;
const REQUESTS = '/v1/topic-subscription-requests';
const CONSENT = 'restricted: consent required';
const SOON = { timeout: 100_000, interval: 20 };

const root = newAuthor();
let relay: TestNode;
let second: TestNode;
let home: number;
let other: number;
const clients: RawClient[] = [];
const pool = () => relay.database.pool;
const nodes = () => [relay, second];

beforeAll(async () => {
  const env = {
    MINATO_TOPIC_MODE: 'required',
    MINATO_AUTH_MODE: 'required',
    MINATO_ADMIN_PUBKEYS: root.pubkey,
  };
  relay = await startTestNode({ env });
  second = await startTestNode({ env, on: relay.test });
  home = relay.node.communities.find(undefined, undefined)!.id;
  other = await addCommunity(pool(), 'other', undefined, Date.now());
  await writeSetting(pool(), home, 'subscription.autoApproval', 'within-limits', Date.now());
  await writeSetting(pool(), other, 'auth.mode', 'required', Date.now());
  for (const [topic, isPublic] of [
    [OPEN, true],
    [BOATS, false],
  ] as const)
    await writeTopic(pool(), home, topic, { pinned: true, public: isPublic, priority: 0, policy: {} }, 1);
  await vi.waitUntil(() => nodes().every(({ node }) => node.communities.get(home)?.topics.has(BOATS)), SOON);
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});
afterAll(async () => {
  await second.close();
  await relay.close();
});

async function done<T>(work: Promise<T>): Promise<Exclude<T, { denied: unknown }>> {
  const result = await work;
  if (isDenial(result)) throw new Error(JSON.stringify(result));
  return result as Exclude<T, { denied: unknown }>;
}

let versions = 0;
async function published(type: PolicyRef['type'] = 'terms', community = home): Promise<PolicyRef> {
  versions += 1;
  const policy = { type, version: `v${versions}` };
  const ref = { ...policy, community };
  await done(createPolicy(pool(), ref, Date.now()));
  const text = { title: 'Terms', content: `Be kind, ${versions}` };
  await done(writeText(pool(), { ...ref, locale: 'en' }, text, Date.now()));
  await done(publishPolicy(pool(), ref, Date.now()));
  return policy;
}
const asksFor = ({ node }: TestNode, policy: PolicyRef) =>
  node.communities.get(home)!.policies.some((one) => policyKey(one) === policyKey(policy));
async function makeItCurrent(policy: PolicyRef): Promise<void> {
  await done(makeCurrent(pool(), { ...policy, community: home }, Date.now()));
  await vi.waitUntil(() => nodes().every((node) => asksFor(node, policy)), SOON);
}
async function current(type: PolicyRef['type'] = 'terms'): Promise<PolicyRef> {
  const policy = await published(type);
  await makeItCurrent(policy);
  return policy;
}
const agree = ({ pubkey }: Author, policy: PolicyRef): Promise<Consent> =>
  done(giveConsent(pool(), { ...policy, community: home, pubkey, locale: 'en' }, Date.now()));

/** Waits until every instance has seen all changes. */
async function heard(): Promise<void> {
  const { rightsVersion } = await readConfigVersions(pool());
  await vi.waitUntil(
    () => nodes().every(({ node }) => node.communities.rightsVersion() >= rightsVersion),
    SOON,
  );
}

async function connect(node: TestNode, ...members: Author[]): Promise<RawClient> {
  const client = await RawClient.connect(node.url);
  clients.push(client);
  for (const member of members) expect(await authenticate(client, member, node.url)).toEqual([true, '']);
  return client;
}
async function open(client: RawClient, id: string, filter: object = { '#t': [OPEN] }): Promise<Frame> {
  const from = client.frames.length;
  client.send(['REQ', id, { limit: 0, ...filter }]);
  return client.waitFor(([verb, of]) => (verb === 'EOSE' || verb === 'CLOSED') && of === id, from);
}
async function count(client: RawClient): Promise<Frame> {
  const from = client.frames.length;
  client.send(['COUNT', 'c', { '#t': [OPEN] }]);
  return client.waitFor(([, of]) => of === 'c', from);
}
const post = (topic = OPEN, author = newAuthor()) =>
  sign(author, { content: `${Math.random()}`, tags: [['t', topic]] });
const opens = (client: RawClient) =>
  vi.waitUntil(async () => (await open(client, 'again'))[0] === 'EOSE', SOON);
const api = (node: TestNode): Api => createApi(node.http);
const ask = (node: TestNode, as: Author) =>
  api(node).ask<{ code?: string; details?: object }>('POST', REQUESTS, {
    as,
    body: { topic_id: `kukuri:${as.pubkey}` },
  });

it('without a current policy no consent is needed, also when one is published', async () => {
  const member = newAuthor();
  const policy = await published();
  for (const node of nodes()) {
    expect(node.node.communities.get(home)!.policies).toEqual([]);
    const client = await connect(node, member);
    expect(await client.publish(post())).toEqual([true, '']);
    expect((await open(client, 'a'))[0]).toBe('EOSE');
  }
  expect((await ask(second, member)).status).toBe(201);
  await makeItCurrent(policy);
  expect((await ask(second, newAuthor())).status).toBe(428);
});

describe('on the socket', () => {
  it('EVENT, REQ and COUNT need consent to every current policy, and no reconnect', async () => {
    const [terms, privacy] = [await current(), await current('privacy')];
    const member = newAuthor();
    for (const node of nodes()) {
      const client = await connect(node, member);
      expect(await client.publish(post())).toEqual([false, CONSENT]);
      expect(await open(client, 'a')).toEqual(['CLOSED', 'a', CONSENT]);
      expect(await count(client)).toEqual(['CLOSED', 'c', CONSENT]);
    }
    const client = await connect(second, member);
    const witness = newAuthor();
    const beside = await connect(second, witness);
    await agree(member, terms);
    for (const policy of [terms, privacy]) await agree(witness, policy);
    await opens(beside);
    expect(await client.publish(post())).toEqual([false, CONSENT]);
    await agree(member, privacy);
    await opens(client);
    expect(await client.publish(post())).toEqual([true, '']);
    expect((await count(client))[0]).toBe('COUNT');
    expect(client.frames.filter(([verb]) => verb === 'NOTICE')).toEqual([]);
  });

  it('a stranger must authenticate first, not agree', async () => {
    const client = await connect(relay);
    expect((await client.publish(post()))[1]).toMatch(/^auth-required: /);
    expect((await open(client, 'a'))[2]).toMatch(/^auth-required: /);
  });

  it('a new version needs new consent on every instance and closes what is open', async () => {
    const privacy = await current('privacy');
    const next = await current();
    const [slow, quick] = [newAuthor(), newAuthor()];
    await agree(quick, next);
    const first = await current();
    for (const member of [slow, quick]) for (const policy of [first, privacy]) await agree(member, policy);
    const readers = await Promise.all(nodes().map((node) => connect(node, slow)));
    const ready = await connect(second, quick);
    for (const client of [...readers, ready]) expect((await open(client, 'a'))[0]).toBe('EOSE');
    await makeItCurrent(next);
    for (const client of readers)
      expect(await client.waitFor(([verb]) => verb === 'CLOSED')).toEqual(['CLOSED', 'a', CONSENT]);
    for (const client of readers) expect(await client.publish(post())).toEqual([false, CONSENT]);
    for (const node of nodes()) expect((await ask(node, slow)).status).toBe(428);
    const mark = post();
    expect(await ready.publish(mark)).toEqual([true, '']);
    expect(await ready.waitFor(([verb]) => verb === 'EVENT')).toEqual(['EVENT', 'a', mark]);
    expect(ready.frames.some(([verb]) => verb === 'CLOSED')).toBe(false);
    await agree(slow, next);
    for (const client of readers) await opens(client);
    await makeItCurrent(first);
    for (const client of [...readers, ready]) expect(await client.publish(post())).toEqual([true, '']);
  });

  it('writing or publishing a version, or adding a language, closes nothing', async () => {
    const [terms, privacy] = [await current(), await current('privacy')];
    const member = newAuthor();
    for (const policy of [terms, privacy]) await agree(member, policy);
    const client = await connect(second, member);
    expect((await open(client, 'a'))[0]).toBe('EOSE');
    await published();
    const text = { title: '規約', content: '仲良く' };
    await done(writeText(pool(), { ...terms, community: home, locale: 'ja' }, text, Date.now()));
    // A later change that every instance sees.
    await agree(newAuthor(), terms);
    await heard();
    const mark = post();
    await client.publish(mark);
    expect(await client.waitFor(([verb]) => verb === 'EVENT')).toEqual(['EVENT', 'a', mark]);
    expect(client.frames.filter(([verb]) => verb === 'CLOSED')).toEqual([]);
  });

  it('withdrawing a consent on one instance closes subscriptions on the other', async () => {
    const [terms, privacy] = [await current(), await current('privacy')];
    const member = newAuthor();
    const given = await agree(member, terms);
    await agree(member, privacy);
    const client = await connect(second, member);
    await heard();
    expect((await open(client, 'a'))[0]).toBe('EOSE');
    const path = `/v1/consents/${given.consentId}/withdraw`;
    expect((await api(relay).ask('POST', path, { as: member })).status).toBe(200);
    expect(await client.waitFor(([verb]) => verb === 'CLOSED')).toEqual(['CLOSED', 'a', CONSENT]);
    expect(await client.publish(post())).toEqual([false, CONSENT]);
    const body = { ...terms, locale: 'en' };
    expect((await api(relay).ask('POST', '/v1/consents', { as: member, body })).status).toBe(201);
    await opens(client);
  });

  it('only keys that have agreed give the connection their topics and messages', async () => {
    const [terms, privacy] = [await current(), await current('privacy')];
    const [agreed, silent, sender] = [newAuthor(), newAuthor(), newAuthor()];
    for (const member of [agreed, silent, sender])
      for (const policy of [terms, privacy]) await agree(member, policy);
    const requested = await api(relay).ask('POST', REQUESTS, { as: silent, body: { topic_id: BOATS } });
    expect(requested.status).toBe(201);
    const message = sign(sender, {
      kind: 4,
      tags: [
        ['p', silent.pubkey],
        ['t', OPEN],
      ],
    });
    const carrier = await connect(relay, sender);
    await vi.waitUntil(async () => (await carrier.publish(message))[0], SOON);
    const client = await connect(second, agreed, silent);
    const reads = async () =>
      (await client.query({ kinds: [4], '#t': [OPEN], '#p': [silent.pubkey] })).events;
    await vi.waitUntil(async () => (await open(client, 'b', { '#t': [BOATS] }))[0] === 'EOSE', SOON);
    expect(await reads()).toEqual([message]);
    const { items } = (
      await api(relay).ask<{ items: { consent_id: string }[] }>('GET', '/v1/consents', { as: silent })
    ).body;
    const from = client.frames.length;
    await api(relay).ask('POST', `/v1/consents/${items[0]!.consent_id}/withdraw`, { as: silent });
    const closed = await client.waitFor(([verb]) => verb === 'CLOSED', from);
    expect(closed).toEqual(['CLOSED', 'b', expect.stringMatching(/^restricted: the topic/)]);
    expect(await reads()).toEqual([]);
    expect((await open(client, 'a'))[0]).toBe('EOSE');
    const own = sign(silent, { tags: [['-'], ['t', OPEN]] });
    expect(await client.publish(own)).toEqual([false, CONSENT]);
  });
});

describe('over HTTP', () => {
  it('routes that use the node return 428 with what is missing, on any instance', async () => {
    const [terms, privacy] = [await current(), await current('privacy')];
    const member = newAuthor();
    const required = [
      { ...privacy, locales: ['en'] },
      { ...terms, locales: ['en'] },
    ];
    for (const node of nodes()) {
      const { body } = await api(node).refused(428, 'CONSENT_REQUIRED', 'POST', REQUESTS, {
        as: member,
        body: { topic_id: BOATS },
      });
      expect(body.details).toEqual({ required });
    }
    const agreeing = (policy: PolicyRef) =>
      api(relay).ask('POST', '/v1/consents', { as: member, body: { ...policy, locale: 'en' } });
    await agreeing(privacy);
    expect((await ask(second, member)).body.details).toEqual({ required: [required[1]] });
    await agreeing(terms);
    expect((await ask(second, member)).status).toBe(201);
    const path = `/v1/topic-subscriptions/kukuri:${member.pubkey}`;
    expect((await api(relay).ask('POST', `${path}/pause`, { as: member })).status).toBe(200);
    await makeItCurrent(await published());
    await api(second).refused(428, 'CONSENT_REQUIRED', 'POST', `${path}/resume`, { as: member });
  });

  it('reading, agreeing, pausing, leaving and cancelling need no consent', async () => {
    const [terms, privacy] = [await current(), await current('privacy')];
    const member = newAuthor();
    for (const policy of [terms, privacy]) await agree(member, policy);
    expect((await ask(relay, member)).status).toBe(201);
    await writeSetting(pool(), home, 'subscription.autoApproval', 'off', Date.now());
    const waits = () =>
      api(relay).ask<{ request: { request_id: string; status: string } }>('POST', REQUESTS, {
        as: member,
        body: { topic_id: BOATS },
      });
    await vi.waitUntil(
      () => relay.node.communities.get(home)?.settings['subscription.autoApproval'] === 'off',
      SOON,
    );
    const { request } = (await waits()).body;
    expect(request.status).toBe('pending');
    await writeSetting(pool(), home, 'subscription.autoApproval', 'within-limits', Date.now());
    await current();
    const path = `/v1/topic-subscriptions/kukuri:${member.pubkey}`;
    for (const [method, url] of [
      ['GET', '/v1/policies/current'],
      ['GET', `/v1/policies/terms/${terms.version}`],
      ['GET', '/v1/consents/status'],
      ['GET', '/v1/consents'],
      ['GET', '/v1/topics'],
      ['GET', REQUESTS],
      ['GET', '/v1/topic-subscriptions'],
      ['POST', `${REQUESTS}/${request.request_id}/cancel`],
      ['POST', `${path}/pause`],
      ['DELETE', path],
    ] as const)
      expect((await api(second).ask(method, url, { as: member })).status, `${method} ${url}`).toBe(200);
    expect((await api(second).ask('GET', '/v1/admin/policies', { as: root })).status).toBe(200);
  });

  it('the OpenAPI document has 428 exactly where it can occur', async () => {
    const { paths } = await readOpenApi(relay.http);
    const named = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).flatMap(([method, { responses }]) =>
        '428' in responses ? [`${method} ${path}`] : [],
      ),
    );
    expect(named).toEqual(
      expect.arrayContaining([`post ${REQUESTS}`, 'post /v1/topic-subscriptions/{topic_id}/resume']),
    );
    expect(
      named.filter((name) => /policies|consents|admin|token|personal|auth|cancel|pause|^delete/.test(name)),
    ).toEqual([]);
  });

  it('another community requires its own policies only', async () => {
    await current();
    const as = newAuthor();
    const body = { topic_id: BOATS };
    expect((await api(relay).ask('POST', `/c/other${REQUESTS}`, { as, body })).status).toBe(201);
    const policy = await published('terms', other);
    await done(makeCurrent(pool(), { ...policy, community: other }, Date.now()));
    const stranger = newAuthor();
    const { body: refused } = await api(second).refused(
      428,
      'CONSENT_REQUIRED',
      'POST',
      `/c/other${REQUESTS}`,
      { as: stranger, body },
    );
    expect(refused.details).toEqual({ required: [{ ...policy, locales: ['en'] }] });
  });
});

describe('consent with authentication off or announced for later', () => {
  async function settle(key: SettingKey, value: unknown): Promise<void> {
    await writeSetting(pool(), home, key, value, Date.now());
    const isSet = ({ node }: TestNode) => node.communities.get(home)?.settings[key] === value;
    await vi.waitUntil(() => nodes().every(isSet), SOON);
  }

  it.each<[SettingKey, unknown, unknown]>([
    ['auth.mode', 'off', 'required'],
    ['auth.enforceAt', Math.floor(Date.now() / 1_000) + 3_600, 0],
  ])('none is needed (%s=%s)', async (key, value, back) => {
    await current();
    await settle(key, value);
    const member = newAuthor();
    for (const client of [await connect(second), await connect(second, member)]) {
      expect(await client.publish(post())).toEqual([true, '']);
      expect((await open(client, 'a'))[0]).toBe('EOSE');
      expect((await count(client))[0]).toBe('COUNT');
    }
    const own = await connect(relay, member);
    const message = sign(member, { kind: 4, tags: [['-'], ['t', OPEN]] });
    expect(await own.publish(message)).toEqual([true, '']);
    expect((await own.query({ kinds: [4], '#t': [OPEN] })).events).toEqual([message]);
    expect((await ask(second, member)).status).toBe(201);
    await settle(key, back);
    expect((await ask(second, newAuthor())).status).toBe(428);
  });
});
