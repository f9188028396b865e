import { expect, it } from 'vitest';
import { startPolling } from './poll-loop.js';

function signal(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

it('repeats its work until it is stopped', async () => {
  let runs = 0;
  const third = signal();
  const stop = startPolling(1, async () => {
    runs += 1;
    if (runs === 3) third.resolve();
  });
  await third.promise;
  await stop();
  const atStop = runs;
  await new Promise((resolve) => setImmediate(resolve));
  expect(runs).toBe(atStop);
});

it('begins with a pause, or at once', async () => {
  const runs: string[] = [];
  const work = (name: string) => async () => void runs.push(name);
  const stops = [
    startPolling(60_000, work('later')),
    startPolling(60_000, work('at once'), { atOnce: true }),
  ];
  await Promise.all(stops.map((stop) => stop()));
  expect(runs).toEqual(['at once']);
});

it('a stop waits for the current work, and no work follows', async () => {
  const begun = signal();
  const held = signal();
  let ended = 0;
  const stop = startPolling(
    1,
    async () => {
      begun.resolve();
      await held.promise;
      ended += 1;
    },
    { atOnce: true },
  );
  await begun.promise;
  const stopped = stop();
  held.resolve();
  await stopped;
  expect(ended).toBe(1);
});
