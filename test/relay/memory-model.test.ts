/**
 * Memory and database give the same answer, for every kind of viewer, on two instances, whatever happens to
 * the events: writes, replacements, deletions, expiry, retention by topic, requests to vanish, removal and
 * restore, erasure, changed settings, events that are evicted from memory, memory that is cleared, and
 * restarts (I4–I8, I13).
 *
 * Each run has a database and two nodes of its own and starts at the same time, so a failed run can be
 * repeated alone: MODEL_SEED and MODEL_PATH take the seed and the path that it printed.
 */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { erase } from '../../src/erasure/jobs.js';
import { expire } from '../../src/events/jobs/expire.js';
import { retain } from '../../src/events/jobs/retain.js';
import { type Access, ANONYMOUS, seenBy } from '../../src/events/rules/access.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { type Filter, matchesNothing } from '../../src/events/rules/filter.js';
import { BOUNDS, type Job } from '../../src/jobs/job.js';
import { runJob } from '../../src/jobs/run.js';
import { eventually } from '../support/cli.js';
import { writeTopic } from '../support/domains/topics.js';
import { pinTopics, startTestNode, type TestNode } from '../support/node.js';
import { hash, unsigned } from '../support/stores/life.js';

const RUNS = 5;
const COMMUNITY = 1;
const START = Date.UTC(2026, 0, 10);
const KINDS = [1, 4, 7, 1_059, 10_002, 30_023];
const TOPICS = ['tea', 'brief', 'ü"\\', 'kukuri:global', 'kukuri:closed'];
const BUDGET_BYTES = 256 * 1_048_576;
/** More than a page of the filling. */
const EARLIER = 400;

// ── Steps and questions ────────────────────────────────────────────────────────────────────────────────────

const step = fc.record({
  what: fc.constantFrom(
    ...['post', 'post', 'post', 'post', 'post', 'post', 'expiring', 'delete', 'delete', 'delete-address'],
    ...['remove', 'restore', 'vanish', 'erase', 'pass', 'pass', 'sweep', 'days', 'default-days', 'public'],
    ...['evict', 'evict', 'clear', 'restart'],
  ),
  /** On which of the two nodes. */
  at: fc.nat(1),
  author: fc.nat(2),
  kind: fc.constantFrom(...KINDS),
  topics: fc.oneof(fc.constant<string[]>([]), fc.subarray(TOPICS)),
  age: fc.nat(6),
  target: fc.nat(50),
  /** Both nodes hold the whole community before the next step; otherwise the step meets the filling. */
  isFilled: fc.boolean(),
});
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

const question = fc.record(
  {
    authors: fc.subarray([0, 1, 2], { minLength: 1 }),
    kinds: fc.subarray([...KINDS, 5], { minLength: 1 }),
    topics: fc.subarray(TOPICS, { minLength: 1 }),
    people: fc.subarray([0, 1, 2], { minLength: 1 }),
    ids: fc.uniqueArray(fc.nat(50), { minLength: 1 }),
    since: fc.nat(6),
    until: fc.nat(6),
    limit: fc.integer({ min: 1, max: 12 }),
  },
  { requiredKeys: [] },
);
type Question = typeof question extends fc.Arbitrary<infer Q> ? Q : never;
const LIMIT = 1_000;

const seconds = (ms: number) => Math.floor(ms / 1_000);

/** Three authors and two nodes on one new database, with one clock. */
class History {
  private readonly authors = [0, 1, 2].map((author) => hash(`author ${author}`));
  private readonly posted: NostrEvent[] = [];
  private now = START;
  private nodes: TestNode[] = [];
  fromMemory = 0;

  async open(earlier: number): Promise<void> {
    this.nodes.push(await startTestNode(this.options()));
    this.nodes.push(await startTestNode({ ...this.options(), on: this.nodes[0]!.test }));
    await pinTopics(this.nodes[0]!, TOPICS);
    await Promise.all(
      Array.from({ length: earlier }, (_, place) => {
        const pubkey = this.authors[place % 3]!;
        // Many of one second, so that a page of the filling ends within it.
        const draft = { pubkey, content: `earlier ${place}`, created_at: seconds(START) - (place % 7) };
        return this.post(this.nodes[0]!, draft);
      }),
    );
  }

  async close(): Promise<void> {
    for (const node of this.nodes.reverse()) await node.close();
  }

  private options() {
    const env = { MINATO_TOPIC_MODE: 'default' };
    return { now: () => this.now, env, roles: ['relay' as const], jobs: [], consumers: [] };
  }

  /** Nobody, a member, one who must authenticate and has a subscription, one who has none. */
  private viewers(): Access[] {
    const [alice, bob, carol] = this.authors.map((author) => new Set([author]));
    const none = new Set<string>();
    return [
      ANONYMOUS,
      { pubkeys: alice!, consented: alice!, enforced: false, subscribed: none },
      { pubkeys: bob!, consented: bob!, enforced: true, subscribed: new Set(['kukuri:closed']) },
      { pubkeys: carol!, consented: carol!, enforced: true, subscribed: none },
    ];
  }

  // ── What happens ─────────────────────────────────────────────────────────────────────────────────────────

  async take(step: Step, place: number): Promise<void> {
    await this.happen(step, place);
    for (const { node } of this.nodes) await node.communities.refresh();
    if (step.isFilled) await this.filled();
  }

  /** A node looks for something to fill when its settings are read; here at once. */
  async filled(): Promise<void> {
    for (const { node } of this.nodes)
      await eventually('the filling', () => {
        if (node.memory.window.extent(COMMUNITY).from === Number.NEGATIVE_INFINITY) return true;
        node.memory.onCleared();
        return undefined;
      });
  }

  private async happen({ what, at, kind, topics, age, target, author }: Step, place: number): Promise<void> {
    const node = this.nodes[at]!;
    const pubkey = this.authors[author]!;
    const named = this.posted[target % Math.max(1, this.posted.length)];
    const ref = { community: COMMUNITY, id: named?.id ?? hash('nothing') };
    const post = (draft: Partial<NostrEvent>) =>
      this.post(node, { pubkey, content: String(place), created_at: seconds(this.now), ...draft });
    const tags = [...topics.map((topic) => ['t', topic]), ['p', this.authors[target % 3]!]];
    if (kind === 30_023) tags.push(['d', String(target % 2)]);
    switch (what) {
      case 'post':
        return post({ kind, tags, created_at: seconds(START) - age });
      case 'expiring':
        return post({ kind, tags: [...tags, ['expiration', String(seconds(this.now) + (target % 3))]] });
      case 'delete':
        return post({ kind: 5, pubkey: named?.pubkey ?? pubkey, tags: [['e', ref.id]] });
      case 'delete-address':
        return post({ kind: 5, tags: [['a', `30023:${pubkey}:${target % 2}`]] });
      case 'vanish':
        return target < 20 ? post({ kind: 62, tags: [['relay', 'ALL_RELAYS']] }) : undefined;
      case 'remove':
        await node.node.store.hide({ hidden: 'removed', purge: false, which: { by: 'ids', refs: [ref] } });
        return;
      case 'restore':
        await node.node.store.restore([ref]);
        return;
      case 'erase':
        return this.run(node, erase);
      case 'sweep':
        await this.run(node, expire);
        return this.run(node, retain);
      case 'pass':
        this.now += target < 30 ? 1_000 * (target % 3) : target * 3_600_000;
        return;
      default:
        return this.rearrange(what, node, target);
    }
  }

  private async post(node: TestNode, draft: Partial<NostrEvent> & { pubkey: string }): Promise<void> {
    const event = unsigned({ kind: 1, created_at: seconds(this.now), ...draft });
    const submission = { community: COMMUNITY, event, payload: serializeEvent(event) };
    this.posted.push(event);
    await node.node.store.submit({ ...submission, ...(event.kind === 62 && { vanishIn: [COMMUNITY] }) });
  }

  private async run({ node, database }: TestNode, job: Job): Promise<void> {
    const { store, communities, erasing } = node;
    const { signal } = new AbortController();
    const now = () => this.now;
    await runJob(job, { database, store, communities, erasing, now, signal, bounds: BOUNDS });
  }

  /** What changes around the events: rules, and memory itself. */
  private async rearrange(what: string, { node, database }: TestNode, number: number): Promise<void> {
    const { window } = node.memory;
    if (what === 'days') {
      const policy = { retentionDays: [1, 2, 40, 0][number % 4]! };
      const rules = { pinned: true, public: true, priority: 0, policy };
      await writeTopic(database.pool, COMMUNITY, TOPICS[number % 2]!, rules, this.now);
    } else if (what === 'default-days') {
      const days = [1, 3, 30, 0][number % 4];
      await writeSetting(database.pool, COMMUNITY, 'retention.regularDays', days, this.now);
    } else if (what === 'public') {
      const rules = { pinned: number % 3 > 0, public: number % 2 > 0, priority: 0, policy: {} };
      await writeTopic(database.pool, COMMUNITY, 'kukuri:closed', rules, this.now);
    } else if (what === 'evict') {
      // One event, some, or up to 64 of them.
      window.allow(Math.max(1, [window.bytes - 1, window.bytes * 0.8, 1][number % 3]!));
      window.trim();
      window.allow(BUDGET_BYTES);
    } else if (what === 'clear' && number < 25) {
      node.memory.clear();
    } else if (what === 'restart' && number < 10) {
      await this.nodes[1]!.close();
      this.nodes[1] = await startTestNode({ ...this.options(), on: this.nodes[0]!.test });
    }
  }

  // ── The same answer ──────────────────────────────────────────────────────────────────────────────────────

  async compareAll(questions: readonly Question[], place: number): Promise<void> {
    const viewers = this.viewers();
    for (const node of this.nodes)
      for (const [at, asked] of [{}, ...questions].entries()) {
        const viewer = viewers[(place + at) % viewers.length]!;
        await this.compare(node, this.filterOf(asked), viewer, (asked as Question).limit ?? LIMIT);
      }
  }

  private async compare({ node }: TestNode, filter: Filter, access: Access, limit: number): Promise<void> {
    const rules = node.communities.get(COMMUNITY)!;
    const seen = seenBy(filter, access, rules);
    const query = { community: COMMUNITY, limit, now: this.now, rules };
    const find = async (which: Filter) =>
      (await node.store.find({ ...query, filter: which }, 'light')).map(placeOf);
    await node.fanout.caughtUp();
    if (!node.memory.knows(COMMUNITY)) return;
    const { rows, rest } = node.memory.read(seen, query)!;
    const older = rest === undefined || matchesNothing(rest) ? [] : await find(rest);
    if (older.length === 0) this.fromMemory += rows.length;
    const whole = [...rows.map(placeOf), ...older]
      .sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? -1 : 1))
      .slice(0, limit);
    expect(whole).toEqual(await find(seen));
  }

  private filterOf({ authors, kinds, topics, people, ids, since, until }: Question): Filter {
    const pubkeys = (places: readonly number[]) => new Set(places.map((place) => this.authors[place]!));
    const tags = [
      ...(topics ? [{ name: 't', values: new Set(topics) }] : []),
      ...(people ? [{ name: 'p', values: pubkeys(people) }] : []),
    ];
    return {
      tags,
      ...(authors && { authors: pubkeys(authors) }),
      ...(kinds && { kinds: new Set(kinds) }),
      ...(ids && { ids: new Set(ids.map((place) => this.posted.at(-place)?.id ?? hash(`${place}`))) }),
      ...(since !== undefined && { since: seconds(START) - since }),
      ...(until !== undefined && { until: seconds(START) - until }),
    };
  }
}

const placeOf = ({ id, seq, createdAt }: { id: string; seq: number; createdAt: number }) => ({
  id,
  seq,
  createdAt,
});

const { MODEL_SEED, MODEL_PATH } = process.env;

it('memory and database give every viewer the same answer to any filter, whatever happens', async () => {
  let fromMemory = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(0, 0, EARLIER),
      fc.array(step, { minLength: 30, maxLength: 60, size: 'max' }),
      fc.array(question, { minLength: 2, maxLength: 3 }),
      async (earlier, steps, questions) => {
        const history = new History();
        try {
          await history.open(earlier);
          for (const [place, taken] of steps.entries()) {
            await history.take(taken, place);
            await history.compareAll(questions, place);
          }
          // What was evicted or cleared is filled again.
          await history.filled();
          await history.compareAll(questions, 0);
          fromMemory += history.fromMemory;
        } finally {
          await history.close();
        }
      },
    ),
    {
      numRuns: RUNS,
      ...(MODEL_SEED && { seed: Number(MODEL_SEED) }),
      ...(MODEL_PATH && { path: MODEL_PATH }),
      // Each run takes seconds, so a failed one is printed as it is.
      endOnFailure: true,
    },
  );
  expect(fromMemory).toBeGreaterThan(1_000);
});
