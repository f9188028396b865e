/**
 * Every shape of query walks the index that was made for it, in the order of the answer, and its work grows with the
 * answer, not with the table. Read from the plans that the reader pool really runs: generic, on partitions of several
 * months, before the tables have statistics, after, and ten times larger.
 */
import { createHash } from 'node:crypto';
import type { PoolClient } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../src/config.js';
import { type NostrEvent, serializeEvent } from '../src/core/event.js';
import { type Filter, parseFilter } from '../src/core/filter.js';
import { isRefusal } from '../src/core/reply.js';
import { startLane } from '../src/lane.js';
import { createLog } from '../src/log.js';
import { createMetrics } from '../src/metrics.js';
import { prepareDatabase } from '../src/node.js';
import { type Database, openDatabase } from '../src/postgres/database.js';
import { ensurePartitions } from '../src/store/partitions.js';
import { findStatement, type Statement } from '../src/store/query.js';
import type { TagHash } from '../src/store/tag-hash.js';
import { createTestDatabase, type TestDatabase } from './support/database.js';

const COMMUNITY = 1;
const MONTHS = [0, 1, 2, 3, 4].map((month) => Date.UTC(2031, month, 15));
const EVENTS_FIRST = 2_500;
const EVENTS_LATER = 10 * EVENTS_FIRST;
const LIMIT = 20;

// ── The events: by number, so that the larger table only has more of the same ─────────────────────────────────────

const hash = (text: string) => createHash('sha256').update(text).digest('hex');
const AUTHORS = Array.from({ length: 10 }, (_, at) => hash(`author ${at}`));
const TOPICS = ['sea', 'wind', 'rare'];
const KINDS = [1, 7, 1, 6, 1, 30_023, 1, 0, 5, 1];
/** Every tenth event shares its second with its forerunner. */
const timeOf = (at: number) => 1_700_000_000 + at - (at % 10 === 9 ? 1 : 0);

function eventAt(at: number): NostrEvent {
  return {
    id: hash(`event ${at}`),
    pubkey: AUTHORS[((at * 7) % 11) % 10]!,
    created_at: timeOf(at),
    kind: KINDS[((at * 3) % 13) % 10]!,
    tags: [
      ['t', TOPICS[at % 2]!],
      ['d', `${at % 500}`],
      ['p', AUTHORS[(at + 3) % 10]!],
      ['e', hash(`event ${at - (at % 50)}`)],
    ],
    content: 'x',
    sig: 'c'.repeat(128),
  };
}

// ── The shapes ────────────────────────────────────────────────────────────────────────────────────────────────────

interface Shape {
  readonly name: string;
  readonly filter: Record<string, unknown>;
  /** The indexes that it may use, by the name of their partitioned parent. */
  readonly indexes: readonly string[];
  /** How many index walks it asks for. */
  readonly values: number;
  /** Rows looked at for each row of a walk, where a condition is checked on the way. */
  readonly sparse?: number;
}

const BY_TAG = ['event_tags_tag', 'events_seq'];
const middle = timeOf(EVENTS_FIRST / 2);
const SHAPES: Shape[] = [
  { name: 'newest', filter: {}, indexes: ['events_newest'], values: 1 },
  { name: 'newest, until', filter: { until: middle }, indexes: ['events_newest'], values: 1 },
  {
    name: 'newest, since and until',
    filter: { since: middle - 1_000, until: middle },
    indexes: ['events_newest'],
    values: 1,
  },
  { name: 'a kind', filter: { kinds: [1] }, indexes: ['events_kind'], values: 1 },
  { name: 'a kind, until', filter: { kinds: [7], until: middle }, indexes: ['events_kind'], values: 1 },
  { name: 'kinds of all buckets', filter: { kinds: [0, 1, 5, 7] }, indexes: ['events_kind'], values: 4 },
  { name: 'an author', filter: { authors: [AUTHORS[1]] }, indexes: ['events_author'], values: 1 },
  { name: 'authors', filter: { authors: AUTHORS.slice(0, 5) }, indexes: ['events_author'], values: 5 },
  {
    name: 'an author and a kind',
    filter: { authors: [AUTHORS[1]], kinds: [1] },
    indexes: ['events_author_kind'],
    values: 1,
  },
  {
    name: 'authors and kinds',
    filter: { authors: AUTHORS.slice(0, 5), kinds: [1, 7], until: middle },
    indexes: ['events_author_kind'],
    values: 10,
  },
  {
    name: 'more authors and kinds than are walked in pairs',
    filter: { authors: AUTHORS, kinds: [1, ...Array.from({ length: 60 }, (_, at) => 2_000 + at)] },
    indexes: ['events_author'],
    values: 10,
    sparse: 6,
  },
  { name: 'a tag', filter: { '#t': ['sea'] }, indexes: BY_TAG, values: 1 },
  { name: 'tags, until', filter: { '#t': ['sea', 'wind'], until: middle }, indexes: BY_TAG, values: 2 },
  { name: 'a tag and a kind', filter: { '#t': ['sea'], kinds: [1] }, indexes: BY_TAG, values: 1, sparse: 6 },
  { name: 'two tags', filter: { '#t': ['sea'], '#p': [AUTHORS[1]] }, indexes: BY_TAG, values: 1, sparse: 30 },
  {
    name: 'a thread',
    filter: { '#e': [hash('event 0')], kinds: [1] },
    indexes: BY_TAG,
    values: 1,
    sparse: 6,
  },
  {
    name: 'an author and a tag',
    filter: { authors: [AUTHORS[1]], '#t': ['sea'] },
    indexes: ['events_author', 'event_tags_tag'],
    values: 1,
    sparse: 6,
  },
  {
    name: 'an author, a kind and a tag',
    filter: { authors: [AUTHORS[1]], kinds: [1], '#t': ['sea'] },
    indexes: ['events_author_kind', 'event_tags_tag'],
    values: 1,
    sparse: 6,
  },
  {
    name: 'an address',
    filter: { authors: [AUTHORS[1]], kinds: [30_023], '#d': ['5'] },
    indexes: BY_TAG,
    values: 1,
    sparse: 60,
  },
  {
    name: 'ids',
    filter: { ids: Array.from({ length: 30 }, (_, at) => hash(`event ${at * 50}`)) },
    indexes: ['event_dedupe_pkey', 'events_seq'],
    values: 30,
  },
  {
    name: 'ids and a tag',
    filter: { ids: Array.from({ length: 30 }, (_, at) => hash(`event ${at * 50}`)), '#t': ['sea'] },
    indexes: ['event_dedupe_pkey', 'events_seq', 'event_tags_tag'],
    values: 30,
  },
];

// ── Plans ─────────────────────────────────────────────────────────────────────────────────────────────────────────

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
const isScan = (node: PlanNode) => node['Relation Name'] !== undefined;
/** `Actual Rows` is the mean of all loops, so the product may be off by rounding. */
const rowsOut = (node: PlanNode) => node['Actual Rows'] * node['Actual Loops'];
const rowsRead = (node: PlanNode) =>
  (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'];

/** The plan that the reader pool runs: prepared, and so generic. Its parameters are given as literals. */
async function explain(reader: PoolClient, { text, values }: Statement): Promise<PlanNode> {
  const types = values.map((_, at) => text.match(new RegExp(`\\$${at + 1}::(\\w+(?:\\[\\])?)`))![1]!);
  const casts = types.map((type, at) => `quote_literal($${at + 1}::${type}::text)`);
  const { rows: literals } = await reader.query<string[]>({
    text: `SELECT ${casts.join(', ')}`,
    values,
    rowMode: 'array',
  });
  await reader.query(`PREPARE explained AS ${text}`);
  try {
    const { rows } = await reader.query<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>(
      `EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE explained (${literals[0]!.join(', ')})`,
    );
    return rows[0]!['QUERY PLAN'][0].Plan;
  } finally {
    await reader.query('DEALLOCATE explained');
  }
}

// ── The tests ─────────────────────────────────────────────────────────────────────────────────────────────────────

let test: TestDatabase;
let database: Database;
let tagHash: TagHash;
let reader: PoolClient;
/** From the index of a partition to the index of its parent. */
let parents: Map<string, string>;
const log = createLog('warn');

async function addEvents(from: number, to: number): Promise<void> {
  let now = 0;
  const lane = startLane({ database, tagHash, metrics: createMetrics(), log, now: () => now });
  for (let start = from; start < to; start += 500) {
    // In order of time, as they would come: each month takes a part, the last months are the newest.
    now = MONTHS[Math.floor((start / to) * MONTHS.length)]!;
    const batch = Array.from({ length: Math.min(500, to - start) }, (_, at) => eventAt(start + at));
    const outcomes = await Promise.all(
      batch.map((event) =>
        lane.submit({ community: COMMUNITY, event, payload: serializeEvent(event).payload }),
      ),
    );
    expect(outcomes.every((outcome) => outcome === 'stored')).toBe(true);
  }
  await lane.close();
}

async function readPlans(): Promise<Map<string, PlanNode>> {
  const { rows } = await reader.query<{ name: string; parent: string }>(
    `SELECT c.relname AS name, pg_partition_root(c.oid)::regclass::text AS parent FROM pg_class c
     WHERE c.relkind = 'i' AND c.relispartition`,
  );
  parents = new Map(rows.map((row) => [row.name, row.parent]));
  const plans = new Map<string, PlanNode>();
  for (const { name, filter } of SHAPES) {
    plans.set(name, await explain(reader, findStatement(COMMUNITY, parsed(filter), LIMIT, tagHash)));
  }
  return plans;
}

function parsed(raw: Record<string, unknown>): Filter {
  const filter = parseFilter(raw, { 'limits.filterValuesMax': 1_000 });
  if (isRefusal(filter)) throw new Error(filter.why);
  return filter;
}

let fresh: Map<string, PlanNode>;
let analyzed: Map<string, PlanNode>;
let larger: Map<string, PlanNode>;

beforeAll(async () => {
  test = await createTestDatabase();
  database = openDatabase(test.connection);
  tagHash = await prepareDatabase(database, readConfig({ MINATO_TOPIC_MODE: 'open' }), () => MONTHS[0]!, log);
  const client = await database.connect();
  for (const month of MONTHS) await ensurePartitions(client, month);
  reader = await database.pool.connect();
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
  await database.close();
  await test.drop();
});

const times = [
  { when: 'before the first statistics', plans: () => fresh },
  { when: 'with statistics', plans: () => analyzed },
  { when: 'on a table ten times larger', plans: () => larger },
];

describe.each(times)('plans $when', ({ plans }) => {
  it.each(SHAPES)('$name: walks its own indexes and reads no table through', ({ name, indexes }) => {
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

  it.each(SHAPES)('$name: sorts no more than its answer', ({ name, values }) => {
    for (const node of nodesOf(plans().get(name)!)) {
      if (!node['Node Type'].includes('Sort')) continue;
      const input = node.Plans!.reduce((sum, child) => sum + rowsOut(child), 0);
      expect(input, JSON.stringify(node, undefined, 1)).toBeLessThanOrEqual(values * (LIMIT + 2) + 2);
    }
  });

  it.each(SHAPES)('$name: reads in proportion to its answer', ({ name, values, sparse = 1 }) => {
    const scans = nodesOf(plans().get(name)!).filter(isScan);
    const read = scans.reduce((sum, node) => sum + rowsRead(node), 0);
    // Each walk may read one row of every partition before it merges them, and each row may be looked up again.
    expect(read).toBeLessThanOrEqual(values * sparse * 3 * (LIMIT + MONTHS.length + 10));
  });
});

it.each(SHAPES)('$name: a table ten times larger is not read more', ({ name }) => {
  const read = (plan: PlanNode) =>
    nodesOf(plan)
      .filter(isScan)
      .reduce((sum, node) => sum + rowsRead(node), 0);
  expect(read(larger.get(name)!)).toBeLessThanOrEqual(read(analyzed.get(name)!) * 1.5 + 2 * MONTHS.length);
});
