import { describe, expect, it, vi } from 'vitest';
import { preferredType } from './media-type.js';

const LINES = 'application/x-ndjson';
const EVENTS = 'text/event-stream';

describe('the type of an answer', () => {
  it.each([
    [undefined, LINES],
    ['', LINES],
    ['*/*', LINES],
    [EVENTS, EVENTS],
    ['Text/Event-Stream; charset=utf-8', EVENTS],
    ['text/*', EVENTS],
    [`${EVENTS}, */*`, EVENTS],
    [`*/*;q=0.1, ${EVENTS}`, EVENTS],
    [`${EVENTS};q=0.5, ${LINES}`, LINES],
    [`${EVENTS};q=0, */*`, LINES],
    [`${LINES};q=0, */*`, EVENTS],
    [`*/*, ${LINES};q=0`, EVENTS],
    [`application/*;q=0, ${LINES}, */*;q=0.5`, LINES],
    [`text/*, ${EVENTS};q=0`, LINES],
    ['image/png', LINES],
    [';;q=x,,', LINES],
  ])('for Accept: %s is %s', (accept, type) => {
    expect(preferredType(accept, [LINES, EVENTS])).toBe(type);
  });

  it('is decided by the first 32 ranges, whatever follows', () => {
    const others = (count: number) => 'image/png, '.repeat(count);
    expect(preferredType(`${others(31)}${EVENTS}`, [LINES, EVENTS])).toBe(EVENTS);
    expect(preferredType(`${others(32)}${EVENTS}`, [LINES, EVENTS])).toBe(LINES);
  });

  it('is decided once for each type, however many ranges there are', () => {
    const decisions = (ranges: number): number => {
      const sort = vi.spyOn(Array.prototype, 'sort');
      preferredType(`${LINES};q=0${', */*'.repeat(ranges)}`, [LINES]);
      const { length } = sort.mock.calls;
      sort.mockRestore();
      return length;
    };
    // The ranges are sorted once by quality, and for a type by how specific they are.
    expect(decisions(20)).toBe(2);
    expect(decisions(3_900)).toBe(2);
  });
});
