/**
 * Superseded versions on a real PostgreSQL: a deletion also deletes them, in both modes and in any number,
 * and the outbox announces nothing twice.
 */
import type { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { erase } from '../../src/erasure/jobs.js';
import { deleteHistory } from '../../src/events/jobs/delete-history.js';
import { purgeDeletedEvents } from '../../src/events/jobs/purge-deleted.js';
import { HISTORY_PAGE_SQL, HISTORY_ROWS_MAX } from '../../src/events/postgres/history.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { isRefusal, words } from '../../src/events/rules/reply.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type Job, type JobContext } from '../../src/jobs/job.js';
import { dryRunJob, runJob } from '../../src/jobs/run.js';
import { type Config, readConfig } from '../../src/node/config.js';
import { createLog } from '../../src/node/log.js';
import { startWriter, type Writer } from '../../src/node/writer.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { eventually } from '../support/cli.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

const SOFT = 'default';
const PHYSICAL = 'physical';
let test: TestDatabase;
let database: Database;
let writer: Writer;
let client: Client;
let context: JobContext;
let alice: Author;
let at: number;

let config: Config;

beforeAll(async () => {
  test = await createTestDatabase();
  config = readConfig({
    MINATO_TOPIC_MODE: 'open',
    MINATO_PUBLIC_URL: 'wss://relay.test/',
    MINATO_DATA_DIR: test.folder,
  });
  database = openDatabase(test.connection);
  writer = await startWriter({ database, config, log: createLog('silent') });
  client = await database.connect();
  const { store, communities, erasing } = writer;
  const { signal } = new AbortController();
  context = { database, store, communities, erasing, now: Date.now, signal, bounds: BOUNDS };
  const id = await addCommunity(database.pool, PHYSICAL, undefined, Date.now());
  await writeSetting(database.pool, id, 'deletion.mode', 'physical', Date.now());
  await writeSetting(database.pool, id, 'topic.mode', 'open', Date.now());
  await eventually('the settings', () => {
    const settings = communities.get(id)?.settings;
    return settings?.['deletion.mode'] === 'physical' && settings['topic.mode'] === 'open' ? true : undefined;
  });
});
afterAll(async () => {
  await client?.end();
  await writer?.close();
  await database?.close();
  await test?.drop();
});
beforeEach(() => {
  alice = newAuthor();
  at = nowSeconds() - 500;
});

async function post(slug: string, ...events: NostrEvent[]): Promise<string[]> {
  const community = writer.communities.find(undefined, slug)!;
  const outcomes = await Promise.all(events.map((event) => writer.admission.admit(community, event)));
  return outcomes.map((outcome) => (isRefusal(outcome) ? words(outcome) : outcome));
}
async function postEach(slug: string, ...events: NostrEvent[]): Promise<void> {
  for (const event of events) expect(await post(slug, event)).toEqual(['stored']);
}

async function run(job: Job, changed: Partial<JobContext> = {}) {
  const result = await runJob(job, { ...context, ...changed });
  if (result === 'busy') throw new Error('another job ran');
  return result;
}

const article = (second: number, d = 'x', draft: Draft = {}) =>
  sign(alice, {
    kind: 30_023,
    created_at: at + second,
    tags: [['d', d]],
    content: `${d} ${second}`,
    ...draft,
  });
const byAddress = (second: number, d = 'x') =>
  sign(alice, { kind: 5, created_at: at + second, tags: [['a', `30023:${alice.pubkey}:${d}`]] });
const byId = (second: number, ...events: NostrEvent[]) =>
  sign(alice, { kind: 5, created_at: at + second, tags: events.map(({ id }) => ['e', id]) });
const bytes = (...events: NostrEvent[]) => events.map(({ id }) => Buffer.from(id, 'hex'));

/** Why each event is hidden ("served" when it is not), in this order; undefined without a row. */
async function states(...events: NostrEvent[]): Promise<(number | 'served' | undefined)[]> {
  const { rows } = await client.query<{ id: string; hidden: number | null }>(
    `SELECT encode(id, 'hex') AS id, hidden FROM events WHERE id = ANY ($1)`,
    [bytes(...events)],
  );
  return events.map(({ id }) => {
    const row = rows.find((one) => one.id === id);
    return row && (row.hidden ?? 'served');
  });
}
const SUPERSEDED = 1;
const DELETED = 2;

async function announcements(event: NostrEvent): Promise<(string | null)[]> {
  const { rows } = await client.query<{ reason: string | null }>(
    'SELECT reason FROM events_outbox WHERE event_id = $1 ORDER BY seq',
    bytes(event),
  );
  return rows.map(({ reason }) => reason);
}

describe.each([
  [SOFT, DELETED],
  [PHYSICAL, undefined],
] as const)('in a community whose deletions are %s', (slug, gone) => {
  it('a deletion by address deletes every version up to its time, and nothing else', async () => {
    const versions = [article(0), article(1), article(2), article(9)] as const;
    const [first] = versions;
    const other = [article(0, 'y'), article(1, 'y')] as const;
    const neighbour = [article(0, 'x', { kind: 30_024 }), article(1, 'x', { kind: 30_024 })] as const;
    await postEach(slug, ...versions, ...other, ...neighbour);
    expect(await states(...versions)).toEqual([SUPERSEDED, SUPERSEDED, SUPERSEDED, 'served']);
    await postEach(slug, byAddress(2));
    expect(await states(...versions)).toEqual([gone, gone, gone, 'served']);
    expect(await states(...other, ...neighbour)).toEqual([SUPERSEDED, 'served', SUPERSEDED, 'served']);
    expect(await announcements(first)).toEqual([null, 'superseded']);
    expect(await post(slug, first)).toEqual(['blocked: deleted by its author']);
  });

  it('a deletion by id deletes the version that it names, and no other', async () => {
    const versions = [0, 1, 2].map((second) => article(second));
    await postEach(slug, ...versions, byId(5, versions[0]!));
    expect(await states(...versions)).toEqual([gone, SUPERSEDED, 'served']);
    expect(await announcements(versions[0]!)).toEqual([null, 'superseded']);
    expect(await post(slug, versions[0]!)).toEqual(['blocked: deleted by its author']);
  });

  it('a stranger’s deletion deletes none', async () => {
    const versions = [article(0), article(1)];
    await postEach(slug, ...versions);
    const { tags } = byId(5, ...versions);
    const stranger = newAuthor();
    await postEach(slug, sign(stranger, { kind: 5, tags: [...tags, ...byAddress(5).tags] }));
    expect(await states(...versions)).toEqual([SUPERSEDED, 'served']);
  });

  it('a version that is superseded and deleted in one batch is not kept as history', async () => {
    const before = article(0);
    await postEach(slug, before);
    const batch = [article(1), article(2), byAddress(2)];
    expect(await post(slug, ...batch)).toEqual(['stored', 'stored', 'stored']);
    expect(await states(before, ...batch)).toEqual([gone, gone, gone, 'served']);
  });

  it('a long history is deleted in bounded parts: some at once, the rest by a job', async () => {
    const [old, current, elsewhere] = [article(0), article(1), article(0, 'y')];
    await postEach(slug, old, current, elsewhere, article(1, 'y'));
    const copies = await copyHistory(old, 3 * HISTORY_ROWS_MAX);
    const others = await copyHistory(elsewhere, 20);
    await postEach(slug, byAddress(1));
    const left = () => countHistory(alice, ' x ');
    const leftAtOnce = await left();
    expect(leftAtOnce).toBeGreaterThan(0);
    expect(leftAtOnce).toBeLessThan(copies);
    const rows = leftAtOnce;
    expect(await dryRunJob(deleteHistory, context)).toMatchObject([
      { reason: 'deleted', class: 'addressable', rows },
    ]);
    const bounds = { rows: 300, batches: 1 };
    const first = await run(deleteHistory, { bounds });
    expect(first.more).toBe(true);
    expect(await left()).toBe(leftAtOnce - first.changed);
    let changed = first.changed;
    for (let more = true; more; ) {
      const part = await run(deleteHistory, { bounds });
      changed += part.changed;
      more = part.more;
    }
    expect(changed).toBe(leftAtOnce);
    expect(await left()).toBe(0);
    expect(await countHistory(alice, ' y ')).toBe(others + 1);
    expect(await states(old, current)).toEqual([gone, gone]);
    expect((await client.query('SELECT 1 FROM history_deletions')).rowCount).toBe(0);
    expect(await announcements(old)).toEqual([null, 'superseded']);
  });

  it('a request to vanish erases history as well', async () => {
    const versions = [article(0), article(1)];
    await postEach(slug, ...versions);
    await postEach(slug, sign(alice, { kind: 62, created_at: at + 5, tags: [['relay', 'ALL_RELAYS']] }));
    expect((await run(erase)).changed).toBeGreaterThanOrEqual(2);
    expect(await states(...versions)).toEqual([undefined, undefined]);
  });

  it.each(['request first', 'mark first'])(
    'a deletion from before its author’s mark applies to versions newer than the mark, %s',
    async (order) => {
      const newer = article(50);
      const together = article(51, 'z');
      const request = sign(alice, {
        kind: 5,
        created_at: at,
        tags: [
          ['e', newer.id],
          ['e', together.id],
        ],
      });
      const mark = sign(alice, { kind: 62, created_at: at + 10, tags: [['relay', 'ALL_RELAYS']] });
      await postEach(slug, newer);
      const replies = [await post(slug, ...(order === 'mark first' ? [mark] : [request]))];
      replies.push(await post(slug, ...(order === 'mark first' ? [request] : [mark])));
      const vanished = 'blocked: its author asked to vanish';
      expect(replies.flat()).toEqual(['stored', order === 'mark first' ? vanished : 'stored']);
      expect(await states(newer)).toEqual([gone]);
      expect(await post(slug, newer, together)).toEqual(Array(2).fill('blocked: deleted by its author'));
      expect(await post(slug, request)).toEqual([vanished]);
    },
  );
});

/** Adds `count` superseded versions, each a row with the content of the event. */
async function copyHistory(event: NostrEvent, count: number): Promise<number> {
  await client.query(
    `INSERT INTO events (seq, ingested_at, created_at, community, kind, keep, hidden, hidden_at, id, pubkey,
     payload)
     SELECT -n - (SELECT count(*)
     FROM events), ingested_at, created_at - n % 7, community, kind, keep, hidden, hidden_at,
       sha256(id || n::text::bytea), pubkey,
       replace(payload, encode(id, 'hex'), encode(sha256(id || n::text::bytea), 'hex'))
     FROM events, generate_series(1, $2) n WHERE id = $1`,
    [...bytes(event), count],
  );
  return count;
}

async function countHistory(author: Author, words_: string): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `SELECT count(*) AS count FROM events WHERE pubkey = $1 AND hidden = 1 AND ' ' || payload LIKE $2`,
    [Buffer.from(author.pubkey, 'hex'), `%"content":"${words_.trim()} %`],
  );
  return rows[0]!.count;
}

describe('a soft deletion', () => {
  it('keeps an older version for the audit time, even if its month is dropped', async () => {
    const versions = [article(0), article(1)];
    await postEach(SOFT, ...versions, byAddress(1));
    const { rows } = await client.query<{ tableoid: string }>(
      'SELECT tableoid::regclass::text AS tableoid FROM events WHERE id = ANY ($1)',
      [bytes(...versions)],
    );
    expect(rows.map(({ tableoid }) => tableoid)).toEqual(['events_current', 'events_current']);
    await client.query('UPDATE events SET hidden_at = $1 WHERE id = ANY ($2)', [
      Date.now() - 29 * DAY_MS,
      bytes(...versions),
    ]);
    await run(purgeDeletedEvents);
    expect(await states(...versions)).toEqual([DELETED, DELETED]);
    await client.query('UPDATE events SET hidden_at = $1 WHERE id = ANY ($2)', [
      Date.now() - 30 * DAY_MS,
      bytes(...versions),
    ]);
    await run(purgeDeletedEvents);
    expect(await states(...versions)).toEqual([undefined, undefined]);
    const dedupe = await client.query(
      'SELECT hidden, gone_at > 0 AS gone FROM event_dedupe WHERE event_id = ANY ($1)',
      [bytes(...versions)],
    );
    expect(dedupe.rows).toEqual(Array(2).fill({ hidden: DELETED, gone: true }));
    expect(await post(SOFT, versions[0]!)).toEqual(['blocked: deleted by its author']);
  });
});

it('a page of history reads along its index and scans no table', async () => {
  const session = await database.connect({ indexWalks: true });
  const values = [1, Buffer.alloc(32), 30_023, 1, 1, 500];
  const { rows } = await session.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${HISTORY_PAGE_SQL}`, values);
  await session.end();
  const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
  expect(plan).toMatch(
    /Index Scan Backward using events_history_\w+_community_pubkey_kind_created_at_seq_idx/,
  );
  expect(plan).not.toMatch(/Seq Scan|\bSort {2}\(/);
});
