import { setImmediate as nextPass } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { inTimeSlices } from './time-slices.js';

/** Takes a slice in a few steps. */
function* long(steps: number, note: () => void): Generator<undefined, number> {
  for (let step = 0; step < steps; step += 1) {
    const until = performance.now() + 0.7;
    while (performance.now() < until);
    note();
    yield;
  }
  return steps;
}

it('of all work together one runs in a pass of the event loop, and each gets its share', async () => {
  const works = Array.from({ length: 10 }, (_, name) => name);
  let ran = new Set<number>();
  const together: number[] = [];
  let isDone = false;
  const all = Promise.all(works.map((name) => inTimeSlices(long(20, () => ran.add(name)))));
  // All of them have begun: each takes its first step at once.
  await nextPass();
  const watching = (async () => {
    while (!isDone) {
      ran = new Set();
      await nextPass();
      together.push(ran.size);
    }
  })();
  expect(await all).toEqual(works.map(() => 20));
  isDone = true;
  await watching;
  expect(Math.max(...together)).toBeLessThanOrEqual(2);
  expect(together.filter((works) => works > 0).length).toBeGreaterThan(works.length);
});
