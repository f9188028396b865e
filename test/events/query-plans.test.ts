/**
 * Every kind of query reads along its own index in the order of the answer, and its work grows with the
 * answer, not with the table. The test reads the plans that the reader pool really uses: generic plans on
 * partitions of several months, without statistics, with statistics, and on tables ten times larger.
 */

import { createHash } from 'node:crypto';
import type { Client, ClientBase, Pool, PoolClient } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeBatch } from '../../src/events/postgres/batch.js';
import { readFacts } from '../../src/events/postgres/facts.js';
import { HISTORY_ROWS_MAX } from '../../src/events/postgres/history.js';
import { ensurePartitions } from '../../src/events/postgres/partitions.js';
import { countEvents } from '../../src/events/postgres/read/count.js';
import { findStatement, readEventsById, readPayloads } from '../../src/events/postgres/read/find.js';
import { readRecords } from '../../src/events/postgres/read/records.js';
import type { Statement } from '../../src/events/postgres/read/statement.js';
import type { TagHash } from '../../src/events/postgres/tag-hash.js';
import { decideBatch } from '../../src/events/rules/batch/batch.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { type Filter, parseFilter } from '../../src/events/rules/filter.js';
import { Keep } from '../../src/events/rules/keep.js';
import { isRefusal } from '../../src/events/rules/reply.js';
import type { BatchWrites } from '../../src/events/rules/writes.js';
import type { Database } from '../../src/postgres/database.js';
import { NO_FACTS } from '../support/models/facts.js';
import { defaultSettings, openTestStore, type TestStore } from '../support/stores/store.js';

const COMMUNITY = 1;
const MONTHS = [0, 1, 2, 3, 4].map((month) => Date.UTC(2031, month, 15));
const EVENTS_FIRST = 2_500;
const EVENTS_LATER = 10 * EVENTS_FIRST;
const LIMIT = 20;
/** Seconds; none of the events expires. */
const NOW = 1_900_000_000;
const countOf = (pool: Pool, filter: Record<string, unknown>) =>
  countEvents(pool, tagHash, {
    community: COMMUNITY,
    filters: [parsed(filter)],
    max: LIMIT,
    now: NOW * 1_000,
  });
/** A page of negentropy, from within a second. */
const recordsOf = (pool: Pool, filter: Record<string, unknown>) =>
  readRecords(
    { pool, tagHash },
    {
      community: COMMUNITY,
      filter: parsed(filter),
      limit: LIMIT,
      now: NOW * 1_000,
      lower: { time: middle, id: Uint8Array.of(0x10) },
      upper: { time: Number.POSITIVE_INFINITY, id: new Uint8Array() },
      upTo: Number.MAX_SAFE_INTEGER,
    },
  );

// ── The events: by number, so that the larger table only has more of the same ──────────────────────────────

const hash = (text: string) => createHash('sha256').update(text).digest('hex');
const AUTHORS = Array.from({ length: 7 }, (_, at) => hash(`author ${at}`));
const TOPICS = ['sea', 'wind'];
const KINDS = [1, 7, 1, 6, 1, 30_023, 1, 0, 5, 1];
/** Every tenth event has the same second as the event before it. */
const timeOf = (at: number) => 1_700_000_000 + at - (at % 10 === 9 ? 1 : 0);

function eventAt(at: number): NostrEvent {
  const kind = KINDS[at % 10]!;
  // A deletion request must not delete events of the other queries.
  const named = kind === 5 ? 'nothing that is here' : `event ${at - (at % 50)}`;
  return {
    id: hash(`event ${at}`),
    pubkey: AUTHORS[at % 7]!,
    created_at: timeOf(at),
    kind,
    tags: [
      ['t', TOPICS[Math.floor(at / 10) % 2]!],
      ['d', `article ${at}`],
      ['p', AUTHORS[at % 3]!],
      ['e', hash(named)],
    ],
    content: 'x',
    sig: 'c'.repeat(128),
  };
}

// ── The shapes ─────────────────────────────────────────────────────────────────────────────────────────────

interface Shape {
  readonly name: string;
  /** A filter, or a call; of its statements the one that contains `text` is checked. */
  readonly filter: Record<string, unknown> | ((connection: Pool & ClientBase) => Promise<unknown>);
  readonly holds?: string;
  /** The indexes it uses, by the name of their partitioned parent. */
  readonly indexes: readonly string[];
  /** The number of index scans, one per value. */
  readonly walks: number;
  /** Index rows for each row of a scan: a lookup, a second tag, skipped rows. */
  readonly each?: number;
  /** Rows of one scan, where they are fewer than the limit. */
  readonly rows?: number;
}

const BY_TAG = ['event_tags_tag', 'events_place'];
const middle = timeOf(EVENTS_FIRST / 2);
const someIds = Array.from({ length: 30 }, (_, at) => hash(`event ${at * 50}`));
const manyKinds = [1, 6, 7, ...Array.from({ length: 60 }, (_, at) => 2_000 + at)];
/** Known and new, with and without a key. */
const submissions = Array.from({ length: 100 }, (_, at) => ({
  community: COMMUNITY,
  event: eventAt(at * 23),
  payload: '',
}));
/** Its older versions are history. */
const deletingProfile = {
  community: COMMUNITY,
  event: {
    ...eventAt(7),
    id: hash('a deletion'),
    kind: 5,
    tags: [['a', `0:${AUTHORS[0]}:`]],
    pubkey: AUTHORS[0]!,
  },
  payload: '',
};
/** Rows that do not exist, so that running the plan changes nothing. */
const supersedingNothing: BatchWrites = {
  ...decideBatch([], NO_FACTS, 0),
  hidden: someIds.map((id) => ({
    community: COMMUNITY + 1,
    id,
    row: { seq: -1, ingestedAt: MONTHS[0]!, keep: Keep.current },
    hidden: 'superseded',
    purge: false,
  })),
};
const SHAPES: Shape[] = [
  { name: 'newest', filter: {}, indexes: ['events_newest'], walks: 1 },
  { name: 'newest, until', filter: { until: middle }, indexes: ['events_newest'], walks: 1 },
  {
    name: 'newest, since and until',
    filter: { since: middle - 1_000, until: middle },
    indexes: ['events_newest'],
    walks: 1,
  },
  { name: 'a kind', filter: { kinds: [1] }, indexes: ['events_kind'], walks: 1 },
  { name: 'a kind, until', filter: { kinds: [7], until: middle }, indexes: ['events_kind'], walks: 1 },
  { name: 'kinds of all buckets', filter: { kinds: [0, 1, 5, 7] }, indexes: ['events_kind'], walks: 4 },
  { name: 'an author', filter: { authors: [AUTHORS[1]] }, indexes: ['events_author'], walks: 1 },
  { name: 'authors', filter: { authors: AUTHORS, until: middle }, indexes: ['events_author'], walks: 7 },
  {
    name: 'an author and a kind',
    filter: { authors: [AUTHORS[1]], kinds: [1] },
    indexes: ['events_author_kind'],
    walks: 1,
  },
  {
    name: 'authors and kinds',
    filter: { authors: AUTHORS, kinds: [1, 7], until: middle },
    indexes: ['events_author_kind'],
    walks: 14,
  },
  {
    name: 'profiles',
    filter: { authors: AUTHORS, kinds: [0] },
    indexes: ['events_author_kind'],
    walks: 7,
    rows: 1,
  },
  {
    name: 'more authors and kinds than are walked in pairs',
    filter: { authors: [...AUTHORS, hash('nobody'), hash('no one')], kinds: manyKinds },
    indexes: ['events_author'],
    walks: 9,
    each: 2,
  },
  { name: 'a topic', filter: { '#t': ['sea'] }, indexes: BY_TAG, walks: 1, each: 2 },
  { name: 'topics, until', filter: { '#t': TOPICS, until: middle }, indexes: BY_TAG, walks: 2, each: 2 },
  { name: 'a topic and a kind', filter: { '#t': ['sea'], kinds: [1] }, indexes: BY_TAG, walks: 1, each: 4 },
  { name: 'two tags', filter: { '#t': ['sea'], '#p': [AUTHORS[1]] }, indexes: BY_TAG, walks: 1, each: 8 },
  {
    name: 'a thread',
    filter: { '#e': [hash('event 100')], kinds: [1] },
    indexes: BY_TAG,
    walks: 1,
    each: 2,
    rows: 50,
  },
  {
    name: 'answers of one author',
    filter: { '#e': [hash('event 100')], authors: [AUTHORS[1]] },
    indexes: BY_TAG,
    walks: 1,
    each: 2,
    rows: 50,
  },
  {
    name: 'an address',
    filter: { authors: [AUTHORS[4]], kinds: [30_023], '#d': ['article 25'] },
    indexes: BY_TAG,
    walks: 1,
    each: 2,
    rows: 1,
  },
  {
    name: 'an author and a topic',
    filter: { authors: [AUTHORS[1]], '#t': ['sea'] },
    indexes: ['events_author', 'event_tags_tag'],
    walks: 1,
    each: 4,
  },
  {
    name: 'an author, a kind and a topic',
    filter: { authors: [AUTHORS[1]], kinds: [1], '#t': ['sea'] },
    indexes: ['events_author_kind', 'event_tags_tag'],
    walks: 1,
    each: 4,
  },
  {
    name: 'ids',
    filter: { ids: someIds },
    indexes: ['event_dedupe_pkey', 'events_place'],
    walks: 30,
    each: 2,
    rows: 1,
  },
  {
    name: 'ids and a topic',
    filter: { ids: someIds, '#t': ['sea'] },
    indexes: ['event_dedupe_pkey', 'events_place', 'event_tags_tag'],
    walks: 30,
    each: 4,
    rows: 1,
  },
  {
    name: 'COUNT of topics',
    filter: (pool) => countOf(pool, { '#t': ['sea', 'sky'] }),
    indexes: BY_TAG,
    walks: 2,
    each: 2,
  },
  {
    name: 'COUNT of authors',
    filter: (pool) => countOf(pool, { authors: AUTHORS.slice(0, 2) }),
    indexes: ['events_author'],
    walks: 2,
  },
  {
    name: 'records from the middle',
    filter: (pool) => recordsOf(pool, {}),
    indexes: ['events_newest'],
    walks: 1,
  },
  {
    name: 'records of an author and a kind',
    filter: (pool) => recordsOf(pool, { authors: [AUTHORS[1]], kinds: [1] }),
    indexes: ['events_author_kind'],
    walks: 1,
  },
  {
    name: 'records of a topic',
    filter: (pool) => recordsOf(pool, { '#t': ['sea'] }),
    indexes: BY_TAG,
    walks: 1,
    each: 2,
  },
  {
    name: 'payloads by place',
    filter: (pool) =>
      readPayloads(
        pool,
        someIds.map((_, at) => ({ seq: 1 + at, ingestedAt: MONTHS[0]!, keep: Keep.days30 })),
      ),
    indexes: ['events_place'],
    walks: 30,
    rows: 1,
  },
  {
    name: 'payloads by id',
    filter: (pool) =>
      readEventsById(
        pool,
        someIds.map((id) => ({ community: COMMUNITY, id })),
      ),
    indexes: ['event_dedupe_pkey', 'events_place'],
    walks: 30,
    each: 2,
    rows: 1,
  },
  {
    name: 'the lane: known ids',
    filter: (session) => readFacts(session, submissions, { now: MONTHS[0]!, settingsOf: defaultSettings }),
    holds: 'lane_state',
    indexes: ['deletion_tombstones_pkey', 'erasure_marks_pkey', 'event_dedupe_pkey', 'vanish_marks_pkey'],
    walks: 100,
    each: 3,
    rows: 1,
  },
  {
    name: 'the lane: heads',
    filter: (session) => readFacts(session, submissions, { now: MONTHS[0]!, settingsOf: defaultSettings }),
    holds: 'event_heads',
    indexes: ['event_heads_pkey', 'event_dedupe_pkey'],
    walks: 100,
    each: 2,
    rows: 1,
  },
  {
    name: 'the lane: history of an address',
    filter: (session) =>
      readFacts(session, [deletingProfile], { now: MONTHS[0]!, settingsOf: defaultSettings }),
    holds: 'asked.until',
    indexes: ['events_history_author'],
    walks: 1,
    rows: HISTORY_ROWS_MAX,
  },
  {
    name: 'the lane: superseded rows',
    filter: (session) => writeBatch(session, supersedingNothing, { now: 0, tagHash }),
    holds: 'UPDATE events e',
    indexes: ['event_dedupe_pkey', 'events_place'],
    walks: 100,
    each: 2,
    rows: 1,
  },
  {
    name: 'the lane: tags of superseded rows',
    filter: (session) => writeBatch(session, supersedingNothing, { now: 0, tagHash }),
    holds: 'DELETE FROM event_tags',
    indexes: ['event_tags_tag'],
    walks: 100,
    rows: 1,
  },
];

// ── Plans ──────────────────────────────────────────────────────────────────────────────────────────────────

interface PlanNode {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  Plans?: PlanNode[];
}

const nodesOf = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(nodesOf)];
/** The check for a running erasure: once per statement, in an index that is nearly always empty. */
const isVanishLook = (node: PlanNode) => node['Index Name'] === 'vanish_marks_pending';
/** Scans of a table that grows; these two tables have one row. A scan that never started reads nothing. */
const isScan = (node: PlanNode) =>
  node['Actual Loops'] > 0 &&
  !isVanishLook(node) &&
  node['Node Type'].endsWith('Scan') &&
  ![undefined, 'lane_state', 'moderation_version'].includes(node['Relation Name']);
/** `Actual Rows` is the mean of all loops, so the product may be off by rounding. */
const rowsOut = (node: PlanNode) => node['Actual Rows'] * node['Actual Loops'];
/** Rows that the indexes returned in the whole plan. */
const rowsRead = (plan: PlanNode) =>
  nodesOf(plan)
    .filter(isScan)
    .map((node) => (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'])
    .reduce((sum, rows) => sum + Math.ceil(rows), 0);

/** All buckets and months: a scan that merges them reads the first row of each. */
const PARTITIONS = MONTHS.length + 2;
/** The server sorts ties in groups of at least this size. */
const SORT_GROUP = 32;
/** The most rows that the scans of a query may return. */
const answerMax = ({ walks, rows = LIMIT + SORT_GROUP + PARTITIONS }: Shape) => walks * rows;

/** A statement as in a long-lived session: prepared and used while the tables were empty, then kept. */
class Kept {
  private readonly types: string[];
  private constructor(
    private readonly session: ClientBase,
    private readonly name: string,
    text: string,
    count: number,
  ) {
    this.types = Array.from(
      { length: count },
      (_, at) => text.match(new RegExp(`\\$${at + 1}::(\\w+(?:\\[\\])?)`))![1]!,
    );
  }

  static async prepare(session: ClientBase, name: string, { text, values }: Statement): Promise<Kept> {
    const kept = new Kept(session, name, text, values.length);
    await session.query(`PREPARE ${name} AS ${text}`);
    const run = `EXECUTE ${name} (${await kept.literals(values)})`;
    // After five runs PostgreSQL may choose one generic plan.
    for (let times = 0; times < 7; times += 1) await session.query(run);
    return kept;
  }

  async explain(values: readonly unknown[]): Promise<PlanNode> {
    const { rows } = await this.session.query<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>(
      `EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE ${this.name} (${await this.literals(values)})`,
    );
    return rows[0]!['QUERY PLAN'][0].Plan;
  }

  /** EXECUTE takes no parameters, so the binary ones are written out. */
  private async literals(values: readonly unknown[]): Promise<string> {
    const casts = this.types.map((type, at) => `quote_literal($${at + 1}::${type}::text)`);
    const { rows } = await this.session.query<string[]>({
      text: `SELECT ${casts.join(', ')}`,
      values: [...values],
      rowMode: 'array',
    });
    return rows[0]!.join(', ');
  }
}

/** A row with a value for every column. */
const ANY_ROW = {
  last_seq: 0,
  community: COMMUNITY,
  id: hash('event 0'),
  seq: -1,
  ingested_at: MONTHS[0]!,
  keep: Keep.days30,
  payload: serializeEvent(eventAt(0)),
  was_hidden: null,
};

/** Records the statements of a call instead of running them. */
async function recorded(ask: (connection: Pool & ClientBase) => Promise<unknown>): Promise<Statement[]> {
  const statements: Statement[] = [];
  const connection = {
    query: async (statement: Statement) => {
      statements.push(statement);
      return { rows: [ANY_ROW] };
    },
  };
  // The result is not used and need not be valid for the caller.
  await ask(connection as unknown as Pool & ClientBase).catch(() => undefined);
  return statements;
}

// ── The tests ──────────────────────────────────────────────────────────────────────────────────────────────

let store: TestStore;
let database: Database;
let tagHash: TagHash;
let reader: PoolClient;
/** A session with the options of the lane. */
let lane: Client;
/** From the index of a partition to the index of its parent. */
let parents: Map<string, string>;

async function addEvents(from: number, to: number): Promise<void> {
  let now = 0;
  const lane = store.lane({ now: () => now });
  for (let start = from; start < to; start += 500) {
    // In order of time, as they would arrive: each month gets a part.
    now = MONTHS[Math.floor((start / to) * MONTHS.length)]!;
    const batch = Array.from({ length: Math.min(500, to - start) }, (_, at) => eventAt(start + at));
    const outcomes = await Promise.all(
      batch.map((event) => lane.submit({ community: COMMUNITY, event, payload: serializeEvent(event) })),
    );
    expect(outcomes.every((outcome) => outcome === 'stored')).toBe(true);
  }
  await lane.close();
}

async function statementOf({ filter, holds = '' }: Shape): Promise<Statement> {
  if (typeof filter !== 'function')
    return findStatement(
      { community: COMMUNITY, filter: parsed(filter), limit: LIMIT, now: NOW * 1_000 },
      tagHash,
    );
  return (await recorded(filter)).find(({ text }) => text.includes(holds))!;
}

function parsed(raw: Record<string, unknown>): Filter {
  const filter = parseFilter(raw, { 'limits.filterValuesMax': 1_000 });
  if (isRefusal(filter)) throw new Error(filter.why);
  return filter;
}

type Plans = Map<string, PlanNode>;
let kept: Map<string, Kept>;

async function readPlans(): Promise<Plans> {
  const plans: Plans = new Map();
  for (const shape of SHAPES) {
    plans.set(shape.name, await kept.get(shape.name)!.explain((await statementOf(shape)).values));
  }
  return plans;
}

let fresh: Plans;
let analyzed: Plans;
let larger: Plans;

beforeAll(async () => {
  store = await openTestStore({ now: () => MONTHS[0]! });
  database = store.database;
  tagHash = store.tagHash;
  const client = await database.connect();
  for (const month of MONTHS) await ensurePartitions(client, month);
  const { rows } = await client.query<{ name: string; parent: string }>(
    `SELECT c.relname AS name, pg_partition_root(c.oid)::regclass::text AS parent FROM pg_class c
     WHERE c.relkind = 'i' AND c.relispartition`,
  );
  parents = new Map(rows.map((row) => [row.name, row.parent]));
  reader = await database.pool.connect();
  lane = await database.connect({ indexWalks: true });
  kept = new Map();
  for (const shape of SHAPES) {
    const session = shape.name.startsWith('the lane') ? lane : reader;
    kept.set(shape.name, await Kept.prepare(session, `kept_${kept.size}`, await statementOf(shape)));
  }
  await addEvents(0, EVENTS_FIRST);
  fresh = await readPlans();
  await client.query('ANALYZE');
  analyzed = await readPlans();
  await addEvents(EVENTS_FIRST, EVENTS_LATER);
  await client.query('ANALYZE');
  larger = await readPlans();
  await client.end();
});
afterAll(async () => {
  reader.release();
  await lane.end();
  await store.close();
});

const times = [
  { when: 'made on empty tables', plans: () => fresh },
  { when: 'with statistics', plans: () => analyzed },
  { when: 'on a table ten times larger', plans: () => larger },
];

describe.each(times)('plans $when', ({ plans }) => {
  it.each(SHAPES)('$name: uses its own indexes and scans no table', ({ name, indexes }) => {
    const plan = plans().get(name)!;
    const scans = nodesOf(plan).filter(isScan);
    const used = scans.map((node) => {
      const index = node['Index Name'];
      return index === undefined
        ? `${node['Node Type']} on ${node['Relation Name']}`
        : (parents.get(index) ?? index);
    });
    expect([...new Set(used)].sort()).toEqual([...indexes].sort());
  });

  it.each(SHAPES)('$name: checks at most once whether somebody is vanishing', ({ name }) => {
    const looks = nodesOf(plans().get(name)!).filter(isVanishLook);
    // A COUNT is one statement of several selects.
    const selects = name.startsWith('COUNT') ? 2 : 1;
    expect(looks.reduce((sum, node) => sum + node['Actual Loops'], 0)).toBeLessThanOrEqual(selects);
  });

  it.each(SHAPES)('$name: sorts no more than its answer', (shape) => {
    for (const node of nodesOf(plans().get(shape.name)!)) {
      if (!node['Node Type'].includes('Sort')) continue;
      const input = node.Plans!.reduce((sum, child) => sum + rowsOut(child), 0);
      expect(input, JSON.stringify(node, undefined, 1)).toBeLessThanOrEqual(answerMax(shape));
    }
  });

  it.each(SHAPES)('$name: reads in proportion to its answer', (shape) => {
    expect(rowsRead(plans().get(shape.name)!)).toBeLessThanOrEqual(answerMax(shape) * (shape.each ?? 1));
  });
});

it.each(SHAPES)('$name: a table ten times larger is not read more', ({ name }) => {
  const before = rowsRead(analyzed.get(name)!);
  expect(rowsRead(larger.get(name)!)).toBeLessThanOrEqual(before + before / 4 + PARTITIONS);
});
