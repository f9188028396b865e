import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { NostrEvent } from './event.js';
import {
  type Filter,
  indexTags,
  matchesNothing,
  matchFilter,
  parseFilter,
  parseFilters,
  SEARCHES_MAX,
  searchCharactersIn,
  valuesIn,
} from './filter.js';
import { isRefusal } from './reply.js';

const LIMITS = { 'limits.filterValuesMax': 10, 'limits.filtersMax': 3 };
const hex = (digit: string) => digit.repeat(64);
/** As it arrives on the wire. */
const parseText = (json: string) => parseFilter(JSON.parse(json), LIMITS);
function parsed(raw: unknown): Filter {
  const filter = parseFilter(raw, LIMITS);
  if (isRefusal(filter)) throw new Error(filter.why);
  return filter;
}

const event: NostrEvent = {
  id: hex('1'),
  pubkey: hex('a'),
  created_at: 100,
  kind: 1,
  tags: [['t', 'sea', 'not me'], ['t', 'wind'], ['T', 'upper'], ['p'], ['title', 'x'], ['e', '']],
  content: '',
  sig: 'c'.repeat(128),
};

describe('parseFilter', () => {
  it('takes every field of NIP-01', () => {
    const raw = {
      ids: [hex('1')],
      authors: [hex('a')],
      kinds: [0, 65_535],
      since: 0,
      until: 5,
      limit: 0,
      '#t': ['sea', ''],
      '#T': ['sea'],
    };
    expect(parsed(raw)).toEqual({
      ids: new Set(raw.ids),
      authors: new Set(raw.authors),
      kinds: new Set(raw.kinds),
      since: 0,
      until: 5,
      limit: 0,
      tags: [
        { name: 't', values: new Set(['sea', '']) },
        { name: 'T', values: new Set(['sea']) },
      ],
    });
  });

  it('an empty filter matches everything', () => {
    expect(parsed({})).toEqual({ tags: [] });
  });

  it('repeated values count once', () => {
    expect(parsed({ kinds: [1, 1], '#t': ['a', 'a'] })).toEqual({
      kinds: new Set([1]),
      tags: [{ name: 't', values: new Set(['a']) }],
    });
  });

  it.each(['null', '[]', '"x"', '1', 'true', '[{}]'])('refuses a value that is not an object: %s', (json) => {
    expect(parseText(json)).toMatchObject({ refused: 'invalid' });
  });

  const notHexLists = ['null', `"${hex('a')}"`, '{}', '1', '[1]', '[null]', '[""]', '["aa"]'].concat(
    [hex('A'), hex('g'), `${hex('a')}a`, hex('a').slice(1), `${hex('a')}\\n`].map((value) => `["${value}"]`),
    `["${hex('a')}","aa"]`,
  );
  const notSeconds = ['null', '"1"', '1.5', '1e999', '9007199254740993', '[1]', '{}', 'true'];
  const refused: [string, string[]][] = [
    ['ids', notHexLists],
    ['authors', notHexLists],
    ['search', ['null', '1', '["x"]', '{}', `"${'x'.repeat(257)}"`]],
    ['kinds', ['null', '1', '{}', '["1"]', '[1.5]', '[-1]', '[65536]', '[null]', '[1,1e999]', '[[1]]']],
    ['since', notSeconds],
    ['until', notSeconds],
    ['limit', [...notSeconds, '-1']],
    ['#t', ['null', '"sea"', '{}', '1', '[1]', '[null]', '[["sea"]]', '["sea",1]']],
  ];
  it.each(refused.flatMap(([field, values]) => values.map((json) => [field, json] as const)))(
    'refuses %s that is %s, and names it',
    (field, json) => {
      expect(parseText(`{"${field}":${json}}`)).toMatchObject({
        refused: 'invalid',
        why: expect.stringContaining(field),
      });
    },
  );

  it.each([
    'Search',
    '#',
    '#tt',
    '#1',
    '##',
    '#é',
    '#t ',
    't',
    'id',
    'Kinds',
    '',
    '__proto__',
    'constructor',
    '&t',
  ])('an unknown field is unsupported, never ignored: %j', (field) => {
    expect(parseText(`{"kinds":[1],${JSON.stringify(field)}:["x"]}`)).toMatchObject({
      refused: 'unsupported',
      why: expect.stringContaining(JSON.stringify(field)),
    });
  });

  it('a long unknown field is shortened in the reply', () => {
    const refusal = parseFilter({ ['x'.repeat(10_000)]: [] }, LIMITS);
    expect(isRefusal(refusal) && refusal.why.length).toBeLessThan(100);
  });

  it('counts the values of all fields together', () => {
    expect(isRefusal(parseFilter({ '#t': Array(5).fill('a'), kinds: Array(5).fill(1) }, LIMITS))).toBe(false);
    expect(parseFilter({ '#t': Array(5).fill('a'), kinds: Array(6).fill(1) }, LIMITS)).toMatchObject({
      refused: 'invalid',
      why: expect.stringContaining('10'),
    });
    // Values are counted before they are checked: ten million are not checked.
    expect(parseFilter({ ids: Array(11).fill('bad') }, LIMITS)).toMatchObject({
      why: expect.stringContaining('10'),
    });
  });

  it.each([
    ['since', '-0', 0],
    ['since', '-5', -5],
    ['until', '1e3', 1_000],
    ['limit', '-0', 0],
    ['limit', '9007199254740991', Number.MAX_SAFE_INTEGER],
  ] as const)('takes %s written as %s', (field, json, value) => {
    expect(Number((parseText(`{"${field}":${json}}`) as Filter)[field]) + 0).toBe(value);
  });
});

describe('parseFilters', () => {
  it('needs at least one filter and accepts up to the limit', () => {
    expect(parseFilters([], LIMITS)).toMatchObject({ refused: 'invalid' });
    expect(parseFilters([{}, {}, {}], LIMITS)).toHaveLength(3);
    expect(parseFilters([{}, {}, {}, {}], LIMITS)).toMatchObject({
      refused: 'invalid',
      why: expect.stringContaining('3'),
    });
  });

  it('one bad filter refuses them all, with its reason', () => {
    expect(parseFilters([{}, { nonsense: 'x' }, {}], LIMITS)).toMatchObject({ refused: 'unsupported' });
  });
});

const IMPOSSIBLE = [
  { ids: [] },
  { authors: [] },
  { kinds: [] },
  { '#t': [] },
  { '#t': ['sea'], '#e': [] },
  { since: 6, until: 5 },
];
const POSSIBLE = [
  {},
  { kinds: [1] },
  { since: 5, until: 5 },
  { since: 0 },
  { until: 0 },
  { limit: 0 },
  { '#t': [''] },
];

describe('the cost of filters', () => {
  it('counts a long value as several, because it takes as much memory', () => {
    expect(valuesIn([parsed({ '#x': ['a', 'b'.repeat(255), 'c'.repeat(700_000)] })])).toBe(2_737);
  });

  it('counts each lexeme of a search, also in phrases and in forms of other scripts', () => {
    const words = Array.from({ length: 100 }, (_, number) => 'abcdefghij'[number % 10]).join(' ');
    expect(valuesIn([parsed({ search: `"${words}"` })])).toBe(1_000);
    expect(valuesIn([parsed({ search: '漢る'.repeat(60) })])).toBeGreaterThan(1_000);
  });

  it('knows the characters of searches before they are read, without those that are refused unread', () => {
    const inputs = [
      { search: 'boat' },
      { search: 'x'.repeat(257) },
      { search: 7 },
      null,
      {},
      { search: '港' },
    ];
    expect(searchCharactersIn(inputs)).toBe(5);
  });

  it('has few searches in one query', () => {
    const limits = { 'limits.filterValuesMax': 10, 'limits.filtersMax': 20 };
    const some = (count: number) => Array.from({ length: count }, () => ({ search: 'boat' }));
    expect(parseFilters([...some(SEARCHES_MAX), {}], limits)).toHaveLength(SEARCHES_MAX + 1);
    expect(parseFilters(some(SEARCHES_MAX + 1), limits)).toMatchObject({
      why: 'at most 8 filters with a search are allowed',
    });
  });
});

describe('an event with many tags', () => {
  const letter = fc.constantFrom('a', 'b', 't', 'T', 'long');
  const value = fc.constantFrom('1', '2', '3', '4', '');
  const tag = fc.oneof(fc.tuple(letter, value), fc.tuple(letter), fc.constant([] as string[]));
  const condition = fc.record({
    name: fc.constantFrom('a', 'b', 't', 'T', 'c'),
    values: fc.uniqueArray(value).map((values) => new Set(values)),
  });

  it('matches as one with few tags does', () => {
    const tags = fc.array(tag as fc.Arbitrary<string[]>, { maxLength: 60 });
    const past = fc.option(fc.uniqueArray(value), { nil: undefined });
    fc.assert(
      fc.property(tags, fc.array(condition, { maxLength: 3 }), past, (tags, conditions, past) => {
        const many = { ...event, tags, ...(past === undefined ? {} : { past }) };
        const before = matchFilter({ tags: conditions }, many);
        expect(indexTags(many) !== undefined).toBe(tags.length > 32);
        expect(matchFilter({ tags: conditions }, many)).toBe(before);
      }),
    );
  });
});

describe('matchesNothing', () => {
  it.each(IMPOSSIBLE)('%j can match no event', (raw) => {
    expect(matchesNothing(parsed(raw))).toBe(true);
    expect(matchFilter(parsed(raw), { ...event, created_at: 5 })).toBe(false);
  });
  it.each(POSSIBLE)('%j can match one', (raw) => {
    expect(matchesNothing(parsed(raw))).toBe(false);
  });
});

describe('matchFilter', () => {
  const table: [Record<string, unknown>, boolean][] = [
    [{}, true],
    [{ limit: 0 }, true],
    [{ ids: [hex('1')] }, true],
    [{ ids: [hex('2')] }, false],
    [{ ids: [hex('2'), hex('1')] }, true],
    [{ authors: [hex('a')] }, true],
    [{ authors: [hex('1')] }, false],
    [{ kinds: [0, 1] }, true],
    [{ kinds: [0] }, false],
    [{ since: 100 }, true],
    [{ since: 101 }, false],
    [{ until: 100 }, true],
    [{ until: 99 }, false],
    [{ since: 100, until: 100 }, true],
    [{ since: 0 }, true],
    [{ until: 0 }, false],
    [{ since: -1 }, true],
    [{ '#t': ['sea'] }, true],
    [{ '#t': ['wind'] }, true],
    [{ '#t': ['se'] }, false],
    [{ '#t': ['Sea'] }, false],
    [{ '#t': ['not me'] }, false],
    [{ '#t': ['x', 'sea'] }, true],
    [{ '#T': ['sea'] }, false],
    [{ '#T': ['upper'] }, true],
    [{ '#t': ['upper'] }, false],
    [{ '#t': ['sea'], '#T': ['upper'] }, true],
    [{ '#t': ['sea'], '#T': ['lower'] }, false],
    [{ '#p': [''] }, false],
    [{ '#e': [''] }, true],
    [{ kinds: [1], authors: [hex('a')], ids: [hex('1')], '#t': ['sea'], since: 1, until: 100 }, true],
    [{ kinds: [1], authors: [hex('a')], ids: [hex('1')], '#t': ['sea'], since: 1, until: 99 }, false],
    [{ kinds: [2], authors: [hex('a')], ids: [hex('1')] }, false],
  ];
  it.each(table)('%j → %s', (raw, matches) => {
    expect(matchFilter(parsed(raw), event)).toBe(matches);
  });

  it('until 0 and since 0 are ordinary times', () => {
    const first = { ...event, created_at: 0 };
    expect(matchFilter(parsed({ until: 0 }), first)).toBe(true);
    expect(matchFilter(parsed({ since: 0, until: 0 }), first)).toBe(true);
    expect(matchFilter(parsed({ since: 1 }), first)).toBe(false);
  });

  it('a filter made from an event matches it, and not after any one value is changed', () => {
    const field = fc.constantFrom('ids', 'authors', 'kinds', '#t', 'since', 'until');
    fc.assert(
      fc.property(field, (changed) => {
        const own = {
          ids: [event.id],
          authors: [event.pubkey],
          kinds: [1],
          '#t': ['sea'],
          since: 100,
          until: 100,
        };
        const other = {
          ids: [hex('9')],
          authors: [hex('9')],
          kinds: [9],
          '#t': ['9'],
          since: 101,
          until: 99,
        };
        expect(matchFilter(parsed(own), event)).toBe(true);
        expect(matchFilter(parsed({ ...own, [changed]: other[changed as keyof typeof other] }), event)).toBe(
          false,
        );
      }),
      { seed: 7447, numRuns: 30 },
    );
  });
});
