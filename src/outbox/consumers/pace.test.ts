import { performance } from 'node:perf_hooks';
import { describe, expect, it } from 'vitest';
import { restAfter, restMax } from './pace.js';

describe('how long a consumer rests', () => {
  it('at most twenty times its work, less the longer it lags, not at all from a minute on', () => {
    expect(restMax(100, 0)).toBe(2_000);
    expect(restMax(100, 30_000)).toBe(1_000);
    expect(restMax(100, 60_000)).toBe(0);
    expect(restMax(100, 1e9)).toBe(0);
    expect(restMax(100, -5_000), 'by a clock that is ahead').toBe(2_000);
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
