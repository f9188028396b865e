import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Filter, parseFilter } from './filter.js';
import { classOf, countCost, findCost, payloadsCost } from './query-cost.js';
import { isRefusal } from './reply.js';

const COUNT_MAX = 10_000;
const key = (n: number) => n.toString(16).padStart(64, '0');
const keys = (count: number) => Array.from({ length: count }, (_, n) => key(n));
const topics = (count: number) => Array.from({ length: count }, (_, n) => `topic-${n}`);

function parsed(raw: Record<string, unknown>): Filter {
  const filter = parseFilter(raw, { 'limits.filterValuesMax': 10_000 });
  if (isRefusal(filter)) throw new Error(filter.why);
  return filter;
}

describe('ordinary queries of clients are light:', () => {
  it.each<[string, Record<string, unknown>, number]>([
    ['one event', { ids: keys(1) }, 1],
    ['500 events by id', { ids: keys(500) }, 500],
    ['the newest', {}, 500],
    ['a kind', { kinds: [1] }, 500],
    ['an author', { authors: keys(1) }, 500],
    ['a profile', { authors: keys(1), kinds: [0] }, 1],
    ['a topic', { '#t': ['sea'], kinds: [1] }, 500],
    ['the answers of a thread', { '#e': keys(1), kinds: [1] }, 500],
    ['notifications', { '#p': keys(1), kinds: [1, 6, 7, 9735] }, 500],
    ['an own list by its name', { authors: keys(1), kinds: [30_078], '#d': ['x'] }, 1],
  ])('%s', (_what, raw, limit) => {
    expect(findCost(parsed(raw), limit).class).toBe('light');
  });

  it.each<[string, Record<string, unknown>]>([
    ['reactions', { '#e': keys(1), kinds: [7] }],
    ['an own list by its name', { authors: keys(1), kinds: [30_078], '#d': ['x'] }],
  ])('COUNT of %s', (_what, raw) => {
    expect(countCost(parsed(raw), COUNT_MAX).class).toBe('light');
  });
});

describe('a feed of many authors is medium, so that light queries never wait for it:', () => {
  it.each<[string, Record<string, unknown>, number]>([
    ['reactions to a page of posts', { '#e': keys(100), kinds: [7] }, 500],
    ['500 followed authors', { authors: keys(500), kinds: [1, 6] }, 500],
    ['900 followed authors', { authors: keys(900), kinds: [1, 6] }, 500],
    ['2,000 followed authors', { authors: keys(2_000), kinds: [1, 6] }, 500],
    ['5,000 followed authors', { authors: keys(5_000) }, 500],
  ])('%s', (_what, raw, limit) => {
    expect(findCost(parsed(raw), limit).class).toBe('medium');
  });

  it.each<[string, Record<string, unknown>]>([
    ['an author', { authors: keys(1) }],
    ['900 authors', { authors: keys(900) }],
    ['followers', { '#p': keys(1), kinds: [3] }],
  ])('COUNT of %s', (_what, raw) => {
    expect(countCost(parsed(raw), COUNT_MAX).class).toBe('medium');
  });
});

it('the cost of many filters is the sum of their costs', () => {
  const one = findCost(parsed({ authors: keys(1) }), 500);
  expect(one.class).toBe('light');
  expect(classOf(Array(10).fill(one))).toBe('medium');
  const counted = countCost(parsed({ authors: keys(900) }), COUNT_MAX);
  expect(counted.class).toBe('medium');
  expect(classOf(Array(10).fill(counted))).toBe('heavy');
});

describe('heavy queries are', () => {
  it.each<[string, Record<string, unknown>, number]>([
    ['5,000 authors, as many of their events', { authors: keys(5_000) }, 5_000],
    ['5,000 threads, as many of their answers', { '#e': keys(5_000) }, 5_000],
    [
      'events with one of many topics that name one of many people',
      { '#t': topics(100), '#p': keys(100) },
      5_000,
    ],
  ])('%s', (_what, raw, limit) => {
    expect(findCost(parsed(raw), limit).class).toBe('heavy');
  });

  it.each<[string, Record<string, unknown>]>([
    ['200 people', { '#p': keys(200) }],
    ['500 topics', { '#t': topics(500) }],
    ['5,000 threads', { '#e': keys(5_000) }],
  ])('COUNT of %s', (_what, raw) => {
    expect(countCost(parsed(raw), COUNT_MAX).class).toBe('heavy');
  });
});

it('a search has its own class, and one search filter decides for all filters', () => {
  const search = parsed({ search: 'sea', authors: keys(1) });
  expect(findCost(search, 20).class).toBe('search');
  expect(countCost(search, COUNT_MAX).class).toBe('search');
  const light = payloadsCost(10);
  expect(classOf([light, findCost(search, 20), { class: 'heavy', ms: 1_000 }])).toBe('search');
  expect(classOf([light, { class: 'heavy', ms: 1_000 }])).toBe('heavy');
  expect(classOf([light, light])).toBe('light');
});

it('nothing is free, and more values or a higher limit never cost less', () => {
  const count = fc.integer({ min: 1, max: 300 });
  const field = fc.constantFrom('authors', '#p', '#e', '#t');
  const property = fc.property(field, count, count, count, count, (name, few, more, low, higher) => {
    const of = (values: number, limit: number) => {
      const filter = parsed({ [name]: name === '#t' ? topics(values) : keys(values) });
      return [findCost(filter, limit).ms, countCost(filter, limit).ms] as const;
    };
    const [find, counted] = of(few, low);
    const [findMore, countedMore] = of(few + more, low + higher);
    expect(find).toBeGreaterThan(0);
    expect(counted).toBeGreaterThan(0);
    expect(findMore).toBeGreaterThanOrEqual(find);
    expect(countedMore).toBeGreaterThanOrEqual(counted);
  });
  fc.assert(property, { seed: 7_447, numRuns: 300 });
});
