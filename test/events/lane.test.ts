/** The rules of the lane: each test fails when its rule is broken. Real PostgreSQL, real faults. */
import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { BUS_NOTICE, OUTBOX_CHANNEL } from '../../src/events/postgres/batch.js';
import type { Lane } from '../../src/events/postgres/lane/lane.js';
import { LANE_LOCK } from '../../src/events/postgres/lane/lock.js';
import { LaneQueue, QUEUE_BYTES_MAX, QUEUE_EVENTS_MAX } from '../../src/events/postgres/lane/queue.js';
import { ensurePartitions, monthsFrom } from '../../src/events/postgres/partitions.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import type { Submission } from '../../src/events/rules/facts.js';
import { refusal } from '../../src/events/rules/reply.js';
import type { BatchWrites } from '../../src/events/rules/writes.js';
import { createLog, type Log } from '../../src/node/log.js';
import { openDatabase } from '../../src/postgres/database.js';
import type { EmbeddedConnection } from '../../src/postgres/embedded.js';
import { FaultProxy, isCommit } from '../support/servers/fault-proxy.js';
import { openTestStore } from '../support/stores/store.js';

const failed = refusal('error', 'failed to store event');

/** One database with any number of lanes on it, each optionally behind a proxy. */
interface Harbour {
  readonly connection: EmbeddedConnection;
  readonly commits: BatchWrites[];
  lane(at?: EmbeddedConnection, log?: Partial<Log>): Promise<Lane>;
  proxy(): Promise<FaultProxy>;
  session(): Promise<pg.Client>;
  sql<T = Record<string, unknown>>(text: string, values?: unknown[]): Promise<T[]>;
}

type Cleanup = () => Promise<unknown>;

/** Cleans up after each test. `afterEach` does not work for concurrent tests. */
async function inHarbour(work: (harbour: Harbour) => Promise<void>): Promise<void> {
  const cleanups: Cleanup[] = [];
  const store = await openTestStore({ logLevel: 'silent' });
  const { test } = store;
  const commits: BatchWrites[] = [];
  const proxies: FaultProxy[] = [];
  const session = async () => {
    const client = new pg.Client(test.connection);
    client.on('error', () => undefined);
    await client.connect();
    cleanups.push(() => client.end());
    return client;
  };
  const own = await session();
  try {
    await work({
      connection: test.connection,
      commits,
      session,
      lane: async (at = test.connection, log = {}) => {
        const database = openDatabase(at);
        const onCommit = (writes: BatchWrites) => commits.push(writes);
        const lane = store.lane({ database, onCommit, log: { ...createLog('silent'), ...log } });
        cleanups.push(() => lane.close().then(() => database.close()));
        return lane;
      },
      proxy: async () => {
        const proxy = await FaultProxy.start(test.connection);
        proxies.push(proxy);
        cleanups.push(() => proxy.stop());
        return proxy;
      },
      sql: async (text, values = []) => (await own.query(text, values)).rows,
    });
  } finally {
    for (const proxy of proxies) proxy.release();
    // In reverse order: a lane behind a proxy is closed while the proxy still runs.
    for (const cleanup of cleanups.reverse()) await cleanup();
    await store.close();
  }
}

const hex = (bytes: number) => randomBytes(bytes).toString('hex');

/** Events without a signature: the lane does not verify them. */
function draft(event: Partial<NostrEvent> = {}, community = 1): Submission {
  const whole = {
    id: hex(32),
    pubkey: hex(32),
    created_at: 1_700_000_000,
    kind: 1,
    tags: [],
    content: '',
    sig: hex(64),
    ...event,
  };
  return { community, event: whole, payload: serializeEvent(whole) };
}

const drafts = (count: number, event: Partial<NostrEvent> = {}, community = 1) =>
  Array.from({ length: count }, () => draft(event, community));

const submitAll = (lane: Lane, submissions: readonly Submission[]) =>
  Promise.all(submissions.map((submission) => lane.submit(submission)));

const idsOf = (submissions: readonly Submission[]) => submissions.map(({ event }) => event.id).sort();

async function eventually(
  condition: () => Promise<boolean>,
  what: string,
  timeoutMs = 20_000,
): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`did not happen: ${what}`);
    await delay(20);
  }
}

/** Waits until a session waits for the lane's lock, which another one holds. */
const someoneWaits = (harbour: Harbour) =>
  eventually(async () => {
    const waiting = await harbour.sql(
      `SELECT 1 FROM pg_locks
       WHERE locktype = 'advisory' AND objid = $1 AND NOT granted AND database = (SELECT oid FROM pg_database
       WHERE datname = current_database())`,
      [LANE_LOCK],
    );
    return waiting.length > 0;
  }, 'a lane waits for the lock');

/** Each id is stored once and announced once, and the outbox offsets have no gap. */
async function expectStoredOnce(harbour: Harbour, submissions: readonly Submission[]): Promise<void> {
  const wanted = idsOf(submissions);
  const rows = await harbour.sql<{ id: string }>("SELECT encode(id, 'hex') AS id FROM events ORDER BY 1");
  const dedupe = await harbour.sql<{ id: string }>(
    "SELECT encode(event_id, 'hex') AS id FROM event_dedupe ORDER BY 1",
  );
  const announced = await harbour.sql<{ id: string }>(
    "SELECT encode(event_id, 'hex') AS id FROM events_outbox WHERE op = 'upsert' ORDER BY 1",
  );
  expect(rows.map(({ id }) => id)).toEqual(wanted);
  expect(dedupe.map(({ id }) => id)).toEqual(wanted);
  expect(announced.map(({ id }) => id)).toEqual(wanted);
  const [numbers] = await harbour.sql(
    `SELECT (SELECT last_seq FROM lane_state) = count(*) AND count(*) = coalesce(max(seq), 0) AS whole
     FROM events_outbox`,
  );
  expect(numbers).toEqual({ whole: true });
}

describe('the lock', () => {
  // One event at a time: a larger batch would be split and retried, which would hide a stale read.
  it.each(
    ['read committed', 'repeatable read', 'serializable'].flatMap((isolation) => [
      [isolation, 'duplicate'] as const,
      [isolation, 'older'] as const,
    ]),
  )(
    'under a default of %s, a lane that waited for it sees what was committed meanwhile: %s',
    (isolation, seen) =>
      inHarbour(async (harbour) => {
        await harbour.sql(
          `ALTER DATABASE ${harbour.connection.database} SET default_transaction_isolation = '${isolation}'`,
        );
        const proxy = await harbour.proxy();
        const slow = await harbour.lane(proxy.connection);
        const fast = await harbour.lane();
        const author = hex(32);
        const [older, newer] = [10, 20].map((created_at) =>
          draft({ kind: 30_023, pubkey: author, created_at, tags: [['d', 'a']] }),
        );

        // The first lane holds the lock and has written everything; its COMMIT is pending.
        const held = proxy.when(isCommit, { kind: 'freeze' });
        const first = slow.submit(newer!);
        await held;
        const second = fast.submit(seen === 'duplicate' ? newer! : older!);
        await someoneWaits(harbour);
        proxy.release();

        expect(await first).toBe('stored');
        expect(await second).toBe(seen);
        await expectStoredOnce(harbour, [newer!]);
      }),
  );

  it('a newer version that waited for it supersedes the one committed meanwhile', () =>
    inHarbour(async (harbour) => {
      const proxy = await harbour.proxy();
      const slow = await harbour.lane(proxy.connection);
      const fast = await harbour.lane();
      const author = hex(32);
      const [older, newer] = [10, 20].map((created_at) => draft({ kind: 0, pubkey: author, created_at }));
      const held = proxy.when(isCommit, { kind: 'freeze' });
      const first = slow.submit(older!);
      await held;
      const second = fast.submit(newer!);
      await someoneWaits(harbour);
      proxy.release();
      expect([await first, await second]).toEqual(['stored', 'stored']);
      expect(
        await harbour.sql("SELECT op, reason, encode(event_id, 'hex') AS id FROM events_outbox ORDER BY seq"),
      ).toEqual([
        { op: 'upsert', reason: null, id: older!.event.id },
        { op: 'delete', reason: 'superseded', id: older!.event.id },
        { op: 'upsert', reason: null, id: newer!.event.id },
      ]);
      expect(await harbour.sql("SELECT encode(id, 'hex') AS id FROM events WHERE hidden IS NULL")).toEqual([
        { id: newer!.event.id },
      ]);
    }));

  it('makes outbox order the order of commits: a reader never sees a gap or a late row', () =>
    inHarbour(async (harbour) => {
      const lanes = [await harbour.lane(), await harbour.lane()];
      const sent: Submission[] = [];
      let writing = true;
      const write = async (lane: Lane) => {
        for (let round = 0; round < 150; round++) {
          const batch = drafts(1 + (round % 7));
          sent.push(...batch);
          expect(new Set(await submitAll(lane, batch))).toEqual(new Set(['stored']));
        }
      };
      const read = async () => {
        const seen: number[] = [];
        for (let more = true; more; ) {
          const last = seen.at(-1) ?? 0;
          const finishing = !writing;
          const rows = await harbour.sql<{ seq: string }>(
            'SELECT seq FROM events_outbox WHERE seq > $1 ORDER BY seq',
            [last],
          );
          seen.push(...rows.map(({ seq }) => Number(seq)));
          more = !(finishing && rows.length === 0);
        }
        return seen;
      };
      const reading = read();
      await Promise.all(lanes.map(write)).finally(() => {
        writing = false;
      });
      // A late row would be missing here, and a gap that was filled later would be skipped.
      expect(await reading).toEqual(sent.map((_, place) => place + 1));
      await expectStoredOnce(harbour, sent);
    }));
});

describe('deletion requests', () => {
  it('count their targets as weight: a thousand targets fill a batch', () =>
    inHarbour(async (harbour) => {
      const targets = (count: number) => Array.from({ length: count }, () => ['e', hex(32)]);
      const lane = await harbour.lane();
      const requests = [1_500, 1_500, 1, 1].map((count) => draft({ kind: 5, tags: targets(count) }));
      expect(await submitAll(lane, requests)).toEqual(Array(4).fill('stored'));
      expect(harbour.commits.map(({ decisions }) => decisions.length)).toEqual([1, 1, 2]);
    }));

  it('refused because their author vanished still leave durable tombstones', () =>
    inHarbour(async (harbour) => {
      await harbour.sql(`ALTER DATABASE ${harbour.connection.database} SET synchronous_commit = off`);
      await harbour.sql(`
        CREATE TABLE witness (durable text);
        CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          INSERT INTO witness SELECT current_setting('synchronous_commit'); RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER witness AFTER INSERT ON deletion_tombstones DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION witness();`);
      const lane = await harbour.lane();
      const pubkey = hex(32);
      expect(await lane.submit(draft({ kind: 62, pubkey }))).toBe('stored');
      const request = draft({ kind: 5, pubkey, tags: [['e', hex(32)]] });
      expect(await lane.submit(request)).toEqual(refusal('blocked', 'its author asked to vanish'));
      expect(await harbour.sql('SELECT durable FROM witness')).toEqual([{ durable: 'on' }]);
    }));
});

describe("the lane's sessions", () => {
  /** The settings at the moment of COMMIT, recorded by the server. */
  const WITNESS = `
    CREATE TABLE witness (
      relation text, isolation text, durable text, lock_ms int, statement_ms int, idle_ms int);
    CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO witness SELECT TG_TABLE_NAME, current_setting('transaction_isolation'),
        current_setting('synchronous_commit'),
        (SELECT setting FROM pg_settings WHERE name = 'lock_timeout')::int,
        (SELECT setting FROM pg_settings WHERE name = 'statement_timeout')::int,
        (SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout')::int;
      RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER witness AFTER INSERT ON event_dedupe DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION witness();
    CREATE CONSTRAINT TRIGGER witness AFTER INSERT ON live_bus DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION witness();`;

  it('commit durably under READ COMMITTED with time-outs, with any defaults of the database', () =>
    inHarbour(async (harbour) => {
      const { database } = harbour.connection;
      await harbour.sql(`ALTER DATABASE ${database} SET default_transaction_isolation = 'serializable'`);
      await harbour.sql(`ALTER DATABASE ${database} SET synchronous_commit = off`);
      await harbour.sql(WITNESS);
      const lane = await harbour.lane();
      expect(await lane.submit(draft())).toBe('stored');
      expect(await lane.submit(draft({ kind: 20_001 }))).toBe('broadcast');
      expect(await submitAll(lane, [draft({ kind: 20_001 }), draft()])).toEqual(['broadcast', 'stored']);
      const seen =
        await harbour.sql<Record<'lock_ms' | 'statement_ms' | 'idle_ms', number>>('SELECT * FROM witness');
      const rule = (relation: string, durable: string) =>
        expect.objectContaining({ relation, durable, isolation: 'read committed' });
      expect(seen).toEqual([
        rule('event_dedupe', 'on'),
        // Ephemeral events are not stored, so the commit need not wait for the disk.
        rule('live_bus', 'off'),
        rule('live_bus', 'on'),
        rule('event_dedupe', 'on'),
      ]);
      for (const { lock_ms, statement_ms, idle_ms } of seen) {
        for (const ms of [lock_ms, statement_ms, idle_ms]) {
          expect(ms).toBeGreaterThan(0);
          expect(ms).toBeLessThanOrEqual(30_000);
        }
      }
    }));
});

describe('a batch that fails on the data of one event', () => {
  const POISON = `
    CREATE FUNCTION refuse_poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.payload LIKE '%POISON%' THEN RAISE EXCEPTION 'poison' USING ERRCODE = '22000'; END IF;
      RETURN NEW;
    END $$;
    CREATE TRIGGER refuse_poison BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse_poison();`;

  it('is split until that event alone is refused and all others are stored', () =>
    inHarbour(async (harbour) => {
      await harbour.sql(POISON);
      const lane = await harbour.lane();
      const poisonous = new Set([0, 13, 50, 51, 99]);
      const batch = Array.from({ length: 100 }, (_, place) =>
        draft({ content: poisonous.has(place) ? 'POISON' : 'good' }),
      );
      const outcomes = await submitAll(lane, batch);
      expect(outcomes).toEqual(batch.map((_, place) => (poisonous.has(place) ? failed : 'stored')));
      const good = batch.filter((_, place) => !poisonous.has(place));
      await expectStoredOnce(harbour, good);
      const next = draft();
      expect(await lane.submit(next)).toBe('stored');
      await expectStoredOnce(harbour, [...good, next]);
    }));

  /** Any statement of the bundle fails; those sent after it fail too, with another error (25P02). */
  it.each([
    ['event_heads', { kind: 0 }],
    ['deletion_tombstones', { kind: 5, tags: [['e', hex(32)]] }],
    ['live_bus', { kind: 20_001 }],
    ['topic_totals', { kind: 1, tags: [['t', 'POISON']] }],
    ['event_dedupe', { kind: 1 }],
    ['events', { kind: 1 }],
    ['events_outbox', { kind: 1 }],
  ] as const)('whichever statement fails (%s), is split at once, without a pause', (table, event) =>
    inHarbour(async (harbour) => {
      const pubkey = hex(32);
      await harbour.sql(`
        CREATE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF NEW::text ~ '${pubkey}|POISON' THEN RAISE EXCEPTION 'poison' USING ERRCODE = '22000'; END IF;
          RETURN NEW;
        END $$;
        CREATE TRIGGER refuse_row BEFORE INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION refuse_row();`);
      const tries: number[] = [];
      const lane = await harbour.lane(harbour.connection, {
        warn: ({ attempt }: { attempt?: number }) => void tries.push(attempt ?? 0),
      });
      const author = hex(32);
      const version = (created_at: number) => draft({ kind: 0, pubkey: author, created_at });
      const target = draft({ pubkey: author, tags: [['t', 'b']] });
      expect(await submitAll(lane, [version(1), target])).toEqual(['stored', 'stored']);
      const good = [
        ...drafts(3, { tags: [['t', 'a']] }),
        version(2),
        draft({ kind: 5, pubkey: author, tags: [['e', target.event.id]] }),
        draft({ kind: 20_002 }),
      ];
      const poison = draft({
        pubkey,
        ...event,
        tags: [...('tags' in event ? event.tags : [])].map((tag) => [...tag]),
      });
      const outcomes = await submitAll(lane, [...good.slice(0, 3), poison, ...good.slice(3)]);
      expect(outcomes).toEqual([...Array(3).fill('stored'), failed, 'stored', 'stored', 'broadcast']);
      // Only a pause raises the number of attempts.
      expect([tries.length > 0, ...new Set(tries)]).toEqual([true, 1]);
    }),
  );

  it('leaves no trace of that event: an older version of its key is still the current one', () =>
    inHarbour(async (harbour) => {
      await harbour.sql(POISON);
      const lane = await harbour.lane();
      const author = hex(32);
      const version = (created_at: number, content: string) =>
        draft({ kind: 0, pubkey: author, created_at, content });
      const [good, poison] = [version(10, 'good'), version(20, 'POISON')];
      expect(await submitAll(lane, [good, poison])).toEqual(['stored', failed]);
      const between = version(15, 'good');
      expect(await lane.submit(between)).toBe('stored');
      expect(
        await harbour.sql("SELECT created_at::int, encode(event_id, 'hex') AS id FROM event_heads"),
      ).toEqual([{ created_at: 15, id: between.event.id }]);
    }));
});

describe('a COMMIT', () => {
  it.each([
    ['whose answer is lost', 'lose-answer'],
    ['sent just before the connection broke', 'cut-after'],
    ['that never reached the server', 'cut'],
  ] as const)('%s is tried again: every event is stored once, announced once, and OK', (_, kind) =>
    inHarbour(async (harbour) => {
      const proxy = await harbour.proxy();
      const lane = await harbour.lane(proxy.connection);
      const author = hex(32);
      const version = (created_at: number) => draft({ kind: 0, pubkey: author, created_at });
      const before = version(1);
      expect(await lane.submit(before)).toBe('stored');
      const batch = [...drafts(60), version(2), version(3), ...drafts(38)];
      const met = proxy.when(isCommit, { kind });
      const outcomes = submitAll(lane, batch);
      await met;
      expect(await outcomes).toEqual(batch.map(() => 'stored'));
      const announced = await harbour.sql<{ op: string; count: number }>(
        'SELECT op, count(*)::int FROM events_outbox GROUP BY op ORDER BY op',
      );
      expect(announced).toEqual([
        { op: 'delete', count: 2 },
        { op: 'upsert', count: 101 },
      ]);
      await expectStoredOnceByDedupe(harbour, [before, ...batch]);
    }),
  );

  it('comes before every OK: while it is pending no client gets an answer', () =>
    inHarbour(async (harbour) => {
      const proxy = await harbour.proxy();
      const lane = await harbour.lane(proxy.connection);
      const batch = [...drafts(10), ...drafts(2, { kind: 20_001 })];
      let answered = 0;
      const held = proxy.when(isCommit, { kind: 'freeze' });
      const outcomes = Promise.all(
        batch.map((submission) => lane.submit(submission).finally(() => (answered += 1))),
      );
      await held;
      await delay(300);
      expect(answered).toBe(0);
      expect(harbour.commits).toHaveLength(0);
      proxy.release();
      await outcomes;
      expect(answered).toBe(batch.length);
    }));

  it('with an unknown result, twice in a row, still stores each event once', () =>
    inHarbour(async (harbour) => {
      const proxy = await harbour.proxy();
      const lane = await harbour.lane(proxy.connection);
      const batch = drafts(20);
      void proxy.when(isCommit, { kind: 'lose-answer' }, 2);
      expect(await submitAll(lane, batch)).toEqual(batch.map(() => 'stored'));
      await expectStoredOnce(harbour, batch);
    }));

  /** As expectStoredOnce, where the outbox also has deletes. */
  async function expectStoredOnceByDedupe(harbour: Harbour, submissions: readonly Submission[]) {
    const rows = await harbour.sql<{ id: string }>("SELECT encode(id, 'hex') AS id FROM events ORDER BY 1");
    expect(rows.map(({ id }) => id)).toEqual(idsOf(submissions));
  }
});

describe('the text of the SQL', () => {
  const root = fileURLToPath(new URL('../..', import.meta.url));

  async function sources(folder: string, extension: string): Promise<{ path: string; text: string }[]> {
    const entries = await readdir(join(root, folder), { recursive: true });
    return Promise.all(
      entries
        .filter((entry) => entry.endsWith(extension) && !entry.endsWith('.test.ts'))
        .map(async (entry) => ({
          path: `${folder}/${entry}`,
          text: withoutComments(await readFile(join(root, folder, entry), 'utf8')),
        })),
    );
  }

  const withoutComments = (text: string) =>
    text
      .replace(/\/\*[\s\S]*?\*\//g, '')
      .replace(/^\s*\/\/.*$/gm, '')
      .replace(/--.*$/gm, '');

  it('never reads the time of the database', async () => {
    const names =
      'current_timestamp|current_time|current_date|localtime|localtimestamp|' +
      'clock_timestamp|statement_timestamp|transaction_timestamp|timeofday';
    const clock = new RegExp(String.raw`(?<!performance\.)\bnow\s*\(\s*\)|\b(?:${names})\b`, 'i');
    // The lane has its own clock, `options.now()`. Its own SQL is in lock.ts.
    const isSql = /\.sql\.ts$|^src\/events\/postgres\/(?!lane\/(?!lock\.))/;
    const store = (await sources('src', '.ts')).filter(({ path }) => isSql.test(path));
    const sql = [...store, ...(await sources('migrations', '.sql'))];
    expect(sql.length).toBeGreaterThan(5);
    // The doctor compares the server's clock with ours; it writes nothing.
    const guilty = sql.filter(({ path, text }) => path !== 'src/health/health.sql.ts' && clock.test(text));
    expect(guilty.map(({ path }) => path)).toEqual([]);
  });

  it('has NOTIFY in one place only, as a store elsewhere has it in its own', async () => {
    const guilty = (await sources('src', '.ts')).filter(({ text }) => /pg_notify\(|\bNOTIFY\s+\w/.test(text));
    const paths = guilty.map(({ path }) => path);
    expect(paths).toContain('src/events/postgres/batch.ts');
    for (const path of paths) expect(path).toMatch(/events\/(postgres\/batch|dynamodb\/.*\.sql)\.ts$/);
  });
});

describe('NOTIFY', () => {
  it('comes once for each batch that changed something, and not for duplicates', () =>
    inHarbour(async (harbour) => {
      const listener = await harbour.session();
      const heard: string[] = [];
      listener.on('notification', ({ payload }) => heard.push(payload ?? ''));
      await listener.query(`LISTEN ${OUTBOX_CHANNEL}`);
      const lane = await harbour.lane();
      const batches = [
        drafts(1),
        drafts(30),
        drafts(3, { kind: 20_001 }),
        [draft(), draft({ kind: 20_001 })],
      ];
      for (const batch of batches) await submitAll(lane, batch);
      const stored = batches[1]!;
      expect(await submitAll(lane, stored)).toEqual(stored.map(() => 'duplicate'));
      expect(await submitAll(lane, stored.slice(0, 1))).toEqual(['duplicate']);
      expect(harbour.commits).toHaveLength(6);
      // Notifications arrive in commit order, so after this one none is pending.
      await harbour.sql('SELECT pg_notify($1, $2)', [OUTBOX_CHANNEL, 'end']);
      await eventually(async () => heard.includes('end'), 'the last notification');
      expect(heard).toEqual(['', '', BUS_NOTICE, BUS_NOTICE, 'end']);
    }));
});

describe('a missing month', () => {
  const monthly = ['events_history', 'events_days30', 'event_tags_days30'];
  const dropMonth = async (harbour: Harbour) => {
    const [month] = monthsFrom(Date.now(), 1);
    for (const parent of monthly) await harbour.sql(`DROP TABLE ${parent}_${month!.suffix}`);
  };

  it('is created when needed, and the events wait for it', () =>
    inHarbour(async (harbour) => {
      await dropMonth(harbour);
      const lane = await harbour.lane();
      const batch = [...drafts(20), draft({ kind: 0, tags: [['t', 'sea']] })];
      expect(await submitAll(lane, batch)).toEqual(batch.map(() => 'stored'));
      await expectStoredOnce(harbour, batch);
    }));

  it('that another instance creates meanwhile does not lose an event', () =>
    inHarbour(async (harbour) => {
      await dropMonth(harbour);
      const proxy = await harbour.proxy();
      const lane = await harbour.lane(proxy.connection);
      // Its first attempt fails; before it retries, on a new connection, the month exists.
      let starts = 0;
      const reconnecting = proxy.when(({ type }) => type === '' && ++starts === 2, { kind: 'freeze' });
      const single = draft();
      const outcome = lane.submit(single);
      await reconnecting;
      await ensurePartitions(await harbour.session(), Date.now());
      proxy.release();
      expect(await outcome).toBe('stored');
    }));
});

describe("the end of the outbox's last range", () => {
  /** A range has a million offsets, and an empty store has two ranges. */
  const LAST_NUMBER = 1_999_999;

  it('stops neither events nor jobs: the next range is created when needed', () =>
    inHarbour(async (harbour) => {
      const lane = await harbour.lane();
      const [hidden, kept] = [draft(), draft()];
      expect(await lane.submit(hidden)).toBe('stored');
      await harbour.sql('UPDATE lane_state SET last_seq = $1', [LAST_NUMBER]);
      const which = { by: 'ids', refs: [{ community: 1, id: hidden.event.id }] } as const;
      expect(await lane.hide({ hidden: 'retention', purge: false, which })).toBe(1);
      await harbour.sql('UPDATE lane_state SET last_seq = $1', [LAST_NUMBER + 1_000_000]);
      expect(await lane.submit(kept)).toBe('stored');
      expect(await harbour.sql('SELECT seq::int, op FROM events_outbox WHERE seq > 1 ORDER BY seq')).toEqual([
        { seq: 2_000_000, op: 'delete' },
        { seq: 3_000_000, op: 'upsert' },
      ]);
    }));
});

describe('the queue', () => {
  const item = (community: number, bytes = 1) => ({ community, bytes });

  it('serves communities round-robin, and each in its own order', () => {
    const queue = new LaneQueue<{ community: number; bytes: number; place: number }>();
    for (let place = 0; place < 6; place++) queue.add({ ...item(1), place });
    for (let place = 0; place < 2; place++) queue.add({ ...item(2), place });
    queue.add({ ...item(3), place: 0 });
    const names = (batch: { community: number; place: number }[]) =>
      batch.map(({ community, place }) => `${community}.${place}`);
    expect(names(queue.take(5, 100))).toEqual(['1.0', '2.0', '3.0', '1.1', '2.1']);
    expect(queue.add({ ...item(2), place: 2 })).toBe(true);
    expect(names(queue.take(3, 100))).toEqual(['1.2', '2.2', '1.3']);
    expect(names(queue.take(100, 100))).toEqual(['1.4', '1.5']);
    expect(queue.take(100, 100)).toEqual([]);
    expect(queue.size).toBe(0);
  });

  it('limits a batch by bytes, but still accepts a single larger event', () => {
    const queue = new LaneQueue();
    for (const bytes of [50, 60, 200, 10]) queue.add(item(1, bytes));
    expect(queue.take(10, 100).map(({ bytes }) => bytes)).toEqual([50]);
    expect(queue.take(10, 100).map(({ bytes }) => bytes)).toEqual([60]);
    expect(queue.take(10, 100).map(({ bytes }) => bytes)).toEqual([200]);
    expect(queue.take(10, 100).map(({ bytes }) => bytes)).toEqual([10]);
  });

  it('leaves room for other communities when one floods it, by count and by bytes', () => {
    const queue = new LaneQueue();
    let taken = 0;
    while (queue.add(item(1))) taken += 1;
    expect(taken).toBe(QUEUE_EVENTS_MAX / 2);
    expect(queue.add(item(2))).toBe(true);
    queue.take(10, 1_000);
    expect(queue.add(item(1))).toBe(true);

    const heavy = new LaneQueue();
    expect(heavy.add(item(1, QUEUE_BYTES_MAX / 2))).toBe(true);
    expect(heavy.add(item(1, 1))).toBe(false);
    expect(heavy.add(item(2, QUEUE_BYTES_MAX / 2))).toBe(true);
    expect(heavy.add(item(3, 1))).toBe(false);
    heavy.take(1, 1);
    expect(heavy.add(item(3, 1))).toBe(true);
  });

  it('has a total limit, with any number of communities', () => {
    const queue = new LaneQueue();
    let taken = 0;
    for (let community = 0; queue.add(item(community % 1_000)); community++) taken += 1;
    expect(taken).toBe(QUEUE_EVENTS_MAX);
  });

  it('refuses with a reason when it is full, while another community is served', () =>
    inHarbour(async (harbour) => {
      const holder = await harbour.session();
      await holder.query('SELECT pg_advisory_lock($1)', [LANE_LOCK]);
      const lane = await harbour.lane();
      const share = QUEUE_EVENTS_MAX / 2;
      const first = lane.submit(draft());
      await someoneWaits(harbour);
      const flood = submitAll(lane, drafts(share));
      const refused = await lane.submit(draft());
      expect(refused).toEqual(refusal('rate-limited', expect.stringMatching(/busy/) as unknown as string));
      expect(lane.depth).toBe(share);
      const other = lane.submit(draft({}, 2));
      const order: string[] = [];
      void other.then(() => order.push('the other community'));
      void flood.then(() => order.push('the flood'));
      await holder.query('SELECT pg_advisory_unlock($1)', [LANE_LOCK]);
      expect(await first).toBe('stored');
      expect(await other).toBe('stored');
      expect(new Set(await flood)).toEqual(new Set(['stored']));
      expect(order).toEqual(['the other community', 'the flood']);
    }));
});

describe('close()', () => {
  it('finishes the queue, and accepts nothing more', () =>
    inHarbour(async (harbour) => {
      const lane = await harbour.lane();
      const holder = await harbour.session();
      await holder.query('SELECT pg_advisory_lock($1)', [LANE_LOCK]);
      const waiting = drafts(1_200);
      const outcomes = submitAll(lane, waiting);
      await someoneWaits(harbour);
      const closed = lane.close();
      const late = draft();
      expect(await lane.submit(late)).toEqual(refusal('error', 'the relay is shutting down'));
      await holder.query('SELECT pg_advisory_unlock($1)', [LANE_LOCK]);
      await closed;
      expect(new Set(await outcomes)).toEqual(new Set(['stored']));
      await expectStoredOnce(harbour, waiting);
      const left = await harbour.sql(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'minato'",
      );
      expect(left).toEqual([]);
    }));
});

/** These wait for the lane's time-outs of many seconds, so they run concurrently. */
describe.concurrent('an outage', () => {
  it('makes events wait; they are stored when the database is back', () =>
    inHarbour(async (harbour) => {
      const proxy = await harbour.proxy();
      const lane = await harbour.lane(proxy.connection);
      const first = draft();
      expect(await lane.submit(first)).toBe('stored');
      proxy.goDown();
      const batch = drafts(50);
      let settled = 0;
      const outcomes = Promise.all(
        batch.map((submission) => lane.submit(submission).finally(() => (settled += 1))),
      );
      await delay(1_500);
      expect(settled).toBe(0);
      proxy.comeBack();
      expect(await outcomes).toEqual(batch.map(() => 'stored'));
      await expectStoredOnce(harbour, [first, ...batch]);
    }));

  it('that lasts too long is reported to the clients, and the lane continues afterwards', () =>
    inHarbour(async (harbour) => {
      const proxy = await harbour.proxy();
      const lane = await harbour.lane(proxy.connection);
      proxy.goDown();
      expect(await submitAll(lane, drafts(3))).toEqual([failed, failed, failed]);
      proxy.comeBack();
      const next = draft();
      expect(await lane.submit(next)).toBe('stored');
      await expectStoredOnce(harbour, [next]);
    }));

  it('ends as soon as the database answers: a COMMIT with an unknown result is retried', () =>
    inHarbour(async (harbour) => {
      const proxy = await harbour.proxy();
      const lane = await harbour.lane(proxy.connection);
      proxy.goDown();
      expect(await lane.submit(draft())).toEqual(failed);
      proxy.comeBack();
      const lost = proxy.when(isCommit, { kind: 'lose-answer' });
      const event = draft();
      const outcome = lane.submit(event);
      await lost;
      expect(await outcome).toBe('stored');
      await expectStoredOnce(harbour, [event]);
    }));

  it('of one instance, frozen while it holds the lock, is ended by the server; others continue', () =>
    inHarbour(async (harbour) => {
      const proxy = await harbour.proxy();
      const frozen = await harbour.lane(proxy.connection);
      const other = await harbour.lane();
      const held = proxy.when(isCommit, { kind: 'freeze' });
      const [mine, theirs] = [draft(), draft()];
      const stuck = frozen.submit(mine);
      await held;
      expect(await other.submit(theirs)).toBe('stored');
      await expectStoredOnce(harbour, [theirs]);
      proxy.release();
      expect(await stuck).toBe('stored');
      await expectStoredOnce(harbour, [mine, theirs]);
    }));

  it('in which the connection hangs without breaking does not stop the lane for ever', () =>
    inHarbour(async (harbour) => {
      const proxy = await harbour.proxy();
      const lane = await harbour.lane(proxy.connection);
      const silent = proxy.when(isCommit, { kind: 'freeze' });
      const event = draft();
      const outcome = lane.submit(event);
      await silent;
      // New connections work; only the one in use hangs.
      const timeout = delay(50_000, 'still waiting');
      const first = await Promise.race([outcome, timeout]);
      proxy.release();
      await outcome;
      expect(first).toBe('stored');
    }));
});
