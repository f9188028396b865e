/**
 * The jobs on a real PostgreSQL: what they purge, what they keep, what they announce, and that they can stop
 * anywhere. The tests move the clock and backdate rows; nothing sleeps.
 */
import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { erase } from '../../src/erasure/jobs.js';
import { expire } from '../../src/events/jobs/expire.js';
import { forgetDedupeRows } from '../../src/events/jobs/forget-dedupe.js';
import { forgetRequests } from '../../src/events/jobs/forget-requests.js';
import { purgeDeletedEvents } from '../../src/events/jobs/purge-deleted.js';
import * as events from '../../src/events/postgres/erased-events.js';
import { NEXT_OF_SQL, SERVED_OF_SQL } from '../../src/events/postgres/selections.js';
import * as sweeps from '../../src/events/postgres/sweeps.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { isRefusal, words } from '../../src/events/rules/reply.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type Job, type JobContext } from '../../src/jobs/job.js';
import { lockScheduler, readJobRuns, SCHEDULER_SCHEMA } from '../../src/jobs/job-runs.sql.js';
import { JOBS } from '../../src/jobs/list.js';
import { dryRunJob, runJob } from '../../src/jobs/run.js';
import { type Schedule, startSchedule } from '../../src/jobs/schedule.js';
import { Tally, tallied } from '../../src/jobs/tally.js';
import { forgetLimits, forgetQuotas, freeJobs, partitions, trimLiveBus } from '../../src/jobs/upkeep.js';
import { PostgresLimits } from '../../src/limits/postgres.js';
import { type Config, readConfig } from '../../src/node/config.js';
import { createLog } from '../../src/node/log.js';
import { createMetrics } from '../../src/node/metrics.js';
import { startWriter, type Writer } from '../../src/node/writer.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { eventually, runCli } from '../support/cli.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

let test: TestDatabase;
let database: Database;
let writer: Writer;
let client: Client;
let context: JobContext;
let aheadMs = 0;
let alice: Author;
let bob: Author;

const now = () => Date.now() + aheadMs;
let config: Config;
const log = createLog('silent');

beforeAll(async () => {
  test = await createTestDatabase();
  config = readConfig({
    MINATO_TOPIC_MODE: 'open',
    MINATO_PUBLIC_URL: 'wss://relay.test/',
    MINATO_DATA_DIR: test.folder,
  });
  database = openDatabase(test.connection);
  writer = await startWriter({ database, config, log, now });
  client = await database.connect();
  const { store, communities, erasing } = writer;
  context = {
    database,
    store,
    communities,
    erasing,
    now,
    signal: new AbortController().signal,
    bounds: BOUNDS,
  };
});
afterAll(async () => {
  await client?.end();
  await writer?.close();
  await database?.close();
  await test?.drop();
});
beforeEach(() => {
  alice = newAuthor();
  bob = newAuthor();
});
afterEach(() => {
  aheadMs = 0;
});

async function post(event: NostrEvent, slug = 'default'): Promise<string> {
  const community = await eventually('the community', () => writer.communities.find(undefined, slug));
  const outcome = await writer.admission.admit(community, event);
  return isRefusal(outcome) ? words(outcome) : outcome;
}

async function postAll(...events: NostrEvent[]): Promise<void> {
  for (const event of events) expect(await post(event)).toBe('stored');
}

const run = async (job: Job, changed: Partial<JobContext> = {}) => {
  const result = await runJob(job, { ...context, ...changed });
  if (result === 'busy') throw new Error('another job is running');
  return result;
};
const toEnd = async (
  job: Job,
  changed: Partial<JobContext> = {},
): Promise<{ runs: number; taken: number }> => {
  let taken = 0;
  for (let runs = 1; runs < 500; runs += 1) {
    const result = await run(job, changed);
    taken += result.changed;
    if (!result.more) return { runs, taken };
  }
  throw new Error('the job never ends');
};

const bytes = (...events: NostrEvent[]) => events.map((event) => Buffer.from(event.id, 'hex'));
async function rows<T extends object>(text: string, values: unknown[] = []): Promise<T[]> {
  return (await client.query<T>(text, values)).rows;
}
const stored = async (...events: NostrEvent[]) =>
  (
    await rows<{ id: string }>(`SELECT encode(id, 'hex') AS id FROM events WHERE id = ANY ($1)`, [
      bytes(...events),
    ])
  ).map(({ id }) => id);
const dedupe = (...events: NostrEvent[]) =>
  rows<{ hidden: number | null; gone_at: number | null }>(
    'SELECT hidden, gone_at FROM event_dedupe WHERE event_id = ANY ($1)',
    [bytes(...events)],
  );
const deletes = async (...events: NostrEvent[]) =>
  (
    await rows<{ reason: string }>(
      `SELECT reason FROM events_outbox WHERE op = 'delete' AND event_id = ANY ($1) ORDER BY seq`,
      [bytes(...events)],
    )
  ).map(({ reason }) => reason);
const lastSeq = async () =>
  (await rows<{ last_seq: number }>('SELECT last_seq FROM lane_state'))[0]!.last_seq;

const expiring = (author: Author, draft: { kind?: number; content?: string } = {}) =>
  sign(author, {
    ...draft,
    tags: [
      ['expiration', String(nowSeconds() + 100)],
      ['t', 'sea'],
    ],
  });

describe('expire', () => {
  it('announces expired events once, with the reason, and purges them', async () => {
    const note = expiring(alice);
    const profile = expiring(alice, { kind: 0 });
    const staying = sign(alice, { tags: [['t', 'sea']] });
    await postAll(note, profile, staying);
    expect(await run(expire)).toEqual({ changed: 0, more: false });
    aheadMs = 100_000;
    expect(await run(expire)).toEqual({ changed: 2, more: false });
    expect(await stored(note, profile, staying)).toEqual([staying.id]);
    expect(await deletes(note, profile, staying)).toEqual(['expiration', 'expiration']);
    for (const { hidden, gone_at } of await dedupe(note, profile)) {
      expect(hidden).toBe(3);
      expect(gone_at).toBeGreaterThan(Date.now());
    }
    const tags = await rows(
      'SELECT t.seq FROM event_tags t JOIN event_dedupe d USING (seq) WHERE d.event_id = ANY ($1)',
      [bytes(note, profile)],
    );
    expect(tags).toEqual([]);
    const head = await lastSeq();
    expect(await run(expire)).toEqual({ changed: 0, more: false });
    expect(await lastSeq()).toBe(head);
    expect(await post(note)).toContain('expired');
  });

  it('does a bounded part in each run and continues in the next', async () => {
    const notes = Array.from({ length: 7 }, (_, at) => expiring(alice, { content: String(at) }));
    await postAll(...notes);
    aheadMs = 101_000;
    const bounds = { rows: 2, batches: 2 };
    expect(await run(expire, { bounds })).toEqual({ changed: 4, more: true });
    expect(await stored(...notes)).toHaveLength(3);
    expect(await run(expire, { bounds })).toEqual({ changed: 3, more: true });
    expect(await run(expire, { bounds })).toEqual({ changed: 0, more: false });
    expect(await deletes(...notes)).toHaveLength(7);
  });

  it('limits a batch of large events by bytes, with at least one event', async () => {
    const notes = Array.from({ length: 3 }, (_, at) =>
      expiring(alice, { content: String(at).repeat(60_000) }),
    );
    await postAll(...notes);
    await client.query(
      `UPDATE events SET payload = jsonb_set(payload::jsonb,
       '{content}', to_jsonb(repeat('x', 5000000)))::text
       WHERE id = ANY ($1)`,
      [bytes(...notes)],
    );
    aheadMs = 101_000;
    expect(await run(expire, { bounds: { rows: 500, batches: 1 } })).toEqual({ changed: 1, more: true });
    expect(await run(expire)).toEqual({ changed: 2, more: false });
  });

  it('stops between two batches when the node stops', async () => {
    const notes = [expiring(alice), expiring(bob)];
    await postAll(...notes);
    aheadMs = 101_000;
    expect(await run(expire, { signal: AbortSignal.abort() })).toEqual({ changed: 0, more: true });
    expect(await stored(...notes)).toHaveLength(2);
    expect(await run(expire)).toEqual({ changed: 2, more: false });
  });
});

const hideLongAgo = (days: number, ...events: NostrEvent[]) =>
  client.query('UPDATE events SET hidden_at = $1 WHERE id = ANY ($2)', [
    now() - days * DAY_MS,
    bytes(...events),
  ]);

describe('purge-deleted', () => {
  it('purges a deleted event after its audit time; tombstone and dedupe row keep it refused', async () => {
    const note = sign(alice, { content: 'private' });
    const request = sign(alice, { kind: 5, tags: [['e', note.id]] });
    await postAll(note, request);
    await hideLongAgo(29, note);
    expect(await run(purgeDeletedEvents)).toEqual({ changed: 0, more: false });
    expect(await stored(note)).toEqual([note.id]);
    await hideLongAgo(30, note);
    const head = await lastSeq();
    expect(await run(purgeDeletedEvents)).toEqual({ changed: 1, more: false });
    expect(await stored(note, request)).toEqual([request.id]);
    expect(await lastSeq()).toBe(head);
    expect(await deletes(note)).toEqual(['nip09']);
    expect(await rows('SELECT 1 FROM deletion_tombstones WHERE target = $1', bytes(note))).toHaveLength(1);
    expect(await dedupe(note)).toEqual([{ hidden: 2, gone_at: expect.any(Number) }]);
    expect(await post(note)).toBe('blocked: deleted by its author');
  });

  it('uses the audit time of each community', async () => {
    const id = await addCommunity(database.pool, 'strict', undefined, now());
    await writeSetting(database.pool, id, 'deletion.auditDays', 1, now());
    await writeSetting(database.pool, id, 'topic.mode', 'open', now());
    await eventually(
      'the settings',
      () => writer.communities.get(id)?.settings['topic.mode'] === 'open' || undefined,
    );
    const note = sign(alice);
    const request = sign(alice, { kind: 5, tags: [['e', note.id]] });
    for (const slug of ['default', 'strict']) for (const event of [note, request]) await post(event, slug);
    await hideLongAgo(2, note);
    expect(await run(purgeDeletedEvents)).toEqual({ changed: 1, more: false });
    expect(await rows('SELECT community FROM events WHERE id = $1', bytes(note))).toEqual([{ community: 1 }]);
  });

  it('reaches the last community, also with more communities than batches in a run', async () => {
    const notes = [sign(alice, { content: 'one' }), sign(alice, { content: 'two' })];
    for (const event of [...notes, sign(alice, { kind: 5, tags: notes.map(({ id }) => ['e', id]) })])
      expect(await post(event, 'strict')).toBe('stored');
    await hideLongAgo(31, ...notes);
    expect((await toEnd(purgeDeletedEvents, { bounds: { rows: 1, batches: 1 } })).taken).toBe(2);
    expect(await stored(...notes)).toEqual([]);
  });
});

/** Events of every kind of one author, who then vanishes. */
async function lifeOf(author: Author, other: Author) {
  const at = nowSeconds() - 500;
  const note = sign(author, { created_at: at, tags: [['t', 'sea']] });
  const oldProfile = sign(author, { kind: 0, created_at: at });
  const profile = sign(author, { kind: 0, created_at: at + 1 });
  const regretted = sign(author, { created_at: at, content: 'regretted' });
  const request = sign(author, { kind: 5, created_at: at + 2, tags: [['e', regretted.id]] });
  const wrap = sign(newAuthor(), { kind: 1059, created_at: at, tags: [['p', author.pubkey]] });
  const readWrap = sign(newAuthor(), {
    kind: 1059,
    created_at: at,
    tags: [['p', author.pubkey]],
    content: 'read',
  });
  const readRequest = sign(author, { kind: 5, created_at: at + 3, tags: [['e', readWrap.id]] });
  await postAll(note, oldProfile, profile, regretted, request, wrap, readWrap, readRequest);
  const mention = sign(other, { created_at: at, tags: [['p', author.pubkey]] });
  const otherWrap = sign(newAuthor(), { kind: 1059, created_at: at, tags: [['p', other.pubkey]] });
  const later = sign(author, { created_at: at + 200 });
  await postAll(mention, otherWrap, later);
  return {
    until: at + 100,
    gone: [note, oldProfile, profile, regretted, request, wrap, readWrap, readRequest],
    served: [note, profile, request, readRequest, wrap],
    staying: [mention, otherWrap, later] as const,
  };
}
const vanish = (author: Author, created_at: number) =>
  sign(author, { kind: 62, created_at, tags: [['relay', 'wss://relay.test/']] });
const erasedAt = async (author: Author) =>
  (
    await rows<{ erased_at: number | null }>('SELECT erased_at FROM vanish_marks WHERE pubkey = $1', [
      Buffer.from(author.pubkey, 'hex'),
    ])
  )[0]?.erased_at;

/** A consumer that has read nothing. Until it has, the outbox is not scrubbed. */
async function slowConsumer(meanwhile: () => Promise<void>): Promise<void> {
  await client.query(`INSERT INTO consumer_offsets (consumer, last_seq, updated_at) VALUES ('slow', 0, 0)`);
  await meanwhile().finally(() => client.query(`DELETE FROM consumer_offsets WHERE consumer = 'slow'`));
}

describe('erase', () => {
  it('erases everything up to the mark, with gift wraps, requests and history', async () => {
    const { gone, served, staying, until } = await lifeOf(alice, bob);
    const mark = vanish(alice, until);
    await postAll(mark);
    await slowConsumer(async () => {
      expect(await run(erase)).toEqual({ changed: expect.any(Number), more: false });
      expect(await erasedAt(alice)).toBeNull();
      for (const event of served) expect((await deletes(event)).at(-1)).toBe('vanish');
      expect((await deletes(...gone)).filter((reason) => reason === 'vanish')).toHaveLength(served.length);
    });
    expect((await run(erase)).changed).toBeGreaterThanOrEqual(served.length);
    // Gift wraps were signed by others and are not scrubbed from the outbox.
    expect(await deletes(...gone.filter(({ pubkey }) => pubkey === alice.pubkey))).toEqual([]);
    expect(await stored(...gone)).toEqual([]);
    expect((await stored(...staying, mark)).sort()).toEqual([...staying, mark].map(({ id }) => id).sort());
    expect(await deletes(...staying, mark)).toEqual([]);
    expect(await erasedAt(alice)).toEqual(expect.any(Number));
    for (const event of gone) expect(await post(event)).toBe('blocked: its author asked to vanish');
    expect(await post(sign(alice))).toBe('stored');
    const head = await lastSeq();
    expect(await run(erase)).toEqual({ changed: 0, more: false });
    expect(await lastSeq()).toBe(head);
  });

  it('continues where it was stopped, batch by batch, and announces nothing twice', async () => {
    const { gone, served, staying, until } = await lifeOf(alice, bob);
    await postAll(vanish(alice, until));
    await slowConsumer(async () => {
      const { runs } = await toEnd(erase, { bounds: { rows: 1, batches: 1 } });
      expect(runs).toBeGreaterThan(gone.length);
      expect((await deletes(...gone)).filter((reason) => reason === 'vanish')).toHaveLength(served.length);
    });
    await toEnd(erase, { bounds: { rows: 1, batches: 1 } });
    expect(await stored(...gone, ...staying)).toHaveLength(staying.length);
    expect(await erasedAt(alice)).toEqual(expect.any(Number));
  });

  it('finds a gift wrap behind thousands of mentions', async () => {
    const at = nowSeconds() - 500;
    const wrap = sign(newAuthor(), { kind: 1059, created_at: at, tags: [['p', alice.pubkey]] });
    await postAll(wrap, vanish(alice, at + 100));
    const pubkey = Buffer.from(alice.pubkey, 'hex');
    await client.query(
      `INSERT INTO event_tags (tag, created_at, seq, ingested_at, community, keep)
       SELECT recipient_tag, until - n / 500, 900000000 + n, 0, 1, 0
       FROM vanish_marks, generate_series(1, 2500) n
       WHERE pubkey = $1`,
      [pubkey],
    );
    await toEnd(erase, { bounds: { rows: 500, batches: 1 } });
    expect(await stored(wrap)).toEqual([]);
    await client.query('DELETE FROM event_tags WHERE seq > 900000000');
  });

  it('starts again when a later request arrives while it runs', async () => {
    const { gone, staying, until } = await lifeOf(alice, bob);
    await postAll(vanish(alice, until));
    for (let at = 0; at < 8; at += 1) await run(erase, { bounds: { rows: 1, batches: 1 } });
    await postAll(vanish(alice, until + 300));
    await toEnd(erase);
    const [mention, otherWrap, later] = staying;
    expect(await stored(...gone, later)).toEqual([]);
    expect(await stored(mention, otherWrap)).toHaveLength(2);
  });

  it('runs small erasures beside a large one', async () => {
    const [large, small] = [newAuthor(), newAuthor()];
    const at = nowSeconds() - 100;
    const many = Array.from({ length: 1_200 }, (_, n) => sign(large, { created_at: at, content: `${n}` }));
    const few = sign(small, { created_at: at });
    await postAll(...many, few, vanish(large, at), vanish(small, at));
    // A slice has twenty batches of at most twenty rows, so the small erasure finishes before the large one.
    await run(erase, { bounds: { rows: 1, batches: 60 } });
    expect(await erasedAt(small)).toEqual(expect.any(Number));
    expect(await erasedAt(large)).toBeNull();
    await toEnd(erase);
    expect(await erasedAt(large)).toEqual(expect.any(Number));
  });
});

describe('forget-dedupe', () => {
  it('forgets the ids of events purged long ago, and deleted events stay refused', async () => {
    const note = sign(alice);
    const request = sign(alice, { kind: 5, tags: [['e', note.id]] });
    const expired = expiring(alice);
    const served = sign(alice, { content: 'served' });
    await postAll(note, request, expired, served);
    await hideLongAgo(31, note);
    aheadMs = 101_000;
    await run(expire);
    await run(purgeDeletedEvents);
    const vanished = sign(bob, { created_at: nowSeconds() - 10 });
    await postAll(vanished, vanish(bob, nowSeconds() - 5));
    await toEnd(erase);
    expect(await run(forgetDedupeRows)).toEqual({ changed: 0, more: false });
    await client.query('UPDATE event_dedupe SET gone_at = $1 WHERE gone_at IS NOT NULL', [
      now() - 180 * DAY_MS,
    ]);
    expect((await run(forgetDedupeRows)).changed).toBeGreaterThanOrEqual(3);
    expect(await dedupe(note, expired, vanished)).toEqual([]);
    expect(await dedupe(served, request)).toHaveLength(2);
    expect(await rows('SELECT 1 FROM event_dedupe WHERE gone_at IS NOT NULL')).toEqual([]);
    expect(await post(note)).toBe('blocked: deleted by its author');
    expect(await post(expired)).toContain('expired');
    expect(await post(vanished)).toBe('blocked: its author asked to vanish');
  });
});

describe('forget-requests', () => {
  const tombstones = (...events: NostrEvent[]) =>
    rows('SELECT 1 FROM deletion_tombstones WHERE target = ANY ($1)', [bytes(...events)]);
  const keep = async (days: number | 'forever') => {
    await writeSetting(database.pool, 1, 'deletion.keepRequestsDays', days, Date.now());
    await eventually('the setting is known', () => {
      const known = writer.communities.get(1)?.settings['deletion.keepRequestsDays'];
      return known === days || undefined;
    });
  };

  it('keeps requests and their tombstones for ever, unless a community limits both', async () => {
    const [early, late, again] = [
      sign(alice),
      sign(alice, { content: 'late' }),
      sign(alice, { content: 'again' }),
    ];
    const first = sign(alice, { kind: 5, tags: [early, again].map(({ id }) => ['e', id]) });
    await postAll(early, again, first);
    aheadMs = 60 * DAY_MS;
    const second = sign(alice, {
      kind: 5,
      created_at: nowSeconds() + 60 * 86_400,
      tags: [
        ['e', late.id],
        ['e', again.id],
      ],
    });
    await postAll(second);
    aheadMs = 100 * DAY_MS;
    expect((await toEnd(forgetRequests)).taken).toBe(0);
    expect(await tombstones(early, late, again)).toHaveLength(3);

    await keep(90);
    expect(await dryRunJob(forgetRequests, context)).toMatchObject([
      { reason: 'retention', class: 'regular' },
    ]);
    expect((await toEnd(forgetRequests)).taken).toBeGreaterThanOrEqual(1);
    expect(await stored(first, second)).toEqual([second.id]);
    expect(await deletes(first)).toEqual(['retention']);
    expect(await tombstones(early), 'with its request').toEqual([]);
    expect(await tombstones(late, again), 'a later request keeps its own').toHaveLength(2);
    // An event with a remembered id stays refused; a forgotten one can be stored again. That is the price of
    // the setting.
    expect(await post(early)).toBe('blocked: deleted by its author');
    expect(await post(late)).toBe('blocked: deleted by its author');
    await toEnd(purgeDeletedEvents);
    await keep('forever');
    aheadMs = (100 + 181) * DAY_MS;
    await toEnd(forgetDedupeRows);
    expect(await post(late)).toBe('blocked: deleted by its author');
    expect(await post(early)).toBe('stored');
  });
});

describe('upkeep', () => {
  it('creates partitions ahead of time, and keeps the live bus short', async () => {
    await post(sign(alice, { kind: 20_001 }));
    expect((await run(trimLiveBus)).changed).toBe(0);
    aheadMs = 70 * DAY_MS;
    expect((await run(trimLiveBus)).changed).toBe(1);
    expect((await run(partitions)).changed).toBeGreaterThan(0);
    expect((await run(partitions)).changed).toBe(0);
  });

  it('deletes the deletion counts of past days, and keeps those of today', async () => {
    const counts = () =>
      rows('SELECT targets FROM deletion_quotas WHERE author = $1', [Buffer.from(alice.pubkey, 'hex')]);
    const note = sign(alice);
    await postAll(note, sign(alice, { kind: 5, tags: [['e', note.id]] }));
    await run(forgetQuotas);
    aheadMs = DAY_MS;
    await run(forgetQuotas);
    expect(await counts()).toEqual([{ targets: 1 }]);
    aheadMs = 2 * DAY_MS;
    expect(await dryRunJob(forgetQuotas, context)).toMatchObject([{ class: 'quota' }]);
    expect((await run(forgetQuotas)).changed).toBeGreaterThan(0);
    expect(await counts()).toEqual([]);
    expect(await dryRunJob(forgetQuotas, context)).toEqual([]);
  });

  it('deletes rates of clients inactive for an hour, and expired credentials', async () => {
    const limits = new PostgresLimits(database.pool);
    const keys = async () => [
      ...(await rows<{ key: string }>('SELECT key FROM rate_buckets ORDER BY key')),
      ...(await rows<{ key: string }>('SELECT key FROM used_credentials ORDER BY key')),
    ];
    for (let at = 0; at < 12; at += 1) {
      await limits.take(`gone/${at}`, 1, 1, 5, now());
      await limits.useOnce(`gone/${at}`, 60_000, now());
    }
    aheadMs = 50 * 60_000;
    await limits.take('here', 1, 1, 5, now());
    await limits.useOnce('here', 60 * 60_000, now());
    aheadMs = 61 * 60_000;
    expect(await dryRunJob(forgetLimits, context)).toEqual([
      { reason: 'idle', class: 'limit', rows: 12 },
      { reason: 'expired', class: 'limit', rows: 12 },
    ]);
    expect(await run(forgetLimits, { bounds: { rows: 3, batches: 2 } })).toMatchObject({
      changed: 12,
      more: true,
    });
    expect(await toEnd(forgetLimits, { bounds: { rows: 3, batches: 2 } })).toMatchObject({ taken: 12 });
    expect(await keys()).toEqual([{ key: 'here' }, { key: 'here' }]);
    expect(await dryRunJob(forgetLimits, context)).toEqual([]);
  });
});

const contents = async () => {
  const tables = [
    'events',
    'event_tags',
    'event_dedupe',
    'events_outbox',
    'vanish_marks',
    'lane_state',
    'job_runs',
  ];
  const sums: object[] = [];
  for (const name of tables)
    sums.push(...(await rows(`SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) AS sum FROM ${name} t`)));
  return sums;
};

describe('a dry run', () => {
  it('counts what would be purged by reason and class, and changes nothing', async () => {
    const { gone, until } = await lifeOf(alice, bob);
    const deleted = sign(bob);
    await postAll(vanish(alice, until), expiring(bob), expiring(bob, { kind: 0 }), deleted);
    await postAll(sign(bob, { kind: 5, tags: [['e', deleted.id]] }));
    await hideLongAgo(31, deleted);
    aheadMs = 101_000;
    const before = await contents();
    const counts = new Map<string, number>();
    for (const job of JOBS) {
      for (const { reason, class: name, rows: found } of await dryRunJob(job, context))
        counts.set(`${job.name}/${reason}/${name}`, found);
    }
    expect(await contents()).toEqual(before);
    expect(Object.fromEntries(counts)).toMatchObject({
      'expire/expired/regular': 1,
      'expire/expired/replaceable': 1,
      'purge-deleted/deleted/regular': 1,
      'erase/asked for/erasure': 1,
    });
    const topics = [{ topic: 'sea', rows: 1 }];
    expect(await dryRunJob(expire, context)).toContainEqual({
      reason: 'expired',
      class: 'regular',
      rows: 1,
      topics,
    });
    expect((await toEnd(expire)).taken).toBe(2);
    expect((await toEnd(erase)).taken).toBeGreaterThanOrEqual(gone.length);
    expect((await toEnd(purgeDeletedEvents)).taken).toBe(1);
    for (const job of JOBS.filter(({ purges }) => purges)) expect(await dryRunJob(job, context)).toEqual([]);
  });
});

describe('the counts of a dry run', () => {
  it('are by class and topic, largest first; an event with two topics counts in both', () => {
    const tally = new Tally();
    for (const topics of [['sea', 'wind'], ['wind'], []])
      tally.addEvent(sign(alice, { tags: topics.map((topic) => ['t', topic]) }));
    tally.addEvent(sign(alice, { kind: 0, tags: [['t', 'sea']] }));
    expect(tally.counts('expired')).toEqual([
      {
        reason: 'expired',
        class: 'regular',
        rows: 3,
        topics: [
          { topic: 'wind', rows: 2 },
          { topic: 'sea', rows: 1 },
        ],
      },
      { reason: 'expired', class: 'replaceable', rows: 1, topics: [{ topic: 'sea', rows: 1 }] },
    ]);
  });

  it('name the number of sampled rows where not all were read', () => {
    const [count] = tallied('deleted', [{ kind: 1, rows: 50, looked: 10, topics: new Map([['sea', 10]]) }]);
    expect(count).toMatchObject({ rows: 50, topicsFromRows: 10, topics: [{ topic: 'sea', rows: 10 }] });
  });

  it('have a limited number of topics, and still count all rows', () => {
    const tally = new Tally();
    for (let n = 0; n < 1_200; n += 1)
      tally.add({ kind: 1, rows: 1, looked: 1, topics: new Map([[`topic ${n}`, 1]]) });
    const [count] = tally.counts('expired');
    expect(count!.rows).toBe(1_200);
    expect(count!.topics).toHaveLength(1_000);
  });
});

describe('the sweeps', () => {
  const someone = Buffer.alloc(32);
  const shapes: [string, string, unknown[], string[]][] = [
    ['expire', sweeps.EXPIRED_SQL, [1, 500], ['events_expiry']],
    ['purge-deleted', sweeps.PURGE_DELETED_SQL, [1, 1, 500, 1], ['events_audit', 'events_place']],
    ['purge-history', sweeps.OLD_HISTORY_SQL, [1, Number.MAX_SAFE_INTEGER, 500], ['events_history_time']],
    ['vanished, served', SERVED_OF_SQL, [1, someone, 1, true, 500], ['events_author']],
    ['vanished, next page', NEXT_OF_SQL, [1, someone, 1, true, 500, [1]], ['events_author']],
    [
      'vanished, hidden',
      events.HIDDEN_OF_SQL,
      [1, someone, 1, true, 500, 1],
      ['events_hidden_author', 'events_place'],
    ],
    ['gift wraps', events.WRAPS_SQL, ['1', 1, 0, 1, 'x'], ['event_tags_tag', 'events_place']],
    ['hidden gift wraps', events.HIDDEN_WRAPS_SQL, [1, 0, 1, 'x'], ['events_hidden_wraps']],
    ['gift wraps by place', events.PURGE_AT_SQL, [[1], [1], [1], 1], ['events_place']],
    ['forget-dedupe', sweeps.FORGET_SQL, [1, 1, [1, 2], 500], ['event_dedupe_gone', 'events_place']],
  ];

  it.each(shapes)('%s uses its indexes and scans no table', async (_name, text, values, indexes) => {
    const session = await database.connect({ indexWalks: true });
    try {
      const plan = (await session.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${text}`, values)).rows
        .map((row) => row['QUERY PLAN'])
        .join('\n');
      expect(plan).not.toContain('Seq Scan');
      const used = [...plan.matchAll(/Index (?:Only )?Scan(?: Backward)? using (\w+)/g)].map(
        (match) => match[1],
      );
      const parents = await rows<{ name: string }>(
        `WITH RECURSIVE up AS (
           SELECT oid FROM pg_class WHERE relname = ANY ($1)
           UNION SELECT i.inhparent FROM pg_inherits i JOIN up ON i.inhrelid = up.oid)
         SELECT relname AS name FROM up JOIN pg_class USING (oid)`,
        [used],
      );
      expect(parents.map(({ name }) => name)).toEqual(expect.arrayContaining(indexes));
    } finally {
      await session.end();
    }
  });
});

describe('the schedule', () => {
  const schedules: Schedule[] = [];
  afterEach(async () => {
    await Promise.all(schedules.splice(0).map((schedule) => schedule.stop()));
  });
  const metrics = createMetrics();
  const start = (jobs: readonly Job[]): Schedule => {
    const { signal: _signal, ...rest } = context;
    const schedule = startSchedule({ context: rest, jobs, metrics, log });
    schedules.push(schedule);
    return schedule;
  };
  const trigger = (schedule: Schedule, name: string) =>
    eventually('the scheduler', () =>
      schedule.trigger(name).then(
        () => true,
        () => undefined,
      ),
    );
  const job = (name: string, work: () => Promise<void>, more = () => false): Job => ({
    name,
    cron: '0 0 1 1 *',
    about: 'of a test',
    purges: false,
    run: async () => {
      await work();
      return { changed: 1, more: more() };
    },
    dryRun: async () => [],
  });
  const lastRun = async (name: string) =>
    (await readJobRuns(database.pool)).find((one) => one.job === name && one.finishedAt !== null);
  const counted = async (name: string, result: string) =>
    (await metrics.jobRuns.get()).values.find(({ labels }) => labels.job === name && labels.result === result)
      ?.value;

  const waiting = async () => {
    const { rows } = await client.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    );
    return rows[0]!.count;
  };

  it('starts on several instances together, the first ever, and runs one job at a time', async () => {
    // The database of a test has the tables of the scheduler from the beginning.
    await client.query(`DROP SCHEMA ${SCHEDULER_SCHEMA} CASCADE`);
    expect(await run(freeJobs), 'nobody has queued anything').toEqual({ changed: 0, more: false });
    let running = 0;
    let most = 0;
    let done = 0;
    const slow = async () => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setTimeout(resolve, 60));
      running -= 1;
      done += 1;
    };
    const jobs = [job('same', slow), job('other', slow)];
    // Another one is creating the tables: those that come meanwhile wait for it.
    const first = await database.connect();
    await lockScheduler(first);
    const instances = [start(jobs), start(jobs), start(jobs)];
    await eventually('all of them wait', async () => ((await waiting()) === 3 ? true : undefined));
    expect(await run(freeJobs), 'no tables yet').toEqual({ changed: 0, more: false });
    await first.end();
    for (let round = 1; round <= 3; round += 1) {
      for (const schedule of instances) for (const { name } of jobs) await trigger(schedule, name);
      await eventually('a round', () => done >= 2 * round || undefined);
    }
    const direct = await Promise.all(jobs.map((one) => runJob(one, context)));
    expect(direct.map((result) => result !== 'busy')).toEqual([true, true]);
    expect(most).toBe(1);
  });

  it('runs the jobs of every minute as one task on one session, a new one after a failure', async () => {
    const sessions: number[] = [];
    let fails = false;
    const minutely = (name: string): Job => ({
      ...job(name, async () => undefined),
      cron: '* * * * *',
      run: async (_context, client) => {
        const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
        sessions.push(rows[0]!.pid);
        if (fails) throw new Error('broken');
        return { changed: 0, more: false };
      },
    });
    const schedule = start([minutely('one'), minutely('two')]);
    const ran = async (times: number) => {
      const before = sessions.length;
      await trigger(schedule, 'every-minute');
      await eventually('all of them', () => sessions.length >= before + times || undefined);
    };
    await ran(2);
    await ran(2);
    expect(new Set(sessions).size).toBe(1);
    expect(await eventually('the record', () => lastRun('two'))).toMatchObject({ error: null });
    fails = true;
    await ran(2);
    expect(new Set(sessions).size).toBe(2);
    await eventually('the count', async () => ((await counted('two', 'failed')) === 1 ? true : undefined));
  });

  it('continues immediately while a job has more to do', async () => {
    let left = 4;
    const parts = job(
      'parts',
      async () => {
        left -= 1;
      },
      () => left > 0,
    );
    await trigger(start([parts]), 'parts');
    await eventually('all parts', () => left === 0 || undefined);
    expect(await eventually('the record', () => lastRun('parts'))).toMatchObject({ changed: 1, error: null });
    await eventually('the count', async () => ((await counted('parts', 'ok')) === 4 ? true : undefined));
  });

  it('records a failure, and is not stopped by it', async () => {
    const failing = job('failing', () => Promise.reject(new Error('the disk is on fire')));
    const fine = job('fine', async () => undefined);
    const schedule = start([failing, fine]);
    await trigger(schedule, 'failing');
    const failed = await eventually('the failure', () => lastRun('failing'));
    expect(failed.error).toContain('the disk is on fire');
    await eventually('the count', async () =>
      (await counted('failing', 'failed')) === 1 ? true : undefined,
    );
    await trigger(schedule, 'fine');
    expect((await eventually('the next job', () => lastRun('fine'))).error).toBeNull();
  });

  it('runs a job again that a killed instance had locked', async () => {
    let runs = 0;
    const once = job('orphan', async () => {
      runs += 1;
    });
    const first = start([once]);
    await trigger(first, 'orphan');
    await eventually('the first run', () => runs === 1 || undefined);
    await first.stop();
    await client.query(
      `SELECT minato_worker.add_job('orphan', '{}', job_key := 'orphan', max_attempts := 1)`,
    );
    await client.query(
      `UPDATE minato_worker._private_jobs
       SET locked_at = clock_timestamp(), locked_by = 'killed', attempts = 1`,
    );
    await trigger(start([once]), 'orphan');
    await eventually('the next run', () => runs === 2 || undefined);
  });

  it('frees the jobs of a killed process: queued again by key, or dropped if done already', async () => {
    let runs = 0;
    const once = job('cut-off', async () => {
      runs += 1;
    });
    await trigger(start([once]), 'cut-off');
    await eventually('the first run', () => runs === 1 || undefined);
    await Promise.all(schedules.splice(0).map((schedule) => schedule.stop()));
    const takenAt = (ms: number) =>
      client.query(
        `UPDATE minato_worker._private_jobs
         SET attempts = 1, locked_by = 'killed', locked_at = to_timestamp($1 / 1000.0)`,
        [ms],
      );
    const add = (key: string | null) =>
      client.query(`SELECT minato_worker.add_job('cut-off', '{}', job_key := $1, max_attempts := 1)`, [key]);
    const left = () =>
      rows<{ key: string | null; locked_by: string | null }>(
        'SELECT key, locked_by FROM minato_worker.jobs ORDER BY id',
      );
    await client.query('DELETE FROM minato_worker._private_jobs');
    for (const key of ['cut-off', null, null]) await add(key);
    await takenAt(now() - 30_000);
    expect(await run(freeJobs)).toEqual({ changed: 0, more: false });
    await takenAt(now() - 61_000);
    expect(await dryRunJob(freeJobs, context)).toEqual([{ reason: 'killed', class: 'job', rows: 3 }]);
    expect(await run(freeJobs)).toEqual({ changed: 3, more: false });
    expect(await left()).toEqual([{ key: 'cut-off', locked_by: null }]);
    start([once]);
    await eventually('the run that was cut off', () => runs === 2 || undefined);
    await eventually('it is done', async () => ((await left()).length === 0 ? true : undefined));
  });

  it('waits at its stop until finished jobs are marked: no job stays locked', async () => {
    for (let round = 0; round < 5; round += 1) {
      let ran = false;
      const short = job('short', async () => {
        ran = true;
      });
      const schedule = start([short]);
      await trigger(schedule, 'short');
      await eventually('the run', () => ran || undefined);
      await schedule.stop();
      expect(await rows(`SELECT id FROM minato_worker.jobs WHERE task_identifier = 'short'`)).toEqual([]);
    }
  });

  it('stops during a long job, between two batches', async () => {
    const notes = Array.from({ length: 40 }, (_, at) => expiring(alice, { content: String(at) }));
    await postAll(...notes);
    aheadMs = 101_000;
    const slowly: Job = {
      ...expire,
      run: (given, session) => expire.run({ ...given, bounds: { rows: 1, batches: 1_000 } }, session),
    };
    const schedule = start([slowly]);
    await trigger(schedule, 'expire');
    await eventually('the first batch', async () =>
      (await deletes(...notes)).length > 0 ? true : undefined,
    );
    await schedule.stop();
    const [taken, left] = [(await deletes(...notes)).length, (await stored(...notes)).length];
    expect(taken + left).toBe(40);
    await toEnd(expire);
    expect(await deletes(...notes)).toHaveLength(40);
  });

  it('does not change the schema of the program: migrations and doctor ignore its tables', async () => {
    await trigger(start([job('quiet', async () => undefined)]), 'quiet');
    const result = await runCli(['doctor', '--json'], { DATABASE_URL: test.url, MINATO_PORT: '0' });
    const { findings } = JSON.parse(result.stdout) as { findings: { level: string; text: string }[] };
    const schema = findings.filter(({ text }) => text.startsWith('schema'));
    expect(schema.map(({ level }) => level)).toEqual(['ok']);
    const migrated = await runCli(['migrate'], { DATABASE_URL: test.url });
    expect(migrated.code).toBe(0);
  });
});

describe('the commands', () => {
  const minato = async (...args: string[]) => {
    const { code, stdout, stderr } = await runCli(args, { DATABASE_URL: test.url });
    return { code, stdout, stderr };
  };

  it('jobs lists each job with its schedule and its last run', async () => {
    await run(trimLiveBus);
    const { code, stdout } = await minato('jobs');
    expect(code).toBe(0);
    for (const { name, cron } of JOBS)
      expect(stdout).toMatch(new RegExp(`^${name} +${cron.replaceAll('*', '\\*')} `, 'm'));
    expect(stdout).toMatch(/^trim-bus .*Z {2}ok in [\d,]+ ms, \d+ changed/m);
  });

  it('purge --dry-run prints what would be purged and keeps it; purge removes it', async () => {
    await toEnd(expire);
    const note = expiring(alice);
    await postAll(note);
    await client.query('UPDATE events SET expires_at = $1 WHERE id = $2', [nowSeconds() - 1, ...bytes(note)]);
    const dry = await minato('purge', '--dry-run');
    expect(dry).toMatchObject({ code: 0, stderr: '' });
    expect(dry.stdout).toMatch(/^expire +expired +regular +1\nexpire +expired +regular +1 {2}topic "sea"$/m);
    expect((await minato('jobs', 'run', 'expire', '--dry-run')).stdout).toBe(
      dry.stdout
        .split(/(?<=\n)/)
        .slice(0, 2)
        .join(''),
    );
    expect(await stored(note)).toEqual([note.id]);
    const real = await minato('purge');
    expect(real).toMatchObject({ code: 0, stderr: '' });
    expect(real.stdout).toMatch(/^expire +done, 1 changed$/m);
    expect(await stored(note)).toEqual([]);
    expect(await deletes(note)).toEqual(['expiration']);
    expect((await minato('purge', '--dry-run')).stdout).toBe('nothing to do now\n');
  });

  it('purge --json requires --dry-run or --yes; --yes prints what was purged', async () => {
    await toEnd(expire);
    const note = expiring(alice);
    await postAll(note);
    await client.query('UPDATE events SET expires_at = $1 WHERE id = $2', [nowSeconds() - 1, ...bytes(note)]);
    expect(await minato('purge', '--json')).toEqual({
      code: 1,
      stdout: '',
      stderr:
        'minato: --json needs --dry-run, which prints what would be purged, ' +
        'or --yes, which purges and prints what was purged\n',
    });
    expect(await stored(note)).toEqual([note.id]);
    const dry = await minato('purge', '--json', '--dry-run');
    expect(JSON.parse(dry.stdout)).toContainEqual({
      job: 'expire',
      reason: 'expired',
      class: 'regular',
      rows: 1,
      topics: [{ topic: 'sea', rows: 1 }],
    });
    expect(await stored(note)).toEqual([note.id]);
    const { code, stdout } = await minato('purge', '--json', '--yes');
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toContainEqual({ job: 'expire', state: 'done', changed: 1, said: [] });
    expect(JSON.parse(stdout).map(({ job }: { job: string }) => job)).toEqual(
      JOBS.filter(({ purges }) => purges).map(({ name }) => name),
    );
    expect(await stored(note)).toEqual([]);
  });

  it('jobs run prints what it changed, and which jobs exist', async () => {
    expect(await minato('jobs', 'run', 'partitions')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^partitions +done, \d+ changed\n$/),
    });
    const unknown = await minato('jobs', 'run', 'nothing');
    expect(unknown.code).toBe(1);
    expect(unknown.stderr).toContain('there is no job "nothing"; there are: expire,');
  });
});
