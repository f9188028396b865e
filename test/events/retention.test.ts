import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { changeSetting } from '../../src/communities/settings.sql.js';
import { forgetDedupeRows } from '../../src/events/jobs/forget-dedupe.js';
import { dropMonths, retain } from '../../src/events/jobs/retain.js';
import { dropPartitions } from '../../src/events/postgres/keeping.js';
import { ensurePartitions } from '../../src/events/postgres/partitions.js';
import { readExportPage } from '../../src/events/postgres/read/export.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS, eventSince } from '../../src/events/rules/retention.js';
import type { Swept } from '../../src/events/store.js';
import { BOUNDS, type Job } from '../../src/jobs/job.js';
import { runJob } from '../../src/jobs/run.js';
import { readView } from '../../src/outbox/changes.sql.js';
import { eventIn } from '../../src/outbox/hidden-by-time.js';
import { readHead } from '../../src/outbox/outbox.sql.js';
import { topicsOf } from '../../src/topics/rules.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

let relay: TestNode;
let client: RawClient;
let alice: Author;
let now: number;
const START = Date.UTC(2026, 0, 10);

beforeAll(async () => {
  now = START;
  relay = await startTestNode({ jobs: [], now: () => now });
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

async function setDefault(days: number): Promise<void> {
  const ref = { community: 1, key: 'retention.regularDays', value: days } as const;
  await changeSetting(relay.database.pool, ref, now);
  await eventually('the setting', () => community().settings['retention.regularDays'] === days || undefined);
  const maker = await relay.database.connect();
  await ensurePartitions(maker, now);
  await maker.end();
}

const community = () => relay.node.communities.get(1)!;

async function run(job: Job): Promise<void> {
  const { store, communities, erasing } = relay.node;
  const { signal } = new AbortController();
  const context = { database: relay.database, store, communities, erasing, signal, bounds: BOUNDS };
  expect(await runJob(job, { ...context, now: () => now })).toMatchObject({ more: false });
}

const rowsOf = async (event: { id: string }) => {
  const { rows } = await relay.database.pool.query<{ keep: number; hidden: number | null }>(
    'SELECT keep, hidden FROM events WHERE id = $1',
    [Buffer.from(event.id, 'hex')],
  );
  return rows;
};

const announced = async (event: { id: string }) => {
  const { rows } = await relay.database.pool.query<{ op: string; reason: string | null }>(
    'SELECT op, reason FROM events_outbox WHERE event_id = $1 ORDER BY seq',
    [Buffer.from(event.id, 'hex')],
  );
  return rows.map(({ op, reason }) => reason ?? op);
};

const WAYS = ['ids', 'author', 'kind', 'count', 'search', 'export', 'view'] as const;

/** The ways to read that return the event now. */
async function waysTo(event: NostrEvent): Promise<string[]> {
  const { pool } = relay.database;
  const { id, pubkey, kind, content } = event;
  const has = async (filter: object) => (await served(filter)).includes(id);
  const from = client.frames.length;
  client.send(['COUNT', `count ${from}`, { authors: [pubkey] }]);
  const [, , counted] = await client.waitFor(([, name]) => name === `count ${from}`, from);
  const head = await readHead(pool);
  const { events } = await readExportPage(pool, community(), 0, head, now);
  const view = await readView(pool, { after: 0, upTo: head, limit: 10_000, community: 1 });
  const shown: Record<(typeof WAYS)[number], boolean> = {
    ids: await has({ ids: [id] }),
    author: await has({ authors: [pubkey] }),
    kind: await has({ kinds: [kind] }),
    count: (counted as { count: number }).count > 0,
    search: await has({ search: content }),
    export: events.some(({ payload }) => payload.includes(id)),
    view: view.some((change) => change.id === id && eventIn(change, community(), now) !== undefined),
  };
  return WAYS.filter((way) => shown[way]);
}

async function sweepAll(): Promise<{ hidden: number; moved: number }> {
  const rules = new Map(relay.node.communities.all().map((community) => [community.id, community]));
  let after: number | undefined = 0;
  const total = { hidden: 0, moved: 0 };
  while (after !== undefined) {
    const step: Swept = await relay.node.store.sweep({ after, rules });
    total.hidden += step.hidden;
    total.moved += step.moved;
    after = step.next;
  }
  return total;
}

describe('retention', () => {
  it('is exact at read for each queried topic, before any sweep', async () => {
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

  it('is announced once by the sweep, and swept events do not come back', async () => {
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

  it('follows a rule changed after the month of the rows, into a bucket without that month', async () => {
    const today = new Date(now);
    now = Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + 1, 20);
    const note = await post([['t', 'late']]);
    now += 15 * DAY_MS;
    await setDays('late', 80);
    now += 16 * DAY_MS;
    const { store, communities, erasing } = relay.node;
    const { signal } = new AbortController();
    const context = {
      database: relay.database,
      store,
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

  it('drops a month when nothing in it is served, and keeps the others', async () => {
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

describe('retention at read', () => {
  let words = 0;
  const write = async (...topics: string[]) => {
    words += 1;
    const tags = topics.map((topic) => ['t', topic]);
    const draft = { kind: 1, tags, content: `wort${words}`, created_at: Math.floor(now / 1_000) };
    const event = sign(alice, draft);
    expect(await client.publish(event)).toEqual([true, '']);
    return event;
  };

  beforeAll(async () => {
    await eventually('an index to search', async () =>
      (await client.query({ search: 'anything' })).closed === undefined ? true : undefined,
    );
  });

  it('hides an event from the end of its days, for every way to read, before any sweep', async () => {
    await setDays('brief', 2);
    const event = await write('brief');
    now += 2 * DAY_MS;
    expect(await waysTo(event)).toEqual([...WAYS]);
    now += DAY_MS / 2;
    expect(await waysTo(event)).toEqual([]);
    expect(await served({ '#t': ['brief'], authors: [alice.pubkey] })).toEqual([]);
  });

  it('applies a lowered default immediately, and hidden events stay hidden when it is raised', async () => {
    const event = await write('plain');
    now += 15 * DAY_MS;
    expect(await waysTo(event)).toEqual([...WAYS]);
    await setDefault(10);
    expect(await waysTo(event)).toEqual([]);
    await setDefault(60);
    const young = await write('plain');
    expect(await waysTo(event)).not.toContain('ids');
    expect(await served({ '#t': ['plain'], authors: [alice.pubkey] })).toEqual([young.id]);
    await run(retain);
    expect(await announced(event)).toEqual(['upsert', 'retention']);
    expect(await served({ authors: [alice.pubkey] })).toEqual([young.id]);
    expect(await client.publish(event)).toEqual([false, 'blocked: past retention']);
    await setDefault(30);
  });

  it('keeps serving events without a gap when the default is raised', async () => {
    const event = await write('plain');
    now += 29 * DAY_MS;
    await setDefault(60);
    now += 5 * DAY_MS;
    expect(await waysTo(event)).toEqual([...WAYS]);
    await run(retain);
    await run(dropMonths);
    expect(await waysTo(event)).toEqual([...WAYS]);
    expect(await served({ '#t': ['plain'], authors: [alice.pubkey] })).toEqual([event.id]);
    now += 27 * DAY_MS;
    expect(await waysTo(event)).toEqual([]);
    await setDefault(30);
  });

  it('uses the longest topic where the query names none, and hidden events stay hidden', async () => {
    await setDays('lasting', 100);
    const event = await write('brief', 'lasting');
    now += 3 * DAY_MS;
    expect(await waysTo(event)).toEqual([...WAYS]);
    expect(await served({ '#t': ['brief'], authors: [alice.pubkey] })).toEqual([]);
    expect(await served({ '#t': ['lasting'], authors: [alice.pubkey] })).toEqual([event.id]);
    await setDays('brief', 50);
    expect(await served({ '#t': ['brief'], authors: [alice.pubkey] })).toEqual([]);
    await setDays('lasting', 2);
    expect(await waysTo(event)).toEqual([]);
    await setDays('lasting', 100);
    await setDays('brief', 2);
    expect(await waysTo(event)).toEqual([]);
    await run(retain);
    expect(await announced(event)).toEqual(['upsert', 'retention']);
  });

  it('treats a topic in SQL as everywhere else, with any strange name', async () => {
    const strange = ['', 'a\nb', '\u0000', '\u007f', 'quote " and \\n', 'x'.repeat(256), 'x'.repeat(257)];
    const long = ['🏮'.repeat(128), `${'🏮'.repeat(128)}x`, '"'.repeat(256), '\\'.repeat(257)];
    const events: NostrEvent[] = [];
    for (const name of [...strange, ...long, 'brief']) events.push(await write('brief', name));
    now += 3 * DAY_MS;
    const kept = events.filter((event) => now - 3 * DAY_MS >= eventSince(community(), topicsOf(event), now));
    expect((await served({ authors: [alice.pubkey] })).sort()).toEqual(kept.map(({ id }) => id).sort());
    expect(kept.length).toBe(4);
  });
});

describe('an event past its days', () => {
  const known = async (event: { id: string }) => {
    const { rows } = await relay.database.pool.query('SELECT 1 FROM event_dedupe WHERE event_id = $1', [
      Buffer.from(event.id, 'hex'),
    ]);
    return rows.length;
  };

  it('is purged from the bucket that is never dropped, and sent again it is not stored twice', async () => {
    await setDays('ages', 400);
    const event = await post([['t', 'ages']]);
    expect(await rowsOf(event)).toEqual([{ keep: 6, hidden: null }]);
    now += 400 * DAY_MS;
    await run(retain);
    expect(await rowsOf(event)).toHaveLength(1);
    now += 50 * DAY_MS;
    expect(await served({ ids: [event.id] })).toEqual([]);
    await run(retain);
    expect(await rowsOf(event)).toEqual([]);
    expect(await client.publish(event)).toEqual([false, 'blocked: past retention']);
    now += 181 * DAY_MS;
    await run(forgetDedupeRows);
    expect(await known(event)).toBe(0);
    expect(await client.publish(event)).toEqual([true, '']);
    expect(await rowsOf(event)).toHaveLength(1);
  });

  it('is purged when it was kept for ever before; the rest moves to its month', async () => {
    await setDefault(0);
    const today = new Date(now);
    now = Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + 1, 10);
    const old = await post([['t', 'plain']]);
    now += 30 * DAY_MS;
    const young = await post([['t', 'plain']]);
    expect(await rowsOf(young)).toEqual([{ keep: 6, hidden: null }]);
    now = Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + 3, 5);
    await run(dropMonths);
    await setDefault(30);
    expect(await served({ authors: [alice.pubkey] })).toEqual([young.id]);
    await run(retain);
    expect(await rowsOf(old)).toEqual([]);
    expect(await rowsOf(young)).toEqual([{ keep: 3, hidden: null }]);
    expect(await served({ authors: [alice.pubkey] })).toEqual([young.id]);
  });

  it('is remembered as long as its row exists, even if ids are remembered shorter', async () => {
    const event = await post([['t', 'plain']]);
    // As an earlier version of the program left it: hidden in place.
    const { store } = relay.node;
    now += 31 * DAY_MS;
    const which = { by: 'ids', refs: [{ community: 1, id: event.id }] } as const;
    expect(await store.hide({ hidden: 'retention', purge: false, which })).toBe(1);
    await relay.database.pool.query('UPDATE event_dedupe SET gone_at = $2 WHERE event_id = $1', [
      Buffer.from(event.id, 'hex'),
      now,
    ]);
    now += 200 * DAY_MS;
    await run(forgetDedupeRows);
    expect(await client.publish(event)).toEqual([false, 'blocked: past retention']);
    await run(dropMonths);
    await run(forgetDedupeRows);
    expect(await known(event)).toBe(0);
  });
});
