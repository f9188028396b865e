/**
 * The lane against a naive model, on a real database: whatever the order of arrival, the grouping into batches and the
 * number of lanes, the view is that of the model, and the outbox tells exactly how it came about (I3, I4, I5, I6, I8, I9).
 */
import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../src/config.js';
import { type NostrEvent, serializeEvent } from '../src/core/event.js';
import type { Outcome, Refusal } from '../src/core/reply.js';
import { LANE_LOCK, type Lane, startLane } from '../src/lane.js';
import { createLog } from '../src/log.js';
import { createMetrics } from '../src/metrics.js';
import { prepareDatabase } from '../src/node.js';
import { type Database, openDatabase } from '../src/postgres/database.js';
import { readTotals } from '../src/store/communities.js';
import { readBus, readHead, readOutbox } from '../src/store/outbox.js';
import { findEvents, readPayloads, readPayloadsById } from '../src/store/query.js';
import type { TagHash } from '../src/store/tag-hash.js';
import { createTestDatabase, type TestDatabase } from './support/database.js';

const SEED = 7447;
const ALL = 5_000;

// ── Events: small pools, so that keys, times and ids meet again and again ─────────────────────────────────────────

const hash = (text: string) => createHash('sha256').update(text).digest('hex');
const AUTHORS = ['alice', 'bob'].map(hash);
const KINDS = {
  regular: [1, 5, 62, 9_999, 65_535],
  replaceable: [0, 10_002],
  addressable: [30_000],
  ephemeral: [20_000, 29_999],
};
type Class = keyof typeof KINDS;
const CLASS_OF = new Map(
  Object.entries(KINDS).flatMap(([name, kinds]) => kinds.map((kind) => [kind, name as Class] as const)),
);
/** Colons, the empty value, what looks like another key, and what text cannot hold. */
const D_VALUES = ['', 'a', 'a:b', ':', '\u0000', '🌊', 'x'.repeat(5_000)];

interface Sent {
  /** 0, 1 or 2; each run has communities of its own. */
  readonly community: number;
  readonly event: NostrEvent;
}

const event = fc
  .record({
    kind: fc.constantFrom(...Object.values(KINDS)).chain((kinds) => fc.constantFrom(...kinds)),
    pubkey: fc.constantFrom(...AUTHORS),
    created_at: fc.integer({ min: 0, max: 6 }),
    d: fc.oneof(fc.constantFrom('', 'a'), fc.constantFrom(...D_VALUES)),
    topic: fc.constantFrom('sea', 'wind'),
    nonce: fc.integer({ min: 0, max: 20 }),
  })
  .map(({ kind, pubkey, created_at, d, topic, nonce }): NostrEvent => {
    const tags = [['t', topic], ...(CLASS_OF.get(kind) === 'addressable' ? [['d', d]] : [])];
    const content = `${nonce}`;
    const id = hash(JSON.stringify([pubkey, created_at, kind, tags, content]));
    return { id, pubkey, created_at, kind, tags, content, sig: 'c'.repeat(128) };
  });
const sent: fc.Arbitrary<Sent> = fc.record({ community: fc.constantFrom(0, 0, 0, 1, 2), event });

/** Events, most of them more than once, in a random order, cut into groups that arrive together. */
const arrivals = fc
  .array(sent, { minLength: 1, maxLength: 90, size: 'max' })
  .chain((list) => fc.shuffledSubarray([...list, ...list], { minLength: list.length }))
  .chain((list) =>
    fc.record({
      list: fc.constant(list),
      groups: fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 60, maxLength: 60, size: 'max' }),
      lanes: fc.infiniteStream(fc.boolean()),
    }),
  );

// ── The model ─────────────────────────────────────────────────────────────────────────────────────────────────────

function keyOf({ kind, pubkey, tags, id }: NostrEvent): string {
  const name = CLASS_OF.get(kind);
  if (name === 'replaceable') return JSON.stringify([kind, pubkey]);
  if (name === 'addressable') return JSON.stringify([kind, pubkey, tags.find((tag) => tag[0] === 'd')?.[1]]);
  return id;
}

/** What is effective in a community once all of these have arrived. The order of the list is not looked at. */
function modelView(list: readonly Sent[], community: number): Map<string, NostrEvent> {
  const byKey = new Map<string, NostrEvent[]>();
  for (const { community: where, event } of list) {
    if (where !== community || CLASS_OF.get(event.kind) === 'ephemeral') continue;
    byKey.set(keyOf(event), [...(byKey.get(keyOf(event)) ?? []), event]);
  }
  const winners = [...byKey.values()].map((versions) => {
    const newest = Math.max(...versions.map((version) => version.created_at));
    const ties = versions.filter((version) => version.created_at === newest);
    return ties.sort((a, b) => (a.id < b.id ? -1 : 1))[0]!;
  });
  return new Map(winners.map((winner) => [winner.id, winner]));
}

// ── The real thing ────────────────────────────────────────────────────────────────────────────────────────────────

let test: TestDatabase;
let database: Database;
let client: Client;
let tagHash: TagHash;
let lanes: [Lane, Lane];
let communitiesUsed = 0;

beforeAll(async () => {
  test = await createTestDatabase();
  database = openDatabase(test.connection);
  const log = createLog('warn');
  tagHash = await prepareDatabase(database, readConfig({ MINATO_TOPIC_MODE: 'open' }), Date.now, log);
  const options = { database, tagHash, log, now: Date.now };
  lanes = [
    startLane({ ...options, metrics: createMetrics() }),
    startLane({ ...options, metrics: createMetrics() }),
  ];
  client = await database.connect();
});
afterAll(async () => {
  await Promise.all(lanes.map((lane) => lane.close()));
  await client.end();
  await database.close();
  await test.drop();
});

/** Communities that no run has used. */
function newCommunities(): number {
  communitiesUsed += 3;
  return communitiesUsed;
}

function submit(lane: Lane, base: number, { community, event }: Sent): Promise<Outcome | Refusal> {
  return lane.submit({ community: base + community, event, payload: serializeEvent(event).payload });
}

async function viewOf(community: number): Promise<Map<string, NostrEvent>> {
  const rows = await findEvents(database.pool, community, { tags: [] }, ALL, tagHash);
  const payloads = await readPayloads(database.pool, rows);
  return new Map(rows.map((row, at) => [row.id, JSON.parse(payloads[at]!) as NostrEvent]));
}

interface Announced {
  seq: number;
  community: number;
  op: 'upsert' | 'delete';
  reason: string | null;
  id: string;
  created_at: number;
  effective_key: string | null;
  topics: string[];
  author: string;
  kind: number;
}

async function outboxAfter(seq: number): Promise<Announced[]> {
  const { rows } = await client.query<Announced>(
    `SELECT seq, community, op, reason, encode(event_id, 'hex') AS id, created_at, effective_key, topics,
       encode(author, 'hex') AS author, kind
     FROM events_outbox WHERE seq > $1 ORDER BY seq`,
    [seq],
  );
  return rows;
}

/** Follows the outbox as a consumer would, and insists that each row makes sense where it stands. */
function replay(rows: readonly Announced[]): Map<number, Set<string>> {
  const views = new Map<number, Set<string>>();
  const everUpserted = new Set<string>();
  rows.forEach((row, at) => {
    const view = views.get(row.community) ?? new Set();
    views.set(row.community, view);
    const name = `${row.community}/${row.id}`;
    if (row.op === 'upsert') {
      expect(everUpserted.has(name), 'announced once (I3)').toBe(false);
      everUpserted.add(name);
      view.add(row.id);
      return;
    }
    expect(view.delete(row.id), 'only what is there is deleted').toBe(true);
    expect(row.reason).toBe('superseded');
    const successor = rows[at + 1];
    expect(successor, 'the successor follows at once').toMatchObject({
      op: 'upsert',
      community: row.community,
      effective_key: row.effective_key,
      author: row.author,
      kind: row.kind,
    });
    const isOlder = row.created_at < successor!.created_at;
    expect(isOlder || (row.created_at === successor!.created_at && row.id > successor!.id)).toBe(true);
  });
  return views;
}

async function expectModel(base: number, list: readonly Sent[], before: number): Promise<void> {
  const announced = await outboxAfter(before);
  const head = await readHead(database.pool);
  expect(announced.map((row) => row.seq)).toEqual(
    Array.from({ length: head - before }, (_, at) => before + at + 1),
  );
  // What consumers read is the same, whatever the size of their portions.
  const portions = [];
  for (let at = before; at < head; at = portions.at(-1)!.seq) {
    portions.push(...(await readOutbox(database.pool, at, 7)));
  }
  expect(portions).toEqual(announced.map(({ seq, community, op, id }) => ({ seq, community, op, id })));
  const replayed = replay(announced);
  for (const community of [0, 1, 2]) {
    const model = modelView(list, community);
    const view = await viewOf(base + community);
    expect(view).toEqual(model);
    expect(replayed.get(base + community) ?? new Set()).toEqual(new Set(model.keys()));
    const superseded = [
      ...new Set(list.filter((one) => one.community === community).map((one) => one.event.id)),
    ].filter((id) => !model.has(id));
    await expectNotFound(base + community, superseded);
    await expectRows(base + community, announced);
  }
}

/** I6: by no path. */
async function expectNotFound(community: number, ids: readonly string[]): Promise<void> {
  const gone = new Set(ids);
  for (const filter of [
    { ids: gone, tags: [] },
    { authors: new Set(AUTHORS), tags: [] },
    { kinds: new Set(CLASS_OF.keys()), tags: [] },
    { authors: new Set(AUTHORS), kinds: new Set(CLASS_OF.keys()), tags: [] },
    { tags: [{ name: 't', values: new Set(['sea', 'wind']) }] },
    { tags: [{ name: 'd', values: new Set(D_VALUES) }] },
  ]) {
    const found = await findEvents(database.pool, community, filter, ALL, tagHash);
    expect(found.filter((row) => gone.has(row.id))).toEqual([]);
  }
  expect(
    await readPayloadsById(
      database.pool,
      ids.map((id) => ({ community, id })),
    ),
  ).toEqual(new Map());
}

/** The tables under the view: each accepted id has one row and one dedupe row; tags and totals are of effective rows only. */
async function expectRows(community: number, announced: readonly Announced[]): Promise<void> {
  const upserts = announced.filter((row) => row.community === community && row.op === 'upsert');
  const { rows } = await client.query<{ stored: number; deduped: number; tagged: number; strays: number }>(
    `SELECT (SELECT count(*) FROM events WHERE community = $1) AS stored,
       (SELECT count(*) FROM event_dedupe d JOIN events e
          ON e.seq = d.seq AND e.ingested_at = d.ingested_at AND e.keep = d.keep AND e.id = d.event_id
          WHERE d.community = $1) AS deduped,
       (SELECT count(*) FROM event_tags WHERE community = $1) AS tagged,
       (SELECT count(*) FROM event_tags t LEFT JOIN events e
          ON e.seq = t.seq AND e.keep = t.keep AND e.ingested_at = t.ingested_at AND e.hidden IS NULL
          WHERE t.community = $1 AND e.seq IS NULL) AS strays`,
    [community],
  );
  const view = [...(await viewOf(community)).values()];
  const tagged = view.reduce((sum, event) => sum + new Set(event.tags.map((tag) => tag.join('\n'))).size, 0);
  expect(rows[0]).toEqual({ stored: upserts.length, deduped: upserts.length, tagged, strays: 0 });
  const bytes = view.reduce((sum, event) => sum + Buffer.byteLength(serializeEvent(event).payload), 0);
  expect(await readTotals(database.pool, community)).toEqual({ events: view.length, bytes });
}

/** I3: of all the times that an id was sent, exactly one was told that it is new, or none if it never was effective. */
function expectOutcomes(
  list: readonly Sent[],
  outcomes: readonly (Outcome | Refusal)[],
  announced: readonly Announced[],
): void {
  const byId = new Map<string, (Outcome | Refusal)[]>();
  list.forEach(({ community, event }, at) => {
    const name = `${community}/${event.id}`;
    byId.set(name, [...(byId.get(name) ?? []), outcomes[at]!]);
    const isEphemeral = CLASS_OF.get(event.kind) === 'ephemeral';
    expect(isEphemeral ? ['broadcast', 'duplicate'] : ['stored', 'duplicate', 'older']).toContain(
      outcomes[at],
    );
  });
  const isNew = (outcome: Outcome | Refusal) => outcome === 'stored' || outcome === 'broadcast';
  for (const [name, told] of byId) expect(told.filter(isNew).length, name).toBeLessThanOrEqual(1);
  const stored = [...byId.values()].map((told) => told.filter((outcome) => outcome === 'stored').length);
  expect(stored.reduce((sum, count) => sum + count, 0)).toBe(
    announced.filter((row) => row.op === 'upsert').length,
  );
  for (const [name, told] of byId) {
    if (told.includes('duplicate'))
      expect(told, name).toContain(told.includes('broadcast') ? 'broadcast' : 'stored');
  }
}

describe.each([
  { on: 'one lane', pick: () => 0 as const, numRuns: 60 },
  { on: 'two lanes at once', pick: (second: boolean) => (second ? 1 : 0) as 0 | 1, numRuns: 60 },
])('on $on', ({ pick, numRuns }) => {
  it('any order and grouping gives the view of the model, and the outbox replays to it', async () => {
    const property = fc.asyncProperty(arrivals, async ({ list, groups, lanes: choices }) => {
      const base = newCommunities();
      const before = await readHead(database.pool);
      const outcomes: (Outcome | Refusal)[] = [];
      for (let at = 0, group = 0; at < list.length; group += 1) {
        const together = list.slice(at, at + groups[group % groups.length]!);
        at += together.length;
        const told = together.map((one) => submit(lanes[pick(choices.next().value)], base, one));
        outcomes.push(...(await Promise.all(told)));
      }
      expectOutcomes(list, outcomes, await outboxAfter(before));
      await expectModel(base, list, before);
    });
    await fc.assert(property, { seed: SEED, numRuns });
  });

  it('sending everything again changes nothing', async () => {
    const list = fc.sample(sent, { seed: SEED, numRuns: 150 });
    const base = newCommunities();
    const before = await readHead(database.pool);
    const sendAll = (order: readonly Sent[]) =>
      Promise.all(order.map((one, at) => submit(lanes[pick(at % 2 === 1)], base, one)));
    await sendAll(list);
    const head = await readHead(database.pool);
    const told = await sendAll([...list].reverse());
    expect(await readHead(database.pool)).toBe(head);
    expect(told).not.toContain('stored');
    await expectModel(base, list, before);
  });
});

/** Resolves when this many sessions wait for the lane's lock. */
async function waitForLock(sessions: number): Promise<void> {
  for (let tries = 0; tries < 500; tries += 1) {
    const { rows } = await client.query<{ waiting: number }>(
      `SELECT count(*) AS waiting FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      [LANE_LOCK],
    );
    if (rows[0]!.waiting === sessions) return;
    await delay(10);
  }
  throw new Error(`${sessions} sessions never waited for the lock`);
}

/** Both lanes stand before the lock with their events, the first lane first; then it is theirs. */
async function race(
  base: number,
  first: readonly Sent[],
  second: readonly Sent[],
): Promise<(Outcome | Refusal)[]> {
  const holder = await database.connect();
  await holder.query('SELECT pg_advisory_lock($1)', [LANE_LOCK]);
  const told: Promise<Outcome | Refusal>[] = [];
  for (const [at, list] of [first, second].entries()) {
    told.push(...list.map((one) => submit(lanes[at as 0 | 1], base, one)));
    await waitForLock(at + 1);
  }
  await holder.end();
  return Promise.all(told);
}

describe('two lanes that wait for the lock at the same moment', () => {
  const version = (created_at: number, name: string): Sent => ({
    community: 0,
    event: {
      id: hash(name),
      pubkey: AUTHORS[0]!,
      created_at,
      kind: 0,
      tags: [],
      content: name,
      sig: 'c'.repeat(128),
    },
  });
  const ties = [version(5, 'one'), version(5, 'two')].sort((a, b) => (a.event.id < b.event.id ? -1 : 1));

  it('the same event on both is stored and announced once', async () => {
    const base = newCommunities();
    const before = await readHead(database.pool);
    const one = { ...version(5, 'same'), event: { ...version(5, 'same').event, kind: 1 } };
    expect(await race(base, [one], [one])).toEqual(['stored', 'duplicate']);
    expect(await outboxAfter(before)).toHaveLength(1);
    await expectModel(base, [one], before);
  });

  it.each([
    {
      name: 'older first',
      first: version(4, 'older'),
      second: version(5, 'newer'),
      told: ['stored', 'stored'],
    },
    {
      name: 'newer first',
      first: version(5, 'newer'),
      second: version(4, 'older'),
      told: ['stored', 'older'],
    },
    { name: 'a tie, lower id first', first: ties[0]!, second: ties[1]!, told: ['stored', 'older'] },
    { name: 'a tie, higher id first', first: ties[1]!, second: ties[0]!, told: ['stored', 'stored'] },
  ])('two versions of one key, $name: one is effective', async ({ first, second, told }) => {
    const base = newCommunities();
    const before = await readHead(database.pool);
    expect(await race(base, [first], [second])).toEqual(told);
    await expectModel(base, [first, second], before);
  });

  it('many versions on both leave one, and the numbers have no hole', async () => {
    const base = newCommunities();
    const before = await readHead(database.pool);
    const odd = Array.from({ length: 50 }, (_, at) => version(at % 7, `odd ${at}`));
    const even = Array.from({ length: 50 }, (_, at) => version(at % 7, `even ${at}`));
    await race(base, odd, even);
    await expectModel(base, [...odd, ...even], before);
    expect((await viewOf(base)).size).toBe(1);
  });
});

it('an ephemeral event goes to the live bus and leaves nothing else behind', async () => {
  const base = newCommunities();
  const before = await readHead(database.pool);
  const [one] = fc.sample(event, { seed: SEED, numRuns: 1 });
  const ephemeral: Sent = { community: 0, event: { ...one!, kind: 20_000 } };
  expect(await submit(lanes[0], base, ephemeral)).toBe('broadcast');
  const bus = (await readBus(database.pool, 0, ALL)).filter((entry) => entry.community === base);
  expect(bus.map((entry) => entry.payload)).toEqual([serializeEvent(ephemeral.event).payload]);
  expect(await readHead(database.pool)).toBe(before);
  expect(await viewOf(base)).toEqual(new Map());
});
