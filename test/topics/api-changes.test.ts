/** `GET /v1/topics/:topic_id/changes`: an app keeps a copy of a topic by cursor, and sees what REQ shows. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { runJob } from '../../src/jobs/run.js';
import { trimOutboxRows } from '../../src/outbox/jobs.js';
import { blockTopic } from '../../src/topics/blocked-topics.sql.js';
import { type Api, createApi } from '../support/clients/api.js';
import { authenticate } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { jobContext } from '../support/domains/erasure.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

interface Changes {
  items: ({ op: 'upsert'; event: { id: string } } | { op: 'delete'; event_id: string })[];
  cursor: string;
  more: boolean;
  older: boolean;
}

let aheadMs = 0;
const now = () => Date.now() + aheadMs;
let relay: TestNode;
let api: Api;
let writer: RawClient;

beforeAll(async () => {
  relay = await startTestNode({ now, jobs: [] });
  api = createApi(relay.http);
  writer = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await writer.close();
  await relay.close();
});

const pathOf = (topic: string, query: Record<string, string | number> = {}) => {
  const asked = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) asked.set(key, String(value));
  return `/v1/topics/${encodeURIComponent(topic)}/changes?${asked}`;
};
const changes = async (topic: string, query: Record<string, string | number> = {}) =>
  (await api.ask<Changes>('GET', pathOf(topic, query))).body;

async function post(author: Author, topic: string, draft: Parameters<typeof sign>[1] = {}) {
  const created_at = Math.floor(now() / 1_000);
  const event = sign(author, { created_at, tags: [['t', topic]], ...draft });
  expect(await writer.publish(event)).toEqual([true, '']);
  return event;
}
const deleteOf = (author: Author, id: string) => post(author, '', { kind: 5, tags: [['e', id]] });
const shown = ({ items }: Changes) =>
  items.map((item) => (item.op === 'upsert' ? `+${item.event.id}` : `-${item.event_id}`));

describe('the changes of a topic', () => {
  it('begin with the newest events, and then are changes in commit order', async () => {
    const author = newAuthor();
    const one = await post(author, 'first', { created_at: Math.floor(now() / 1_000) - 10 });
    const two = await post(author, 'first');
    await post(author, 'elsewhere');
    const begin = await changes('first');
    expect(begin.items.map((item) => item.op === 'upsert' && item.event)).toEqual([two, one]);
    expect([begin.more, begin.older]).toEqual([false, false]);
    expect(shown(await changes('first', { after: begin.cursor }))).toEqual([]);
    const late = await post(author, 'first', { created_at: 1_000 });
    await post(author, 'elsewhere');
    await deleteOf(author, one.id);
    const next = await changes('first', { after: begin.cursor });
    expect(shown(next)).toEqual([`+${late.id}`, `-${one.id}`]);
    expect(shown(await changes('first', { after: next.cursor }))).toEqual([]);
  });

  it('come in parts of the given size, each once, and the copy is what a REQ gives', async () => {
    const author = newAuthor();
    const old = [];
    for (let at = 0; at < 3; at += 1) old.push(await post(author, 'parts'));
    const begin = await changes('parts', { limit: 2 });
    expect([begin.items.length, begin.older]).toEqual([2, true]);
    for (let at = 0; at < 60; at += 1) old.push(await post(author, 'parts'));
    for (const event of old.slice(1, 30)) await deleteOf(author, event.id);
    const held = new Map(old.slice(0, 3).map(({ id }) => [id, true]));
    let [cursor, more, calls] = [begin.cursor, true, 0];
    while (more) {
      const part = await changes('parts', { after: cursor, limit: 7 });
      expect(part.items.length).toBeLessThanOrEqual(7);
      for (const item of part.items) {
        if (item.op === 'delete') held.delete(item.event_id);
        else {
          expect(held.has(item.event.id)).toBe(false);
          held.set(item.event.id, true);
        }
      }
      ({ cursor, more } = part);
      calls += 1;
    }
    expect(calls).toBeGreaterThan(3);
    const fresh = (await writer.query({ '#t': ['parts'], limit: 5_000 })).events.map(({ id }) => id);
    expect([...held.keys()].sort()).toEqual(fresh.sort());
  });

  it('refuse a cursor of another topic, a forged one, and one that is too long', async () => {
    const { cursor } = await changes('one');
    const query = await api.refused(400, 'INVALID_CURSOR', 'GET', pathOf('other', { after: cursor }));
    expect(query.body.details).toEqual({ reason: 'query' });
    const forged = await api.refused(400, 'INVALID_CURSOR', 'GET', pathOf('one', { after: 'c1.x.y' }));
    expect(forged.body.details).toEqual({ reason: 'unknown' });
    await api.refused(400, 'INVALID_REQUEST', 'GET', pathOf('one', { after: 'x'.repeat(300) }));
  });

  it('refuse a topic that the operator has blocked', async () => {
    await blockTopic(relay.database.pool, { community: 1, topic: 'blocked' }, now());
    await vi.waitUntil(() => relay.node.communities.get(1)!.topics.get('blocked')?.blocked);
    await api.refused(403, 'TOPIC_BLOCKED', 'GET', pathOf('blocked'));
  });

  it('that are no longer kept are answered with CURSOR_EXPIRED', async () => {
    const author = newAuthor();
    const { cursor } = await changes('expired');
    await post(author, 'expired');
    await post(author, 'expired');
    aheadMs = 31 * DAY_MS;
    await runJob(trimOutboxRows, jobContext(relay, { now }));
    await api.refused(410, 'CURSOR_EXPIRED', 'GET', pathOf('expired', { after: cursor }));
    const next = await post(author, 'expired');
    expect(shown(await changes('expired'))).toEqual([`+${next.id}`]);
    aheadMs = 0;
  });
});

describe('where clients must authenticate', () => {
  it('only those who may read the topic get its changes', async () => {
    const [BOATS, OPEN] = [`kukuri:${'a'.repeat(64)}`, `kukuri:${'b'.repeat(64)}`];
    const env = { MINATO_TOPIC_MODE: 'required', MINATO_AUTH_MODE: 'required' };
    const closed = await startTestNode({ env, jobs: [] });
    const base = { pinned: true, priority: 0, policy: {} };
    await writeTopic(closed.database.pool, 1, BOATS, { ...base, public: false }, Date.now());
    await writeTopic(closed.database.pool, 1, OPEN, { ...base, public: true }, Date.now());
    await vi.waitUntil(() => closed.node.communities.all()[0]!.topics.has(OPEN));
    const there = createApi(closed.http);
    const stranger = newAuthor();
    await there.refused(401, 'AUTH_REQUIRED', 'GET', pathOf(OPEN));
    await there.refused(403, 'SUBSCRIPTION_REQUIRED', 'GET', pathOf(BOATS), { as: stranger });
    await there.refused(403, 'TOPIC_NOT_ENABLED', 'GET', pathOf('kukuri:none'), { as: stranger });
    const client = await RawClient.connect(closed.url);
    await authenticate(client, stranger, closed.url);
    const event = sign(stranger, { tags: [['t', OPEN]] });
    expect(await client.publish(event)).toEqual([true, '']);
    const { body } = await there.ask<Changes>('GET', pathOf(OPEN), { as: stranger });
    expect(shown(body)).toEqual([`+${event.id}`]);
    await client.close();
    await closed.close();
  });
});
