import { performance } from 'node:perf_hooks';
import { describe, expect, it } from 'vitest';
import { restAfter, restMax } from './pace.js';

describe('how long a consumer rests', () => {
  it('at most twenty times its work, less the longer it lags, not at all from a minute on', () => {
    const restOf = (behindMs: number) => restMax({ tookMs: 100, behindMs });
    expect(restOf(0)).toBe(2_000);
    expect(restOf(30_000)).toBe(1_000);
    expect(restOf(60_000)).toBe(0);
    expect(restOf(1e9)).toBe(0);
    expect(restOf(-5_000), 'by a clock that is ahead').toBe(2_000);
  });

  it('at most twice its work while an erasure waits for it', () => {
    expect(restMax({ tookMs: 100, behindMs: 0, isAwaited: true })).toBe(200);
    expect(restMax({ tookMs: 100, behindMs: 60_000, isAwaited: true })).toBe(0);
  });

  it('until the event loop is idle, or until the caller stops it', async () => {
    let asked = 0;
    const calm = restAfter({ tookMs: 1e6, behindMs: 0 }, () => {
      asked += 1;
      return false;
    });
    await calm;
    expect(asked).toBeGreaterThan(0);
    const busy = setInterval(() => {
      const until = performance.now() + 8;
      while (performance.now() < until);
    }, 0);
    let steps = 0;
    await restAfter({ tookMs: 1e6, behindMs: 0 }, () => {
      steps += 1;
      return steps > 5;
    });
    clearInterval(busy);
    expect(steps).toBe(6);
  });
});
