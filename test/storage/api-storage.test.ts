/**
 * Storage over real HTTP: the preview of a changed policy agrees with what the jobs then purge, sizes and
 * partitions come with their end, and figures of the node are for its operators only.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { capacity } from '../../src/events/jobs/capacity.js';
import { retain } from '../../src/events/jobs/retain.js';
import { readSize } from '../../src/events/postgres/capacity.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type Job } from '../../src/jobs/job.js';
import { previewJobs, runJob } from '../../src/jobs/run.js';
import { eventually } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { pinTopics, startTestNode, type TestNode } from '../support/node.js';

const TOPICS = '/v1/admin/node-subscriptions';
const STORAGE = '/v1/admin/storage';
const boss = newAuthor();
const viewer = newAuthor();
const poster = newAuthor();
let relay: TestNode;
let api: Api;
/** How far the clock of the node is behind. */
let ago = 25 * DAY_MS;
const now = () => Date.now() - ago;

interface Preview {
  retention: { events: number; bytes: number };
  capacity: { events: number; bytes: number };
  due: { events: number; bytes: number };
  leaving: number;
  total: { events: number; bytes: number };
  complete: boolean;
}

beforeAll(async () => {
  relay = await startTestNode({ jobs: [], now, env: { MINATO_ADMIN_PUBKEYS: boss.pubkey } });
  api = createApi(relay.http);
  await pinTopics(relay, ['tea', 'sea', 'old']);
  const client = await RawClient.connect(relay.url);
  // Ten events of tea, one on each of ten days; the last three also name sea.
  for (let day = 20; day > 10; day -= 1) {
    ago = day * DAY_MS;
    const tags = [['t', 'tea'], ...(day <= 13 ? [['t', 'sea']] : [])];
    const event = sign(poster, { tags, created_at: Math.floor(now() / 1_000), content: 'x'.repeat(100) });
    expect(await client.publish(event)).toEqual([true, '']);
  }
  // No limit counts them.
  for (const target of ['e', 'f']) {
    const tags = [
      ['e', target.repeat(64)],
      ['t', 'tea'],
    ];
    const request = sign(poster, { kind: 5, tags, created_at: Math.floor(now() / 1_000) });
    expect(await client.publish(request)).toEqual([true, '']);
  }
  await client.close();
  ago = 0;
  await api.ask('PUT', `/v1/admin/operators/${viewer.pubkey}`, { as: boss, body: { role: 'viewer' } });
});
afterAll(() => relay.close());

const preview = async (policy: object, topic = 'tea') => {
  const body = { ingest_policy: policy };
  return (await api.ask<Preview>('POST', `${TOPICS}/${topic}/preview`, { as: boss, body })).body;
};

function context() {
  const { store, communities, erasing } = relay.node;
  const { signal } = new AbortController();
  return { database: relay.database, store, communities, erasing, signal, bounds: BOUNDS, now };
}

describe('the preview of a policy', () => {
  it('counts what shorter days would purge, and what only leaves this topic', async () => {
    const { retention, leaving, complete, total, due } = await preview({ retentionDays: 12 });
    expect({ events: retention.events, leaving, complete, due: due.events }).toEqual({
      events: 7,
      leaving: 2,
      complete: true,
      due: 0,
    });
    expect(retention.bytes).toBeGreaterThan(7 * 100);
    expect(total.events).toBe(12);
  });

  it('counts what a limit would purge, the oldest first', async () => {
    expect((await preview({ maxEvents: 5 })).capacity.events).toBe(6);
    expect(await preview({ maxEvents: 100 })).toMatchObject({
      capacity: { events: 0, bytes: 0 },
      retention: { events: 0, bytes: 0 },
    });
  });

  it('agrees with what the jobs purge after the change', async () => {
    const policy = { retentionDays: 15, maxEvents: 4 };
    const expected = await preview(policy);
    const changed = await api.ask('PATCH', `${TOPICS}/tea`, { as: boss, body: { ingest_policy: policy } });
    expect(changed.status).toBe(200);
    await eventually(
      'the policy',
      () => relay.node.communities.get(1)?.topics.get('tea')?.policy.retentionDays === 15 || undefined,
    );
    const run = async (job: Job) => {
      await runJob(job, context());
      return (await readSize(relay.database.pool, { community: 1, topic: 'tea' })).events;
    };
    expect(await run(retain)).toBe(10 - expected.retention.events);
    expect(await run(capacity)).toBe(10 - expected.retention.events - expected.capacity.events);
    expect(expected.retention.events).toBe(6);
    expect(expected.capacity.events).toBe(1);
  });

  it('is refused for an unknown topic, a bad policy and a viewer', async () => {
    const body = { ingest_policy: {} };
    await api.refused(404, 'NOT_FOUND', 'POST', `${TOPICS}/nowhere/preview`, { as: boss, body });
    await api.refused(403, 'OPERATORS_ONLY', 'POST', `${TOPICS}/tea/preview`, { as: viewer, body });
    const bad = { ingest_policy: { retentionDays: -1 } };
    await api.refused(400, 'INVALID_REQUEST', 'POST', `${TOPICS}/tea/preview`, { as: boss, body: bad });
  });
});

interface Storage {
  events: number;
  retention: { class: string; days: number | null }[];
  topics: { topic_id: string; days: number | null; events: number }[];
  node: {
    database_bytes: number;
    groups: { group: string; table_bytes: number }[];
    partitions: {
      bucket: string;
      from: number | null;
      until: number | null;
      bytes: number;
      drops_at: number | null;
    }[];
  } | null;
}

describe('storage', () => {
  it('says how long each class is kept, and which topics have days of their own', async () => {
    const { status, body } = await api.ask<Storage>('GET', STORAGE, { as: viewer });
    expect(status).toBe(200);
    expect(body.node).toBeNull();
    expect(body.retention).toContainEqual({ class: 'regular', days: 30, setting: 'retention.regularDays' });
    expect(body.retention).toContainEqual({
      class: 'requests',
      days: null,
      setting: 'deletion.keepRequestsDays',
    });
    expect(body.topics).toEqual([
      { topic_id: 'tea', name: null, days: 15, events: 5, bytes: expect.any(Number) },
    ]);
    expect(body.events).toBe(5);
  });

  it('shows an operator of the node the sizes, and when each month is dropped', async () => {
    const { body } = await api.ask<Storage>('GET', STORAGE, { as: boss });
    const node = body.node!;
    expect(node.database_bytes).toBeGreaterThan(1_000_000);
    const events = node.groups.find(({ group }) => group === 'events')!;
    expect(events.table_bytes).toBeGreaterThan(0);
    const months = node.partitions.filter(({ bucket }) => bucket === 'days30');
    expect(months.length).toBeGreaterThanOrEqual(3);
    for (const { from, until, drops_at } of months) {
      expect(new Date(from!).getUTCDate()).toBe(1);
      expect(until! - from!).toBeGreaterThan(27 * DAY_MS);
      expect(drops_at).toBe(until! + 30 * DAY_MS);
    }
    const current = node.partitions.find(({ bucket }) => bucket === 'current')!;
    expect(current).toMatchObject({ from: null, until: null, drops_at: null });
  });

  it('previews a purge for operators of the node, and changes nothing', async () => {
    const path = `${STORAGE}/purge-preview`;
    // In 20 days the last ones are past the days of both of their topics.
    ago = -20 * DAY_MS;
    const later = await previewJobs([retain], context(), 10_000);
    expect(later).toMatchObject({
      complete: true,
      jobs: ['retain'],
      counts: [{ job: 'retain', class: 'regular', rows: 3 }],
    });
    ago = 0;
    const { status, body } = await api.ask<{ complete: boolean; jobs_counted: string[]; counts: object[] }>(
      'GET',
      path,
      { as: boss },
    );
    expect(status).toBe(200);
    expect(body.complete).toBe(true);
    // Months that are over and empty.
    expect(body.counts).toMatchObject([{ job: 'drop-months', class: 'partition' }]);
    expect(body.jobs_counted).toContain('retain');
    expect((await api.ask<Storage>('GET', STORAGE, { as: boss })).body.events).toBe(5);
    await api.refused(403, 'OPERATORS_ONLY', 'GET', path, { as: viewer });
  });

  it('ends a preview whose time is over with what it has counted', async () => {
    const slow: Job = {
      ...retain,
      name: 'slow',
      dryRun: async (_context, client) => {
        await client.query('SELECT pg_sleep(30)');
        return [];
      },
    };
    const answer = await previewJobs([retain, slow, retain], context(), 5_000);
    expect(answer).toMatchObject({ complete: false, jobs: ['retain'] });
  });
});
