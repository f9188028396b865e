import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { Community } from '../../src/communities/communities.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { capacity } from '../../src/events/jobs/capacity.js';
import { expire } from '../../src/events/jobs/expire.js';
import { forgetRequests } from '../../src/events/jobs/forget-requests.js';
import { OLDEST_OF_TOPIC_SQL, OLDEST_SQL, WALK_SEQS_MAX } from '../../src/events/postgres/capacity.js';
import { highestStep, type Step } from '../../src/events/rules/capacity.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import type { IngestPolicy } from '../../src/events/rules/retention.js';
import { BOUNDS, type Bounds, type Job } from '../../src/jobs/job.js';
import { dryRunJob, runJob } from '../../src/jobs/run.js';
import { topicsOf } from '../../src/topics/rules.js';
import { eventually, runCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const day = 86_400;
const SHORT = 'restricted: space is short: ';
const LOW = [false, `${SHORT}only topics of higher priority take posts now`];
const FULL = [false, `${SHORT}this topic takes no posts now`];
const OLD = [false, `${SHORT}events older than 86400 seconds are not taken now`];
const STORED = [true, ''];

/** Each test runs the job itself; the node's schedule would interfere at each full minute. */
const WITHOUT_JOBS = ['relay', 'api'] as const;
let relay: TestNode;
let alice: Author;
let client: RawClient;
/** Each test has its own community. */
let community: number;
let slug: string;
let made = 0;
let ahead = 0;
let written = 0;

beforeAll(async () => {
  relay = await startTestNode({ now: () => Date.now() + ahead, roles: WITHOUT_JOBS });
});
afterAll(() => relay.close());

beforeEach(async () => {
  made += 1;
  slug = `community-${made}`;
  alice = newAuthor();
  community = await addCommunity(relay.database.pool, slug, undefined, Date.now());
  await set('topic.mode', 'open');
  await followed(({ settings }) => settings['topic.mode'] === 'open');
  client = await RawClient.connect(`${relay.url}/c/${slug}`);
  return () => client.close();
});

const set = (key: SettingKey, value: unknown) =>
  writeSetting(relay.database.pool, community, key, value, Date.now());

/** Waits until a node has read a changed setting. */
const followed = (holds: (now: Community) => boolean, { node } = relay) =>
  eventually('the node follows', () => {
    const now = node.communities.get(community);
    return now !== undefined && holds(now) ? true : undefined;
  });

async function setLimit(key: 'capacity.maxEvents' | 'capacity.maxBytes', value: number): Promise<void> {
  await set(key, value);
  await followed(({ settings }) => settings[key] === value);
}

async function setTopic(topic: string, priority: number, policy: IngestPolicy): Promise<void> {
  await writeTopic(
    relay.database.pool,
    community,
    topic,
    { pinned: true, public: true, priority, policy },
    Date.now(),
  );
  const wanted = JSON.stringify([priority, policy]);
  await followed(({ topics }) => {
    const rules = topics.get(topic);
    return rules !== undefined && JSON.stringify([rules.priority, rules.policy]) === wanted;
  });
}

function contextOf(bounds: Bounds = BOUNDS) {
  const { store, communities, erasing } = relay.node;
  const { signal } = new AbortController();
  return {
    database: relay.database,
    store,
    communities,
    erasing,
    now: () => Date.now() + ahead,
    signal,
    bounds,
  };
}

async function run(job: Job, bounds?: Bounds) {
  const result = await runJob(job, contextOf(bounds));
  if (result === 'busy') throw new Error('another job was running');
  return result;
}

/** Runs the job once and waits until its steps are in force on the node. */
async function check(step: Step, topics: Record<string, Step> = {}, bounds?: Bounds): Promise<number> {
  const { changed } = await run(capacity, bounds);
  const wanted = JSON.stringify([step, topics]);
  await followed(
    (now) => JSON.stringify([now.capacity.step, Object.fromEntries(now.capacity.topics)]) === wanted,
  );
  return changed;
}

/** No two drafts give the same event. */
function write(draft: Draft): NostrEvent {
  written += 1;
  return sign(alice, { ...draft, content: `${written} ${draft.content ?? ''}` });
}

async function post(draft: Draft): Promise<NostrEvent> {
  const event = write(draft);
  expect(await client.publish(event)).toEqual(STORED);
  return event;
}

async function postMany(count: number, draft: Draft = {}): Promise<NostrEvent[]> {
  const events: NostrEvent[] = [];
  for (let at = 0; at < count; at += 1) events.push(await post(draft));
  return events;
}

const say = (draft: Draft) => client.publish(write(draft));
const topic = (...names: string[]) => names.map((name) => ['t', name]);
const served = async (filter: object = {}) => (await client.query(filter)).events.map((event) => event.id);

interface Totals {
  topic: string;
  events: number;
  bytes: number;
  requests: number;
  request_bytes: number;
}
const COLUMNS = 'events, bytes, requests, request_bytes';

/** The totals beside what is really served. */
async function totals() {
  const { pool } = relay.database;
  const kept = await pool.query<Totals>(
    `SELECT '' AS topic, ${COLUMNS} FROM community_totals WHERE community = $1
     UNION ALL (SELECT topic, ${COLUMNS} FROM topic_totals WHERE community = $1 ORDER BY topic)`,
    [community],
  );
  const { rows } = await pool.query<{ payload: string }>(
    'SELECT payload FROM events WHERE community = $1 AND hidden IS NULL',
    [community],
  );
  const counted = new Map<string, Totals>();
  for (const { payload } of rows) {
    const event = JSON.parse(payload) as NostrEvent;
    const [bytes, request] = [Buffer.byteLength(payload), event.kind === 5 ? 1 : 0];
    for (const name of ['', ...topicsOf(event)]) {
      const before = counted.get(name) ?? { topic: name, events: 0, bytes: 0, requests: 0, request_bytes: 0 };
      counted.set(name, {
        topic: name,
        events: before.events + 1,
        bytes: before.bytes + bytes,
        requests: before.requests + request,
        request_bytes: before.request_bytes + request * bytes,
      });
    }
  }
  return { kept: kept.rows, counted: [...counted.values()].sort((a, b) => (a.topic < b.topic ? -1 : 1)) };
}

async function expectExact(topicsThere: string[]): Promise<void> {
  const { kept, counted } = await totals();
  expect(kept).toEqual(counted);
  expect(kept.map((row) => row.topic)).toEqual(['', ...topicsThere]);
}

describe('totals', () => {
  it('stay exact through posts, replacements, deletions and sweeps; an empty topic has no row', async () => {
    await postMany(3, { tags: topic('a', 'b', 'a') });
    await post({ tags: topic('b'), content: '港' });
    await post({});
    await expectExact(['a', 'b']);

    const at = nowSeconds();
    const profile = (second: number, name: string) =>
      post({ kind: 0, created_at: at + second, tags: topic(name), content: name.repeat(5) });
    await profile(0, 'old');
    await profile(1, 'new');
    await expectExact(['a', 'b', 'new']);

    const doomed = await post({ tags: topic('b', 'doomed') });
    await expectExact(['a', 'b', 'doomed', 'new']);
    await post({ kind: 5, tags: [['e', doomed.id], ...topic('b', 'asked')] });
    await expectExact(['a', 'asked', 'b', 'new']);
    await set('deletion.keepRequestsDays', 30);
    await followed(({ settings }) => settings['deletion.keepRequestsDays'] === 30);
    const before = ahead;
    ahead += 31 * day * 1_000;
    await run(forgetRequests);
    ahead = before;
    await expectExact(['a', 'b', 'new']);

    await post({ tags: [...topic('brief'), ['expiration', `${nowSeconds() + 3_600}`]] });
    await expectExact(['a', 'b', 'brief', 'new']);
    ahead += 3_601_000;
    await run(expire);
    await expectExact(['a', 'b', 'new']);
  });

  it('stay exact when one batch has an event and its deletion, and when an event arrives twice', async () => {
    const at = nowSeconds();
    const note = sign(alice, { tags: topic('a') });
    const versions = [0, 1, 2].map((second) =>
      sign(alice, { kind: 30_000, created_at: at + second, tags: [['d', 'x'], ...topic(`v${second}`)] }),
    );
    const request = sign(alice, { kind: 5, tags: [['e', note.id]] });
    await Promise.all([note, note, ...versions, request].map((event) => client.publish(event)));
    await expectExact(['v2']);
  });

  it('have the deletion requests after the migration that counts them', async () => {
    await postMany(2, { tags: topic('a') });
    for (const name of ['a', 'b', 'ü'])
      await post({ kind: 5, tags: [['e', 'f'.repeat(64)], ...topic(name, 'a', 'a')], content: '削除' });
    const escapes = '\u0001 C:\\users \\u0000';
    await post({ kind: 5, tags: [['e', 'f'.repeat(64)], ...topic('b')], content: escapes });
    // Not text for PostgreSQL: it is left out, and does not stop the migration.
    await post({
      kind: 5,
      tags: [
        ['e', 'e'.repeat(64)],
        ['x', '\u0000'],
      ],
      content: '',
    });
    await expectExact(['a', 'b', 'ü']);
    const { kept } = await totals();
    const { pool } = relay.database;
    const migration = await readFile(
      new URL('../../migrations/000036-requests-beside-the-limits.sql', import.meta.url),
      'utf8',
    );
    await pool.query('UPDATE community_totals SET requests = 0, request_bytes = 0');
    await pool.query('UPDATE topic_totals SET requests = 0, request_bytes = 0');
    for (const update of migration.match(/^UPDATE [\s\S]*?;$/gm)!) await pool.query(update);
    expect((await totals()).kept).toEqual(kept);
  });

  it('are right again when requests leave that were stored before they were counted', async () => {
    await postMany(3, { tags: topic('a') });
    const request = { kind: 5, tags: [['e', 'f'.repeat(64)], ...topic('a')] };
    await postMany(12, request);
    const { pool } = relay.database;
    await pool.query('UPDATE community_totals SET requests = 0, request_bytes = 0');
    await pool.query('UPDATE topic_totals SET requests = 0, request_bytes = 0');
    await postMany(2, request);
    await set('deletion.keepRequestsDays', 30);
    await followed(({ settings }) => settings['deletion.keepRequestsDays'] === 30);
    const before = ahead;
    ahead += 31 * day * 1_000;
    await run(forgetRequests);
    ahead = before;
    await expectExact(['a']);
  });

  it('are filled by the migration from existing events', async () => {
    await postMany(2, { tags: topic('a', 'b') });
    const at = nowSeconds();
    await post({ kind: 0, created_at: at, tags: topic('gone') });
    await post({ kind: 0, created_at: at + 1, tags: topic('a') });
    const { kept } = await totals();
    const { pool } = relay.database;
    const migration = await readFile(
      new URL('../../migrations/000004-capacity.sql', import.meta.url),
      'utf8',
    );
    await pool.query('DELETE FROM topic_totals');
    await pool.query(migration.match(/^INSERT INTO topic_totals[\s\S]*?;/m)![0]);
    expect((await totals()).kept).toEqual(kept);
    await expectExact(['a', 'b']);
  });
});

describe('a community that is short of space', () => {
  it('first refuses backfill, then low-priority topics; each ends five points lower', async () => {
    await setTopic('main', 1, {});
    await setLimit('capacity.maxEvents', 20);
    const old = () => ({ created_at: nowSeconds() - day - 60, tags: topic('main') });
    await postMany(17);
    await check(0);
    await post(old());
    await check(1);
    expect(await say(old())).toEqual(OLD);
    await post({});
    await check(2);
    expect(await say(old())).toEqual(OLD);
    expect(await say({})).toEqual(LOW);
    expect(await say({ tags: topic('other') })).toEqual(LOW);
    expect(await say({ kind: 20_001 })).toEqual(STORED);
    const metrics = await relay.node.metrics.registry.metrics();
    expect(metrics).toMatch(/^minato_capacity_step 2$/m);
    expect(metrics).toMatch(/^minato_capacity_scopes\{scope="whole",step="2"\} 1$/m);
    expect(metrics).toMatch(/^minato_capacity_scopes\{scope="topic",step="1"\} 0$/m);

    await setLimit('capacity.maxEvents', 22);
    expect(await say({ kind: 0 })).toEqual(STORED);
    await check(2);
    expect(await say({ tags: topic('main', 'other') })).toEqual(STORED);
    // 21 of 23 is not below the mark yet, 21 of 24 is.
    await setLimit('capacity.maxEvents', 23);
    await check(2);
    await setLimit('capacity.maxEvents', 24);
    await check(1);
    expect(await say({ tags: topic('other') })).toEqual(STORED);
    expect(await say(old())).toEqual(OLD);
    await setLimit('capacity.maxEvents', 27);
    await check(0);
    expect(await say(old())).toEqual(STORED);
  });

  it('in the last step loses only its oldest regular events, and no more than needed', async () => {
    await setTopic('main', 1, {});
    const profile = await post({ kind: 0 });
    const request = await post({ kind: 5, tags: [['e', 'f'.repeat(64)]] });
    const list = await post({ kind: 30_000, tags: [['d', 'x']] });
    const at = nowSeconds();
    // Oldest by arrival, not by created_at.
    const notes: NostrEvent[] = [];
    for (let n = 0; n < 18; n += 1)
      notes.push(await post({ created_at: at - n, tags: topic('main', `n${n}`) }));
    await setLimit('capacity.maxEvents', 20);
    const topics = ['main', 'n0', 'n1', 'n2'].map((name, at) => ({ topic: name, rows: at === 0 ? 3 : 1 }));
    expect(await dryRunJob(capacity, contextOf())).toEqual([
      { reason: 'capacity', class: 'regular', rows: 3, topics },
    ]);
    expect(await check(1)).toBe(3);

    const left = [profile, request, list, ...notes.slice(3)].map((event) => event.id);
    expect((await served()).sort()).toEqual(left.sort());
    const { rows } = await relay.database.pool.query(
      `SELECT encode(event_id, 'hex') AS id, reason FROM events_outbox WHERE community = $1 AND op = 'delete'
       ORDER BY seq`,
      [community],
    );
    expect(rows).toEqual(notes.slice(0, 3).map(({ id }) => ({ id, reason: 'capacity' })));
    const { kept, counted } = await totals();
    expect(kept).toEqual(counted);
    expect(kept.map((row) => row.topic)).not.toContain('n0');
    const again = await eventually('the id is forgotten', async () => {
      const answer = await client.publish(notes[0]!);
      return answer[0] ? undefined : answer;
    });
    expect(again[1]).toBe('blocked: purged to make room');
    expect(await run(capacity)).toEqual({ changed: 0, more: false });
  });

  it('is measured in bytes as well', async () => {
    await postMany(10, { content: 'x'.repeat(1_000) });
    const { bytes } = (await totals()).kept[0]!;
    await setLimit('capacity.maxBytes', bytes);
    // Two of ten: one would not have been enough, and 80 % is below every mark.
    expect(await check(0)).toBe(2);
    expect((await totals()).kept[0]!.bytes).toBeLessThan(bytes * 0.9);
  });

  it('purges in bounded batches, and continues in the next run', async () => {
    const notes = await postMany(12);
    await setLimit('capacity.maxEvents', 6);
    const bounds = { rows: 2, batches: 2 };
    expect(await run(capacity, bounds)).toEqual({ changed: 4, more: true });
    await followed((now) => now.capacity.step === 3);
    expect(await run(capacity, bounds)).toEqual({ changed: 3, more: false });
    expect((await served()).sort()).toEqual(
      notes
        .slice(7)
        .map((note) => note.id)
        .sort(),
    );
  });

  it('searches its oldest from the last known oldest on, over a bounded range at a time', async () => {
    const cursor = async () =>
      (
        await relay.database.pool.query<{ value: string }>('SELECT value FROM node_state WHERE key = $1', [
          `capacity_cursor_${community}`,
        ])
      ).rows.map(({ value }) => Number(value))[0];
    const oldest = async () =>
      (
        await relay.database.pool.query<{ seq: number }>(
          'SELECT min(seq) AS seq FROM events WHERE community = $1 AND hidden IS NULL',
          [community],
        )
      ).rows[0]!.seq;
    const bounds = { rows: 2, batches: 2 };
    await postMany(8);
    // As if other communities had posted meanwhile.
    const { rows } = await relay.database.pool.query<{ last_seq: number }>(
      'UPDATE lane_state SET last_seq = (last_seq / 1000000) * 1000000 + 900000 RETURNING last_seq',
    );
    const far = await postMany(4);
    expect(await oldest()).toBeLessThan(rows[0]!.last_seq - 2 * WALK_SEQS_MAX);
    await setLimit('capacity.maxEvents', 5);
    expect(await dryRunJob(capacity, contextOf(bounds)), 'all of it, by however many runs').toMatchObject([
      { rows: 8 },
    ]);
    expect(await cursor()).toBe(0);
    expect(await run(capacity, bounds)).toEqual({ changed: 4, more: true });
    const second = await cursor();
    expect(second).toBeGreaterThan(0);
    expect(second).toBeLessThan(await oldest());
    expect(await run(capacity, bounds)).toEqual({ changed: 4, more: false });
    expect(await run(capacity, bounds)).toEqual({ changed: 0, more: false });
    expect((await served()).sort()).toEqual(far.map(({ id }) => id).sort());
    await setLimit('capacity.maxEvents', 3);
    expect(await run(capacity, bounds)).toMatchObject({ changed: 2 });
    expect(await cursor()).toBeGreaterThanOrEqual(rows[0]!.last_seq);
    expect((await served()).sort()).toEqual(
      far
        .slice(2)
        .map(({ id }) => id)
        .sort(),
    );
  });

  it('answers a repeat as a duplicate, even of an old event; unknown old events are refused', async () => {
    const [old] = await postMany(20, { created_at: nowSeconds() - 2 * 86_400 });
    const gone = await post({});
    await post({ kind: 5, tags: [['e', gone.id]] });
    await setLimit('capacity.maxEvents', 21);
    await check(2);
    const duplicate = [true, 'duplicate: already have this event'];
    expect(await client.publish(old!)).toEqual(duplicate);
    // A node that has just started has no ids in its cache.
    const fresh = await startTestNode({
      on: relay.test,
      env: { MINATO_PUBLIC_URL: 'wss://relay.test' },
      roles: WITHOUT_JOBS,
    });
    await followed(({ capacity: now }) => now.step === 2, fresh);
    const there = await RawClient.connect(`${fresh.url}/c/${slug}`);
    expect(await there.publish(old!)).toEqual(duplicate);
    expect(await there.publish(gone)).toEqual(LOW);
    expect(await there.publish(write({}))).toEqual(LOW);
    const mark = sign(alice, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    expect(await there.publish(mark)).toEqual(STORED);
    expect(await there.publish(old!)).toEqual(OLD);
    await there.close();
    await fresh.close();
  });

  it('with nothing left to purge stays in its step and reports that nothing is left to do', async () => {
    await post({ kind: 0 });
    await post({ kind: 30_000, tags: [['d', 'x']] });
    await setLimit('capacity.maxEvents', 2);
    expect(await check(3)).toBe(0);
    expect(await run(capacity)).toEqual({ changed: 0, more: false });
    expect(await served()).toHaveLength(2);
    await setLimit('capacity.maxEvents', 0);
    await check(0);
  });

  it('has room for its posts, however many deletion requests it keeps', async () => {
    await setLimit('capacity.maxEvents', 10);
    for (let n = 0; n < 12; n += 1) await post({ kind: 5, tags: [['e', `${n}`.padStart(64, 'f')]] });
    const notes = await postMany(6);
    expect(await check(0)).toBe(0);
    expect(await served({ kinds: [1] })).toHaveLength(notes.length);
    expect(await served({ kinds: [5] })).toHaveLength(12);
  });

  it('finds its oldest along the index on seq, and those of a topic by its tag', async () => {
    const session = await relay.database.connect({ indexWalks: true });
    const plan = async (text: string, ...range: (number | string)[]) => {
      const values = [community, 500, ...range];
      const { rows } = await session.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${text}`, values);
      return rows.map((row) => row['QUERY PLAN']).join('\n');
    };
    const whole = await plan(OLDEST_SQL, 0, 1_000);
    expect(whole).toMatch(/Index Scan using \w+_seq_ingested_at_keep_idx/);
    expect(whole).not.toMatch(/\bSort {2}\(cost|Seq Scan/);
    expect(await plan(OLDEST_OF_TOPIC_SQL, 'a')).not.toMatch(/Seq Scan/);
    await session.end();
  });

  it('that has refused posts of low priority for an hour makes room instead', async () => {
    const notes = await postMany(19);
    await setLimit('capacity.maxEvents', 20);
    await check(2);
    expect(await say({})).toEqual(LOW);
    ahead += 3_000_000;
    await check(2);
    expect(await served()).toHaveLength(19);
    ahead += 700_000;
    await check(1);
    expect((await served()).sort()).toEqual(
      notes
        .slice(2)
        .map(({ id }) => id)
        .sort(),
    );
    expect(await say({})).toEqual(STORED);
    ahead -= 3_700_000;
  });

  it('does not affect another community', async () => {
    await postMany(2);
    await setLimit('capacity.maxEvents', 2);
    const other = await RawClient.connect(relay.url);
    expect(await other.publish(sign(alice, { created_at: 1_000 }))).toEqual(STORED);
    await run(capacity);
    expect(await other.publish(sign(alice, { created_at: 1_001 }))).toEqual(STORED);
    expect((await other.query({ authors: [alice.pubkey] })).events).toHaveLength(2);
    await other.close();
  });
});

describe('a topic with its own limits', () => {
  const old = (name: string) => ({ created_at: nowSeconds() - 90_000, tags: topic(name) });
  const chatNow = async () => (await served({ '#t': ['chat'] })).sort();
  const newest = (notes: readonly NostrEvent[], count: number) =>
    notes
      .slice(-count)
      .map(({ id }) => id)
      .sort();
  const sizeOf = async (name: string) =>
    (
      await relay.database.pool.query<{ events: number }>(
        'SELECT events FROM topic_totals WHERE community = $1 AND topic = $2',
        [community, name],
      )
    ).rows[0]?.events ?? 0;

  it('near its limit refuses backfill; at its limit purges its oldest and accepts posts', async () => {
    await setTopic('chat', 5, { maxEvents: 20 });
    const elsewhere = await post({ tags: topic('other') });
    const notes = await postMany(18, { tags: topic('chat') });
    await check(0, { chat: 1 });
    expect(await say(old('chat'))).toEqual(OLD);
    expect(await say(old('other'))).toEqual(STORED);
    notes.push(await post({ tags: topic('chat') }));
    await check(0, { chat: 1 });
    // Far beyond the limit, and ten days later too: every post is accepted, and the oldest are purged.
    notes.push(...(await postMany(15, { tags: topic('chat', 'other') })));
    ahead += 10 * day * 1_000;
    notes.push(...(await postMany(15, { created_at: nowSeconds() + 10 * day, tags: topic('chat') })));
    await eventually('there is room', async () => ((await sizeOf('chat')) < 20 ? true : undefined));
    await run(capacity);
    const left = await sizeOf('chat');
    expect(left).toBeGreaterThan(15);
    expect(await chatNow()).toEqual(newest(notes, left));
    const { rows } = await relay.database.pool.query(
      `SELECT DISTINCT reason FROM events_outbox WHERE community = $1 AND op = 'delete'`,
      [community],
    );
    expect(rows).toEqual([{ reason: 'capacity' }]);
    expect(await served({ ids: [elsewhere.id] })).toEqual([elsewhere.id]);
    ahead -= 10 * day * 1_000;

    // Removing the limits ends the step.
    await setTopic('chat', 5, {});
    await check(0);
    expect(await say(old('chat'))).toEqual(STORED);
  });

  it('makes room by the job where the writers have not, and the job reports what it changed', async () => {
    const notes = await postMany(20, { tags: topic('chat') });
    await setTopic('chat', 0, { maxEvents: 20 });
    expect(await dryRunJob(capacity, contextOf())).toMatchObject([{ reason: 'capacity', rows: 3 }]);
    const lines: string[] = [];
    await runJob(capacity, { ...contextOf(), say: (line: string) => lines.push(line) });
    expect(lines).toEqual([
      `community ${slug}, topic "chat": step 0 → 1: backfill is refused, 85 % of its limit`,
      `community ${slug}, topic "chat": 3 of the oldest events purged`,
    ]);
    expect(await chatNow()).toEqual(newest(notes, 17));
    const { stdout } = await runCli(['jobs', 'run', 'capacity'], { DATABASE_URL: relay.test.url });
    expect(stdout).toMatch(/^capacity +done, 0 changed\n$/);
    await setTopic('chat', 0, { maxEvents: 15 });
    const ran = await runCli(['jobs', 'run', 'capacity'], { DATABASE_URL: relay.test.url });
    expect(ran.stdout).toMatch(/^capacity +done, 4 changed\n +community .*, topic "chat": 4 of the oldest/);
  });

  it('of one event keeps the newest one', async () => {
    await setTopic('chat', 0, { maxEvents: 1 });
    await post({ tags: topic('chat') });
    const last = await post({ tags: topic('chat') });
    await eventually('there is room', async () => ((await sizeOf('chat')) === 1 ? true : undefined));
    await run(capacity);
    expect(await chatNow()).toEqual([last.id]);
    await post({ tags: topic('chat') });
  });

  it('has room for its posts, however many deletion requests it keeps', async () => {
    await setTopic('chat', 0, { maxEvents: 5 });
    for (let n = 0; n < 12; n += 1)
      await post({ kind: 5, tags: [['e', `${n}`.padStart(64, 'f')], ...topic('chat')] });
    const notes = await postMany(3, { tags: topic('chat') });
    await run(capacity);
    expect(await served({ kinds: [1], '#t': ['chat'] })).toHaveLength(notes.length);
    expect(await served({ kinds: [5], '#t': ['chat'] })).toHaveLength(12);
    const { capacity: now } = relay.node.communities.get(community)!;
    expect([now.topics.get('chat'), now.full.has('chat')]).toEqual([undefined, false]);
  });

  it('full of events that are never purged accepts only deletions and profiles', async () => {
    await setTopic('chat', 0, { maxEvents: 3 });
    const lists: NostrEvent[] = [];
    for (const d of ['a', 'b', 'c'])
      lists.push(await post({ kind: 30_000, tags: [['d', d], ...topic('chat')] }));
    const doomed = await post({ tags: topic('chat') });
    await followed((now) => now.capacity.full.has('chat'));
    await eventually('the post is purged', async () => ((await sizeOf('chat')) === 3 ? true : undefined));
    expect(await served({ ids: [doomed.id] })).toEqual([]);
    expect((await chatNow()).length, 'current versions stay (I11)').toBe(3);
    expect(await say({ tags: topic('chat') })).toEqual(FULL);
    expect(await say({ tags: topic('chat', 'other') })).toEqual(FULL);
    expect(await say({ kind: 30_000, tags: [['d', 'd'], ...topic('chat')] })).toEqual(FULL);
    expect(await say({ tags: topic('other') })).toEqual(STORED);
    await post({ kind: 5, tags: [['e', lists[0]!.id]] });
    await run(capacity);
    await followed((now) => !now.capacity.full.has('chat'));
    expect(await say({ tags: topic('chat') })).toEqual(STORED);
  });

  it('overshoots by some batches of the lane in a burst, and accepts every post of the burst', async () => {
    await setTopic('chat', 0, { maxEvents: 20 });
    const { store } = relay.node;
    const count = 20_000;
    let most = 0;
    let over = false;
    const watching = (async () => {
      while (!over) most = Math.max(most, await sizeOf('chat'));
    })();
    onTestFinished(() => {
      over = true;
      return watching;
    });
    // Signatures are not tested here.
    const burst = Array.from({ length: count }, (_, at) => {
      const tags = topic('chat');
      const id = at.toString(16).padStart(8, '0').repeat(8);
      const event = {
        id,
        pubkey: alice.pubkey,
        created_at: 1_700_000_000 + at,
        kind: 1,
        tags,
        content: '',
        sig: '',
      };
      return { community, event, payload: JSON.stringify(event) };
    });
    const seenAnswers = new Set<unknown>();
    for (let at = 0; at < count; at += 5_000) {
      const part = burst.slice(at, at + 5_000);
      for (const outcome of await Promise.all(part.map((one) => store.submit(one)))) seenAnswers.add(outcome);
    }
    await eventually('there is room', async () => ((await sizeOf('chat')) < 20 ? true : undefined));
    over = true;
    await watching;
    expect([...seenAnswers]).toEqual(['stored']);
    expect(most, 'the purge keeps up with the posts').toBeLessThan(count / 2);
    const { rows } = await relay.database.pool.query<{ upserts: number; deletes: number }>(
      `SELECT count(*) FILTER (WHERE op = 'upsert') AS upserts,
       count(*) FILTER (WHERE reason = 'capacity') AS deletes
       FROM events_outbox WHERE community = $1`,
      [community],
    );
    expect(rows[0]!.upserts).toBe(count);
    expect(rows[0]!.deletes).toBe(count - (await sizeOf('chat')));
    await expectExact(['chat']);
  });
});

describe('an event that arrives late', () => {
  const aged = (seconds: number, draft: Draft = {}) => ({
    tags: topic('news'),
    ...draft,
    created_at: Math.floor((Date.now() + ahead) / 1_000) - seconds,
  });
  const LATE = (seconds: number) => [
    false,
    `invalid: created too long ago for topic news, at most ${seconds} s`,
  ];

  it('is refused by the delay of its topic, unless it is a deletion, profile or repeat', async () => {
    await setTopic('news', 0, {});
    const before = await post(aged(7_200));
    await setTopic('news', 0, { maxDelaySeconds: 3_600 });
    expect(await say(aged(60))).toEqual(STORED);
    expect(await say(aged(3_700))).toEqual(LATE(3_600));
    expect(await say(aged(3_700, { tags: topic('news', 'other') }))).toEqual(LATE(3_600));
    expect(await say(aged(3_700, { tags: topic('other') }))).toEqual(STORED);
    expect(await client.publish(before), 'it is here').toEqual([true, 'duplicate: already have this event']);
    expect(await say(aged(day, { kind: 0 }))).toEqual(STORED);
    expect(await say(aged(day, { kind: 30_000, tags: [['d', 'x'], ...topic('news')] }))).toEqual(STORED);
    expect(await say(aged(3_700, { kind: 5, tags: [['e', before.id], ...topic('news')] }))).toEqual(STORED);
    expect(await served({ ids: [before.id] })).toEqual([]);
    await setTopic('news', 0, { maxDelaySeconds: 3_600, allowBackfill: true });
    expect(await say(aged(400 * day))).toEqual(STORED);
    await setTopic('news', 0, { allowBackfill: false });
    expect(await say(aged(day - 60))).toEqual(STORED);
    expect(await say(aged(day + 60))).toEqual(LATE(day));
  });

  it('is refused in an import as well', async () => {
    await setTopic('news', 0, { maxDelaySeconds: 3_600 });
    // The command uses the real clock.
    const lines = [60, 3_700]
      .map((seconds) => write({ tags: topic('news'), created_at: nowSeconds() - seconds }))
      .map((event) => `${JSON.stringify(event)}\n`)
      .join('');
    const env = { DATABASE_URL: relay.test.url };
    const { code, stdout, stderr } = await runCli(['import', '-c', slug], env, lines);
    expect(code).toBe(2);
    expect(`${stdout}${stderr}`).toContain('created too long ago for topic news');
    expect(await served({ '#t': ['news'] })).toHaveLength(1);
  });
});

describe('a consumer of the outbox with a large backlog', () => {
  const CATCHING_UP = 'restricted: the node is catching up: ';
  const waited = async (seconds: number) => {
    const { pool } = relay.database;
    const read = {
      text: 'SELECT max(seq) AS seq FROM events_outbox WHERE community = $1',
      values: [community],
    };
    const { seq } = (await pool.query<{ seq: number }>(read)).rows[0]!;
    await pool.query(
      `INSERT INTO consumer_offsets (consumer, last_seq, generation, updated_at, holder)
       VALUES ('slow', $1, 1, 0, gen_random_uuid())
       ON CONFLICT (consumer) DO UPDATE SET last_seq = excluded.last_seq, paused_at = NULL`,
      [seq - 1],
    );
    await pool.query('UPDATE events_outbox SET ingested_at = $2 WHERE seq = $1', [
      seq,
      Date.now() + ahead - seconds * 1_000,
    ]);
  };
  const lagging = async (step: number) => {
    await run(capacity);
    await followed((now) => now.capacity.lag === step);
  };
  afterAll(() => relay.database.pool.query(`DELETE FROM consumer_offsets WHERE consumer = 'slow'`));

  it('stops backfill at the limit and low-priority posts at twice the limit', async () => {
    await setTopic('main', 1, {});
    const old = { created_at: nowSeconds() - 90_000, tags: topic('main') };
    await post(old);
    await waited(299);
    await lagging(0);
    await waited(301);
    await lagging(1);
    expect(await say(old)).toEqual([
      false,
      `${CATCHING_UP}events older than 86400 seconds are not taken now`,
    ]);
    await post({ tags: topic('chat') });
    await waited(601);
    await lagging(2);
    expect(await relay.node.metrics.registry.metrics()).toMatch(/^minato_capacity_step 2$/m);
    expect(await say({ tags: topic('chat') })).toEqual([
      false,
      `${CATCHING_UP}only topics of higher priority take posts now`,
    ]);
    const { stdout } = await runCli(['doctor'], { DATABASE_URL: relay.test.url, MINATO_PORT: '0' });
    expect(stdout).toContain(
      `warn community ${slug}: a consumer of the outbox is far behind, ` +
        'step 2 of 2: posts of low priority are refused, since 20',
    );
    await post({ tags: topic('main') });
    await waited(1);
    await lagging(0);
    await post(old);
  });

  it('changes nothing while it is paused or without a limit', async () => {
    await post({});
    await waited(10_000);
    await lagging(2);
    await set('capacity.lagSecondsMax', 0);
    await followed(({ settings }) => settings['capacity.lagSecondsMax'] === 0);
    await lagging(0);
    await set('capacity.lagSecondsMax', 300);
    await followed(({ settings }) => settings['capacity.lagSecondsMax'] === 300);
    await lagging(2);
    await relay.database.pool.query(`UPDATE consumer_offsets SET paused_at = 1 WHERE consumer = 'slow'`);
    await lagging(0);
  });
});

describe('a step', () => {
  it('takes effect on a second instance', async () => {
    const second = await startTestNode({ on: relay.test, roles: WITHOUT_JOBS });
    const there = await RawClient.connect(`${second.url}/c/${slug}`);
    await postMany(19);
    await setLimit('capacity.maxEvents', 20);
    await check(2);
    await followed(({ capacity: now }) => highestStep(now) === 2, second);
    expect(await there.publish(sign(alice, {}))).toEqual(LOW);
    expect(await second.node.metrics.registry.metrics()).toMatch(/^minato_capacity_step [23]$/m);
    await there.close();
    await second.close();
  });

  it('is shown by doctor, with what to do', async () => {
    await setTopic('chat "a"', 0, { maxBytes: 100 });
    await setTopic('calm', 0, { maxEvents: 50 });
    await postMany(19);
    await post({ kind: 30_000, tags: [['d', 'x'], ...topic('chat "a"')] });
    await setLimit('capacity.maxEvents', 21);
    await check(2, { 'chat "a"': 3 });
    const { stdout } = await runCli(['doctor'], { DATABASE_URL: relay.test.url, MINATO_PORT: '0' });
    expect(stdout).toContain(
      `warn community ${slug}: space is short, ` +
        'step 2 of 3: posts of low priority are refused; 20 of 21 events, since 20',
    );
    expect(stdout).toMatch(
      new RegExp(
        `^warn community ${slug}, topic "chat .*: space is short, step 3 of 3: it takes no posts, and its`,
        'm',
      ),
    );
    expect(stdout).toContain('→ Raise capacity.maxEvents or capacity.maxBytes');
    expect(stdout, 'without a limit as well').toContain(
      'ok   community default: space, step 0 of 3: all is taken in; no limit is set\n',
    );
    expect(stdout).toContain(
      `ok   community ${slug}, topic "calm": space, step 0 of 3: all is taken in; 0 of 50 events\n`,
    );
    expect(stdout).toContain(`--max-events N --max-bytes N -c ${slug}`);
    await setLimit('capacity.maxEvents', 0);
    await check(0, { 'chat "a"': 3 });
  });
});
