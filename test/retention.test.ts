import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DAY_MS } from '../src/core/retention.js';
import { BOUNDS } from '../src/jobs/job.js';
import { retain } from '../src/jobs/retain.js';
import { runJob } from '../src/jobs/run.js';
import { dropPartitions, moveRows, type SweepStep, sweepStep } from '../src/store/keeping.js';
import { fixTagHashSeed } from '../src/store/node-state.js';
import { ensurePartitions } from '../src/store/partitions.js';
import { createTagHash } from '../src/store/tag-hash.js';
import { RawClient } from './support/client.js';
import { type Author, newAuthor, sign } from './support/events.js';
import { startTestNode, type TestNode } from './support/node.js';
import { writeTopic } from './support/topics.js';

let relay: TestNode;
let client: RawClient;
let alice: Author;
let now: number;
const START = Date.UTC(2026, 0, 10);

beforeAll(async () => {
  now = START;
  relay = await startTestNode({ now: () => now });
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
});
beforeEach(() => {
  alice = newAuthor();
});

const served = async (filter: object) => (await client.query(filter)).events.map((event) => event.id);
const post = async (tags: string[][], kind = 1) => {
  const event = sign(alice, { kind, tags, created_at: Math.floor(now / 1_000) });
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
};

async function setDays(topic: string, retentionDays: number): Promise<void> {
  await writeTopic(
    relay.database.pool,
    1,
    topic,
    { pinned: true, public: true, priority: 0, policy: { retentionDays } },
    now,
  );
  const holds = () =>
    relay.node.communities.get(1)?.topics.get(topic)?.policy.retentionDays === retentionDays;
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 20));
  const maker = await relay.database.connect();
  await ensurePartitions(maker, now);
  await maker.end();
}

async function sweepAll(): Promise<{ hidden: number; moved: number }> {
  const tagHash = await createTagHash(await fixTagHashSeed(relay.database.pool));
  const rules = new Map(relay.node.communities.all().map((community) => [community.id, community]));
  let after: number | undefined = 0;
  const total = { hidden: 0, moved: 0 };
  while (after !== undefined) {
    let step: SweepStep | undefined;
    const from: number = after;
    total.hidden += await relay.node.lane.hide({
      hidden: 'retention',
      purge: true,
      select: async (session, at) => {
        step = await sweepStep(session, from, rules, at);
        await moveRows(session, step.misplaced, tagHash);
        return [...step.aged];
      },
    });
    total.moved += step?.misplaced.length ?? 0;
    after = step?.next;
  }
  return total;
}

describe('retention', () => {
  it('is exact at read for each topic asked, before any sweep', async () => {
    await setDays('short', 3);
    await setDays('long', 200);
    const both = await post([
      ['t', 'short'],
      ['t', 'long'],
    ]);
    const plain = await post([['t', 'other']]);
    now += 3 * DAY_MS + 1;
    expect(await served({ '#t': ['short'], authors: [alice.pubkey] })).toEqual([]);
    expect(await served({ '#t': ['long'] })).toEqual([both.id]);
    expect(await served({ '#t': ['short', 'long'] })).toEqual([both.id]);
    expect((await served({ authors: [alice.pubkey] })).sort()).toEqual([both.id, plain.id].sort());
    now += 28 * DAY_MS;
    expect(await served({ authors: [alice.pubkey] })).toEqual([both.id]);
    expect(await served({ '#t': ['other'] })).toEqual([]);
  });

  it('does not touch current versions and requests', async () => {
    const profile = await post([['t', 'short']], 0);
    const request = await post([['e', 'f'.repeat(64)]], 5);
    now += 100 * DAY_MS;
    await sweepAll();
    expect((await served({ authors: [alice.pubkey] })).sort()).toEqual([profile.id, request.id].sort());
    expect(await served({ '#t': ['short'], authors: [alice.pubkey] })).toEqual([profile.id]);
  });

  it('is announced once by the sweep, and what it took does not come back', async () => {
    const note = await post([['t', 'short']]);
    now += 4 * DAY_MS;
    expect((await sweepAll()).hidden).toBe(1);
    expect((await sweepAll()).hidden).toBe(0);
    const { rows } = await relay.database.pool.query(
      "SELECT op, reason FROM events_outbox WHERE event_id = decode($1, 'hex') ORDER BY seq",
      [note.id],
    );
    expect(rows).toEqual([
      { op: 'upsert', reason: null },
      { op: 'delete', reason: 'retention' },
    ]);
    await client.until(() => true);
    expect(await client.publish(note)).toEqual([false, 'blocked: past retention']);
  });

  it('follows a changed rule: rows move to the bucket where they are kept long enough', async () => {
    const note = await post([['t', 'changing']]);
    await setDays('changing', 300);
    now += 40 * DAY_MS;
    expect(await served({ '#t': ['changing'] })).toEqual([note.id]);
    expect((await sweepAll()).moved).toBeGreaterThan(0);
    expect(await served({ '#t': ['changing'] })).toEqual([note.id]);
    expect(await served({ authors: [alice.pubkey] })).toEqual([note.id]);
    expect(await served({ ids: [note.id] })).toEqual([note.id]);
  });

  it('follows a rule that was changed when the month of the rows was over, into a bucket that had no such month', async () => {
    const today = new Date(now);
    now = Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + 1, 20);
    const note = await post([['t', 'late']]);
    now += 15 * DAY_MS;
    await setDays('late', 80);
    now += 16 * DAY_MS;
    const { lane, communities, erasing } = relay.node;
    const { signal } = new AbortController();
    const context = {
      database: relay.database,
      lane,
      communities,
      erasing,
      now: () => now,
      signal,
      bounds: BOUNDS,
    };
    expect(await runJob(retain, context)).toMatchObject({ more: false });
    const { rows } = await relay.database.pool.query('SELECT keep, hidden FROM events WHERE id = $1', [
      Buffer.from(note.id, 'hex'),
    ]);
    expect(rows).toEqual([{ keep: 4, hidden: null }]);
    expect(await served({ '#t': ['late'] })).toEqual([note.id]);
  });

  it('drops a month when nothing in it is served any more, and keeps the others', async () => {
    now += 70 * DAY_MS;
    const keeper = await relay.database.connect();
    await ensurePartitions(keeper, now);
    await sweepAll();
    const wouldDrop = await dropPartitions(keeper, now, true);
    expect(wouldDrop).toContain('events_days30_2026_01');
    expect(await dropPartitions(keeper, now, false)).toEqual(wouldDrop);
    expect(await dropPartitions(keeper, now, false)).toEqual([]);
    const note = await post([['t', 'fresh']]);
    expect(await served({ '#t': ['fresh'] })).toEqual([note.id]);
    await keeper.end();
  });
});
