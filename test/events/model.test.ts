/**
 * The lane against a naive model, on a real database: for any order of arrival, any batches and any number of
 * lanes, the view is that of the model, and the outbox replays exactly to it (I3, I4, I5, I6, I8, I9).
 */
import fc from 'fast-check';
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readTotals } from '../../src/communities/communities.sql.js';
import { settingsFrom } from '../../src/communities/rules-settings.js';
import type { Lane } from '../../src/events/postgres/lane/lane.js';
import { countEvents } from '../../src/events/postgres/read/count.js';
import { findEvents, readEventsById, readPayloads } from '../../src/events/postgres/read/find.js';
import type { TagHash } from '../../src/events/postgres/tag-hash.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import type { Filter } from '../../src/events/rules/filter.js';
import { HIDDEN_CODES } from '../../src/events/rules/hidden.js';
import { isRefusal, type Outcome, type Refusal } from '../../src/events/rules/reply.js';
import { readBus, readHead, readOutbox } from '../../src/outbox/outbox.sql.js';
import type { Database } from '../../src/postgres/database.js';
import {
  type Arrived,
  AUTHORS,
  addressOf,
  CLASS_OF,
  D_VALUES,
  EVERYBODY,
  eventWith,
  isDeleted,
  isExpired,
  isNewer,
  isVanished,
  modelView,
  requestFor,
  SEED,
  type Sent,
  START,
  sentOf,
  shuffled,
} from '../support/models/event-model.js';
import { hash } from '../support/stores/life.js';
import { defaultSettings, inLockOrder, openTestStore, type TestStore } from '../support/stores/store.js';

const ALL = 5_000;

const event = eventWith([undefined, undefined, undefined, 1, 3, 1_000]);
const sent = sentOf(event);

/** Cut into groups that arrive together. */
const arrivals = shuffled(sent).chain((list) =>
  fc.record({
    list: fc.constant(list),
    groups: fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 60, maxLength: 60, size: 'max' }),
    seconds: fc.infiniteStream(fc.constantFrom(0, 0, 1, 2)),
    lanes: fc.infiniteStream(fc.boolean()),
  }),
);

// ── The real thing ─────────────────────────────────────────────────────────────────────────────────────────

let store: TestStore;
let database: Database;
let client: Client;
let tagHash: TagHash;
let lanes: [Lane, Lane];
let communitiesUsed = 0;
/** Seconds. */
let clock = START;

beforeAll(async () => {
  store = await openTestStore({ now: () => clock * 1_000 });
  database = store.database;
  tagHash = store.tagHash;
  const physical = settingsFrom(new Map([['deletion.mode', 'physical']]));
  const settingsOf = (community: number) => (community % 3 === 2 ? physical : defaultSettings());
  lanes = [store.lane({ settingsOf }), store.lane({ settingsOf })];
  client = await database.connect();
});
afterAll(async () => {
  await client.end();
  await store.close();
});

/** Three unused communities; the first id is a multiple of three. Resets the clock. */
function newCommunities(): number {
  communitiesUsed += 3;
  clock = START;
  return communitiesUsed;
}

function submit(lane: Lane, base: number, { community, event, vanishIn }: Sent): Promise<Outcome | Refusal> {
  return lane.submit({
    community: base + community,
    event,
    payload: serializeEvent(event),
    ...(vanishIn === undefined ? {} : { vanishIn: vanishIn.map((one) => base + one) }),
  });
}

const findAll = (community: number, filter: Filter) =>
  findEvents({ pool: database.pool, tagHash }, { community, filter, limit: ALL, now: clock * 1_000 });

async function viewOf(community: number): Promise<Map<string, NostrEvent>> {
  const rows = await findAll(community, { tags: [] });
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

/** Reads the outbox as a consumer would, and checks that each row is consistent with the rows before it. */
function replay(
  rows: readonly Announced[],
  base: number,
  list: readonly Arrived[],
): Map<number, Set<string>> {
  const views = new Map<number, Set<string>>();
  const everUpserted = new Set<string>();
  const sentAs = ({ community, id }: Announced): Arrived =>
    list.find((one) => one.community === community - base && one.event.id === id)!;
  rows.forEach((row, at) => {
    const view = views.get(row.community) ?? new Set();
    views.set(row.community, view);
    const name = `${row.community}/${row.id}`;
    const one = sentAs(row);
    expect({ ...row, effective_key: undefined }).toMatchObject({
      created_at: one.event.created_at,
      author: one.event.pubkey,
      kind: one.event.kind,
    });
    if (row.op === 'upsert') {
      expect(everUpserted.has(name), 'announced once (I3)').toBe(false);
      everUpserted.add(name);
      view.add(row.id);
      return;
    }
    expect(view.delete(row.id), 'only what is there is deleted').toBe(true);
    if (row.reason === 'nip09') {
      // A vanish also hides the author's deletion request: then only its effect is announced.
      const unseen = list.filter((other) => other.event.kind === 5 && isVanished(other, list));
      if (isDeleted(one, unseen)) return;
      let before = at - 1;
      while (rows[before]!.reason === 'nip09') before -= 1;
      expect(rows[before], 'its request stands before it').toMatchObject({
        op: 'upsert',
        kind: 5,
        community: row.community,
      });
      expect(isDeleted(one, [sentAs(rows[before]!)]), 'and is rightful').toBe(true);
      return;
    }
    expect(row.reason).toBe('superseded');
    const next = rows[at + 1];
    const isSucceeded =
      next?.op === 'upsert' &&
      next.community === row.community &&
      next.effective_key === row.effective_key &&
      isNewer(sentAs(next).event, one.event);
    // Or a newer version arrived that was deleted already; such a version is never announced.
    const key = addressOf(one.event);
    const unseen = list.filter(
      (other) =>
        other.community === one.community && addressOf(other.event) === key && isDeleted(other, list),
    );
    expect(isSucceeded || unseen.some((other) => isNewer(other.event, one.event))).toBe(true);
  });
  return views;
}

async function expectModel(base: number, list: readonly Arrived[], before: number): Promise<void> {
  const announced = await outboxAfter(before);
  const head = await readHead(database.pool);
  const { rows: withheld } = await client.query<{ seq: number }>(
    'SELECT seq FROM events WHERE seq > $1 AND hidden = $2',
    [before, HIDDEN_CODES.withheld],
  );
  const numbers = [...announced, ...withheld].map((row) => row.seq).sort((a, b) => a - b);
  expect(numbers, 'no gap, but for what is withheld').toEqual(
    Array.from({ length: head - before }, (_, at) => before + at + 1),
  );
  // Consumers read the same rows in batches of any size.
  const portions = [];
  for (let at = before; ; at = portions.at(-1)!.seq) {
    const { entries: portion } = await readOutbox(database.pool, at, 7);
    if (portion.length === 0) break;
    portions.push(...portion.map(({ seq, community, op, id }) => ({ seq, community, op, id })));
  }
  expect(portions).toEqual(announced.map(({ seq, community, op, id }) => ({ seq, community, op, id })));
  const replayed = replay(announced, base, list);
  for (const community of [0, 1, 2]) {
    const model = modelView(list, community, clock);
    const view = await viewOf(base + community);
    expect(view).toEqual(model);
    expect(
      await countEvents(database.pool, tagHash, {
        community: base + community,
        filters: [{ tags: [] }],
        max: ALL,
        now: clock * 1_000,
      }),
    ).toBe(model.size);
    const here = [
      ...new Map(
        list.filter((one) => one.community === community).map((one) => [one.event.id, one]),
      ).values(),
    ];
    // A later sweep announces events hidden by time or by a vanish mark.
    const unswept = replayed.get(base + community) ?? new Set();
    const shown = here.filter(
      (one) => unswept.has(one.event.id) && !isVanished(one, list) && !isExpired(one.event, clock),
    );
    expect(new Set(shown.map((one) => one.event.id))).toEqual(new Set(model.keys()));
    const gone = here.map((one) => one.event.id).filter((id) => !model.has(id));
    await expectNotFound(base + community, gone, unswept);
    const unsweptEvents = here.filter((one) => unswept.has(one.event.id)).map((one) => one.event);
    const deleted = new Set(here.filter((one) => isDeleted(one, list)).map((one) => one.event.id));
    await expectRows(base + community, announced, unsweptEvents, deleted);
    await expectHistory(base + community, deleted);
  }
}

/** No older version of a deleted event is left as history. */
async function expectHistory(community: number, deleted: ReadonlySet<string>): Promise<void> {
  const { rows } = await client.query<{ id: string }>(
    `SELECT encode(id, 'hex') AS id FROM events WHERE community = $1 AND hidden = $2`,
    [community, HIDDEN_CODES.superseded],
  );
  expect(rows.filter(({ id }) => deleted.has(id))).toEqual([]);
}

/** I6: the events are not found by any path. */
async function expectNotFound(
  community: number,
  ids: readonly string[],
  unswept: ReadonlySet<string>,
): Promise<void> {
  const gone = new Set(ids);
  for (const filter of [
    { ids: gone, tags: [] },
    { authors: new Set(EVERYBODY), tags: [] },
    { kinds: new Set(CLASS_OF.keys()), tags: [] },
    { authors: new Set(EVERYBODY), kinds: new Set(CLASS_OF.keys()), tags: [] },
    { tags: [{ name: 't', values: new Set(['sea', 'wind']) }] },
    { tags: [{ name: 'd', values: new Set(D_VALUES) }] },
    { tags: [{ name: 'p', values: new Set(EVERYBODY) }] },
  ]) {
    const found = await findAll(community, filter);
    expect(found.filter((row) => gone.has(row.id))).toEqual([]);
  }
  expect(
    await readEventsById(
      database.pool,
      ids.filter((id) => !unswept.has(id)).map((id) => ({ community, id })),
    ),
  ).toEqual(new Map());
}

interface Counts {
  stored: number;
  deduped: number;
  placed: number;
  purged: number;
  tagged: number;
  strays: number;
}

/**
 * The tables under the view: each accepted id has one dedupe row, and one event row unless it was purged.
 * Tags and totals belong to visible rows.
 */
async function expectRows(
  community: number,
  announced: readonly Announced[],
  unhidden: readonly NostrEvent[],
  deleted: ReadonlySet<string>,
): Promise<void> {
  const isHere = (row: Announced) => row.community === community;
  const upserts = announced.filter((row) => isHere(row) && row.op === 'upsert');
  const { rows } = await client.query<Counts>(
    `SELECT (SELECT count(*) FROM events WHERE community = $1 AND hidden IS DISTINCT FROM 7) AS stored,
       (SELECT count(*) FROM event_dedupe WHERE community = $1 AND hidden IS DISTINCT FROM 7) AS deduped,
       (SELECT count(*) FROM event_dedupe d JOIN events e
          ON e.seq = d.seq AND e.ingested_at = d.ingested_at AND e.keep = d.keep AND e.id = d.event_id
          AND e.hidden IS NOT DISTINCT FROM d.hidden
          WHERE d.community = $1 AND d.hidden IS DISTINCT FROM 7) AS placed,
       (SELECT count(*)
       FROM event_dedupe d LEFT JOIN events e ON e.id = d.event_id AND e.community = d.community
          WHERE d.community = $1 AND d.hidden = 2 AND d.gone_at IS NOT NULL AND e.id IS NULL) AS purged,
       (SELECT count(*) FROM event_tags WHERE community = $1)
         - (SELECT coalesce(sum(cardinality(bound)), 0) FROM events
         WHERE community = $1 AND hidden IS NULL) AS tagged,
       (SELECT count(*) FROM event_tags t LEFT JOIN events e
          ON e.seq = t.seq AND e.keep = t.keep AND e.ingested_at = t.ingested_at AND e.hidden IS NULL
          WHERE t.community = $1 AND e.seq IS NULL) AS strays`,
    [community],
  );
  const isPhysical = community % 3 === 2;
  const purged = upserts.filter((row) => isPhysical && deleted.has(row.id)).length;
  const tagsOf = (event: NostrEvent) =>
    new Set(event.tags.filter(([name]) => name!.length === 1).map((tag) => tag.slice(0, 2).join('\n')));
  expect(rows[0]).toEqual({
    stored: upserts.length - purged,
    deduped: upserts.length,
    placed: upserts.length - purged,
    purged,
    tagged: unhidden.reduce((sum, event) => sum + tagsOf(event).size, 0),
    strays: 0,
  });
  const bytes = unhidden.reduce((sum, event) => sum + Buffer.byteLength(serializeEvent(event)), 0);
  expect(await readTotals(database.pool, community)).toEqual({ events: unhidden.length, bytes });
}

/** For each refusal, whether the model allows it. */
const isRightlyRefused: Record<string, (one: Arrived, list: readonly Arrived[]) => boolean> = {
  'deleted by its author': isDeleted,
  'its author asked to vanish': isVanished,
  expired: (one) => isExpired(one.event, one.clock),
};

/** I3: of all attempts to send an id exactly one was answered as new, or none if it was never effective. */
async function expectOutcomes(
  list: readonly Arrived[],
  outcomes: readonly (Outcome | Refusal)[],
  before: number,
): Promise<void> {
  const byId = new Map<string, (Outcome | Refusal)[]>();
  list.forEach((one, at) => {
    const name = `${one.community}/${one.event.id}`;
    const outcome = outcomes[at]!;
    byId.set(name, [...(byId.get(name) ?? []), outcome]);
    if (isRefusal(outcome)) {
      expect(isRightlyRefused[outcome.why]?.(one, list), `${name}: ${outcome.why}`).toBe(true);
      return;
    }
    const isEphemeral = CLASS_OF.get(one.event.kind) === 'ephemeral';
    expect(isEphemeral ? ['broadcast', 'duplicate'] : ['stored', 'duplicate', 'older']).toContain(outcome);
  });
  const isNew = (outcome: Outcome | Refusal) => outcome === 'stored' || outcome === 'broadcast';
  for (const [name, replies] of byId) expect(replies.filter(isNew).length, name).toBeLessThanOrEqual(1);
  const stored = [...byId.values()].map(
    (submitted) => submitted.filter((outcome) => outcome === 'stored').length,
  );
  const { rows } = await client.query<{ count: number }>(
    'SELECT count(*) AS count FROM event_dedupe WHERE seq > $1',
    [before],
  );
  expect(stored.reduce((sum, count) => sum + count, 0)).toBe(rows[0]!.count);
  for (const [name, replies] of byId) {
    if (replies.includes('duplicate'))
      expect(replies, name).toContain(replies.includes('broadcast') ? 'broadcast' : 'stored');
  }
}

/** I6: an event that was seen and then hidden is never seen again. */
class NoReturn {
  private readonly seen = new Set<string>();
  private readonly gone = new Set<string>();

  async look(base: number): Promise<void> {
    for (const community of [base, base + 1, base + 2]) {
      const rows = await findAll(community, { tags: [] });
      const view = new Set(rows.map((row) => `${community}/${row.id}`));
      for (const name of this.seen)
        if (name.startsWith(`${community}/`) && !view.has(name)) this.gone.add(name);
      for (const name of view) {
        expect(this.gone.has(name), `${name} came back`).toBe(false);
        this.seen.add(name);
      }
    }
  }
}

const now = (one: Sent): Arrived => ({ ...one, clock });

describe.each([
  { on: 'one lane', pick: () => 0 as const, numRuns: 30 },
  { on: 'two lanes at once', pick: (second: boolean) => (second ? 1 : 0) as 0 | 1, numRuns: 30 },
])('on $on', ({ pick, numRuns }) => {
  it('any order and any batches give the view of the model, and the outbox replays to it', async () => {
    const property = fc.asyncProperty(arrivals, async ({ list, groups, seconds, lanes: choices }) => {
      const base = newCommunities();
      const before = await readHead(database.pool);
      const noReturn = new NoReturn();
      const arrived: Arrived[] = [];
      const outcomes: (Outcome | Refusal)[] = [];
      for (let at = 0, group = 0; at < list.length; group += 1) {
        const together = list.slice(at, at + groups[group % groups.length]!);
        at += together.length;
        const submitted = together.map((one) => submit(lanes[pick(choices.next().value)], base, one));
        outcomes.push(...(await Promise.all(submitted)));
        arrived.push(...together.map((one) => ({ ...one, clock })));
        await noReturn.look(base);
        clock += seconds.next().value;
      }
      await expectOutcomes(arrived, outcomes, before);
      await expectModel(base, arrived, before);
    });
    await fc.assert(property, {
      seed: SEED,
      numRuns,
      interruptAfterTimeLimit: 50_000,
      markInterruptAsFailure: true,
    });
  });

  it('sending everything again changes nothing', async () => {
    const events = fc.sample(sent, { seed: SEED, numRuns: 150 });
    const list = [...events, ...fc.sample(requestFor(events), { seed: SEED, numRuns: 20 })];
    const base = newCommunities();
    const before = await readHead(database.pool);
    const sendAll = (order: readonly Sent[]) =>
      Promise.all(order.map((one, at) => submit(lanes[pick(at % 2 === 1)], base, one)));
    await sendAll(list);
    const head = await readHead(database.pool);
    const submitted = await sendAll([...list].reverse());
    expect(await readHead(database.pool)).toBe(head);
    expect(submitted).not.toContain('stored');
    await expectModel(base, list.map(now), before);
  });
});

/** Both lanes wait for the lock with their events, the first lane first; then the lock is released. */
async function race(
  base: number,
  first: readonly Sent[],
  second: readonly Sent[],
): Promise<(Outcome | Refusal)[]> {
  const all = (lane: Lane, list: readonly Sent[]) => () =>
    Promise.all(list.map((one) => submit(lane, base, one)));
  return (await inLockOrder(database, [all(lanes[0], first), all(lanes[1], second)])).flat();
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
    await expectModel(base, [now(one)], before);
  });

  it.each([
    {
      name: 'older first',
      first: version(4, 'older'),
      second: version(5, 'newer'),
      expected: ['stored', 'stored'],
    },
    {
      name: 'newer first',
      first: version(5, 'newer'),
      second: version(4, 'older'),
      expected: ['stored', 'older'],
    },
    { name: 'a tie, lower id first', first: ties[0]!, second: ties[1]!, expected: ['stored', 'older'] },
    { name: 'a tie, higher id first', first: ties[1]!, second: ties[0]!, expected: ['stored', 'stored'] },
  ])('two versions of one key, $name: one is effective', async ({ first, second, expected }) => {
    const base = newCommunities();
    const before = await readHead(database.pool);
    expect(await race(base, [first], [second])).toEqual(expected);
    await expectModel(base, [now(first), now(second)], before);
  });

  it('many versions on both leave one, and the offsets have no gap', async () => {
    const base = newCommunities();
    const before = await readHead(database.pool);
    const odd = Array.from({ length: 50 }, (_, at) => version(at % 7, `odd ${at}`));
    const even = Array.from({ length: 50 }, (_, at) => version(at % 7, `even ${at}`));
    await race(base, odd, even);
    await expectModel(base, [...odd, ...even].map(now), before);
    expect((await viewOf(base)).size).toBe(1);
  });
});

it('an ephemeral event goes to the live bus and leaves nothing else behind', async () => {
  const base = newCommunities();
  const before = await readHead(database.pool);
  const [one] = fc.sample(event, { seed: SEED, numRuns: 1 });
  const ephemeral: Sent = { community: 0, event: { ...one!, kind: 20_000, tags: [] } };
  expect(await submit(lanes[0], base, ephemeral)).toBe('broadcast');
  const bus = (await readBus(database.pool, 0, 1_000_000)).filter((entry) => entry.community === base);
  expect(bus.map((entry) => entry.payload)).toEqual([serializeEvent(ephemeral.event)]);
  expect(await readHead(database.pool)).toBe(before);
  expect(await viewOf(base)).toEqual(new Map());
});
