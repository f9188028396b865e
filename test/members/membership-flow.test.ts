/**
 * The whole life of a topic, over real HTTP and real sockets: a member requests it at one instance, an
 * operator approves at another, and both carry it; it is posted to, read, paused, resumed and ended.
 */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type Api, createApi } from '../support/clients/api.js';
import { authenticate } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const operator = newAuthor();
const [alice, bob] = [newAuthor(), newAuthor()];
const clients: RawClient[] = [];
let first: TestNode;
let second: TestNode;
let here: Api;
let there: Api;

beforeAll(async () => {
  const env = { MINATO_TOPIC_MODE: 'required', MINATO_ADMIN_PUBKEYS: operator.pubkey };
  first = await startTestNode({ env });
  second = await startTestNode({ env, on: first.test });
  here = createApi(first.http);
  there = createApi(second.http);
});
afterAll(async () => {
  await Promise.all(clients.map((client) => client.close()));
  await second.close();
  await first.close();
});

async function connect(node: TestNode): Promise<RawClient> {
  const client = await RawClient.connect(node.url);
  clients.push(client);
  return client;
}

interface Requested {
  request: { request_id: string; status: string; topic_id: string };
  subscription?: { status: string };
}
interface Listed {
  items: { topic_id: string; status: string; enabled: boolean; ref_count: number }[];
}
const NOT_ENABLED = 'restricted: topic not enabled';
const post = (topic: string) => sign(alice, { content: `${Math.random()}`, tags: [['t', topic]] });

it('request, approval, carried, post, stored, paused, refused, resumed, ended, disabled', async () => {
  const [writer, reader] = [await connect(first), await connect(second)];

  // Nobody has requested it: no instance carries it.
  const resolved = await here.ask<{ topic_id: string; enabled: boolean }>(
    'GET',
    '/v1/topics/resolve?name=%E3%80%80Old%20Boats',
  );
  const { topic_id: topic } = resolved.body;
  expect(resolved.body).toMatchObject({
    topic_id: expect.stringMatching(/^kukuri:[0-9a-f]{64}$/),
    enabled: false,
  });
  expect(await writer.publish(post(topic))).toEqual([false, NOT_ENABLED]);
  expect((await reader.query({ '#t': [topic] })).closed).toBe(NOT_ENABLED);

  // A member requests it. The request is pending and changes nothing yet.
  const asked = await here.ask<Requested>('POST', '/v1/topic-subscription-requests', {
    as: alice,
    body: { name: 'Old Boats', requested_services: ['index'] },
  });
  expect(asked).toMatchObject({ status: 201, body: { request: { status: 'pending', topic_id: topic } } });
  const { request_id } = asked.body.request;
  expect(await writer.publish(post(topic))).toEqual([false, NOT_ENABLED]);

  // The operator finds it at the other instance and approves it there, twice.
  const waiting = await there.ask<{ items: { request_id: string }[] }>(
    'GET',
    '/v1/admin/topic-subscription-requests?status=pending',
    { as: operator },
  );
  expect(waiting.body.items.map((item) => item.request_id)).toEqual([request_id]);
  const approve = () =>
    there.ask<Requested>('POST', `/v1/admin/topic-subscription-requests/${request_id}/approve`, {
      as: operator,
      body: { note: 'welcome' },
    });
  const approved = await approve();
  expect(approved.body).toMatchObject({ request: { status: 'active' }, subscription: { status: 'active' } });
  expect((await approve()).body).toEqual(approved.body);

  // Both instances carry it soon; a post at one is stored and live at the other.
  await vi.waitUntil(async () => (await writer.publish(post(topic)))[0], { timeout: 100_000 });
  await vi.waitUntil(async () => (await reader.query({ '#t': [topic] })).closed === undefined, {
    timeout: 100_000,
  });
  reader.send(['REQ', 'live', { '#t': [topic], limit: 0 }]);
  await reader.waitFor(([verb, id]) => verb === 'EOSE' && id === 'live');
  const event = post(topic);
  expect(await writer.publish(event)).toEqual([true, '']);
  expect((await reader.waitFor(([verb, id]) => verb === 'EVENT' && id === 'live'))[2]).toEqual(event);
  expect((await reader.query({ '#t': [topic], ids: [event.id] })).events).toEqual([event]);
  const directory = await there.ask<Listed>('GET', '/v1/topics');
  expect(directory.body.items.map((item) => item.topic_id)).toContain(topic);

  // Paused by its only subscriber: it is no longer carried, and open subscriptions are closed.
  const own = `/v1/topic-subscriptions/${topic}`;
  expect((await there.ask<{ status: string }>('POST', `${own}/pause`, { as: alice })).body).toMatchObject({
    status: 'paused',
  });
  expect(await reader.waitFor(([verb, id]) => verb === 'CLOSED' && id === 'live')).toEqual([
    'CLOSED',
    'live',
    NOT_ENABLED,
  ]);
  await vi.waitUntil(async () => !(await writer.publish(post(topic)))[0], { timeout: 100_000 });
  expect(await writer.publish(post(topic))).toEqual([false, NOT_ENABLED]);

  // Resumed: it works again, and stored events are still there.
  expect((await here.ask('POST', `${own}/resume`, { as: alice })).status).toBe(200);
  await vi.waitUntil(async () => (await writer.publish(post(topic)))[0], { timeout: 100_000 });
  await vi.waitUntil(async () => (await reader.query({ '#t': [topic] })).events.length > 2, {
    timeout: 100_000,
  });

  // A second subscriber keeps it carried when the first one ends; when the last one ends, it is disabled.
  const bobRequested = await here.ask<Requested>('POST', '/v1/topic-subscription-requests', {
    as: bob,
    body: { topic_id: topic },
  });
  const bobs = bobRequested.body.request.request_id;
  await here.ask('POST', `/v1/admin/topic-subscription-requests/${bobs}/approve`, { as: operator, body: {} });
  expect((await here.ask('DELETE', own, { as: alice })).status).toBe(200);
  const nodeTopic = () =>
    there.ask<Listed['items'][number]>('GET', `/v1/admin/node-subscriptions/${topic}`, { as: operator });
  expect((await nodeTopic()).body).toMatchObject({ enabled: true, ref_count: 1 });
  expect(await writer.publish(post(topic))).toEqual([true, '']);
  expect((await there.ask('DELETE', own, { as: bob })).status).toBe(200);
  expect((await nodeTopic()).body).toMatchObject({ enabled: false, ref_count: 0 });
  await vi.waitUntil(async () => !(await writer.publish(post(topic)))[0], { timeout: 100_000 });

  // Requesting again after the end works, and every action of the operator is in the audit log.
  const again = await here.ask<Requested>('POST', '/v1/topic-subscription-requests', {
    as: alice,
    body: { topic_id: topic },
  });
  expect(again.body.request).toMatchObject({ status: 'pending' });
  const audit = await here.ask<{ items: { action: string; actor: string }[] }>('GET', '/v1/admin/audit-log', {
    as: operator,
  });
  const approvals = audit.body.items.filter(({ action }) => action === 'request.approve');
  expect(approvals.map(({ actor }) => actor)).toEqual([operator.pubkey, operator.pubkey]);
});

it('with required authentication only the subscriber reads and posts, and an end closes it', async () => {
  const { items } = (
    await here.ask<{ items: { key: string; version: number }[] }>('GET', '/v1/admin/settings', {
      as: operator,
    })
  ).body;
  const { version } = items.find(({ key }) => key === 'auth.mode')!;
  const written = await here.ask('PUT', '/v1/admin/settings/auth.mode', {
    as: operator,
    body: { value: 'required', version },
  });
  expect(written.status).toBe(200);
  await here.refused(409, 'VERSION_MISMATCH', 'PUT', '/v1/admin/settings/auth.mode', {
    as: operator,
    body: { value: 'off', version },
  });
  const [carol, dave] = [newAuthor(), newAuthor()];
  const asked = await here.ask<Requested>('POST', '/v1/topic-subscription-requests', {
    as: carol,
    body: { name: 'sails' },
  });
  const { request_id, topic_id } = asked.body.request;
  await there.ask('POST', `/v1/admin/topic-subscription-requests/${request_id}/approve`, {
    as: operator,
    body: {},
  });
  await vi.waitUntil(
    () =>
      [first, second].every(({ node }) => {
        const { settings, topics } = node.communities.all()[0]!;
        return settings['auth.mode'] === 'required' && topics.get(topic_id)?.enabled;
      }),
    { timeout: 100_000 },
  );
  const [member, stranger] = [await connect(second), await connect(second)];
  const event = sign(carol, { tags: [['t', topic_id]] });
  expect((await member.publish(event))[1]).toMatch(/^auth-required: /);
  expect(await authenticate(member, carol, second.url)).toEqual([true, '']);
  expect(await authenticate(stranger, dave, second.url)).toEqual([true, '']);
  expect(await member.publish(event)).toEqual([true, '']);
  expect((await member.query({ '#t': [topic_id] })).events).toEqual([event]);
  expect((await stranger.query({ '#t': [topic_id] })).closed).toMatch(/^restricted: /);
  member.send(['REQ', 'live', { '#t': [topic_id], limit: 0 }]);
  await member.waitFor(([verb, id]) => verb === 'EOSE' && id === 'live');
  await here.ask('DELETE', `/v1/topic-subscriptions/${topic_id}`, { as: carol });
  expect((await member.waitFor(([verb]) => verb === 'CLOSED'))[2]).toMatch(/^restricted: /);
});
