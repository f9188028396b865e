/**
 * Which matches of a filter a client may see: SQL, the live index and a naive implementation agree on random
 * events, filters and clients. COUNT reveals no more than the pages, and a hidden row never makes a page
 * short.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { settingsFrom } from '../../src/communities/rules-settings.js';
import { countEvents } from '../../src/events/postgres/read/count.js';
import { findEvents } from '../../src/events/postgres/read/find.js';
import { type Access, type AccessRules, seenBy } from '../../src/events/rules/access.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { type Filter, parseFilter } from '../../src/events/rules/filter.js';
import { SubscriptionIndex } from '../../src/relay/subscription-index.js';
import { countSearched, type Searched, searchEvents } from '../../src/search/search.sql.js';
import { asMatched } from '../../src/topics/rules.js';
import { indexAll } from '../support/domains/search.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';
import { subscribersOf } from '../support/subscribers.js';

const COMMUNITY = 1;
const NOW = 1_700_000_000;
const query = { community: COMMUNITY, now: NOW * 1_000 };
const KEYS = ['a', 'b', 'c', 'd'].map((digit) => digit.repeat(64));
const KINDS = [1, 4, 7, 1_059, 9_000, 9_005];
const ASKED_KINDS = [...KINDS, 5];
const TOPICS = [
  'kukuri:global',
  'kukuri:boats',
  'kukuri:nets',
  'kukuri:old',
  'kukuri:unknown',
  'plain',
  'sunset',
];

const topic = (enabled: boolean, isPublic = false) => ({
  enabled,
  blocked: false,
  public: isPublic,
  priority: 0,
  policy: {},
});
const rules: AccessRules = {
  settings: settingsFrom(new Map(Object.entries({ 'auth.privateKinds': [4, 1_059, '9001-9009'] }))),
  topics: new Map([
    ['kukuri:global', topic(true, true)],
    ['kukuri:boats', topic(true)],
    ['kukuri:nets', topic(true)],
    ['kukuri:old', topic(false)],
    ['plain', topic(true)],
  ]),
  refused: new Map(),
};

const key = fc.constantFrom(...KEYS);
const tag = fc.oneof(
  fc.tuple(fc.constantFrom('p', 'e', 'pp'), key).map((pair): string[] => pair),
  fc.constantFrom(...TOPICS).map((value) => ['t', value]),
  fc.constantFrom(...KEYS).map((value) => ['x', `["p","${value}"`]),
);
const event: fc.Arbitrary<NostrEvent> = fc.record({
  id: fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('hex')),
  pubkey: key,
  created_at: fc.integer({ min: 1, max: 40 }),
  kind: fc.constantFrom(...KINDS),
  tags: fc.array(tag, { maxLength: 4 }),
  content: fc.constantFrom('', `["p","${KEYS[0]}"]`, '["t","kukuri:boats"]'),
  sig: fc.constant('e'.repeat(128)),
});
const [TARGETS, OTHERS] = [
  fc.sample(event, { seed: 1, numRuns: 60 }),
  fc.sample(event, { seed: 7447, numRuns: 400 }),
];
/** A deletion request is bound to the topics of what it deletes, and hidden with them. */
const REQUESTS = TARGETS.map(
  (target, at): NostrEvent => ({
    ...target,
    id: at.toString(16).padStart(64, '0'),
    kind: 5,
    tags: [['e', target.id]],
  }),
);
const EVENTS = [...OTHERS, ...REQUESTS];
const topicsIn = ({ tags }: NostrEvent) => tags.filter(([name]) => name === 't').map(([, value]) => value!);
const boundTo = (one: NostrEvent) => {
  const at = REQUESTS.indexOf(one);
  return at === -1 ? [] : [...new Set(topicsIn(TARGETS[at]!))];
};

const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 1 });
const rawFilter = fc.record({
  ids: maybe(
    fc.subarray(
      EVENTS.map(({ id }) => id),
      { minLength: 1, maxLength: 60 },
    ),
  ),
  authors: maybe(fc.subarray(KEYS, { minLength: 1 })),
  kinds: maybe(fc.subarray(ASKED_KINDS, { minLength: 1 })),
  '#p': maybe(fc.subarray(KEYS, { minLength: 1 })),
  '#t': maybe(fc.subarray(TOPICS, { minLength: 1 })),
  limit: fc.integer({ min: 1, max: 30 }),
});
const access: fc.Arbitrary<Access> = fc.record({
  pubkeys: fc.constant(new Set(KEYS)),
  consented: fc.subarray(KEYS).map((keys) => new Set(keys)),
  enforced: fc.boolean(),
  subscribed: fc.subarray(TOPICS).map((topics) => new Set(topics)),
});

/** The rule, implemented independently. */
function isShown(one: NostrEvent, { consented, enforced, subscribed }: Access, asked: Filter): boolean {
  const { kind, pubkey, tags } = one;
  const named = tags.filter(([name]) => name === 'p').map(([, value]) => value!);
  const isPrivate = kind === 4 || kind === 1_059 || (kind > 9_000 && kind < 9_010);
  if (isPrivate && ![pubkey, ...named].some((party) => consented.has(party))) return false;
  const isFree = asked.tags.every(({ name }) => name !== 't') && [...(asked.kinds ?? [1])].every(needsNone);
  return (!enforced && isFree) || isInReach(one, { enforced, subscribed });
}

const needsNone = (kind: number) => kind === 5 || kind === 1_059;

/** A topic that the node does not carry is closed to everybody, also beside other topics. */
function isInReach(
  one: NostrEvent,
  { enforced, subscribed }: Pick<Access, 'enforced' | 'subscribed'>,
): boolean {
  const bound = [...topicsIn(one), ...boundTo(one)].filter((value) => value !== 'sunset');
  const carried = bound.filter((value) => rules.topics.get(value)?.enabled);
  const isOpen = (value: string) => !enforced || value === 'kukuri:global' || subscribed.has(value);
  return bound.length === 0 || carried.some(isOpen);
}

let store: TestStore;
beforeAll(async () => {
  store = await openTestStore();
  const lane = store.lane();
  await Promise.all(
    [...TARGETS, ...EVENTS].map((one) =>
      lane.submit({ community: COMMUNITY, event: one, payload: serializeEvent(one) }),
    ),
  );
});
afterAll(() => store.close());

it('all implementations show the same events', async () => {
  const { database, tagHash } = store;
  let hidden = 0;
  await fc.assert(
    fc.asyncProperty(rawFilter, access, async (raw, client) => {
      const asked = parseFilter(JSON.parse(JSON.stringify(raw)), {
        'limits.filterValuesMax': 1_000,
      }) as Filter;
      const filter = seenBy(asked, client, rules);
      const matching = EVENTS.filter((one) => {
        const index = new SubscriptionIndex<string>();
        index.add('it', [asked]);
        return subscribersOf(index.match(asMatched(one, boundTo(one)))).length > 0;
      });
      const shown = matching.filter((one) => isShown(one, client, asked));
      hidden += matching.length - shown.length;
      const live = EVENTS.filter((one) => {
        const index = new SubscriptionIndex<string>();
        index.add('it', [filter]);
        return subscribersOf(index.match(asMatched(one, boundTo(one)))).length > 0;
      });
      // Where every queried topic is allowed, an event with an allowed and a forbidden topic is shown.
      expect(live).toEqual(shown);
      const page = shown
        .sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1))
        .map(({ id }) => id);
      const rows = await findEvents({ pool: database.pool, tagHash }, { ...query, filter, limit: raw.limit });
      expect(rows.map(({ id }) => id)).toEqual(page.slice(0, raw.limit));
      const { limit: _limit, ...unlimited } = filter;
      const count = await countEvents(database.pool, tagHash, { ...query, filters: [unlimited], max: 1_000 });
      expect(count).toBe(page.length);
    }),
    { seed: 42, numRuns: 300 },
  );
  expect(hidden).toBeGreaterThan(1_000);
});

// ── Search ─────────────────────────────────────────────────────────────────────────────────────────────────

const searching = (mode: 'off' | 'required') => ({
  ...rules,
  id: COMMUNITY,
  settings: settingsFrom(
    new Map<string, unknown>([
      ['auth.privateKinds', [4, 1_059, '9001-9009']],
      ['search.kinds', [1, 4, 7, '9000-9005']],
      ['auth.mode', mode],
    ]),
  ),
});

/** What search may find: events of kinds with text that a REQ of the same client would show. */
function canBeFound(one: NostrEvent, client: Access): boolean {
  return [1, 7, 9_000].includes(one.kind) && isInReach(one, client);
}
const SEARCHES: Record<string, (one: NostrEvent) => boolean> = {
  boats: ({ content }) => content.includes('boats'),
  '"kukuri boats"': ({ content }) => content.includes('boats'),
  '-boats': ({ content }) => !content.includes('boats'),
  '#plain': (one) => topicsIn(one).includes('plain'),
  '#kukuri:old -boats': (one) => topicsIn(one).includes('kukuri:old') && !one.content.includes('boats'),
  nothing: () => false,
};

it.each(['off', 'required'] as const)(
  'with auth.mode %s a search shows what a REQ of this client would, and nothing private',
  async (mode) => {
    const { database, tagHash } = store;
    const pools = { pool: database.pool, searchPool: database.searchPool, tagHash };
    const community = searching(mode);
    let [shown, hidden] = [0, 0];
    const holds = () =>
      fc.assert(
        fc.asyncProperty(
          rawFilter,
          access,
          fc.constantFrom(...Object.keys(SEARCHES)),
          async (raw, anyone, search) => {
            const client = { ...anyone, enforced: mode === 'required' };
            const { limit: _limit, ...unlimited } = raw;
            const limits = { 'limits.filterValuesMax': 1_000 };
            const parsed = (given: object) =>
              parseFilter(JSON.parse(JSON.stringify(given)), limits) as Filter;
            const matching = EVENTS.filter((one) => {
              const index = new SubscriptionIndex<string>();
              index.add('it', [parsed(unlimited)]);
              return (
                subscribersOf(index.match(asMatched(one, boundTo(one)))).length > 0 && SEARCHES[search]!(one)
              );
            });
            const expected = matching
              .filter((one) => canBeFound(one, client))
              .map(({ id }) => id)
              .sort();
            shown += expected.length;
            hidden += matching.length - expected.length;
            const filter = seenBy(parsed({ ...unlimited, search }), client, community);
            const live = EVENTS.filter((one) => {
              const index = new SubscriptionIndex<string>();
              index.add('it', [filter]);
              return subscribersOf(index.match(asMatched(one, boundTo(one)))).length > 0;
            });
            expect(live.map(({ id }) => id).sort()).toEqual(expected);
            const asked = { limit: 1_000, now: NOW * 1_000 };
            const found = (await searchEvents(pools, community, filter, asked)) as Searched;
            expect(found.rows.map(({ id }) => id).sort()).toEqual(expected);
            expect(await countSearched(pools, community, [filter], 1_000, asked.now)).toEqual({
              count: expected.length,
              behind: 0,
              isOutdated: false,
            });
          },
        ),
        { seed: 42, numRuns: 60 },
      );
    await database.pool.query('DELETE FROM consumer_offsets');
    await database.pool.query(
      `INSERT INTO consumer_offsets (consumer, last_seq, generation, updated_at) VALUES ('search', 0, 1, 1)`,
    );
    await holds();
    await indexAll(database, { all: () => [], get: () => community as never });
    await holds();
    expect(shown).toBeGreaterThan(200);
    expect(hidden).toBeGreaterThan(200);
  },
);
