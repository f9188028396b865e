/**
 * Two years of a small node, day by day, with a clock that the test moves: members post, edit, delete and
 * leave, and the jobs run. Events with a limited time free their space again, and events kept for ever are
 * all there (I6, I7, I11, I14).
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { countEvents } from '../../src/events/postgres/read/count.js';
import { findEvents, readPayloads } from '../../src/events/postgres/read/find.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import type { Job } from '../../src/jobs/job.js';
import { JOBS as ALL_JOBS } from '../../src/jobs/list.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';

/** The daily check of erasures changes nothing. */
const JOBS = ALL_JOBS.filter(({ name }) => name !== 'reaudit-erasures');

const START = Date.UTC(2026, 0, 1, 12);
const DAYS = 730;
/**
 * A node runs them far more often. The view does not depend on it, and limits that hold here also hold there.
 */
const SWEEP_EVERY_DAYS = 10;
const UPKEEP_EVERY_DAYS = 30;
const SWEEPS = new Set(['expire', 'erase', 'purge-deleted', 'retain']);
const LOOK_EVERY_DAYS = 30;
/**
 * After 90 + 180 days the events of the longest topic are purged and their ids forgotten; then nothing may
 * grow.
 */
const STEADY = { fromDay: 270, untilDay: 360 };
/** Months have different lengths, and pages are not always full. */
const TOLERANCE = 1.25;
/** Offsets that a busier node would use in a day, so that ranges of the outbox are created and dropped. */
const NUMBERS_PER_DAY = 20_000;
/** Tables of data that is kept for ever grow; no other table may. */
const FOR_EVER = new Set([
  'events_request',
  'event_tags_request',
  'deletion_tombstones',
  'vanish_marks',
  // Records of erasures and their certificates.
  'erasures',
  'erasure_marks',
  'erasure_certificates',
  // A consumer removes these rows within seconds; none runs here.
  'trust_due',
]);
/**
 * Days after which a month is dropped: the days of its events, the audit time, the month itself, and the wait
 * for sweep and drop.
 */
const GONE_AFTER_DAYS = { history: 7 + 31 + 30, days30: 30 + 30 + 31 + 40, days90: 90 + 30 + 31 + 40 };
const ALL = 5_000;

let life: Life;
let community: number;

beforeAll(async () => {
  life = await openLife(START, [{ topics: { long: { retentionDays: 90 } } }]);
  community = life.communities[0]!;
});
afterAll(() => life?.close());

const members = ['alice', 'bob', 'carol', 'dave', 'erin'].map(hash);
/** A guest joins each month and vanishes at its end. */
const guestOf = (day: number) => hash(`guest ${Math.floor(day / 30)}`);
const seconds = () => Math.floor(life.now / 1_000);
const topic = (name: string) => ['t', name];
const text = (name: string) => name.repeat(60);

// ── What should be there, kept by the simplest means ───────────────────────────────────────────────────────

interface Note {
  readonly event: NostrEvent;
  /** The last millisecond in which it is served. */
  readonly untilMs: number;
}

const notes = new Map<string, Note>();
/** By key: the latest version, unless its author deleted it. */
const current = new Map<string, NostrEvent>();
const keys = new Set<string>();
const requests = new Map<string, NostrEvent>();
/** Events that must never come back (I6), without those that only reached the end of their days. */
const gone: NostrEvent[] = [];
let tombstones = 0;
let vanished = 0;

const expected = () => [
  ...[...notes.values()].map(({ event }) => event.id),
  ...[...current.values(), ...requests.values()].map(({ id }) => id),
];

function passTime(): void {
  for (const [id, { event, untilMs }] of notes) {
    if (untilMs >= life.now) continue;
    notes.delete(id);
    if (event.tags.some(([name]) => name === 'expiration')) gone.push(event);
  }
}

// ── A day ──────────────────────────────────────────────────────────────────────────────────────────────────

function writeNotes(day: number): NostrEvent[] {
  const note = (name: string, servedMs: number, tags: string[][], pubkey = members[day % 5]!) => {
    const event = unsigned({ kind: 1, pubkey, created_at: seconds(), tags, content: text(`${name} ${day}`) });
    notes.set(event.id, { event, untilMs: life.now + servedMs });
    return event;
  };
  return [
    note('passing', 2 * DAY_MS - 1, [topic('short'), ['expiration', `${seconds() + 2 * 86_400}`]]),
    note('short', 30 * DAY_MS, [topic('short')]),
    note('plain', 30 * DAY_MS, []),
    note('both', 90 * DAY_MS, [topic('short'), topic('long')]),
    note('guest', 30 * DAY_MS, [topic('short')], guestOf(day)),
  ];
}

function writeVersions(day: number): NostrEvent[] {
  const version = (kind: number, pubkey: string, d: string, tags: string[][]) => {
    const event = unsigned({ kind, pubkey, created_at: seconds(), tags, content: text(`version ${day}`) });
    const key = `${kind}:${pubkey}:${d}`;
    const before = current.get(key);
    if (before !== undefined) gone.push(before);
    current.set(key, event);
    keys.add(key);
    return event;
  };
  const d = `article ${day % 3}`;
  return [
    version(0, members[day % 5]!, '', []),
    version(30_023, members[(day + 1) % 5]!, d, [['d', d], topic('long')]),
  ];
}

/** Deletes a note every third day and an article every tenth; a stranger's request has no effect. */
function writeRequests(day: number): NostrEvent[] {
  const request = (pubkey: string, tags: string[][]) => {
    const event = unsigned({ kind: 5, pubkey, created_at: seconds(), tags });
    requests.set(event.id, event);
    return event;
  };
  const made: NostrEvent[] = [];
  const [other, victim] = [...notes.values()].slice(-14, -12).map(({ event }) => event);
  if (day % 3 === 0 && victim !== undefined && other !== undefined) {
    made.push(request(victim.pubkey, [['e', victim.id]]), request(hash('stranger'), [['e', other.id]]));
    notes.delete(victim.id);
    gone.push(victim);
    tombstones += 1;
  }
  const [address, article] = [...current].find(([key]) => key.startsWith('30023:')) ?? [];
  if (day % 10 === 9 && address !== undefined && article !== undefined) {
    made.push(request(article.pubkey, [['a', address]]));
    current.delete(address);
    gone.push(article);
    deletedAddresses.add(address);
  }
  return made;
}
const deletedAddresses = new Set<string>();

async function sayGoodbye(day: number): Promise<void> {
  const pubkey = guestOf(day);
  const event = unsigned({ kind: 62, pubkey, created_at: seconds(), tags: [['relay', 'ALL_RELAYS']] });
  expect(await life.submit(0, community, event, [community])).toBe('stored');
  vanished += 1;
  const ofGuest = [...notes.values()].map((note) => note.event).concat([...requests.values()]);
  for (const one of ofGuest.filter((candidate) => candidate.pubkey === pubkey)) {
    notes.delete(one.id);
    requests.delete(one.id);
    gone.push(one);
  }
}

async function liveThrough(day: number): Promise<void> {
  passTime();
  const events = [...writeNotes(day), ...writeVersions(day), ...writeRequests(day)];
  const outcomes = await Promise.all(events.map((event) => life.submit(0, community, event)));
  expect(outcomes).toEqual(events.map(() => 'stored'));
  if (day % 30 === 29) await sayGoodbye(day);
  await life.client.query('UPDATE lane_state SET last_seq = last_seq + $1', [NUMBERS_PER_DAY]);
  const isDue = (job: Job) => (day + 1) % (SWEEPS.has(job.name) ? SWEEP_EVERY_DAYS : UPKEEP_EVERY_DAYS) === 0;
  for (const job of JOBS.filter(isDue)) await life.run(job);
}

// ── A check each month ─────────────────────────────────────────────────────────────────────────────────────

async function expectView(): Promise<void> {
  const { pool } = life.database;
  const { tagHash, communities } = life.writers[0]!;
  const query = { community, now: life.now, rules: communities.get(community)! };
  const filter = { tags: [] };
  const found = await findEvents({ pool, tagHash }, { ...query, filter, limit: ALL });
  expect(found.map(({ id }) => id).sort()).toEqual(expected().sort());
  expect(await countEvents(pool, tagHash, { ...query, filters: [filter], max: ALL })).toBe(found.length);
  const payloads = await readPayloads(pool, found);
  expect(payloads.map((payload) => (JSON.parse(payload!) as NostrEvent).id)).toEqual(
    found.map(({ id }) => id),
  );
}

/** Sends the first and the latest deleted events again. */
async function expectNoReturn(): Promise<void> {
  const again = [...gone.slice(0, 30), ...gone.slice(-60)];
  const outcomes = await Promise.all(again.map((event) => life.submit(0, community, event)));
  expect(outcomes.filter((outcome) => outcome === 'stored')).toEqual([]);
}

async function expectKept(): Promise<void> {
  const { rows } = await life.client.query(
    `SELECT (SELECT count(*) FROM deletion_tombstones WHERE community = $1) AS tombstones,
       (SELECT count(*) FROM vanish_marks WHERE community = $1 AND erased_at IS NOT NULL) AS vanished,
       (SELECT count(*) FROM event_heads WHERE community = $1) AS keys,
       (SELECT count(*) FROM events_request WHERE kind = 5) AS requests,
       (SELECT count(*) FROM event_dedupe WHERE hidden IS NULL AND event_id = ANY ($2)) AS known`,
    [community, expected().map((id) => Buffer.from(id, 'hex'))],
  );
  expect(rows[0]).toEqual({
    tombstones: tombstones + deletedAddresses.size,
    vanished,
    keys: keys.size,
    requests: requests.size,
    known: expected().length,
  });
}

const suffix = (ms: number) => new Date(ms).toISOString().slice(0, 7).replace('-', '_');

/** This month and the next exist, and no month past its time. */
async function expectMonths(): Promise<void> {
  const { rows } = await life.client.query<{ parent: string; name: string }>(
    `SELECT p.relname AS parent, c.relname AS name FROM pg_inherits i
     JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
     WHERE c.relkind = 'r' AND c.relname ~ '_\\d{4}_\\d{2}$' ORDER BY c.relname`,
  );
  const date = new Date(life.now);
  const ahead = [0, 1].map((at) => suffix(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + at, 1)));
  for (const [bucket, days] of Object.entries(GONE_AFTER_DAYS)) {
    const months = rows
      .filter(({ parent }) => parent === `events_${bucket}`)
      .map(({ name }) => name.slice(-7));
    expect(months, bucket).toEqual(expect.arrayContaining(ahead));
    expect(months[0]! >= suffix(life.now - days * DAY_MS), `${bucket} reaches back to ${months[0]}`).toBe(
      true,
    );
    const tags = rows
      .filter(({ parent }) => parent === `event_tags_${bucket}`)
      .map(({ name }) => name.slice(-7));
    if (bucket !== 'history') expect(months).toEqual(expect.arrayContaining(tags));
  }
}

/** Rows and bytes of each table with its partitions; the buckets of events separately. */
async function measure(): Promise<Map<string, number>> {
  // Does what autovacuum would have done by now.
  await life.client.query('VACUUM');
  const { rows } = await life.client.query<{ name: string; root: string; bytes: number }>(
    `SELECT c.relname AS name, regexp_replace(c.relname, '_(\\d{4}_\\d{2}|\\d+|all)$', '') AS root,
       pg_total_relation_size(c.oid) AS bytes
     FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace`,
  );
  const sizes = new Map<string, number>();
  const add = (what: string, size: number) => sizes.set(what, (sizes.get(what) ?? 0) + size);
  for (const { name, root, bytes } of rows) {
    if (FOR_EVER.has(root)) continue;
    const counted = await life.client.query<{ rows: number }>(`SELECT count(*) AS rows FROM ${name}`);
    add(`rows of ${root}`, counted.rows[0]!.rows);
    add(`bytes of ${root}`, bytes);
    add(`partitions of ${root}`, 1);
  }
  // The ids of deletion requests are kept as long as the requests.
  add('rows of event_dedupe', -requests.size - vanished);
  return sizes;
}

/** The outbox covers 30 days and no more, though one of its ranges covers 50. */
async function expectOutbox(): Promise<void> {
  const { rows } = await life.client.query<{ oldest: number; floor: number; first: number }>(
    `SELECT min(o.ingested_at) AS oldest, min(o.seq) AS first, min(s.outbox_floor) AS floor
     FROM events_outbox o, lane_state s`,
  );
  const { oldest, floor, first } = rows[0]!;
  expect(oldest).toBeGreaterThanOrEqual(life.now - 32 * DAY_MS);
  expect(first).toBeGreaterThanOrEqual(floor);
}

/** By name: the maximum of the first steady months. */
const most = new Map<string, number>();

async function expectNoGrowth(day: number): Promise<void> {
  const sizes = await measure();
  if (day < STEADY.fromDay) return;
  for (const [name, size] of sizes) {
    const before = most.get(name) ?? 0;
    if (day <= STEADY.untilDay) most.set(name, Math.max(before, size));
    else expect(size, `${name} on day ${day}, ${before} before`).toBeLessThanOrEqual(before * TOLERANCE);
  }
}

it('takes as much space after two years as after one, and loses nothing it should keep', {
  timeout: 900_000,
}, async () => {
  for (let day = 0; day < DAYS; day += 1) {
    await liveThrough(day);
    life.now += DAY_MS;
    if (day % LOOK_EVERY_DAYS !== LOOK_EVERY_DAYS - 1) continue;
    passTime();
    await expectView();
    await expectNoReturn();
    await expectKept();
    await expectMonths();
    await expectOutbox();
    await expectNoGrowth(day);
  }
  const { rows } = await life.client.query<{ outbox_floor: number }>('SELECT outbox_floor FROM lane_state');
  expect(rows[0]!.outbox_floor).toBeGreaterThan((DAYS / 2) * NUMBERS_PER_DAY);
  expect(most.size).toBeGreaterThan(20);
  expect(gone.length).toBeGreaterThan(1_000);
});
