import { describe, expect, it } from 'vitest';
import { KIND_MAX } from './event.js';
import { Keep, keepOf, keepsOf, REGULAR_KEEPS, stepOf } from './keep.js';

describe('keep', () => {
  it('the numbers are those that the database has', () => {
    expect(Keep).toEqual({
      current: 0,
      request: 1,
      history: 2,
      days30: 3,
      days90: 4,
      days365: 5,
      forever: 6,
    });
  });

  it('every kind goes to its bucket: requests, current versions, and the rest by retention (I11)', () => {
    for (let kind = 0; kind <= KIND_MAX; kind += 1) {
      const isKeyed =
        kind === 0 || kind === 3 || (kind >= 10_000 && kind <= 19_999) || (kind >= 30_000 && kind <= 39_999);
      const isEphemeral = kind >= 20_000 && kind <= 29_999;
      // Ephemeral events are never stored, so they have no bucket that matters.
      if (isEphemeral) continue;
      const bucket = kind === 5 || kind === 62 ? Keep.request : isKeyed ? Keep.current : Keep.days30;
      if (keepOf(kind, 30) !== bucket) expect.fail(`kind ${kind} goes to ${keepOf(kind, 30)}`);
      const buckets = bucket === Keep.days30 ? REGULAR_KEEPS : [bucket];
      if (keepsOf(kind).join() !== buckets.join())
        expect.fail(`kind ${kind} is searched in ${keepsOf(kind)}`);
    }
  });

  it.each([
    [0, Keep.forever],
    [1, Keep.days30],
    [30, Keep.days30],
    [31, Keep.days90],
    [90, Keep.days90],
    [91, Keep.days365],
    [365, Keep.days365],
    [366, Keep.forever],
    [36_500, Keep.forever],
  ])(
    'an event kept for %i days is in the first bucket that keeps it long enough; 0 means the last',
    (days, keep) => {
      expect(stepOf(days)).toBe(keep);
      expect(keepOf(1, days)).toBe(keep);
    },
  );

  it('no kind is stored as history: only a superseded version is history', () => {
    for (let kind = 0; kind <= KIND_MAX; kind += 1)
      if (keepsOf(kind).includes(Keep.history)) expect.fail(`kind ${kind}`);
  });
});
