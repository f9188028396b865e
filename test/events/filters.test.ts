/**
 * Three implementations of a filter — SQL, the live index, and a naive one in this file — agree on random
 * events and filters, also when tag hashes collide, and where a topic is bound to an event that does not name
 * it. COUNT agrees with the pages.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { settingsFrom } from '../../src/communities/rules-settings.js';
import { countEvents } from '../../src/events/postgres/read/count.js';
import { findEvents, findStatement, readPayloads } from '../../src/events/postgres/read/find.js';
import type { TagHash } from '../../src/events/postgres/tag-hash.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { serializeEvent } from '../../src/events/rules/event.js';
import { type Filter, matchesNothing, parseFilter } from '../../src/events/rules/filter.js';
import { isRefusal } from '../../src/events/rules/reply.js';
import type { Database } from '../../src/postgres/database.js';
import { SubscriptionIndex } from '../../src/relay/subscription-index.js';
import { asMatched } from '../../src/topics/rules.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';
import { subscribersOf } from '../support/subscribers.js';

const SEED = 7447;
const COMMUNITIES = [1, 12];
/** In this community an event without a topic is bound to the global topic. */
const IN_DEFAULT_MODE = 12;
const GLOBAL = 'kukuri:global';
/** Seconds; none of the events expires. */
const NOW = 1_700_000_000;
const NOW_MS = NOW * 1_000;
const LIMITS = { 'limits.filterValuesMax': 2_000 };

/** What a client sends, before it is parsed. */
interface RawFilter {
  ids?: string[];
  authors?: string[];
  kinds?: number[];
  since?: number;
  until?: number;
  limit?: number;
  [tag: `#${string}`]: string[];
}

// ── Events ─────────────────────────────────────────────────────────────────────────────────────────────────

const hex = (bytes: number) =>
  fc.uint8Array({ minLength: bytes, maxLength: bytes }).map((array) => Buffer.from(array).toString('hex'));
/** Few authors; one differs from another in its last digit only. */
const AUTHORS = ['a'.repeat(64), `${'a'.repeat(63)}b`, '0'.repeat(64), 'f'.repeat(64)];
const KINDS = [0, 1, 2, 5, 7, 61, 10_002, 30_023, 40_000, 65_535];
const HOSTILE_VALUES = [
  '',
  ' ',
  'sea',
  GLOBAL,
  'wind',
  'Sea',
  'se',
  '%',
  '_',
  's%',
  's_a',
  "'",
  "'; DROP TABLE events; --",
  '"',
  '\\',
  '\\"',
  '\\u0000',
  '\u0000',
  'sea\u0000',
  '\n',
  '\r\n\t\b\f\u0001\u001f\u007f',
  '\u2028',
  '\ufeff',
  '🌊',
  '港',
  'é',
  'e\u0301',
  '","x',
  '["t","',
  '["t","sea"',
  'sea","x',
  '$1',
  '{}',
  'NULL',
  'x'.repeat(10_000),
  `${'x'.repeat(9_999)}y`,
  '🌊'.repeat(2_500),
];
const tagValue = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...HOSTILE_VALUES.slice(0, 24)) },
  { weight: 3, arbitrary: fc.constantFrom(...HOSTILE_VALUES) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 3 }) },
);
/** Upper and lower case are different tags; names of several letters, digits and signs cannot be filtered. */
const tagName = fc.constantFrom('t', 't', 'T', 'e', 'p', 'd', 'a', 'x', 'tt', 'title', '1', '-x', '🌊', '');
const tag = fc.oneof(
  { weight: 8, arbitrary: fc.tuple(tagName, tagValue) },
  { weight: 2, arbitrary: fc.tuple(tagName, tagValue, tagValue) },
  { weight: 1, arbitrary: fc.tuple(tagName) },
);
/** Sometimes every tag occurs twice. */
const tags = fc
  .tuple(fc.array(tag, { maxLength: 4 }), fc.integer({ min: 0, max: 5 }))
  .map(([list, again]) => (again === 0 ? [...list, ...list] : list));
/** Many ties; 0 is a valid time. */
const time = fc.oneof(fc.integer({ min: 0, max: 12 }), fc.constant(Number.MAX_SAFE_INTEGER));

const event: fc.Arbitrary<NostrEvent> = fc.record({
  id: hex(32),
  pubkey: fc.constantFrom(...AUTHORS),
  created_at: time,
  kind: fc.constantFrom(...KINDS),
  tags,
  content: fc.oneof(tagValue, fc.constant('["t","sea"],"tags":[["t","sea"]]')),
  sig: fc.constant('c'.repeat(128)),
});

interface Sent {
  readonly community: number;
  readonly event: NostrEvent;
}

/** Every seventh event has one common topic, so that a page of a single value reaches its limit. */
const carriesSea = (one: NostrEvent, at: number): NostrEvent =>
  at % 7 === 0 ? { ...one, kind: 1, tags: [...one.tags, ['p', AUTHORS[0]!], ['t', 'sea'], ['x', 'y']] } : one;
/** The same event may be sent to both communities. */
const POSTED: Sent[] = fc
  .sample(fc.tuple(event, fc.subarray(COMMUNITIES, { minLength: 1 })), { seed: SEED, numRuns: 420 })
  .map(([one, communities], at) => [carriesSea(one, at), communities] as const)
  .flatMap(([one, communities]) => communities.map((community) => ({ community, event: one })));

/** Each deletes one event and is sent right after it. */
const DELETIONS = fc
  .sample(fc.tuple(event, event, fc.constantFrom(...COMMUNITIES)), { seed: SEED + 3, numRuns: 60 })
  .map(([target, request, community]) => ({
    community,
    target: { ...target, kind: 1, tags: [...target.tags, ['t', 'wind']] },
    request: { ...request, kind: 5, pubkey: target.pubkey, tags: [...request.tags, ['e', target.id]] },
  }));
const GONE = new Set(DELETIONS.map(({ target }) => target.id));
const EVENTS: Sent[] = [
  ...POSTED,
  ...DELETIONS.flatMap(({ community, target, request }) => [
    { community, event: target },
    { community, event: request },
  ]),
];

const isPrintable = (character: string) => character >= ' ' && character !== '\u007f';
const topicsIn = ({ tags }: NostrEvent) =>
  tags.flatMap(([name, value]) =>
    name === 't' && value && value.length <= 256 && [...value].every(isPrintable) ? [value] : [],
  );

/** The topics that an event is bound to without naming them. */
function boundIn(community: number, event: NostrEvent): string[] {
  const topics = topicsIn(event);
  const deleted = DELETIONS.find(({ request }) => request.id === event.id)?.target;
  if (deleted !== undefined) {
    const all = [...topicsIn(deleted), ...boundIn(community, deleted)];
    return [...new Set(all)].filter((topic) => !topics.includes(topic));
  }
  const isFree = [0, 5, 10_002].includes(event.kind);
  const isNamed = topics.some((topic) => topic.startsWith('kukuri:'));
  return community === IN_DEFAULT_MODE && !isNamed && !isFree ? [GLOBAL] : [];
}

/** The event as a filter sees it: bound topics are tags with a mark. */
const BOUND_MARK = 'bound';
const seenIn = (community: number, event: NostrEvent): NostrEvent => ({
  ...event,
  tags: [...event.tags, ...boundIn(community, event).map((topic) => ['t', topic, BOUND_MARK])],
});

/** The served events: the newest version of each key, the lowest id on a tie. */
function servedIn(community: number): NostrEvent[] {
  const served = new Map<string, NostrEvent>();
  for (const { event } of EVENTS.filter((sent) => sent.community === community && !GONE.has(sent.event.id))) {
    const { kind, pubkey, id } = event;
    const d = event.tags.find((tag) => tag[0] === 'd')?.[1] ?? '';
    const isKeyed = kind === 0 || kind === 10_002 || kind === 30_023;
    const key = isKeyed ? `${kind} ${pubkey} ${kind === 30_023 ? d : ''}` : id;
    const other = served.get(key);
    const wins =
      other === undefined ||
      event.created_at > other.created_at ||
      (event.created_at === other.created_at && id < other.id);
    if (wins) served.set(key, event);
  }
  return [...served.values()];
}

// ── Filters ────────────────────────────────────────────────────────────────────────────────────────────────

const someId = fc.oneof(fc.constantFrom(...EVENTS.map((sent) => sent.event.id)), hex(32));
const someAuthor = fc.oneof(
  { weight: 9, arbitrary: fc.constantFrom(...AUTHORS) },
  { weight: 1, arbitrary: hex(32) },
);
const someKind = fc.constantFrom(...KINDS, 3, 20_001);
const filterTagName = fc.constantFrom('#t', '#T', '#e', '#p', '#d', '#a', '#x', '#z');
const fewOf = <T>(item: fc.Arbitrary<T>) => fc.oneof(fc.array(item, { maxLength: 3 }), fc.tuple(item));
const tagConditions = fc.dictionary(filterTagName, fewOf(tagValue), { maxKeys: 2, noNullPrototype: true });
const maybe = <T>(item: fc.Arbitrary<T>) => fc.option(item, { nil: undefined, freq: 2 });

/** More authors × kinds than SQL reads pair by pair. */
const manyPairs = fc.record({
  authors: fc
    .array(hex(32), { minLength: 30, maxLength: 30, size: 'max' })
    .map((list) => [...list, ...AUTHORS]),
  kinds: fc.constant<number[]>([...KINDS, ...Array.from({ length: 20 }, (_, at) => 100 + at)]),
});
const rangeAndLimit = fc
  .record({ since: maybe(time), until: maybe(time), limit: maybe(fc.integer({ min: 0, max: 12 })) })
  .map((range) => JSON.parse(JSON.stringify(range)) as Pick<RawFilter, 'since' | 'until' | 'limit'>);
const drawnFilter = fc
  .record({
    base: fc.oneof(
      { weight: 2, arbitrary: fc.constant({}) },
      { weight: 1, arbitrary: fc.record({ ids: fc.array(someId, { maxLength: 40, size: 'max' }) }) },
      { weight: 2, arbitrary: fc.record({ authors: fewOf(someAuthor) }) },
      { weight: 2, arbitrary: fc.record({ kinds: fewOf(someKind) }) },
      { weight: 2, arbitrary: fc.record({ authors: fewOf(someAuthor), kinds: fewOf(someKind) }) },
      { weight: 1, arbitrary: manyPairs },
    ),
    tagged: fc.oneof(fc.constant({}), tagConditions),
    range: rangeAndLimit,
  })
  .map(({ base, tagged, range }): RawFilter => ({ ...base, ...tagged, ...range }));
/** Several fields of one event with other values added, so that filters with many conditions also match. */
const copiedFilter = fc
  .record({
    event: fc.constantFrom(...EVENTS.map((sent) => seenIn(sent.community, sent.event))),
    fields: fc.subarray(['ids', 'authors', 'kinds', 'tags', 'tags', 'tags'], { minLength: 1 }),
    beside: fc.record({
      ids: fewOf(someId),
      authors: fewOf(someAuthor),
      kinds: fewOf(someKind),
      values: fewOf(tagValue),
    }),
    range: rangeAndLimit,
  })
  .map(({ event, fields, beside, range }): RawFilter => {
    const filter: RawFilter = { ...range };
    if (fields.includes('ids')) filter.ids = [...beside.ids, event.id];
    if (fields.includes('authors')) filter.authors = [event.pubkey, ...beside.authors];
    if (fields.includes('kinds')) filter.kinds = [event.kind, ...beside.kinds];
    const letters = event.tags.filter(([name, value]) => /^[a-z]$/i.test(name!) && value !== undefined);
    const most = fields.filter((field) => field === 'tags').length;
    for (const [name, value] of letters.slice(0, most)) filter[`#${name!}`] = [...beside.values, value!];
    return filter;
  });
const anyFilter = fc.oneof(drawnFilter, copiedFilter);

/** NIP-01, implemented literally. */
function matchesNaively(filter: RawFilter, event: NostrEvent): boolean {
  return Object.entries(filter).every(([field, asked]) => {
    if (field === 'since') return event.created_at >= Number(asked);
    if (field === 'until') return event.created_at <= Number(asked);
    if (field === 'limit') return true;
    const values = asked as unknown[];
    if (field === 'ids') return values.includes(event.id);
    if (field === 'authors') return values.includes(event.pubkey);
    if (field === 'kinds') return values.includes(event.kind);
    // A deletion request matches its bound topics only where the filter names its kind.
    const counts = (tag: readonly string[]) =>
      tag[2] !== BOUND_MARK || event.kind !== 5 || filter.kinds !== undefined;
    return event.tags.some(
      (tag) =>
        tag[0] === field.slice(1) &&
        tag.length > 1 &&
        counts(tag) &&
        values.some((value) => value === tag[1]),
    );
  });
}

const LIMIT_DEFAULT = 5_000;

function pageNaively(filter: RawFilter, events: readonly NostrEvent[]): string[] {
  return events
    .filter((event) => matchesNaively(filter, event))
    .sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1))
    .slice(0, filter.limit ?? LIMIT_DEFAULT)
    .map((event) => event.id);
}

function parsed(raw: RawFilter): Filter {
  // Through JSON, as it is received.
  const filter = parseFilter(JSON.parse(JSON.stringify(raw)), LIMITS);
  if (isRefusal(filter)) throw new Error(filter.why);
  return filter;
}

/** Every access path, alone and with an additional tag condition (kinds and newest never have one). */
const SHAPES = [
  'author',
  'author + tag',
  'author, kind',
  'author, kind + tag',
  'author, many kinds',
  'ids',
  'ids + tag',
  'kind',
  'newest',
  'tag',
  'tag + tag',
];

/** The access path of a statement, read from its text. */
function shapeOf(text: string): string {
  return drivingPath(text) + (text.includes('JOIN event_tags g') ? ' + tag' : '');
}

function drivingPath(text: string): string {
  if (text.includes('event_dedupe')) return 'ids';
  // An additional tag condition is inside an EXISTS.
  if (text.includes('FROM event_tags g')) return 'tag';
  if (text.includes('e.pubkey = author.pubkey AND e.kind = asked.kind')) return 'author, kind';
  if (text.includes('e.pubkey = author.pubkey'))
    return text.includes('e.kind = ANY') ? 'author, many kinds' : 'author';
  if (text.includes('e.kind = asked.kind')) return 'kind';
  return 'newest';
}

// ── The tests ──────────────────────────────────────────────────────────────────────────────────────────────

const hashes: { name: string; hash: ((real: TagHash) => TagHash) | undefined; runs: number }[] = [
  { name: 'with the real tag hash', hash: undefined, runs: 500 },
  { name: 'with a tag hash of one bit', hash: () => (_, __, value) => BigInt(value.length & 1), runs: 400 },
  { name: 'with a tag hash that is the same for all', hash: () => () => 0n, runs: 400 },
];

describe.each(hashes)('filters $name', ({ hash, runs }) => {
  let store: TestStore;
  let database: Database;
  let tagHash: TagHash;
  const served = new Map(COMMUNITIES.map((community) => [community, servedIn(community)]));
  const seen = new Map(
    [...served].map(([community, events]) => [community, events.map((one) => seenIn(community, one))]),
  );

  beforeAll(async () => {
    store = await openTestStore();
    database = store.database;
    tagHash = hash === undefined ? store.tagHash : hash(store.tagHash);
    const lane = store.lane({
      tagHash,
      settingsOf: (community) =>
        settingsFrom(new Map([['topic.mode', community === IN_DEFAULT_MODE ? 'default' : 'open']])),
    });
    const outcomes = await Promise.all(
      EVENTS.map(({ community, event }) => lane.submit({ community, event, payload: serializeEvent(event) })),
    );
    await lane.close();
    expect(outcomes.filter((outcome) => outcome !== 'stored' && outcome !== 'older')).toEqual([]);
  });
  afterAll(() => store.close());

  const queryOf = (community: number, filter: Filter) => ({
    community,
    filter,
    limit: filter.limit ?? LIMIT_DEFAULT,
    now: NOW_MS,
  });
  const find = async (community: number, filter: Filter): Promise<string[]> => {
    if (matchesNothing(filter) || filter.limit === 0) return [];
    const rows = await findEvents({ pool: database.pool, tagHash }, queryOf(community, filter));
    return rows.map((row) => row.id);
  };

  it('SQL returns exactly the page of the naive filter, on every access path', async () => {
    const shapes = new Set<string>();
    const property = fc.asyncProperty(anyFilter, fc.constantFrom(...COMMUNITIES), async (raw, community) => {
      const filter = parsed(raw);
      const page = pageNaively(raw, seen.get(community)!);
      expect(await find(community, filter)).toEqual(page);
      if (matchesNothing(filter)) {
        expect(page).toEqual([]);
        return;
      }
      const shape = shapeOf(findStatement({ ...queryOf(community, filter), limit: 1 }, tagHash).text);
      // A path counts only where it found something.
      if (page.length > 0) shapes.add(shape);
    });
    await fc.assert(property, { seed: SEED, numRuns: runs });
    expect([...shapes]).toEqual(expect.arrayContaining(SHAPES));
  });

  it('each hostile tag value finds its own events and no others', async () => {
    for (const value of HOSTILE_VALUES) {
      for (const name of ['#t', '#T', '#p', '#d'] as const) {
        const raw = { [name]: [value] } as RawFilter;
        expect(await find(1, parsed(raw)), JSON.stringify(raw)).toEqual(pageNaively(raw, seen.get(1)!));
      }
    }
  });

  it('a page of any length cuts ties by the lowest id', async () => {
    for (let limit = 1; limit < 40; limit += 1) {
      for (const raw of [
        { limit },
        { limit, kinds: [1, 7] },
        { limit, authors: AUTHORS },
        { limit, authors: AUTHORS, kinds: [1, 7] },
        { limit, '#t': ['sea'] },
        { limit, '#t': ['sea'], kinds: [1] },
        { limit, '#t': ['sea'], '#p': AUTHORS },
        { limit, '#t': HOSTILE_VALUES.slice(0, 24) },
      ] as RawFilter[]) {
        const page = pageNaively(raw, seen.get(12)!);
        expect(page, 'enough rows to cut').toHaveLength(limit);
        expect(await find(12, parsed(raw)), JSON.stringify(raw)).toEqual(page);
      }
    }
  });

  it('COUNT is the number of different events in the pages of its filters', async () => {
    const property = fc.asyncProperty(
      fc.array(anyFilter, { minLength: 1, maxLength: 3 }),
      fc.constantFrom(...COMMUNITIES),
      fc.constantFrom(3, 10_000),
      async (raws, community, max) => {
        const filters = raws.map(parsed).filter((filter) => !matchesNothing(filter));
        const union = new Set(raws.flatMap((raw) => pageNaively(raw, seen.get(community)!)));
        const counted = await countEvents(database.pool, tagHash, { community, filters, max, now: NOW_MS });
        // Beyond `max` the count only has to show that there are more.
        if (union.size > max) expect(counted).toBeGreaterThan(max);
        else expect(counted).toBe(union.size);
      },
    );
    await fc.assert(property, { seed: SEED + 1, numRuns: runs / 5 });
  });

  it('found events are served byte for byte, and only from the queried community', async () => {
    for (const community of COMMUNITIES) {
      const rows = await findEvents({ pool: database.pool, tagHash }, queryOf(community, { tags: [] }));
      const payloads = await readPayloads(database.pool, rows);
      const expected = new Map(
        served.get(community)!.map((event) => [event.id, serializeEvent(event)] as const),
      );
      expect(new Map(rows.map((row, place) => [row.id, payloads[place]]))).toEqual(expected);
      const bound = new Map(served.get(community)!.map((one) => [one.id, boundIn(community, one)]));
      expect(new Map(rows.map((row) => [row.id, row.bound]))).toEqual(bound);
      expect([...bound.values()].filter((topics) => topics.length > 0).length).toBeGreaterThan(20);
      expect(rows.map((row) => row.bytes)).toEqual(payloads.map((payload) => Buffer.byteLength(payload!)));
    }
  });
});

describe('the live index', () => {
  const filters = fc.sample(anyFilter, { seed: SEED + 2, numRuns: 400 });

  it('delivers an event to exactly the subscriptions with a matching filter, each once', () => {
    const index = new SubscriptionIndex<number>();
    // Subscription n has filters n and n + 1, so that both may match.
    filters.forEach((filter, at) => {
      index.add(at, [parsed(filter), parsed(filters[at + 1] ?? filter)]);
    });
    let matches = 0;
    for (const { community, event } of EVENTS) {
      const seen = seenIn(community, event);
      const expected = filters.flatMap((filter, at) =>
        [filter, filters[at + 1] ?? filter].some((one) => matchesNaively(one, seen)) ? [at] : [],
      );
      const matched = asMatched(event, boundIn(community, event));
      expect(subscribersOf(index.match(matched)).sort((a, b) => a - b)).toEqual(expected);
      matches += expected.length;
    }
    expect(matches).toBeGreaterThan(EVENTS.length);
  });

  it('forgets a removed subscription and keeps the others', () => {
    const index = new SubscriptionIndex<number>();
    filters.forEach((filter, at) => {
      index.add(at, [parsed(filter)]);
    });
    filters.forEach((_, at) => {
      if (at % 2 === 0) index.remove(at);
    });
    expect(index.size).toBe(filters.length / 2);
    for (const { event } of EVENTS) {
      const expected = filters.flatMap((filter, at) =>
        at % 2 === 1 && matchesNaively(filter, event) ? [at] : [],
      );
      expect(subscribersOf(index.match(event)).sort((a, b) => a - b)).toEqual(expected);
    }
  });
});
