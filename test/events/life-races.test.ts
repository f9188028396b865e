/**
 * Races between two parts of the node in the life of an event. Each race is stopped at the critical point, in
 * both orders, and meanwhile other clients continue: a post gets its OK, a REQ its EOSE (I6, I7, I14).
 */
import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { forgetDedupeRows } from '../../src/events/jobs/forget-dedupe.js';
import { purgeDeletedEvents } from '../../src/events/jobs/purge-deleted.js';
import { dropMonths, retain } from '../../src/events/jobs/retain.js';
import { dropPartitions } from '../../src/events/postgres/keeping.js';
import { ensurePartitions } from '../../src/events/postgres/partitions.js';
import { findStatement } from '../../src/events/postgres/read/find.js';
import { forgetDedupe, purgeDeleted } from '../../src/events/postgres/sweeps.js';
import { createTagHash } from '../../src/events/postgres/tag-hash.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type Job, type JobContext } from '../../src/jobs/job.js';
import { runJob } from '../../src/jobs/run.js';
import { fixTagHashSeed } from '../../src/node/state.sql.js';
import { dropOutboxRanges } from '../../src/outbox/outbox.sql.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';

const START = Date.UTC(2026, 0, 10);
const LOCK_NOT_AVAILABLE = '55P03';

/** Waits until this session waits for a lock. */
const waitsForLock = (watcher: Client, waiting: Client): Promise<true> =>
  eventually('a session that waits for a lock', async () => {
    const { rows } = await watcher.query(
      "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'",
      [(waiting as Client & { processID: number }).processID],
    );
    return rows.length > 0 ? true : undefined;
  });

// ── Purge ∥ re-upload ──────────────────────────────────────────────────────────────────────────────────────

describe('the purge of a deleted event ∥ the same event sent again', () => {
  const DELETED = 'blocked: deleted by its author';
  /** The lock that a writing batch waits for after its facts are read. Used by this file only. */
  const HOLD_LOCK = 77_002;
  const alice = hash('alice');
  let life: Life;
  let community: number;
  let serial = 0;
  let purge: Client | undefined;

  beforeAll(async () => {
    life = await openLife(START, [{ settings: { 'retention.dedupeDays': 1 } }], 2);
    community = life.communities[0]!;
    await life.client.query(`
      CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(${HOLD_LOCK}); RETURN NEW; END';
      CREATE TRIGGER hold BEFORE UPDATE ON lane_state FOR EACH ROW EXECUTE FUNCTION hold()`);
  });
  afterAll(() => life?.close());
  afterEach(async () => {
    await purge?.end();
    purge = undefined;
  });

  const note = (draft: Partial<NostrEvent> = {}) => {
    serial += 1;
    const created_at = Math.floor(life.now / 1_000);
    return unsigned({ kind: 1, pubkey: alice, created_at, content: `${serial}`, ...draft });
  };
  const article = () => note({ kind: 30_023, tags: [['d', `${serial}`]] });

  /** Deleted so long ago that its row may be purged; with `purged`, its id may be forgotten as well. */
  async function deletedLongAgo(event: NostrEvent, purged: boolean): Promise<void> {
    expect(await life.submit(0, community, event)).toBe('stored');
    const request = note({ kind: 5, tags: [['e', event.id]] });
    expect(await life.submit(0, community, request)).toBe('stored');
    life.now += 31 * DAY_MS;
    if (!purged) return;
    expect(await life.run(purgeDeletedEvents)).toBe(1);
    life.now += 2 * DAY_MS;
  }
  const left = async (event: NostrEvent) => {
    const { rows } = await life.client.query(
      `SELECT (SELECT count(*) FROM events WHERE id = $1) AS rows,
         (SELECT count(*) FROM event_dedupe WHERE event_id = $1) AS known`,
      [Buffer.from(event.id, 'hex')],
    );
    return rows[0];
  };

  const sweeps = [
    {
      what: 'its row',
      purged: false,
      job: purgeDeletedEvents,
      gone: { rows: 0, known: 1 },
      take: (client: Client) => purgeDeleted(client, community, life.now, life.now, 10),
    },
    {
      what: 'its id',
      purged: true,
      job: forgetDedupeRows,
      gone: { rows: 0, known: 0 },
      take: (client: Client) => forgetDedupe(client, community, life.now, ['deleted'], 10),
    },
  ];
  const cases = sweeps.flatMap((sweep) => [
    { ...sweep, of: 'a note', make: note },
    { ...sweep, of: 'a version', make: article },
  ]);

  it.each(cases)(
    '$what is purged, $of, the purge first: refused before and after its commit',
    async (one) => {
      const event = one.make();
      await deletedLongAgo(event, one.purged);
      purge = await life.database.connect();
      await purge.query('BEGIN');
      expect(await one.take(purge)).toBeGreaterThan(0);
      const fresh = note();
      const outcomes = [event, fresh].map((sent) => life.submit(1, community, sent));
      expect(await Promise.all(outcomes)).toEqual([DELETED, 'stored']);
      await purge.query('COMMIT');
      expect(await left(event)).toEqual(one.gone);
      for (const instance of [0, 1]) expect(await life.submit(instance, community, event)).toBe(DELETED);
      expect(await left(event)).toEqual(one.gone);
    },
  );

  it.each(cases)(
    '$what is purged, $of, the upload first: refused, and the purge does not wait',
    async (one) => {
      const event = one.make();
      await deletedLongAgo(event, one.purged);
      await life.client.query('SELECT pg_advisory_lock($1)', [HOLD_LOCK]);
      const outcomes = [event, note()].map((sent) => life.submit(1, community, sent));
      await eventually('the batch is held after its facts', async () => {
        const { rows } = await life.client.query(
          "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted",
          [HOLD_LOCK],
        );
        return rows.length > 0 ? true : undefined;
      });
      expect(await life.run(one.job)).toBeGreaterThan(0);
      await life.client.query('SELECT pg_advisory_unlock($1)', [HOLD_LOCK]);
      expect(await Promise.all(outcomes)).toEqual([DELETED, 'stored']);
      expect(await left(event)).toEqual(one.gone);
      for (const instance of [0, 1]) expect(await life.submit(instance, community, event)).toBe(DELETED);
    },
  );
});

// ── On nodes with sockets ──────────────────────────────────────────────────────────────────────────────────

let clock: { a: number; b: number };
let a: TestNode;
let b: TestNode;
let writer: RawClient;
let reader: RawClient;
/** Connected to the writer's instance, which has the event in memory. */
let near: RawClient;
let sessions: Client[];
let alice: Author;

beforeAll(async () => {
  clock = { a: START, b: START };
  a = await startTestNode({ jobs: [], now: () => clock.a });
  b = await startTestNode({ jobs: [], now: () => clock.b, on: a.test });
  writer = await RawClient.connect(a.url);
  reader = await RawClient.connect(b.url);
  near = await RawClient.connect(a.url);
});
afterAll(async () => {
  await writer?.close();
  await reader?.close();
  await near?.close();
  await b?.close();
  await a?.close();
});
beforeEach(() => {
  alice = newAuthor();
  sessions = [];
  // On a whole second, as expirations are.
  clock.a = Math.ceil(clock.a / 1_000) * 1_000;
  clock.b = clock.a;
});
afterEach(async () => {
  for (const session of sessions) await session.end();
});

async function session(options: Parameters<TestNode['database']['connect']>[0] = {}): Promise<Client> {
  const opened = await a.database.connect(options);
  sessions.push(opened);
  return opened;
}

const at = (ms: number) => Math.floor(ms / 1_000);
const signed = (draft: { kind?: number; content?: string; tags?: string[][] } = {}) =>
  sign(alice, { created_at: at(clock.a), ...draft });
const liveOn = (client: RawClient, name: string) =>
  client.frames.flatMap((f) => (f[0] === 'EVENT' && f[1] === name ? [(f[2] as { id: string }).id] : []));

describe('the second of expiry ∥ live delivery', () => {
  const expiring = (kind = 1) => signed({ kind, tags: [['expiration', `${at(clock.a) + 100}`]] });
  const subscribe = async (client: RawClient, name: string, ...filters: object[]) => {
    const from = client.frames.length;
    client.send(['REQ', name, ...filters]);
    await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === name, from);
  };

  it.each([
    { when: 'one second before', aheadMs: 99_999, delivered: true },
    { when: 'in its second', aheadMs: 100_000, delivered: false },
  ])(
    'comes between commit and delivery, $when: delivered $delivered',
    async ({ when, aheadMs, delivered }) => {
      await subscribe(reader, when, { authors: [alice.pubkey] });
      clock.b = clock.a + aheadMs;
      const [note, ephemeral, last] = [expiring(), expiring(20_001), signed({ content: 'last' })];
      for (const event of [ephemeral, note, last]) expect(await writer.publish(event)).toEqual([true, '']);
      const lastEphemeral = signed({ kind: 20_001, content: 'last' });
      expect(await writer.publish(lastEphemeral)).toEqual([true, '']);
      const marks = [last.id, lastEphemeral.id];
      await reader.until(() => marks.every((id) => liveOn(reader, when).includes(id)));
      expect(liveOn(reader, when).sort()).toEqual(
        (delivered ? [note.id, ephemeral.id, ...marks] : marks).sort(),
      );
      clock.b = clock.a;
    },
  );

  /** A subscription whose stored query is stopped: live events wait for its EOSE. */
  async function whileLoading(name: string, work: () => Promise<void>): Promise<void> {
    // By words, which memory does not answer; the others it does.
    const held = { search: name };
    const free = { kinds: [1], authors: [alice.pubkey] };
    const holder = await session();
    await holder.query('BEGIN; LOCK TABLE post_search_documents IN ACCESS EXCLUSIVE MODE');
    near.send(['REQ', name, free, held, { ...free, limit: 10 }]);
    await eventually('the query is held', async () => {
      const { rows } = await holder.query(
        "SELECT 1 FROM pg_locks WHERE relation = 'post_search_documents'::regclass AND NOT granted",
      );
      return rows.length > 0 ? true : undefined;
    });
    await work();
    await holder.query('ROLLBACK');
    await near.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === name);
  }
  /** When a live subscription has the event, the waiting one has it queued. */
  const passed = (event: { id: string }) => writer.until(() => liveOn(writer, 'witness').includes(event.id));

  it.each([
    { when: 'the second before', aheadMs: 99_999, delivered: true },
    { when: 'its second', aheadMs: 100_000, delivered: false },
  ])('comes while it waits for EOSE, $when: delivered $delivered', async ({ when, aheadMs, delivered }) => {
    await subscribe(writer, 'witness', { authors: [alice.pubkey], limit: 0 });
    const [note, last] = [expiring(), signed({ content: 'last' })];
    await whileLoading(when, async () => {
      for (const event of [note, last]) expect(await writer.publish(event)).toEqual([true, '']);
      await passed(last);
      clock.a += aheadMs;
    });
    await near.until(() => liveOn(near, when).includes(last.id));
    expect(liveOn(near, when).sort()).toEqual((delivered ? [note.id, last.id] : [last.id]).sort());
    clock.b = clock.a;
  });

  it.each([
    { when: 'found, a second before', aheadMs: 99_999, served: true },
    { when: 'found, in its second', aheadMs: 100_000, served: false },
  ])('comes between the finding and the sending of a stored event, $when: served $served', async (one) => {
    const [note, other] = [expiring(), signed({ content: 'other' })];
    for (const event of [note, other]) expect(await writer.publish(event)).toEqual([true, '']);
    await whileLoading(one.when, async () => {
      clock.a += one.aheadMs;
    });
    expect(liveOn(near, one.when).sort()).toEqual((one.served ? [note.id, other.id] : [other.id]).sort());
    clock.b = clock.a;
  });

  it('an event that is deleted while it waits for EOSE is not delivered', async () => {
    await subscribe(writer, 'witness', { authors: [alice.pubkey], limit: 0 });
    const [note, last] = [signed(), signed({ content: 'last' })];
    const request = signed({ kind: 5, tags: [['e', note.id]] });
    await whileLoading('deleted', async () => {
      for (const event of [note, request, last]) expect(await writer.publish(event)).toEqual([true, '']);
      await passed(last);
    });
    await near.until(() => liveOn(near, 'deleted').includes(last.id));
    expect(liveOn(near, 'deleted')).toEqual([last.id]);
  });

  it('an event read from the outbox after its days is not delivered, also by topic', async () => {
    for (const [topic, retentionDays] of [
      ['brief', 2],
      ['lasting', 100],
    ] as const) {
      const rules = { pinned: true, public: true, priority: 0, policy: { retentionDays } };
      await writeTopic(a.database.pool, 1, topic, rules, clock.a);
      await eventually('the rules', () => b.node.communities.get(1)?.topics.has(topic) || undefined);
    }
    clock.b = clock.a + 3 * DAY_MS;
    await subscribe(reader, 'brief', { '#t': ['brief'], limit: 0 });
    await subscribe(reader, 'lasting', { '#t': ['lasting'], limit: 0 });
    await subscribe(reader, 'author', { authors: [alice.pubkey], limit: 0 });
    const about = (...topics: string[]) =>
      signed({ content: topics.join(), tags: topics.map((topic) => ['t', topic]) });
    const [brief, both, last] = [about('brief'), about('brief', 'lasting'), about('lasting')];
    for (const event of [brief, both, last]) expect(await writer.publish(event)).toEqual([true, '']);
    await reader.until(() => liveOn(reader, 'author').includes(last.id));
    expect(liveOn(reader, 'author')).toEqual([both.id, last.id]);
    expect(liveOn(reader, 'lasting')).toEqual([both.id, last.id]);
    expect(liveOn(reader, 'brief')).toEqual([]);
    clock.b = clock.a;
  });
});

// ── Drop ∥ a slow REQ ──────────────────────────────────────────────────────────────────────────────────────

function contextOf(node: TestNode): JobContext {
  const { store, communities, erasing } = node.node;
  const signal = new AbortController().signal;
  return { database: node.database, store, communities, erasing, now: () => clock.a, signal, bounds: BOUNDS };
}
async function run(job: Job): Promise<number> {
  const result = await runJob(job, contextOf(a));
  if (result === 'busy') throw new Error('another job ran');
  return result.changed;
}

/** Expects that a post gets its OK and a REQ its answer, on both instances. */
async function expectOthersGoOn(): Promise<void> {
  const note = signed({ content: `${Math.random()}` });
  expect(await writer.publish(note)).toEqual([true, '']);
  expect((await reader.publish(note))[0]).toBe(true);
  for (const client of [writer, reader]) {
    expect((await client.query({ ids: [note.id] })).events).toEqual([note]);
    expect((await client.query({ authors: [alice.pubkey], kinds: [1] })).events).toContainEqual(note);
  }
}

describe('the drop of a month ∥ a slow REQ', () => {
  const PARTITION = /^events_days30_\d{4}_\d{2}$/;
  const attached = async (name: string) => {
    const { rows } = await a.database.pool.query('SELECT to_regclass($1) IS NOT NULL AS there', [name]);
    return (rows[0] as { there: boolean }).there;
  };

  /**
   * Posts, and a REQ that began to read them before their days ended. Then the days end and the sweep runs.
   */
  async function begin(): Promise<{ notes: { id: string }[]; req: Client; month: string }> {
    const notes = Array.from({ length: 5 }, (_, n) => signed({ content: `${n}` }));
    for (const note of notes) expect(await writer.publish(note)).toEqual([true, '']);
    const month = `events_days30_${new Date(clock.a).toISOString().slice(0, 7).replace('-', '_')}`;
    const req = await session({ indexWalks: true });
    const tagHash = await createTagHash(await fixTagHashSeed(req));
    const rules = a.node.communities.get(1)!;
    const filter = { authors: new Set([alice.pubkey]), tags: [] };
    const { text, values } = findStatement(
      { community: 1, filter, limit: 100, now: clock.a, rules },
      tagHash,
    );
    await req.query('BEGIN');
    await req.query(`DECLARE slow NO SCROLL CURSOR FOR ${text}`, values);
    expect((await req.query('FETCH 1 FROM slow')).rows).toHaveLength(1);
    clock.a += 75 * DAY_MS;
    clock.b = clock.a;
    const maker = await session();
    await ensurePartitions(maker, clock.a);
    await run(purgeDeletedEvents);
    expect(await run(retain)).toBeGreaterThanOrEqual(notes.length);
    expect((await writer.query({ authors: [alice.pubkey] })).events).toEqual([]);
    return { notes, req, month };
  }
  const rest = async (req: Client) => {
    const { rows } = await req.query('FETCH ALL FROM slow');
    await req.query('COMMIT');
    return rows.length;
  };

  it('waits for it, blocks nobody, and completes when the REQ has its rows', async () => {
    const { notes, req, month } = await begin();
    expect(month).toMatch(PARTITION);
    const watcher = await session();
    const dropper = await session({ lockTimeoutMs: 30_000 });
    const dropping = dropPartitions(dropper, clock.a, false);
    await waitsForLock(watcher, dropper);
    await expectOthersGoOn();
    expect(await attached(month)).toBe(true);
    expect(await rest(req)).toBe(notes.length - 1);
    expect(await dropping).toContain(month);
    expect(await attached(month)).toBe(false);
    await expectOthersGoOn();
  });

  it('gives up after its lock time-out, and the next run continues', async () => {
    const { notes, req, month } = await begin();
    const dropper = await session({ lockTimeoutMs: 100 });
    const failed = await dropPartitions(dropper, clock.a, false).catch((error) => error.code as string);
    expect(failed).toBe(LOCK_NOT_AVAILABLE);
    await expectOthersGoOn();
    // Fails again, during the detach.
    const again = await dropPartitions(dropper, clock.a, false).catch((error) => error.code as string);
    expect(again).toBe(LOCK_NOT_AVAILABLE);
    await expectOthersGoOn();
    expect(await rest(req)).toBe(notes.length - 1);
    expect(await run(dropMonths)).toBeGreaterThan(0);
    expect(await attached(month)).toBe(false);
    await expectOthersGoOn();
  });

  it('blocks nobody while a second attempt waits for it too', async () => {
    const { notes, req, month } = await begin();
    const first = await session({ lockTimeoutMs: 100 });
    await dropPartitions(first, clock.a, false).catch(() => undefined);
    const watcher = await session();
    const second = await session({ lockTimeoutMs: 30_000 });
    const dropping = dropPartitions(second, clock.a, false);
    await waitsForLock(watcher, second);
    await expectOthersGoOn();
    expect(await rest(req)).toBe(notes.length - 1);
    expect(await dropping).toContain(month);
  });
});

describe('the drop of a range of the outbox ∥ a slow reader of it', () => {
  const RANGE = 1_000_000;

  it.each([
    { order: 'waits for it', lockTimeoutMs: 30_000 },
    { order: 'gives up after its lock timeout', lockTimeoutMs: 100 },
  ])('$order, and holds up nobody', async ({ lockTimeoutMs }) => {
    const watcher = await session();
    expect(await writer.publish(signed())).toEqual([true, '']);
    const { rows } = await watcher.query<{ range: number }>(
      `UPDATE lane_state SET last_seq = (last_seq / ${RANGE} + 1) * ${RANGE}
       RETURNING last_seq / ${RANGE} - 1 AS range`,
    );
    const name = `events_outbox_${rows[0]!.range}`;
    await ensurePartitions(watcher, clock.a);
    expect(await writer.publish(signed({ content: 'in the next range' }))).toEqual([true, '']);
    const slow = await session();
    await slow.query(`BEGIN; SELECT count(*) FROM events_outbox`);
    const dropper = await session({ lockTimeoutMs });
    const cutoff = clock.a + 31 * DAY_MS;
    const dropping = dropOutboxRanges(dropper, cutoff, false).catch((error) => error.code as string);
    if (lockTimeoutMs > 1_000) await waitsForLock(watcher, dropper);
    else expect(await dropping).toBe(LOCK_NOT_AVAILABLE);
    await expectOthersGoOn();
    await slow.query('COMMIT');
    if (lockTimeoutMs > 1_000) expect(await dropping).toEqual([name]);
    else expect(await dropOutboxRanges(dropper, cutoff, false)).toEqual([name]);
    expect((await watcher.query('SELECT to_regclass($1) AS found', [name])).rows).toEqual([{ found: null }]);
    await expectOthersGoOn();
  });
});
