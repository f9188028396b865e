/**
 * Topics that an event is bound to without naming them: a deletion request to its targets' topics, and in the
 * `default` mode an event without a topic to the global one. Such events are found and delivered by `#t` on
 * every instance, as if they had the tag, and served as they were sent.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { erase } from '../../src/erasure/jobs.js';
import { capacity } from '../../src/events/jobs/capacity.js';
import { expire } from '../../src/events/jobs/expire.js';
import { retain } from '../../src/events/jobs/retain.js';
import { ensurePartitions } from '../../src/events/postgres/partitions.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type Job } from '../../src/jobs/job.js';
import { runJob } from '../../src/jobs/run.js';
import { deleteNodeTopic } from '../../src/topics/node-topics.sql.js';
import { eventually, runCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, type Draft, newAuthor, sign } from '../support/events.js';
import { pinTopics, startTestNode, type TestNode } from '../support/node.js';

const GLOBAL = 'kukuri:global';
const PUBLIC_URL = 'wss://bound.test';
const START = Date.UTC(2026, 0, 10);

let here: TestNode;
let there: TestNode;
let clients: RawClient[];
let now = START;
let alice: Author;
let posted = 0;

beforeAll(async () => {
  const options = { now: () => now, env: { MINATO_TOPIC_MODE: 'default', MINATO_PUBLIC_URL: PUBLIC_URL } };
  here = await startTestNode(options);
  there = await startTestNode({ ...options, on: here.test });
  for (const node of [here, there]) await pinTopics(node, ['boats', 'nets', 'tides']);
  clients = await Promise.all([here, there].map(({ url }) => RawClient.connect(url)));
});
afterAll(async () => {
  await Promise.all(clients.map((client) => client.close()));
  await there.close();
  await here.close();
});
beforeEach(() => {
  alice = newAuthor();
});

const seconds = () => Math.floor(now / 1_000);
const t = (...topics: string[]) => topics.map((topic) => ['t', topic]);

/** No two drafts give the same event. */
function draft(given: Draft = {}, author = alice) {
  posted += 1;
  return sign(author, { created_at: seconds(), content: `${posted}`, ...given });
}

async function post(given: Draft = {}, at = 0): Promise<NostrEvent> {
  const event = draft(given);
  expect(await clients[at]!.publish(event)).toEqual([true, '']);
  return event;
}

const deletionOf = (...targets: NostrEvent[]) => targets.map(({ id }) => ['e', id]);
/** What each instance finds; the second query is answered from memory. */
async function find(filter: object): Promise<string[]> {
  const asked = { authors: [alice.pubkey], ...filter };
  const [first, ...others] = await Promise.all(
    [0, 1, 0, 1].map(async (at) => (await clients[at]!.query(asked)).events.map(({ id }) => id)),
  );
  for (const other of others) expect(other).toEqual(first);
  return first!;
}

async function set(key: SettingKey, value: unknown): Promise<void> {
  await writeSetting(here.database.pool, 1, key, value, now);
  await followed(() => [here, there].every(({ node }) => node.communities.get(1)!.settings[key] === value));
}

async function setTopic(topic: string, policy: { retentionDays?: number; maxEvents?: number }) {
  const rules = { pinned: true, public: true, priority: 0, policy };
  await writeTopic(here.database.pool, 1, topic, rules, now);
  const wanted = JSON.stringify(policy);
  await followed(() =>
    [here, there].every(
      ({ node }) => JSON.stringify(node.communities.get(1)!.topics.get(topic)?.policy) === wanted,
    ),
  );
}

const followed = (holds: () => boolean) =>
  eventually('both instances follow', () => (holds() ? true : undefined));

async function run(job: Job, bounds = BOUNDS) {
  const { store, communities, erasing } = here.node;
  const { signal } = new AbortController();
  const context = { database: here.database, store, communities, erasing, now: () => now, signal, bounds };
  return eventually('the job runs', async () => {
    const result = await runJob(job, context);
    return result === 'busy' ? undefined : result;
  });
}

const idOf = ({ id }: NostrEvent) => Buffer.from(id, 'hex');

async function tagRows(event: NostrEvent): Promise<number> {
  const { rows } = await here.database.pool.query<{ tags: number }>(
    'SELECT count(*) AS tags FROM event_tags t JOIN event_dedupe d USING (seq) WHERE d.event_id = $1',
    [idOf(event)],
  );
  return rows[0]!.tags;
}

async function outboxOf(event: NostrEvent) {
  const { rows } = await here.database.pool.query<{ op: string; topics: string[] }>(
    'SELECT op, topics FROM events_outbox WHERE event_id = $1 ORDER BY seq',
    [idOf(event)],
  );
  return rows.map(({ op, topics }) => [op, topics]);
}

describe('a deletion request', () => {
  it.each(['required', 'default', 'open'])(
    'in %s mode is found by its targets’ topics and its own',
    async (mode) => {
      await set('topic.mode', mode);
      const targets = [
        await post({ tags: t('boats', 'nets') }),
        await post({ tags: t('boats', 'unknown') }, 1),
      ];
      const request = await post({ kind: 5, tags: [...t('tides'), ...deletionOf(...targets)] });
      for (const topic of ['boats', 'nets', 'tides'])
        expect(await find({ '#t': [topic], kinds: [5] }), topic).toEqual([request.id]);
      expect(await find({ '#t': ['boats'], ids: [request.id], kinds: [5] })).toEqual([request.id]);
      // A filter with only the topic does not find an event that does not carry it.
      expect(await find({ '#t': ['boats'] })).toEqual([]);
      expect(await find({ '#t': ['boats'], '#e': [targets[0]!.id], kinds: [5] })).toEqual([request.id]);
      expect(await find({ '#t': [GLOBAL] })).toEqual([]);
      expect(await outboxOf(request)).toEqual([['upsert', ['tides', 'boats', 'nets', 'unknown']]]);
      await set('topic.mode', 'default');
    },
  );

  it('is delivered live to readers of its targets’ topics, once, on both instances', async () => {
    const target = await post({ tags: t('boats', 'nets') });
    for (const client of clients) {
      client.send(['REQ', 'live', { '#t': ['boats', 'nets'], kinds: [5], limit: 0 }]);
      client.send(['REQ', 'elsewhere', { '#t': ['tides'], kinds: [5], limit: 0 }]);
      await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'elsewhere');
    }
    const request = await post({ kind: 5, tags: deletionOf(target) }, 1);
    const mark = await post({ kind: 5, tags: t('tides') });
    for (const client of clients) {
      await client.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as NostrEvent).id === mark.id);
      const live = client.frames.filter((frame) => frame[0] === 'EVENT' && frame[1] === 'live');
      expect(live.map((frame) => frame[2])).toEqual([request]);
      const elsewhere = client.frames.filter((frame) => frame[0] === 'EVENT' && frame[1] === 'elsewhere');
      expect(elsewhere.map((frame) => frame[2])).toEqual([mark]);
      for (const id of ['live', 'elsewhere']) client.send(['CLOSE', id]);
    }
  });

  it('of an address is bound to the topics of every version that it deletes', async () => {
    const version = (second: number, topic: string) =>
      post({ kind: 30_023, created_at: seconds() + second, tags: [['d', 'x'], ...t(topic)] });
    await version(-3, 'boats');
    await version(-2, 'nets');
    await post({ kind: 30_023, tags: [['d', 'other'], ...t('tides')] });
    const request = await post({ kind: 5, tags: [['a', `30023:${alice.pubkey}:x`]] });
    for (const topic of ['boats', 'nets'])
      expect(await find({ '#t': [topic], kinds: [5] })).toEqual([request.id]);
    expect(await find({ '#t': ['tides'], kinds: [5] })).toEqual([]);
  });

  it('is not bound to targets of other authors or to unknown targets', async () => {
    const foreign = draft({ tags: t('boats') }, newAuthor());
    expect(await clients[0]!.publish(foreign)).toEqual([true, '']);
    const later = draft({ tags: t('nets') });
    const request = await post({ kind: 5, tags: deletionOf(foreign, later) });
    for (const topic of ['boats', 'nets']) expect(await find({ '#t': [topic] })).toEqual([]);
    expect(await find({ kinds: [5] })).toEqual([request.id]);
  });

  it('is bound to the targets of its own batch, and to what they are bound to', async () => {
    const target = draft({});
    const request = draft({ kind: 5, tags: deletionOf(target) });
    expect(await Promise.all([target, request].map((event) => clients[0]!.publish(event)))).toEqual([
      [true, ''],
      [true, ''],
    ]);
    expect(await find({ '#t': [GLOBAL], kinds: [5] })).toEqual([request.id]);
    expect(await tagRows(target)).toBe(0);
    expect(await outboxOf(target)).toEqual([
      ['upsert', [GLOBAL]],
      ['delete', [GLOBAL]],
    ]);
  });

  it('loses its tag rows when its author vanishes', async () => {
    const target = await post({ tags: t('boats', 'nets') });
    const request = await post({ kind: 5, tags: deletionOf(target) });
    const plain = await post({});
    expect([await tagRows(request), await tagRows(plain)]).toEqual([3, 1]);
    const { pool } = here.database;
    await post({ kind: 62, tags: [['relay', PUBLIC_URL]] });
    expect(await find({ '#t': ['boats', GLOBAL] })).toEqual([]);
    // The outbox is not scrubbed until this consumer has read it.
    await pool.query(`INSERT INTO consumer_offsets (consumer, last_seq, updated_at) VALUES ('slow', 0, 0)`);
    await run(erase);
    await pool.query(`DELETE FROM consumer_offsets WHERE consumer = 'slow'`);
    expect([await tagRows(request), await tagRows(plain)]).toEqual([0, 0]);
    expect(await outboxOf(request)).toEqual([
      ['upsert', ['boats', 'nets']],
      ['delete', ['boats', 'nets']],
    ]);
    const left = await pool.query('SELECT 1 FROM events WHERE id = ANY ($1)', [[request, plain].map(idOf)]);
    expect(left.rowCount).toBe(0);
  });
});

describe('an event without a topic in default mode', () => {
  it('is found under the global topic, byte for byte as it was sent', async () => {
    const event = await post({
      tags: [
        ['t', ''],
        ['p', alice.pubkey],
      ],
      content: '港 \u2028"\\',
    });
    const named = await post({ tags: t('boats') });
    expect(await find({ '#t': [GLOBAL] })).toEqual([event.id]);
    expect(await find({ '#t': [GLOBAL, 'boats'], kinds: [1] })).toHaveLength(2);
    expect(await find({ '#t': ['boats'] })).toEqual([named.id]);
    const { rows } = await here.database.pool.query('SELECT payload, bound FROM events WHERE id = $1', [
      idOf(event),
    ]);
    expect(rows).toEqual([{ payload: serializeEvent(event), bound: [GLOBAL] }]);
    for (const client of clients) {
      const { events } = await client.query({ ids: [event.id], '#t': [GLOBAL] });
      expect(events).toEqual([event]);
    }
  });

  it('is found by an instance that did not receive it, also from memory', async () => {
    const event = await post({});
    const late = await startTestNode({ now: () => now, on: here.test });
    const client = await RawClient.connect(late.url);
    for (const filter of [{}, {}, { '#t': [GLOBAL] }, { '#t': [GLOBAL] }])
      expect((await client.query({ ...filter, ids: [event.id] })).events).toEqual([event]);
    expect((await client.query({ '#t': ['boats'], ids: [event.id] })).events).toEqual([]);
    await client.close();
    await late.close();
  });

  it('is delivered live to readers of the global topic, ephemeral or not, on both instances', async () => {
    for (const client of clients) {
      client.send(['REQ', 'global', { '#t': [GLOBAL], authors: [alice.pubkey] }]);
      await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'global');
    }
    const expected = [
      await post({}),
      await post({ kind: 20_001 }),
      await post({ kind: 30_023, tags: [['d', '']] }, 1),
    ];
    await post({ kind: 0 });
    await post({ tags: t('boats') });
    const last = await post({ tags: t(GLOBAL) }, 1);
    for (const client of clients) {
      const received = () =>
        client.frames
          .filter((frame) => frame[0] === 'EVENT' && frame[1] === 'global')
          .map((frame) => frame[2] as NostrEvent);
      await client.until(() => received().length >= 4);
      const byId = (events: NostrEvent[]) => [...events].sort((a, b) => (a.id < b.id ? -1 : 1));
      expect(byId(received())).toEqual(byId([...expected, last]));
      client.send(['CLOSE', 'global']);
    }
  });

  it('is superseded there by a newer version, and the delete names the topic', async () => {
    const first = await post({ kind: 30_023, created_at: seconds() - 1, tags: [['d', 'v']] });
    expect(await find({ '#t': [GLOBAL] })).toEqual([first.id]);
    const second = await post({ kind: 30_023, tags: [['d', 'v'], ...t('boats')] }, 1);
    expect(await find({ '#t': [GLOBAL] })).toEqual([]);
    expect(await find({ '#t': ['boats'] })).toEqual([second.id]);
    expect(await tagRows(first)).toBe(0);
    expect(await outboxOf(first)).toEqual([
      ['upsert', [GLOBAL]],
      ['delete', [GLOBAL]],
    ]);
  });

  it('leaves no tag row when it expires', async () => {
    const event = await post({ tags: [['expiration', `${seconds() + 10}`]] });
    expect(await tagRows(event)).toBe(1);
    now += 10_000;
    expect(await find({ '#t': [GLOBAL] })).toEqual([]);
    await run(expire);
    expect(await tagRows(event)).toBe(0);
    expect((await outboxOf(event)).at(-1)).toEqual(['delete', [GLOBAL]]);
  });

  it('stays bound or unbound as on arrival, whatever the mode is later', async () => {
    const bound = await post({});
    await set('topic.mode', 'open');
    const plain = await post({});
    expect(await find({ '#t': [GLOBAL] })).toEqual([bound.id]);
    await set('topic.mode', 'required');
    expect(await find({ '#t': [GLOBAL] })).toEqual([bound.id]);
    await set('topic.mode', 'default');
    expect(await find({ '#t': [GLOBAL] })).toEqual([bound.id]);
    expect((await find({ kinds: [1] })).sort()).toEqual([bound.id, plain.id].sort());
  });

  it('is exported by the global topic, and an import decides again', async () => {
    const before = now;
    // The commands use the real clock.
    now = Date.now();
    const event = await post({});
    const env = { DATABASE_URL: here.test.url };
    const filter = JSON.stringify({ '#t': [GLOBAL], authors: [alice.pubkey] });
    const exported = await runCli(['export', '-', '--filter', filter], env);
    expect(exported.stdout).toBe(`${serializeEvent(event)}\n`);
    const plain = await startTestNode({ now: () => now });
    const there = { DATABASE_URL: plain.test.url };
    expect((await runCli(['import'], there, exported.stdout)).code).toBe(0);
    const { rows } = await plain.database.pool.query('SELECT payload, bound FROM events');
    expect(rows).toEqual([{ payload: serializeEvent(event), bound: null }]);
    await plain.close();
    now = before;
  });
});

describe('size and retention of a bound topic', () => {
  it('the size of a topic counts events that name it, and its purge takes only those', async () => {
    const { pool } = here.database;
    const sizeOf = async () =>
      (
        await pool.query<{ events: number }>('SELECT events FROM topic_totals WHERE topic = $1', [
          'harbour:global',
        ])
      ).rows[0]?.events;
    await set('topic.namespace', 'harbour');
    await followed(() => here.node.communities.get(1)!.topics.get('harbour:global')?.enabled ?? false);
    const bound = [await post({}), await post({}), await post({})];
    const named: NostrEvent[] = [];
    for (let count = 0; count < 4; count += 1) named.push(await post({ tags: t('harbour:global') }));
    expect(await sizeOf()).toBe(4);
    await setTopic('harbour:global', { maxEvents: 3 });
    await run(capacity, { ...BOUNDS, rows: 2 });
    expect(await sizeOf()).toBe(2);
    const left = [...bound, ...named.slice(2)].map(({ id }) => id).sort();
    expect((await find({ '#t': ['harbour:global'] })).sort()).toEqual(left);
    await setTopic('harbour:global', {});
    await run(capacity);
    await set('topic.namespace', 'kukuri');
    await deleteNodeTopic(pool, { community: 1, topic: 'harbour:global' }, Date.now());
  });

  it('has the retention of the community, not of its bound topic, also at read', async () => {
    await setTopic(GLOBAL, { retentionDays: 3 });
    const bound = await post({});
    const named = await post({ tags: t(GLOBAL) });
    now += 4 * DAY_MS;
    expect(await find({ '#t': [GLOBAL] })).toEqual([bound.id]);
    await run(retain);
    expect(await find({ kinds: [1] })).toEqual([bound.id]);
    expect([await tagRows(bound), await tagRows(named)]).toEqual([1, 0]);

    await setTopic(GLOBAL, { retentionDays: 60 });
    expect(await find({ '#t': [GLOBAL] })).toEqual([bound.id]);
    now += 26 * DAY_MS + 1_000;
    const maker = await here.database.connect();
    await ensurePartitions(maker, now);
    await maker.end();
    expect(await find({ '#t': [GLOBAL] })).toEqual([]);
    await run(retain);
    expect(await tagRows(bound)).toBe(0);
    expect((await outboxOf(bound)).at(-1)).toEqual(['delete', [GLOBAL]]);
    await setTopic(GLOBAL, {});
  });

  it('keeps its topics when other days move it to another bucket', async () => {
    const event = await post({});
    now += 2 * DAY_MS;
    await set('retention.regularDays', 90);
    // The sweep reads events older than the shortest retention of any rule.
    await setTopic('tides', { retentionDays: 1 });
    await run(retain);
    const { rows } = await here.database.pool.query('SELECT keep, bound FROM events WHERE id = $1', [
      idOf(event),
    ]);
    expect(rows).toEqual([{ keep: 4, bound: [GLOBAL] }]);
    expect(await find({ '#t': [GLOBAL] })).toEqual([event.id]);
    const request = await post({ kind: 5, tags: deletionOf(event) });
    expect(await find({ '#t': [GLOBAL], kinds: [5] })).toEqual([request.id]);
    expect(await tagRows(event)).toBe(0);
  });
});
