/**
 * Moderation and the pages of operators over real HTTP, on two instances, with events in each of the stores:
 * from a report to the restored event, trials, batches, purges, the life of an event, members, storage.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS } from '../../src/jobs/job.js';
import { runJob } from '../../src/jobs/run.js';
import { act, openByHand } from '../../src/moderation/cases.sql.js';
import { purgeRemovedEvents } from '../../src/moderation/jobs.js';
import { carryOut } from '../../src/moderation/pending-actions.js';
import { eventually, runCli } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { pinTopics, startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { CREDENTIALS, sharedDynamodb } from '../support/servers/dynamodb.js';
import { READY } from '../support/servers/templates.js';
import { STORES } from '../support/stores/contract.js';

const MODERATION = '/v1/admin/moderation';
const CASES = `${MODERATION}/cases`;
const EVENTS = '/v1/admin/events';
const TOPIC = 'harbour';

type Row = Record<string, unknown>;
interface Case extends Row {
  readonly case_id: string;
  readonly target_event: string | null;
  readonly status: string;
}
interface Page<T> {
  readonly items: T[];
  readonly next_cursor: string | null;
}
interface Found {
  readonly event_id: string;
  readonly state: string;
  readonly concealed: string | null;
  readonly event: NostrEvent | null;
}

describe.each(STORES)('events in %s', (store) => {
  const root = newAuthor();
  let test: TestDatabase;
  let nodes: [TestNode, TestNode];
  let clients: [RawClient, RawClient];
  let api: Api;

  beforeAll(async () => {
    test = await createTestDatabase(READY);
    const env = { MINATO_ADMIN_PUBKEYS: root.pubkey };
    const start = () => startTestNode({ on: test, store, env, jobs: [], upkeepMs: 200, trust: true });
    nodes = [await start(), await start()];
    clients = [await RawClient.connect(nodes[0].url), await RawClient.connect(nodes[1].url)];
    api = createApi(nodes[0].http);
    await pinTopics(nodes[0], [TOPIC]);
    await eventually('the index is there', async () =>
      (await api.ask('GET', '/v1/search?q=anything')).status === 200 ? true : undefined,
    );
  });
  afterAll(async () => {
    for (const client of clients ?? []) await client.close();
    for (const node of nodes ?? []) await node.close();
    await test?.drop();
  });

  const ask = async <T = Row>(method: string, path: string, body?: unknown): Promise<T> => {
    const answer = await api.ask<T>(method, path, { as: root, ...(body === undefined ? {} : { body }) });
    expect({ status: answer.status, body: answer.body }).toEqual({
      status: expect.toSatisfy((status: number) => status < 300),
      body: expect.anything(),
    });
    return answer.body;
  };
  const refused = (code: string, path: string, body: unknown) =>
    api.refused(409, code, 'POST', path, { as: root, body });
  const post = async (draft: Draft = {}, author: Author = newAuthor()): Promise<NostrEvent> => {
    const event = sign(author, draft);
    expect(await clients[0].publish(event)).toEqual([true, '']);
    return event;
  };
  const served = ({ id }: NostrEvent) =>
    Promise.all(clients.map(async (client) => (await client.query({ ids: [id] })).events.length));
  const openCase = ({ id }: NostrEvent) => ask<Case>('POST', CASES, { event_id: id });
  const act = ({ case_id: id }: Case, action: string, more: Row = {}) =>
    ask('POST', `${CASES}/${id}/actions`, { action, ...more });
  const find = (query: string) => ask<Page<Found>>('GET', `${EVENTS}?${query}`);
  const lifeOf = ({ id }: NostrEvent) =>
    ask<{ status: string; hidden: string | null; timeline: { what: string }[] }>(
      'GET',
      `${EVENTS}/${id}/life`,
    );
  const steps = ({ timeline }: { timeline: { what: string }[] }) => timeline.map(({ what }) => what);
  const purge = async (after: number): Promise<void> => {
    const { store: events, communities, erasing } = nodes[0].node;
    const { signal } = new AbortController();
    const now = () => Date.now() + after;
    const context = { database: nodes[0].database, store: events, communities, erasing, signal, now };
    await runJob(purgeRemovedEvents, { ...context, bounds: BOUNDS });
  };

  it('a report opens a case; its event is removed on every instance, and restored', async () => {
    const event = await post({ content: 'a bad boat', tags: [['t', TOPIC]] });
    const author = newAuthor();
    await post(
      {
        kind: 1984,
        tags: [
          ['e', event.id, 'spam'],
          ['p', event.pubkey],
        ],
      },
      author,
    );
    const found = await eventually('the case', async () => {
      const { items } = await ask<Page<Case & { post: Row | null }>>(
        'GET',
        `${CASES}?author=${event.pubkey}`,
      );
      return items[0];
    });
    expect(found).toMatchObject({ target_event: event.id, status: 'open', topics: [TOPIC], reports: 1 });
    expect(found.post).toMatchObject({ kind: 1, text: 'a bad boat' });
    expect((await ask<Page<Case>>('GET', `${CASES}?topic=${TOPIC}`)).items).toHaveLength(1);
    await act(found, 'remove');
    expect(await served(event)).toEqual([0, 0]);
    expect(await clients[1].publish(event)).toEqual([false, expect.stringContaining('blocked')]);
    expect(await ask('GET', `${CASES}/${found.case_id}`)).toMatchObject({ status: 'resolved', event });
    expect((await find('state=removed')).items).toMatchObject([
      { event_id: event.id, state: 'removed', event },
    ]);
    expect((await find(`state=hidden&author=${event.pubkey}`)).items).toMatchObject([{ event_id: event.id }]);
    expect(await lifeOf(event)).toMatchObject({ status: 'hidden', hidden: 'removed' });
    await act(found, 'restore');
    expect(await served(event)).toEqual([1, 1]);
    expect((await find('state=removed')).items).toEqual([]);
    expect(steps(await lifeOf(event))).toEqual(expect.arrayContaining(['arrived', 'case-opened', 'action']));
  });

  it('what its author deletes is not restored, and nobody sees it', async () => {
    const author = newAuthor();
    const event = await post({ content: 'private words' }, author);
    const found = await openCase(event);
    await act(found, 'remove');
    await post({ kind: 5, tags: [['e', event.id]] }, author);
    await refused('NOT_DONE', `${CASES}/${found.case_id}/actions`, { action: 'restore' });
    expect(await ask('GET', `${CASES}/${found.case_id}`)).toMatchObject({ event: null });
    expect((await find(`id=${event.id}`)).items).toMatchObject([{ concealed: 'deleted', event: null }]);
    expect(await served(event)).toEqual([0, 0]);
  });

  it('a label gets the topics of its event; an unknown event has no case', async () => {
    const event = await post({ content: 'label me', tags: [['t', TOPIC]] });
    const label = { label: 'nsfw' };
    await act(await openCase(event), 'label', { label });
    const { items } = await ask<Page<Row>>('GET', '/v1/admin/labels');
    expect(items.find(({ target_event: target }) => target === event.id)).toMatchObject({
      label: 'nsfw',
      topics: [TOPIC],
    });
    await api.refused(404, 'NOT_FOUND', 'POST', CASES, { as: root, body: { event_id: 'a'.repeat(64) } });
  });

  it('a rule is tried on what is stored; enabled, it holds what arrives until somebody decides', async () => {
    const author = newAuthor();
    for (const content of ['casino one', 'casino two', 'harmless']) await post({ content }, author);
    const spec = { name: 'casino', conditions: { words: ['casino'] }, action: 'hold' };
    const rule = await ask<{ rule_id: string }>('POST', `${MODERATION}/rules`, spec);
    expect(await ask('POST', `${MODERATION}/rules/try`, { rule_id: rule.rule_id })).toMatchObject({ met: 2 });
    await ask('PATCH', `${MODERATION}/rules/${rule.rule_id}`, { enabled: true });
    const held = sign(author, { content: 'casino three' });
    await eventually('the rule holds', async () => {
      const probe = sign(author, { content: `casino ${Math.random()}` });
      await clients[1].publish(probe);
      return (await served(probe)).every((count) => count === 0) || undefined;
    });
    await clients[0].publish(held);
    expect(await served(held)).toEqual([0, 0]);
    const { items } = await ask<Page<Case>>('GET', `${CASES}?status=held&author=${author.pubkey}`);
    const found = items.find(({ target_event: id }) => id === held.id)!;
    expect((await find(`id=${held.id}`)).items).toMatchObject([{ state: 'held' }]);
    await purge(400 * DAY_MS);
    await act(found, 'restore');
    expect(await served(held)).toEqual([1, 1]);
    await ask('PATCH', `${MODERATION}/rules/${rule.rule_id}`, { enabled: false });
  });

  it('a batch removes what matches, and is undone as one', async () => {
    const author = newAuthor();
    const events: NostrEvent[] = [];
    for (const content of ['pirate one', 'pirate two', 'sailor'])
      events.push(await post({ content }, author));
    const conditions = { authors: [author.pubkey], words: ['pirate'] };
    const spec = { action: 'remove', conditions, as_of: Date.now() + 60_000 };
    expect(await ask('POST', `${MODERATION}/batches/preview`, spec)).toMatchObject({ matched: 2 });
    const { batch_id: id } = await ask<{ batch_id: string }>('POST', `${MODERATION}/batches`, spec);
    const isServed = async () => (await Promise.all(events.map(served))).flat().join('');
    await eventually('both are removed', async () => (await isServed()) === '000011' || undefined);
    await eventually('the batch is over', async () => {
      const { status } = await ask('GET', `${MODERATION}/batches/${id}`);
      return status === 'done' || undefined;
    });
    await ask('POST', `${MODERATION}/batches/${id}/undo`);
    await eventually('both are restored', async () => (await isServed()) === '111111' || undefined);
  });

  it('a removed event is purged after moderation.undoDays, and stays out', async () => {
    const event = await post({ content: 'purge me' });
    const found = await openCase(event);
    await act(found, 'remove');
    await purge(0);
    expect(await lifeOf(event)).toMatchObject({ status: 'hidden' });
    await purge(400 * DAY_MS);
    expect(await lifeOf(event)).toMatchObject({ status: 'purged', hidden: 'removed' });
    expect((await find(`id=${event.id}`)).items).toEqual([]);
    await ask('POST', `${CASES}/${found.case_id}/actions`, { action: 'reopen' });
    await refused('NOT_DONE', `${CASES}/${found.case_id}/actions`, { action: 'restore' });
    expect(await clients[0].publish(event)).toEqual([false, expect.stringContaining('blocked')]);
  });

  it('the life of an event shows its versions, requests and readers', async () => {
    const author = newAuthor();
    const old = await post({ kind: 30_023, created_at: nowSeconds() - 9, tags: [['d', 'x']] }, author);
    const young = await post({ kind: 30_023, tags: [['d', 'x']] }, author);
    expect(await lifeOf(old)).toMatchObject({ status: 'hidden', hidden: 'superseded' });
    expect(await lifeOf(young)).toMatchObject({ status: 'served', hidden: null });
    const readers = await ask<{ readers: { served: boolean }[] }>('GET', `${EVENTS}/${young.id}/readers`);
    expect(readers.readers.every((one) => one.served)).toBe(true);
    const early = sign(author, { content: 'never sent' });
    await post({ kind: 5, tags: [['e', early.id]] }, author);
    expect(steps(await lifeOf(early))).toEqual(['deletion-requested']);
    const mine = await find(`author=${author.pubkey}&limit=1`);
    expect(mine.items).toHaveLength(1);
    const next = await find(`author=${author.pubkey}&limit=5&cursor=${mine.next_cursor}`);
    expect([...mine.items, ...next.items].map(({ event_id: id }) => id)).toContain(young.id);
    expect(next.items).toHaveLength(1);
  });

  it('members are listed with their profiles, and found by a name in them', async () => {
    const author = newAuthor();
    await post({ kind: 0, content: JSON.stringify({ name: 'Umineko', about: 'a gull' }) }, author);
    await ask('PATCH', `/v1/admin/members/${author.pubkey}`, { note: 'keeps the lighthouse' });
    const members = (query: string) => ask<Page<Row>>('GET', `/v1/admin/members${query}`);
    const mine = { pubkey: author.pubkey, profile: { name: 'Umineko' } };
    expect((await members('')).items).toMatchObject([mine]);
    expect(await ask('GET', `/v1/admin/members/${author.pubkey}`)).toMatchObject(mine);
    await eventually('the name is indexed', async () =>
      (await members('?q=umineko')).items.length === 1 ? true : undefined,
    );
    for (const q of ['lighthouse', author.pubkey.slice(0, 8)])
      expect((await members(`?q=${q}`)).items).toMatchObject([mine]);
    expect((await members('?q=nobody')).items).toEqual([]);
    const keys = [author.pubkey, newAuthor().pubkey];
    const { items } = await ask<Page<Row>>('GET', `/v1/admin/profiles?pubkeys=${keys.join(',')}`);
    expect(items.find(({ pubkey }) => pubkey === author.pubkey)).toMatchObject(mine);
    expect(items).toHaveLength(2);
  });

  it('topics show their activity, and a policy its preview', async () => {
    const topic = `${TOPIC}-2`;
    await pinTopics(nodes[0], [topic]);
    for (let at = 0; at < 3; at += 1)
      await post({ content: `${at}`, created_at: nowSeconds() - at * 86_400 * 2, tags: [['t', topic]] });
    const { items } = await ask<Page<Row>>('GET', '/v1/topics?limit=200');
    expect(items.find(({ topic_id: id }) => id === topic)).toMatchObject({ posts_day: 1, posts_week: 3 });
    await eventually('the totals have followed', async () => {
      const url = `/v1/admin/node-subscriptions/${topic}/preview`;
      const preview = await ask('POST', url, { ingest_policy: { maxEvents: 2 } });
      const { total, capacity } = preview as Record<string, { events: number }>;
      if (total!.events !== 3) return undefined;
      expect(preview).toMatchObject({ complete: true, retention: { events: 0 } });
      expect(capacity!.events).toBeGreaterThan(0);
      return true;
    });
  });

  it('storage, the overview and the other pages of operators answer', async () => {
    const storage = await ask<{ node: { groups: Row[]; partitions: Row[] } }>('GET', '/v1/admin/storage');
    expect(storage.node.groups.find(({ group }) => group === 'events')).toBeDefined();
    expect(storage.node.partitions.length > 0).toBe(store === 'postgres');
    for (const page of ['overview', 'history', 'activity', 'capacity', 'consumers'])
      await ask('GET', `/v1/admin/${page}`);
  });
});

describe('events in dynamodb, without consumers', () => {
  const root = newAuthor();
  let node: TestNode;
  beforeAll(async () => {
    const env = { MINATO_ADMIN_PUBKEYS: root.pubkey };
    node = await startTestNode({ store: 'dynamodb', env, jobs: [], consumers: [] });
  });
  afterAll(() => node?.close());

  it('a search of members waits for the index, which has the profiles', async () => {
    const api = createApi(node.http);
    await api.refused(503, 'SEARCH_NOT_READY', 'GET', '/v1/admin/members?q=umi', { as: root });
    expect((await api.ask('GET', '/v1/admin/members', { as: root })).status).toBe(200);
  });

  it('an action that another worker carries out is not carried out again, as there is no lane', async () => {
    const { store } = node.node;
    const { pool } = node.database;
    const client = await RawClient.connect(node.url);
    const event = sign(newAuthor());
    expect(await client.publish(event)).toEqual([true, '']);
    const about = { community: 1, event: event.id, pubkey: undefined, note: '' };
    const opened = await openByHand(pool, store.stored, about, Date.now());
    if (isDenial(opened)) throw new Error(opened.denied);
    const same = { community: 1, caseId: opened.caseId, note: '', privateKinds: [], events: store.stored };
    await act(pool, { ...same, action: 'remove' }, { fixed: [] }, Date.now());
    const other = await node.database.connect();
    await other.query('BEGIN');
    await other.query('SELECT 1 FROM moderation_actions WHERE done_at IS NULL FOR UPDATE');
    const late = carryOut({ store, pool, now: Date.now });
    const isServed = async () => (await client.query({ ids: [event.id] })).events.length === 1;
    await eventually('the late worker waits', async () => {
      const { rowCount } = await pool.query(
        `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`,
      );
      return rowCount === 1 || !(await isServed()) || undefined;
    });
    // The other worker has removed it; then a moderator has restored it.
    await other.query(`UPDATE moderation_actions SET done_at = 1, outcome = 'removed' WHERE done_at IS NULL`);
    await other.query('COMMIT');
    await other.end();
    await late;
    expect(await isServed()).toBe(true);
    await client.close();
  });

  it('commands read events there too', async () => {
    const { url } = await sharedDynamodb();
    const env = {
      ...CREDENTIALS,
      DATABASE_URL: node.test.url,
      MINATO_EVENT_STORE: 'dynamodb',
      DYNAMODB_ENDPOINT: url,
      MINATO_DYNAMODB_PREFIX: `${node.test.connection.database}_`,
    };
    const event = sign(newAuthor());
    const client = await RawClient.connect(node.url);
    expect(await client.publish(event)).toEqual([true, '']);
    const { code, stdout } = await runCli(['events', 'life', event.id], env);
    expect(code).toBe(0);
    expect(stdout.split('\n').slice(0, 2)).toEqual([`${event.id}  served`, `author: ${event.pubkey}`]);
    await client.close();
  });
});
