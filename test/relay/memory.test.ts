/**
 * What a relay answers from memory is what a query would answer: on two instances, right after each
 * acknowledged change, by whichever of them it was made (I5, I6, I7, I13).
 */
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { settingsFrom } from '../../src/communities/rules-settings.js';
import { findEvents } from '../../src/events/postgres/read/find.js';
import { createTagHash, type TagHash } from '../../src/events/postgres/tag-hash.js';
import { parseFilter } from '../../src/events/rules/filter.js';
import { isRefusal } from '../../src/events/rules/reply.js';
import { fixTagHashSeed } from '../../src/node/state.sql.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, type Draft, newAuthor, sign } from '../support/events.js';
import { pinTopics, startTestNode, type TestNode, useWindow } from '../support/node.js';

const PUBLIC_URL = 'wss://memory.test';
const START = Date.UTC(2026, 0, 10);
const LIMITS = settingsFrom(new Map());

let here: TestNode;
let there: TestNode;
let nodes: TestNode[];
let clients: RawClient[];
let tagHash: TagHash;
let now = START;
let alice: Author;

beforeAll(async () => {
  // There an event without a topic is found under the global one.
  const env = { MINATO_PUBLIC_URL: PUBLIC_URL, MINATO_TOPIC_MODE: 'default' };
  const options = { now: () => now, env };
  here = await startTestNode(options);
  there = await startTestNode({ ...options, on: here.test });
  nodes = [here, there];
  for (const node of nodes) await pinTopics(node, [...TOPICS, 'vanish', 'days']);
  clients = await Promise.all(nodes.map(({ url }) => RawClient.connect(url)));
  for (const node of nodes) await useWindow(node, 256);
  tagHash = await createTagHash(await fixTagHashSeed(here.database.pool));
  // A node that has just started reads its settings again, and keeps no answer over that.
  for (const at of [0, 1])
    await eventually('answers are kept', async () => {
      const before = await fromMemory(at);
      for (let times = 0; times < 2; times++) await ask(at, { kinds: [1] });
      return (await fromMemory(at)) > before ? true : undefined;
    });
});
afterAll(async () => {
  await Promise.all(clients.map((client) => client.close()));
  await there.close();
  await here.close();
});
beforeEach(() => {
  alice = newAuthor();
});

const seconds = () => Math.floor(now / 1_000);
const draft = (author: Author, given: Draft = {}) => sign(author, { created_at: seconds(), ...given });
const ask = async (at: number, filter: object) =>
  (await clients[at]!.query(filter)).events.map((event) => event.id);

async function fromMemory(at: number): Promise<number> {
  const { values } = await nodes[at]!.node.metrics.answers.get();
  return values.find(({ labels }) => labels.from === 'memory')?.value ?? 0;
}

/** Without a query. */
async function keep(at: number, filter: object): Promise<string[]> {
  const before = await fromMemory(at);
  const ids = await ask(at, filter);
  expect(await fromMemory(at)).toBe(before + 1);
  return ids;
}

async function post(at: number, event: { id: string }): Promise<void> {
  expect(await clients[at]!.publish(event)).toEqual([true, '']);
}

describe.each([
  ['the same instance', 0],
  ['another instance', 1],
])('an answer kept on %s', (_, at) => {
  it('has a new event as soon as it is acknowledged', async () => {
    const filter = { authors: [alice.pubkey], limit: 10 };
    expect(await keep(at, filter)).toEqual([]);
    for (let number = 0; number < 20; number++) {
      const event = draft(alice, { created_at: seconds() + number });
      await post(0, event);
      expect((await ask(at, filter))[0]).toBe(event.id);
    }
  });

  it('loses an event as soon as its deletion is acknowledged', async () => {
    const filter = { authors: [alice.pubkey], kinds: [1], limit: 10 };
    for (let number = 0; number < 20; number++) {
      const event = draft(alice, { content: String(number) });
      await post(0, event);
      expect(await keep(at, filter)).toEqual([event.id]);
      expect(await keep(at, { ids: [event.id] })).toEqual([event.id]);
      await post(0, draft(alice, { kind: 5, tags: [['e', event.id]] }));
      expect(await ask(at, filter)).toEqual([]);
      expect(await ask(at, { ids: [event.id] })).toEqual([]);
    }
  });

  it('has the newer version as soon as it is acknowledged, and the older one no more', async () => {
    const filter = { authors: [alice.pubkey], kinds: [10_002] };
    for (let number = 0; number < 10; number++) {
      const event = draft(alice, { kind: 10_002, created_at: seconds() + number });
      await post(0, event);
      expect(await keep(at, filter)).toEqual([event.id]);
    }
  });

  it('shows nothing of an author as soon as the request to vanish is acknowledged', async () => {
    const event = draft(alice, { tags: [['t', 'vanish']] });
    await post(0, event);
    const filters = [{ authors: [alice.pubkey] }, { '#t': ['vanish'] }, { ids: [event.id] }];
    for (const filter of filters) expect(await keep(at, filter)).toContain(event.id);
    await post(0, draft(alice, { kind: 62, tags: [['relay', PUBLIC_URL]] }));
    for (const filter of filters) expect(await ask(at, filter)).not.toContain(event.id);
  });

  it('does not show an event from the second of its expiration on', async () => {
    const event = draft(alice, { tags: [['expiration', String(seconds() + 10)]] });
    await post(0, event);
    const filters = [{ authors: [alice.pubkey] }, { ids: [event.id] }];
    for (const filter of filters) expect(await keep(at, filter)).toEqual([event.id]);
    now += 9_000;
    for (const filter of filters) expect(await ask(at, filter)).toEqual([event.id]);
    now += 1_000;
    for (const filter of filters) expect(await ask(at, filter)).toEqual([]);
  });

  it('does not show an event past its days', async () => {
    const event = draft(alice, { tags: [['t', 'days']] });
    await post(0, event);
    const filters = [{ authors: [alice.pubkey] }, { '#t': ['days'] }, { ids: [event.id] }];
    for (const filter of filters) expect(await keep(at, filter)).toContain(event.id);
    now += 30 * 86_400_000 + 1_000;
    for (const filter of filters) expect(await ask(at, filter)).not.toContain(event.id);
  });

  it('does not show an event past the days of its topic, also when they are raised then', async () => {
    const setDays = async (retentionDays: number) => {
      const rules = { pinned: true, public: true, priority: 0, policy: { retentionDays } };
      await writeTopic(here.database.pool, 1, 'brief', rules, now);
      const isKnown = ({ node }: TestNode) =>
        node.communities.get(1)?.topics.get('brief')?.policy.retentionDays === retentionDays;
      await eventually('the rules', () => nodes.every(isKnown) || undefined);
    };
    await setDays(2);
    const event = draft(alice, { tags: [['t', 'brief']] });
    await post(0, event);
    const filters = [{ authors: [alice.pubkey] }, { '#t': ['brief'] }, { ids: [event.id] }];
    for (const filter of filters) expect(await keep(at, filter)).toContain(event.id);
    now += 2.5 * 86_400_000;
    for (const filter of filters) expect(await ask(at, filter)).not.toContain(event.id);
    await setDays(20);
    for (const filter of filters) expect(await ask(at, filter)).not.toContain(event.id);
  });
});

it('a deletion is seen also without a notification', async () => {
  const event = draft(alice);
  await post(1, event);
  const filter = { authors: [alice.pubkey], kinds: [1] };
  expect(await keep(0, filter)).toEqual([event.id]);
  // Its listening session is gone, and the poll comes only once a second.
  await there.database.pool.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE query LIKE 'LISTEN%' AND datname = current_database()`,
  );
  await post(1, draft(alice, { kind: 5, tags: [['e', event.id]] }));
  expect(await ask(0, filter)).toEqual([]);
});

describe('a repeat of an event in memory', () => {
  const forged = (event: ReturnType<typeof sign>) => ({ ...event, sig: '0'.repeat(128) });

  it('is a duplicate also on a node that has just started, without a look at its signature', async () => {
    const event = draft(alice);
    await post(0, event);
    const fresh = await startTestNode({ now: () => now, on: here.test });
    try {
      await useWindow(fresh, 256);
      const client = await RawClient.connect(fresh.url);
      const [accepted, message] = await client.publish(forged(event));
      expect([accepted, message.split(':')[0]]).toEqual([true, 'duplicate']);
      await client.close();
    } finally {
      await fresh.close();
    }
  });

  it('is refused as soon as its deletion is acknowledged', async () => {
    for (let number = 0; number < 50; number++) {
      const event = draft(alice, { content: `deleted ${number}` });
      await post(0, event);
      await post(0, draft(alice, { kind: 5, tags: [['e', event.id]] }));
      expect(await clients[0]!.publish(event)).toEqual([false, 'blocked: deleted by its author']);
    }
  });

  it('is refused as soon as the request to vanish of its author is acknowledged', async () => {
    for (let number = 0; number < 50; number++) {
      const author = newAuthor();
      const event = draft(author);
      await post(0, event);
      await post(0, draft(author, { kind: 62, tags: [['relay', PUBLIC_URL]] }));
      expect((await clients[0]!.publish(event))[0]).toBe(false);
    }
  });
});

// ─── Any change, any question ──────────────────────────────────────────────────────────────────────────────

const KINDS = [1, 7, 10_002, 30_023];
const TOPICS = ['tea', 'coffee', 'ü"\\', 'kukuri:global'];

const change = fc.record({
  what: fc.constantFrom('post', 'post', 'post', 'delete', 'delete-address', 'expire'),
  at: fc.nat(1),
  author: fc.nat(1),
  kind: fc.constantFrom(...KINDS),
  topics: fc.oneof(fc.constant<string[]>([]), fc.subarray(TOPICS)),
  age: fc.nat(6),
  target: fc.nat(50),
});
const question = fc.record(
  {
    authors: fc.subarray([0, 1], { minLength: 1 }),
    kinds: fc.subarray([...KINDS, 5], { minLength: 1 }),
    '#t': fc.subarray(TOPICS, { minLength: 1 }),
    since: fc.nat(6),
    until: fc.nat(6),
    limit: fc.integer({ min: 1, max: 8 }),
  },
  { requiredKeys: [] },
);

type Question = typeof question extends fc.Arbitrary<infer Asked> ? Asked : never;

it('memory and database give the same answer to any filter, after any change, on both nodes', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(change, { minLength: 5, maxLength: 25 }),
      fc.array(question, { minLength: 1, maxLength: 4 }),
      async (changes, questions) => {
        const authors = [newAuthor(), newAuthor()];
        const base = seconds();
        const posted: ReturnType<typeof sign>[] = [];
        // Bound topics are asked for each time.
        const filters = [...questions, { '#t': ['kukuri:global'] }, { '#t': ['tea'], kinds: [5] }].map(
          (asked: Question) => ({
            ...asked,
            authors: (asked.authors ?? [0, 1]).map((index) => authors[index]!.pubkey),
            ...(asked.since === undefined ? {} : { since: base - asked.since }),
            ...(asked.until === undefined ? {} : { until: base - asked.until }),
          }),
        );
        for (const [turn, { what, at, kind, topics, age, target, ...of }] of changes.entries()) {
          const author = authors[of.author]!;
          const named = posted[target % Math.max(1, posted.length)];
          const tags = topics.map((topic) => ['t', topic]);
          if (kind === 30_023) tags.push(['d', String(target % 2)]);
          if (what === 'expire') tags.push(['expiration', String(seconds() + 1)]);
          const event =
            what === 'delete' && named !== undefined
              ? draft(author, { kind: 5, tags: [['e', named.id]] })
              : what === 'delete-address'
                ? draft(author, { kind: 5, tags: [['a', `30023:${author.pubkey}:${target % 2}`]] })
                : draft(author, { kind, tags, created_at: base - age, content: String(turn) });
          await clients[at]!.publish(event);
          if (what !== 'delete') posted.push(event);
          if (what === 'expire') now += 1_000;
          for (const filter of filters) {
            const due = await inDatabase(filter);
            for (const asked of [0, 1]) expect(await ask(asked, filter)).toEqual(due);
          }
        }
      },
    ),
    { numRuns: 12 },
  );
  for (const at of [0, 1]) expect(await fromMemory(at)).toBeGreaterThan(100);
});

async function inDatabase(input: object): Promise<string[]> {
  const filter = parseFilter(input, LIMITS);
  if (isRefusal(filter)) throw new Error(filter.why);
  const { pool } = here.database;
  const rows = await findEvents({ pool, tagHash }, { community: 1, filter, limit: filter.limit ?? 500, now });
  return rows.map(({ id }) => id);
}
