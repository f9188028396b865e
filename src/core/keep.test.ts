import { describe, expect, it } from 'vitest';
import { KIND_MAX } from './event.js';
import { Keep, keepOf } from './keep.js';

describe('keep', () => {
  it('the numbers are those that the database has', () => {
    expect(Keep).toEqual({ current: 0, request: 1, history: 2, days30: 3 });
  });

  it('every kind goes to its bucket: requests, current versions, and the rest by retention (I11)', () => {
    for (let kind = 0; kind <= KIND_MAX; kind += 1) {
      const isKeyed =
        kind === 0 || kind === 3 || (kind >= 10_000 && kind <= 19_999) || (kind >= 30_000 && kind <= 39_999);
      const isEphemeral = kind >= 20_000 && kind <= 29_999;
      // Ephemeral events are never stored, so they have no bucket that matters.
      if (isEphemeral) continue;
      const bucket = kind === 5 || kind === 62 ? Keep.request : isKeyed ? Keep.current : Keep.days30;
      if (keepOf(kind) !== bucket) expect.fail(`kind ${kind} goes to ${keepOf(kind)}`);
    }
  });

  it('no kind is filed as history: only being superseded makes a version that', () => {
    for (let kind = 0; kind <= KIND_MAX; kind += 1)
      if (keepOf(kind) === Keep.history) expect.fail(`kind ${kind}`);
  });
});
