/** The history as pure functions. */
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  addCounts,
  bucketOf,
  DAY_MS,
  forecast,
  HOUR_MS,
  inSteps,
  MINUTE_MS,
  mergeSamples,
  quantile,
  type Sample,
  TIME_BUCKETS,
} from './rules.js';
import { parseLine, passes } from './rules-log.js';

const sample = (at: number, of: Partial<Sample> = {}): Sample => ({
  at,
  outcomes: [1, 2],
  okTimes: [0, 1],
  connections: 2,
  laneDepth: 3,
  lagSeconds: {},
  databaseBytes: null,
  diskFreeBytes: null,
  ...of,
});

describe('merged samples', () => {
  it('add counts, take the mean of connections, the greatest queue and lag, and the newest size', () => {
    const merged = mergeSamples(0, [
      sample(0, { connections: 4, laneDepth: 9, lagSeconds: { search: 5, trust: 1 }, databaseBytes: 10 }),
      sample(1, { outcomes: [1, 0, 7], lagSeconds: { search: 2 }, databaseBytes: 12 }),
      sample(2, { connections: 6 }),
    ]);
    expect(merged).toEqual({
      at: 0,
      outcomes: [3, 4, 7],
      okTimes: [0, 3],
      connections: 4,
      laneDepth: 9,
      lagSeconds: { search: 5, trust: 1 },
      databaseBytes: 12,
      diskFreeBytes: null,
    });
  });

  it('have the same counts in whichever steps they are merged', () => {
    const times = fc.uniqueArray(fc.integer({ min: 0, max: 3_000 }), { minLength: 1, maxLength: 60 });
    fc.assert(
      fc.property(times, (minutes) => {
        const samples = minutes.sort((a, b) => a - b).map((minute) => sample(minute * MINUTE_MS));
        const once = inSteps(samples, HOUR_MS);
        const twice = inSteps(inSteps(samples, 5 * MINUTE_MS), HOUR_MS);
        expect(twice.map(({ at, outcomes }) => [at, outcomes])).toEqual(
          once.map(({ at, outcomes }) => [at, outcomes]),
        );
        const all = once.map(({ outcomes }) => outcomes).reduce(addCounts, []);
        expect(all).toEqual([samples.length, 2 * samples.length]);
      }),
    );
  });
});

describe('times to OK', () => {
  it('are in bounded buckets, longer ones never before shorter ones', () => {
    const ms = fc.double({ min: 0, max: 1e9, noNaN: true });
    fc.assert(
      fc.property(ms, ms, (a, b) => {
        expect(bucketOf(Math.min(a, b))).toBeLessThanOrEqual(bucketOf(Math.max(a, b)));
        expect(bucketOf(a)).toBeLessThan(TIME_BUCKETS);
      }),
    );
    expect([0, Number.NaN, -1].map(bucketOf)).toEqual([0, 0, 0]);
  });

  it('give quantiles within half a power of two', () => {
    const buckets = Array.from({ length: TIME_BUCKETS }, () => 0);
    for (let ms = 1; ms <= 100; ms += 1) buckets[bucketOf(ms)]! += 1;
    expect(quantile(buckets, 0.5)).toBeGreaterThan(50 / Math.SQRT2);
    expect(quantile(buckets, 0.5)).toBeLessThan(50 * Math.SQRT2);
    expect(quantile(buckets, 0.99)).toBeGreaterThan(99 / Math.SQRT2);
    expect(quantile(buckets, 0.99)).toBeLessThan(99 * Math.SQRT2);
    expect(quantile([0, 0], 0.5)).toBeUndefined();
  });
});

describe('the forecast', () => {
  const now = 100 * DAY_MS;
  const line = (hours: number, perHour: number) =>
    Array.from({ length: hours + 1 }, (_, n) => ({ at: now - (hours - n) * HOUR_MS, value: n * perHour }));

  it('continues the growth of the past until the limit', () => {
    const found = forecast(line(48, 10), 2_400, now)!;
    expect(found.perDay).toBeCloseTo(240);
    expect(found.fullAt).toBe(now + 10 * DAY_MS);
  });

  it('names no date where nothing grows, or where it is more than a year away', () => {
    expect(forecast(line(48, 0), 10, now)).toEqual({ perDay: 0, fullAt: null });
    expect(forecast(line(48, -1), 10, now)!.fullAt).toBeNull();
    expect(forecast(line(48, 1), 24 * 366, now)!.fullAt).toBeNull();
    expect(forecast(line(48, 1), 24 * 364, now)!.fullAt).not.toBeNull();
  });

  it('is now where the limit is met already', () => {
    expect(forecast(line(48, 1), 0, now)!.fullAt).toBe(now);
    expect(forecast(line(48, -1), -5, now)!.fullAt).toBe(now);
  });

  it('says nothing with less than six hours of history', () => {
    expect(forecast([], 10, now)).toBeUndefined();
    expect(forecast(line(5, 1), 10, now)).toBeUndefined();
    expect(forecast(line(6, 1), 10, now)).toBeDefined();
  });

  it('follows the trend, not single values', () => {
    const points = line(100, 10).map((point, n) => ({ ...point, value: point.value + (n % 2 ? 40 : -40) }));
    expect(forecast(points, 2_400, now)!.perDay).toBeGreaterThan(230);
    expect(forecast(points, 2_400, now)!.perDay).toBeLessThan(250);
  });
});

describe('a line of the log', () => {
  const text = '{"level":"warn","time":"2026-01-02T03:04:05.000Z","job":"Expire","msg":"a job failed"}';

  it('is its time, level, message and fields', () => {
    expect(parseLine(text)).toEqual({
      time: '2026-01-02T03:04:05.000Z',
      level: 'warn',
      message: 'a job failed',
      fields: { job: 'Expire' },
    });
    expect(parseLine('not JSON')).toBeUndefined();
    expect(parseLine('"text"')).toBeUndefined();
  });

  it('passes by its level and by any part of it, in any case', () => {
    const line = parseLine(text)!;
    const isShown = (level: 'debug' | 'warn' | 'error', part = '') =>
      passes(line, text, { level, text: part });
    expect([isShown('debug'), isShown('warn'), isShown('error')]).toEqual([true, true, false]);
    expect([isShown('debug', 'expire'), isShown('debug', 'FAILED'), isShown('debug', 'trust')]).toEqual([
      true,
      true,
      false,
    ]);
  });
});
