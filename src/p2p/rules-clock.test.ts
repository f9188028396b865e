import { expect, it } from 'vitest';
import { ClockWatch } from './rules-clock.js';

it('a clock that was set is noticed once, forward and back; one that runs or drifts is not', () => {
  const watch = new ClockWatch();
  const looks: [wallMs: number, steadyMs: number, wasSet: boolean][] = [
    [1_000_000, 500, false],
    [1_001_000, 1_500, false],
    // Nobody looked for an hour.
    [4_601_000, 3_601_500, false],
    [4_607_000, 3_602_500, false],
    [11_808_000, 3_603_500, true],
    [11_809_000, 3_604_500, false],
    [4_610_000, 3_605_500, true],
    [4_611_000, 3_606_500, false],
  ];
  for (const [wallMs, steadyMs, wasSet] of looks) expect(watch.wasSet(wallMs, steadyMs)).toBe(wasSet);
});
