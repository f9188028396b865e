import { describe, expect, it } from 'vitest';
import { restMsAfter } from './rules-rest.js';

describe('a rest', () => {
  const rest = { times: 9, timesPerMs: 10, msMax: 1_000 };

  it('after a short piece is a multiple of it, so that all short pieces have the same share', () => {
    expect(restMsAfter(0.2, rest)).toBeCloseTo(1.8);
    expect(restMsAfter(0.8, rest)).toBeCloseTo(7.2);
  });

  it('after a long piece is longer than that, so that its share is smaller', () => {
    expect(restMsAfter(2, rest)).toBe(40);
    expect(restMsAfter(5, rest)).toBe(250);
  });

  it('is bounded', () => {
    expect(restMsAfter(10_000, rest)).toBe(1_000);
  });
});
