import { expect, it } from 'vitest';
import { nextUnreachedMs, UNREACHED_MS } from './rules-unreached.js';

it('doubles the time with each endpoint in a row that reached no known node, up to half an hour', () => {
  const times = [UNREACHED_MS];
  for (let replaced = 0; replaced < 6; replaced += 1)
    times.push(nextUnreachedMs(times.at(-1)!, { hasReached: false, isUnreached: true }));
  expect(times.map((ms) => ms / 1_000)).toEqual([90, 180, 360, 720, 1_440, 1_800, 1_800]);
});

it('begins again after an endpoint that reached one, also if that one was replaced later', () => {
  for (const isUnreached of [true, false])
    expect(nextUnreachedMs(8 * UNREACHED_MS, { hasReached: true, isUnreached })).toBe(UNREACHED_MS);
});

it('keeps the time when a session ends for another reason before it reached one', () => {
  const ms = 4 * UNREACHED_MS;
  expect(nextUnreachedMs(ms, { hasReached: false, isUnreached: false })).toBe(ms);
});
