/**
 * A key that has had a newer version never shows an older one again, even if the newer one was deleted
 * (before or after it arrived), expired, superseded, vanished or then purged (I4, I6). The test runs every
 * order of arrival, with sweeps of more than a month after every arrival, and all at once.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findEvents } from '../../src/events/postgres/read/find.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { JOBS as ALL_JOBS } from '../../src/jobs/list.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';

/** The jobs that purge events or their traces. */
const JOBS = ALL_JOBS.filter(({ purges }) => purges);

const START = Date.UTC(2026, 0, 10);
const STEPS_MAX = 4;
const ALL = 5_000;
/** So that one sweep purges the rows and the next forgets the ids. */
const SHORT = { 'deletion.auditDays': 1, 'retention.historyDays': 1, 'retention.dedupeDays': 1 };

let life: Life;

beforeAll(async () => {
  life = await openLife(START, [
    { settings: SHORT },
    { settings: { ...SHORT, 'deletion.mode': 'physical' } },
  ]);
});
afterAll(() => life?.close());

interface Shape {
  readonly kind: number;
  readonly d: string | undefined;
}
const ARTICLE = { kind: 30_023, d: 'a:b' };
/** One of each class in each community. */
const SHAPES: readonly (readonly Shape[])[] = [
  [{ kind: 0, d: undefined }, ARTICLE],
  [{ kind: 10_002, d: undefined }, ARTICLE],
];

/** Makes events of one author for one key; seconds count from the start of the course. */
interface Pen {
  readonly address: string;
  readonly expiration: string[];
  version(second: number, draft?: { content?: string; tags?: string[][] }): NostrEvent;
  deletion(tags: string[][], second: number): NostrEvent;
  vanish(second: number): NostrEvent;
}

const EXPIRES_AFTER_SECONDS = 86_400;

function penOf(pubkey: string, { kind, d }: Shape, start: number): Pen {
  const made = (draft: Partial<NostrEvent> & Pick<NostrEvent, 'kind'>, second: number) =>
    unsigned({ pubkey, created_at: start + second, ...draft });
  return {
    address: `${kind}:${pubkey}:${d ?? ''}`,
    expiration: ['expiration', `${start + EXPIRES_AFTER_SECONDS}`],
    version: (second, { content = '', tags = [] } = {}) =>
      made({ kind, content, tags: [...(d === undefined ? [] : [['d', d]]), ...tags] }, second),
    deletion: (tags, second) => made({ kind: 5, tags }, second),
    vanish: (second) => made({ kind: 62, tags: [['relay', 'ALL_RELAYS']] }, second),
  };
}

interface Scenario {
  readonly name: string;
  /** The events, which are sent in every order. */
  readonly sent: (pen: Pen) => NostrEvent[];
  /** The index in `sent` of the event that is served at the end. */
  readonly served?: number;
  /** The index of the event with an expiration, and of the event served if that one arrived too late. */
  readonly expiring?: { readonly place: number; readonly otherwise: number };
}

const twoVersions = (pen: Pen) => [pen.version(1), pen.version(2)] as const;
const SCENARIOS: readonly Scenario[] = [
  {
    name: 'the newest is deleted by its id',
    sent: (pen) => {
      const [old, newest] = twoVersions(pen);
      return [old, newest, pen.deletion([['e', newest.id]], 3)];
    },
  },
  {
    name: 'the address is deleted in the second of the newest',
    sent: (pen) => [...twoVersions(pen), pen.deletion([['a', pen.address]], 2)],
  },
  {
    name: 'the address is deleted before the newest was made',
    sent: (pen) => [...twoVersions(pen), pen.deletion([['a', pen.address]], 1)],
    served: 1,
  },
  {
    name: 'an older one is deleted by its id',
    sent: (pen) => {
      const [old, newest] = twoVersions(pen);
      return [old, newest, pen.deletion([['e', old.id]], 3)];
    },
    served: 1,
  },
  {
    name: 'the winner of a tie is deleted',
    sent: (pen) => {
      const ties = [pen.version(1, { content: 'one' }), pen.version(1, { content: 'other' })];
      const winner = ties.reduce((a, b) => (a.id < b.id ? a : b));
      return [...ties, pen.deletion([['e', winner.id]], 3)];
    },
  },
  {
    name: 'the newest supersedes one that supersedes another, and is deleted',
    sent: (pen) => {
      const newest = pen.version(3);
      return [...twoVersions(pen), newest, pen.deletion([['e', newest.id]], 4)];
    },
  },
  {
    name: 'the newest expires',
    sent: (pen) => [...twoVersions(pen), pen.version(3, { tags: [pen.expiration] })],
    expiring: { place: 2, otherwise: 1 },
  },
  {
    name: 'the newest expires and is deleted as well',
    sent: (pen) => {
      const newest = pen.version(2, { tags: [pen.expiration] });
      return [pen.version(1), newest, pen.deletion([['e', newest.id]], 3)];
    },
    expiring: { place: 1, otherwise: 0 },
  },
  {
    name: 'the author vanishes in the second of the newest',
    sent: (pen) => [...twoVersions(pen), pen.vanish(2)],
  },
  {
    name: 'the author vanishes before the newest was made',
    sent: (pen) => [...twoVersions(pen), pen.vanish(1)],
    served: 1,
  },
];

function permutations<T>(list: readonly T[]): T[][] {
  if (list.length <= 1) return [[...list]];
  return list.flatMap((first, at) =>
    permutations([...list.slice(0, at), ...list.slice(at + 1)]).map((rest) => [first, ...rest]),
  );
}

/** One order of arrival with its own author, so that all orders can run together. */
class Course {
  private readonly seen = new Set<string>();
  private readonly gone = new Set<string>();
  private served: readonly string[] = [];
  /** Whether the event with an expiration arrived before it. */
  private inTime = false;

  constructor(
    readonly name: string,
    readonly pubkey: string,
    readonly community: number,
    private readonly scenario: Scenario,
    private readonly sent: readonly NostrEvent[],
    readonly order: readonly NostrEvent[],
  ) {}

  async send(events: readonly NostrEvent[]): Promise<void> {
    const { expiring } = this.scenario;
    await Promise.all(
      events.map(async (event) => {
        const vanishIn = event.kind === 62 ? [this.community] : undefined;
        const outcome = await life.submit(0, this.community, event, vanishIn);
        if (expiring !== undefined && event === this.sent[expiring.place])
          this.inTime ||= outcome !== 'invalid: expired';
      }),
    );
  }

  look(served: readonly string[]): void {
    expect(served.length, `${this.name}: one for the key`).toBeLessThanOrEqual(1);
    for (const id of this.seen) if (!served.includes(id)) this.gone.add(id);
    for (const id of served) {
      expect(this.gone.has(id), `${this.name}: it came back`).toBe(false);
      this.seen.add(id);
    }
    this.served = served;
  }

  expectEnd(): void {
    const { served, expiring } = this.scenario;
    const place = expiring !== undefined && !this.inTime ? expiring.otherwise : served;
    expect(this.served, this.name).toEqual(place === undefined ? [] : [this.sent[place]!.id]);
  }
}

function coursesOf(round: string): Course[] {
  const start = Math.floor(life.now / 1_000);
  return life.communities.flatMap((community, at) =>
    SHAPES[at]!.flatMap((shape) =>
      SCENARIOS.flatMap((scenario) => {
        const places = scenario.sent(penOf(hash('anybody'), shape, start)).map((_, place) => place);
        return permutations(places).map((order) => {
          const place = `kind ${shape.kind}, in ${community}`;
          const name = `${scenario.name}, ${place}, order ${order.join(' ')}, ${round}`;
          const pubkey = hash(name);
          const sent = scenario.sent(penOf(pubkey, shape, start));
          const ordered = order.map((place) => sent[place]!);
          return new Course(name, pubkey, community, scenario, sent, ordered);
        });
      }),
    ),
  );
}

async function look(courses: readonly Course[]): Promise<void> {
  const { tagHash } = life.writers[0]!;
  for (const community of life.communities) {
    const here = courses.filter((course) => course.community === community);
    const kinds = new Set(SHAPES.flat().map(({ kind }) => kind));
    const filter = { authors: new Set(here.map(({ pubkey }) => pubkey)), kinds, tags: [] };
    const found = await findEvents(
      { pool: life.database.pool, tagHash },
      { community, filter, limit: ALL, now: life.now },
    );
    const ids = new Set(found.map(({ id }) => id));
    for (const course of here) course.look(course.order.map(({ id }) => id).filter((id) => ids.has(id)));
  }
}

/**
 * Moves the clock by more than a month and runs the jobs; then the ids of purged events are forgotten too.
 */
async function sweep(): Promise<void> {
  for (const days of [40, 2]) {
    life.now += days * DAY_MS;
    for (const job of JOBS) await life.run(job);
  }
}

/** Only heads, tombstones and marks are left of purged events. Then everything is sent once more. */
async function expectEnd(courses: readonly Course[]): Promise<void> {
  await sweep();
  await look(courses);
  const { rows } = await life.client.query(
    `SELECT (SELECT count(*) FROM events WHERE hidden IS NOT NULL AND kind <> 62) AS hidden,
       (SELECT count(*) FROM event_dedupe WHERE gone_at IS NOT NULL) AS gone`,
  );
  expect(rows).toEqual([{ hidden: 0, gone: 0 }]);
  await Promise.all(courses.map((course) => course.send(course.order)));
  await look(courses);
  for (const course of courses) course.expectEnd();
}

describe('a key whose newest version is no longer served, in every order of arrival', () => {
  it.each([1, 2, 3])('shows nothing older, with the sweeps after %i arrivals', async (sweepAt) => {
    const courses = coursesOf(`sweep at ${sweepAt}`);
    for (let step = 0; step < STEPS_MAX; step += 1) {
      if (step === sweepAt) await sweep();
      await Promise.all(courses.map((course) => course.send(course.order.slice(step, step + 1))));
      await look(courses);
    }
    await expectEnd(courses);
  });

  it('shows nothing older when all events arrive at once', async () => {
    const courses = coursesOf('at once');
    await Promise.all(courses.map((course) => course.send(course.order)));
    await look(courses);
    await expectEnd(courses);
  });
});
