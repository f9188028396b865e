import { describe, expect, it } from 'vitest';
import { DAY_MS } from '../events/rules/retention.js';
import {
  changeLimits,
  DAILY_METRICS,
  endOfDay,
  FREE,
  LIMIT_KEYS,
  limitOf,
  limitSchema,
  METRICS,
  PLAN_ID,
  quotaExceeded,
} from './rules.js';

describe('limits of a plan', () => {
  it('the free plan limits everything that can be limited', () => {
    expect(FREE.limits).toEqual({
      maxTopics: 100,
      searchPerDay: 1_000,
      trustPerDay: 1_000,
      reportsPerDay: 50,
      exportsPerDay: 3,
    });
  });

  it('each limit belongs to one metric', () => {
    expect(Object.values(METRICS).map(({ limit }) => limit)).toEqual([...LIMIT_KEYS]);
    expect(Object.keys(METRICS)).toEqual(['topics', ...DAILY_METRICS]);
  });

  it('a missing limit means unlimited, and 0 is a limit', () => {
    expect(limitOf({}, 'search')).toBeNull();
    expect(limitOf({ searchPerDay: 0 }, 'search')).toBe(0);
    expect(limitOf({ searchPerDay: 7 }, 'reports')).toBeNull();
  });

  it.each([-1, 1.5, 1_000_000_001, '5', null, Number.NaN])('%s is not a valid limit', (value) => {
    expect(limitSchema.safeParse(value).success).toBe(false);
  });

  it('a change keeps limits that it does not name and removes those that it sets to null', () => {
    const before = { maxTopics: 5, searchPerDay: 10 };
    expect(changeLimits(before, {})).toEqual(before);
    expect(changeLimits(before, { searchPerDay: null, exportsPerDay: 0 })).toEqual({
      maxTopics: 5,
      exportsPerDay: 0,
    });
  });

  it.each(['', '-a', 'A', 'a_b', 'a'.repeat(64), 'ü'])('"%s" is not a plan id', (id) => {
    expect(PLAN_ID.test(id)).toBe(false);
  });
});

describe('a day of usage', () => {
  it('ends at midnight, UTC', () => {
    expect(endOfDay(0)).toBe(DAY_MS);
    expect(endOfDay(DAY_MS - 1)).toBe(DAY_MS);
    expect(endOfDay(DAY_MS)).toBe(2 * DAY_MS);
    expect(quotaExceeded('search', 3, 3, 5).details).toMatchObject({ reset_at: DAY_MS });
  });

  it('does not end for topics', () => {
    expect(quotaExceeded('topics', 3, 2, 0)).toEqual({
      denied: 'QUOTA_EXCEEDED',
      details: { metric: 'topics', current: 3, limit: 2, reset_at: null },
    });
  });
});
