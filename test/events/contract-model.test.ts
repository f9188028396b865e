/**
 * Every store against a naive model: for any order of arrival and up to three writers at once, the view is
 * that of the model (I3–I6), and every filter finds what a literal reading of NIP-01 finds.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { isRefusal } from '../../src/events/rules/reply.js';
import {
  AUTHORS,
  CLASS_OF,
  D_VALUES,
  EVERYBODY,
  eventWith,
  modelView,
  SEED,
  type Sent,
  START,
  sentOf,
  shuffled,
} from '../support/models/event-model.js';
import { type Contract, openContract, STORES } from '../support/stores/contract.js';
import { hash, unsigned } from '../support/stores/life.js';

const WRITERS = 3;
/** DynamoDB Local takes many times as long for each write. */
const RUNS = { postgres: 15, dynamodb: 4 };
const FILTERS = { postgres: 150, dynamodb: 40 };

/** Groups of these sizes arrive at the same time, each event at one of the writers. */
const arrivals = shuffled(sentOf(eventWith([undefined, undefined, 1_000])), 25).chain((list) =>
  fc.record({
    list: fc.constant(list),
    groups: fc.array(fc.constantFrom(1, 2, 3, 20, 60), { minLength: 80, maxLength: 80, size: 'max' }),
    writers: fc.array(fc.nat(WRITERS - 1), { minLength: 200, maxLength: 200, size: 'max' }),
  }),
);

describe.each(STORES)('%s', (name) => {
  let on: Contract;
  beforeAll(async () => {
    on = await openContract(name, { writers: WRITERS });
    on.now = START * 1_000;
  });
  afterAll(() => on?.close());

  const submit = (writer: number, communities: readonly number[], { community, event, vanishIn }: Sent) =>
    on.stores[writer]!.submit({
      community: communities[community]!,
      event,
      payload: serializeEvent(event),
      ...(vanishIn === undefined ? {} : { vanishIn: vanishIn.map((one) => communities[one]!) }),
    });

  it(`the view of ${WRITERS} writers at once is that of the model, in any order`, async () => {
    await fc.assert(
      fc.asyncProperty(arrivals, async ({ list, groups, writers }) => {
        const communities = [on.community(), on.community(), on.community()];
        const outcomes = new Map<string, string[]>();
        let at = 0;
        for (const size of groups) {
          const group = list.slice(at, at + size);
          const replies = await Promise.all(
            group.map((sent, place) => submit(writers[(at + place) % writers.length]!, communities, sent)),
          );
          group.forEach(({ community, event }, place) => {
            const reply = replies[place]!;
            const told = isRefusal(reply) ? reply.refused : reply;
            const key = `${community}/${event.id}`;
            outcomes.set(key, [...(outcomes.get(key) ?? []), told]);
          });
          at += group.length;
        }
        const failed = [...outcomes.values()].flat().filter((told) => told === 'error');
        expect(failed, 'no writer gives up').toEqual([]);
        const twice = [...outcomes.values()].filter(
          (told) => told.filter((one) => one === 'stored').length > 1,
        );
        expect(twice, 'stored once (I3)').toEqual([]);
        const arrived = list.slice(0, at).map((sent) => ({ ...sent, clock: START }));
        for (const [place, community] of communities.entries()) {
          const model = modelView(arrived, place, START);
          for (const filter of WHOLE) {
            const found = await on.ids(community, filter);
            expect(new Set(found), JSON.stringify(Object.keys(filter))).toEqual(new Set(model.keys()));
            expect(found.length).toBe(new Set(found).size);
          }
        }
      }),
      { seed: SEED, numRuns: RUNS[name] },
    );
  });

  it('a filter finds what a literal reading of NIP-01 finds', async () => {
    const community = on.community();
    await Promise.all(EVENTS.map((event, at) => submit(at % WRITERS, [community], { community: 0, event })));
    const served = modelView(
      EVENTS.map((event) => ({ community: 0, event, clock: START })),
      0,
      START,
    );
    await fc.assert(
      fc.asyncProperty(anyFilter, async (raw) => {
        const { limit = 5_000, tags, ids, authors, kinds, ...range } = raw;
        const filter = {
          ...range,
          ...(ids === undefined ? {} : { ids: new Set(ids) }),
          ...(authors === undefined ? {} : { authors: new Set(authors) }),
          ...(kinds === undefined ? {} : { kinds: new Set(kinds) }),
          tags: Object.entries(tags).map(([letter, values]) => ({ name: letter, values: new Set(values) })),
        };
        const expected = [...served.values()]
          .filter((event) => matches(raw, event))
          .sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1))
          .map(({ id }) => id);
        expect(await on.ids(community, filter, { limit })).toEqual(expected.slice(0, limit));
        const counted = await on.stores[1]!.count(
          { community, filters: [filter], max: 500, now: on.now },
          (_filter, query) => query('light'),
        );
        expect(counted).toBe(expected.length);
      }),
      { seed: SEED, numRuns: FILTERS[name] },
    );
  });
});

/** Each finds everything. */
const WHOLE = [
  {},
  { authors: new Set(EVERYBODY) },
  { kinds: new Set(CLASS_OF.keys()) },
  { authors: new Set(EVERYBODY), kinds: new Set(CLASS_OF.keys()) },
];

// ── Filters ────────────────────────────────────────────────────────────────────────────────────────────────

const VALUES = [
  '',
  'sea',
  'Sea',
  'se',
  '%',
  "'",
  '"',
  '\\',
  '\u0000',
  '\n',
  '🌊',
  '["t","sea"',
  'x'.repeat(3_000),
];
const LETTERS = ['t', 'T', 'e', 'p', 'd', 'x'];
const KINDS = [0, 1, 7, 10_002, 30_000, 65_535];

const EVENTS: NostrEvent[] = fc.sample(
  fc
    .record({
      kind: fc.constantFrom(...KINDS),
      pubkey: fc.constantFrom(...AUTHORS),
      created_at: fc.oneof(fc.integer({ min: 0, max: 8 }), fc.constant(Number.MAX_SAFE_INTEGER)),
      tags: fc.array(fc.tuple(fc.constantFrom(...LETTERS, 'title'), fc.constantFrom(...VALUES)), {
        maxLength: 4,
      }),
      content: fc.constantFrom(...VALUES, ...D_VALUES),
    })
    .map((draft) => unsigned(draft)),
  { seed: SEED, numRuns: 250 },
);

interface RawFilter {
  ids?: string[] | undefined;
  authors?: string[] | undefined;
  kinds?: number[] | undefined;
  tags: Record<string, string[]>;
  since?: number;
  until?: number;
  limit?: number;
}

/** An empty list matches nothing, and callers do not ask a store. */
const few = <T>(item: fc.Arbitrary<T>) => fc.array(item, { minLength: 1, maxLength: 3 });
const maybe = <T>(item: fc.Arbitrary<T>) => fc.option(item, { nil: undefined, freq: 2 });
const time = fc.integer({ min: -1, max: 9 });
const anyFilter: fc.Arbitrary<RawFilter> = fc
  .record({
    ids: fc.option(few(fc.constantFrom(...EVENTS.map(({ id }) => id), hash('none'))), {
      nil: undefined,
      freq: 1,
    }),
    authors: maybe(few(fc.constantFrom(...AUTHORS, hash('nobody')))),
    kinds: maybe(few(fc.constantFrom(...KINDS, 3, 20_001))),
    tags: fc.oneof(
      fc.constant({}),
      fc.dictionary(fc.constantFrom(...LETTERS), few(fc.constantFrom(...VALUES)), {
        maxKeys: 2,
        noNullPrototype: true,
      }),
    ),
    since: maybe(time),
    until: maybe(time),
    limit: maybe(fc.integer({ min: 1, max: 12 })),
  })
  .map((raw) => JSON.parse(JSON.stringify(raw)) as RawFilter);

function matches({ ids, authors, kinds, tags, since, until }: RawFilter, event: NostrEvent): boolean {
  const has = (letter: string, values: string[]) =>
    event.tags.some(([name, value]) => name === letter && values.includes(value!));
  return (
    (ids?.includes(event.id) ?? true) &&
    (authors?.includes(event.pubkey) ?? true) &&
    (kinds?.includes(event.kind) ?? true) &&
    (since === undefined || event.created_at >= since) &&
    (until === undefined || event.created_at <= until) &&
    Object.entries(tags).every(([letter, values]) => has(letter, values))
  );
}
