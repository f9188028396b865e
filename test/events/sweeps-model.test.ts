/**
 * The whole life of events against the naive model, over two instances: any interleaving of arrivals, jobs
 * and time gives the view of the model after every step, for REQ and COUNT, and no hidden event is ever seen
 * again (I4, I5, I6, I7, I8, I11).
 */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { capacity } from '../../src/events/jobs/capacity.js';
import { expire } from '../../src/events/jobs/expire.js';
import { retain } from '../../src/events/jobs/retain.js';
import { ensurePartitions } from '../../src/events/postgres/partitions.js';
import { countEvents } from '../../src/events/postgres/read/count.js';
import { findEvents } from '../../src/events/postgres/read/find.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { topicDays } from '../../src/events/rules/retention.js';
import { BOUNDS, type Job } from '../../src/jobs/job.js';
import { JOBS as ALL_JOBS } from '../../src/jobs/list.js';
import type { Writer } from '../../src/node/writer.js';
import { eventually } from '../support/cli.js';
import { writeTopic } from '../support/domains/topics.js';
import {
  type Arrived,
  CLASS_OF,
  eventWith,
  isExpired,
  modelView,
  SEED,
  type Sent,
  START,
  sentOf,
  shuffled,
  vanishing,
} from '../support/models/event-model.js';
import { type Life, openLife } from '../support/stores/life.js';

/** The daily check of erasures changes nothing. */
const JOBS = ALL_JOBS.filter(({ name }) => name !== 'reaudit-erasures');

const DAY = 86_400;
const ALL = 5_000;
const LIMIT_MS = 100_000;
const TOPICS = ['sea', 'wind'];
/**
 * Short times, so that they end within a run. The first community remembers ids; the others forget them soon.
 */
const FIRST_DAYS = { regular: 3, wind: 5 };
const wind = (retentionDays: number) => ({ retentionDays, maxEvents: 3 });
const RULES = [
  {
    // The test replays the whole outbox.
    settings: { 'retention.regularDays': FIRST_DAYS.regular, 'retention.outboxDays': 3_650 },
    topics: { wind: wind(FIRST_DAYS.wind) },
  },
  {
    settings: {
      'retention.regularDays': 0,
      'retention.dedupeDays': 1,
      'retention.historyDays': 1,
      'deletion.auditDays': 1,
    },
  },
  { settings: { 'retention.regularDays': 0, 'retention.dedupeDays': 1, 'deletion.mode': 'physical' } },
];

let life: Life;

beforeAll(async () => {
  life = await openLife(START * 1_000, RULES, 2);
});
afterAll(() => life?.close());

const seconds = () => Math.floor(life.now / 1_000);

// ── Steps ──────────────────────────────────────────────────────────────────────────────────────────────────

type Step =
  | { readonly type: 'arrive'; readonly count: number; readonly instances: readonly number[] }
  | { readonly type: 'job'; readonly job: Job; readonly instance: number; readonly small: boolean }
  | { readonly type: 'rules'; readonly days: Days }
  | { readonly type: 'pass'; readonly seconds: number };
/** Days of the first community: the default, and those of one topic. */
type Days = typeof FIRST_DAYS;

const instance = fc.constantFrom(0, 1);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constant('arrive' as const),
      count: fc.integer({ min: 1, max: 25 }),
      instances: fc.array(instance, { minLength: 3, maxLength: 3 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constant('job' as const),
      job: fc.constantFrom(...JOBS, expire, retain, capacity, capacity, capacity),
      instance,
      small: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant('rules' as const),
      days: fc.record({ regular: fc.constantFrom(1, 3, 7), wind: fc.constantFrom(1, 5, 400) }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('pass' as const),
      seconds: fc.constantFrom(1, 2, DAY / 2, DAY, 2 * DAY, 4 * DAY),
    }),
  },
);
const events = shuffled(sentOf(eventWith([undefined, undefined, undefined, undefined, 1, 3, DAY, 3 * DAY])));
/** More requests to vanish than random arrivals would contain. */
const list = fc
  .tuple(events, fc.array(vanishing, { maxLength: 2 }), fc.nat())
  .map(([sent, goodbyes, at]) => sent.toSpliced(at % sent.length, 0, ...goodbyes));
/** There are few runs, so fast-check must not start with small ones. */
const course = fc.noBias(
  fc.record({ list, steps: fc.array(step, { minLength: 12, maxLength: 20, size: 'max' }) }),
);

// ── The model: as for arrivals alone, and then by time and space ───────────────────────────────────────────

const isRequest = ({ kind }: NostrEvent) => kind === 5;
const ages = (event: NostrEvent) => CLASS_OF.get(event.kind) === 'regular' && !isRequest(event);
const topicOf = ({ tags }: NostrEvent) => tags.find(([name]) => name === 't')?.[1] ?? '';

class Model {
  readonly arrived: Arrived[] = [];
  /** Community and id of events purged for space. */
  readonly removed = new Set<string>();
  /** Community and id of events that were past their days once, under any rules. */
  private readonly aged = new Set<string>();

  /** Must be called after each change of the clock or the rules. */
  age(): void {
    for (const [place, id] of life.communities.entries()) {
      const rules = life.writers[0]!.communities.get(id)!;
      for (const { event } of this.arrived.filter((one) => one.community === place))
        if (!this.isWithin(place, event, topicDays(rules, topicOf(event))))
          this.aged.add(`${place}/${event.id}`);
    }
  }

  arrive(events: readonly Sent[]): void {
    this.arrived.push(...events.map((one) => ({ ...one, clock: seconds() })));
  }

  private isWithin(place: number, event: NostrEvent, days: number): boolean {
    if (days === 0 || !ages(event)) return true;
    const first = this.arrived.find(
      (one) => one.community === place && one.event.id === event.id && !isExpired(event, one.clock),
    );
    return first === undefined || first.clock >= seconds() - days * DAY;
  }

  /** What is served. */
  view(place: number): NostrEvent[] {
    const isGone = ({ id }: NostrEvent) =>
      this.removed.has(`${place}/${id}`) || this.aged.has(`${place}/${id}`);
    return [...modelView(this.arrived, place, seconds()).values()].filter((event) => !isGone(event));
  }
}

const idsOf = (events: readonly NostrEvent[]) => events.map(({ id }) => id).sort();

// ── The real thing ─────────────────────────────────────────────────────────────────────────────────────────

async function find(place: number, topic?: string): Promise<string[]> {
  const { tagHash, communities } = life.writers[0]!;
  const community = life.communities[place]!;
  const query = { community, now: life.now, rules: communities.get(community)! };
  const filter = { tags: topic === undefined ? [] : [{ name: 't', values: new Set([topic]) }] };
  const { pool } = life.database;
  const [found, counted] = await Promise.all([
    findEvents({ pool, tagHash }, { ...query, filter, limit: ALL }),
    countEvents(pool, tagHash, { ...query, filters: [filter], max: ALL }),
  ]);
  expect(counted, 'COUNT says as much as REQ shows').toBe(found.length);
  return found.map(({ id }) => id).sort();
}

/** Checks everything that a client can see. */
class Witness {
  private readonly seen = new Set<string>();
  private readonly gone = new Set<string>();

  constructor(private readonly model: Model) {}

  async look(): Promise<void> {
    await Promise.all([0, 1, 2].map((place) => this.lookAt(place)));
  }

  private async lookAt(place: number): Promise<void> {
    const [all, ...byTopic] = await Promise.all([find(place), ...TOPICS.map((topic) => find(place, topic))]);
    const expected = this.model.view(place);
    TOPICS.forEach((topic, at) => {
      const isOf = (event: NostrEvent) => topicOf(event) === topic;
      // A deletion request may be bound to the topics of its target.
      const bound = new Set(idsOf(expected.filter((event) => isRequest(event) && !isOf(event))));
      expect(
        byTopic[at]!.filter((id) => !bound.has(id)),
        topic,
      ).toEqual(idsOf(expected.filter(isOf)));
    });
    expect(all).toEqual(idsOf(expected));
    this.expectNoReturn(place, all!);
  }

  private expectNoReturn(place: number, ids: readonly string[]): void {
    const view = new Set(ids.map((id) => `${place}/${id}`));
    for (const name of this.seen) if (name.startsWith(`${place}/`) && !view.has(name)) this.gone.add(name);
    for (const name of view) {
      expect(this.gone.has(name), `${name} came back`).toBe(false);
      this.seen.add(name);
    }
  }
}

interface Announced {
  seq: number;
  community: number;
  op: string;
  reason: string | null;
  id: string;
}

async function outboxAfter(seq: number): Promise<Announced[]> {
  const { rows } = await life.client.query<Announced>(
    `SELECT seq, community, op, reason, encode(event_id, 'hex') AS id FROM events_outbox
     WHERE seq > $1 AND op <> 'scrubbed' ORDER BY seq`,
    [seq],
  );
  return rows;
}

/** Expects that only the oldest regular events of the full topic were purged. */
function noteRemoved(model: Model, announced: readonly Announced[]): void {
  const removed = announced.filter(({ reason }) => reason === 'capacity');
  const seqOf = new Map(
    announced
      .filter(({ op }) => op === 'upsert')
      .map(({ id, community, seq }) => [`${community}/${id}`, seq]),
  );
  for (const { community, id } of removed) {
    const event = model.arrived.find((one) => one.event.id === id)!.event;
    expect({ community, topic: topicOf(event), ages: ages(event) }).toEqual({
      community: life.communities[0],
      topic: 'wind',
      ages: true,
    });
    model.removed.add(`0/${id}`);
  }
  const newest = Math.max(0, ...removed.map(({ id, community }) => seqOf.get(`${community}/${id}`)!));
  for (const event of model.view(0).filter((one) => topicOf(one) === 'wind' && ages(one)))
    expect(seqOf.get(`${life.communities[0]}/${event.id}`)).toBeGreaterThan(newest);
}

async function lastSeq(): Promise<number> {
  const { rows } = await life.client.query<{ last_seq: number }>('SELECT last_seq FROM lane_state');
  return rows[0]!.last_seq;
}

/** Empties the store, except for the offsets. */
async function startAgain(): Promise<void> {
  life.now = START * 1_000;
  await life.client.query(
    `TRUNCATE erasures, erasure_marks, erasure_certificates, events, event_tags, event_dedupe, event_heads,
     events_outbox, deletion_tombstones, deletion_quotas,
       vanish_marks, community_totals, topic_totals, capacity_steps, live_bus`,
  );
  await setDays(FIRST_DAYS);
  await life.client.query('UPDATE communities SET kept_since = 0');
  await life.client.query('UPDATE node_subscriptions SET kept_since = NULL');
  await life.client.query('UPDATE config_version SET version = version + 1');
  const isReset = ({ communities }: Writer) => communities.all().every(({ keptSince }) => keptSince === 0);
  await eventually('the rules', () => life.writers.every(isReset) || undefined);
  await ensurePartitions(life.client, life.now);
}

async function submit(events: readonly Sent[], instances: readonly number[]): Promise<void> {
  const idOf = (place: number) => life.communities[place]!;
  await Promise.all(
    events.map(({ community, event, vanishIn }, at) =>
      life.submit(instances[at % instances.length]!, idOf(community), event, vanishIn?.map(idOf)),
    ),
  );
}

async function take(next: Step, waiting: Sent[], model: Model, before: number): Promise<void> {
  switch (next.type) {
    case 'arrive': {
      const events = waiting.splice(0, next.count);
      model.arrive(events);
      return submit(events, next.instances);
    }
    case 'job':
      await life.run(next.job, next.instance, next.small ? { rows: 3, batches: 2 } : BOUNDS);
      return noteRemoved(model, await outboxAfter(before));
    case 'rules':
      await setDays(next.days);
      return model.age();
    case 'pass':
      life.now += next.seconds * 1_000;
      model.age();
  }
}

/** Waits until the days are in force on both instances. */
async function setDays(days: Days): Promise<void> {
  const [community] = life.communities as [number];
  const { pool } = life.database;
  await writeSetting(pool, community, 'retention.regularDays', days.regular, life.now);
  const rules = { pinned: true, public: true, priority: 0, policy: wind(days.wind) };
  await writeTopic(pool, community, 'wind', rules, life.now);
  const isKnown = ({ communities }: Writer) => {
    const { settings, topics } = communities.get(community)!;
    const { retentionDays } = topics.get('wind')!.policy;
    return settings['retention.regularDays'] === days.regular && retentionDays === days.wind;
  };
  await eventually('the rules', () => life.writers.every(isKnown) || undefined);
  await ensurePartitions(life.client, life.now);
}

/** After all jobs: no event is shown past its days, and the outbox replays to the view. */
async function expectSwept(model: Model, before: number): Promise<void> {
  for (const job of JOBS) await life.run(job, 1);
  const announced = await outboxAfter(before);
  noteRemoved(model, announced);
  const replayed = new Set<string>();
  for (const { op, community, id } of announced) {
    if (op === 'upsert') replayed.add(`${community}/${id}`);
    else expect(replayed.delete(`${community}/${id}`), 'only what is there is deleted').toBe(true);
  }
  const shown: string[] = [];
  for (const place of [0, 1, 2]) {
    const ids = await find(place);
    expect(ids).toEqual(idsOf(model.view(place)));
    shown.push(...ids.map((id) => `${life.communities[place]}/${id}`));
  }
  expect([...replayed].sort()).toEqual(shown.sort());
}

async function expectPurged(): Promise<void> {
  const { rows } = await life.client.query(
    'SELECT kind, hidden FROM events WHERE hidden IS NOT NULL AND kind <> 62',
  );
  expect(rows, 'what is hidden has been purged').toEqual([]);
}

it('any interleaving of arrivals, jobs and time ends in the view of the model, and nothing comes back', {
  timeout: 2 * LIMIT_MS,
}, async () => {
  const reasons = new Set<string | null>();
  const property = fc.asyncProperty(course, async ({ list, steps }) => {
    await startAgain();
    const before = await lastSeq();
    const model = new Model();
    const witness = new Witness(model);
    const waiting = [...list];
    for (const next of steps) {
      await take(next, waiting, model, before);
      await witness.look();
    }
    await take({ type: 'arrive', count: waiting.length, instances: [0, 1] }, waiting, model, before);
    await witness.look();
    await expectSwept(model, before);
    life.now += 45 * DAY * 1_000;
    model.age();
    await expectSwept(model, before);
    await expectPurged();
    for (const { op, reason } of await outboxAfter(before)) if (op === 'delete') reasons.add(reason);
    await take({ type: 'arrive', count: list.length, instances: [1, 0] }, [...list], model, before);
    await witness.look();
  });
  await fc.assert(property, {
    seed: SEED,
    numRuns: 8,
    interruptAfterTimeLimit: LIMIT_MS,
    markInterruptAsFailure: true,
  });
  expect([...reasons].sort(), 'every way to go was gone').toEqual(
    ['capacity', 'expiration', 'nip09', 'retention', 'superseded', 'vanish'].sort(),
  );
});
