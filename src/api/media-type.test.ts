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

  it('is found in a number of steps that does not grow with a refused type and a long header', () => {
    const steps = (ranges: number): number => {
      const read = vi.spyOn(String.prototype, 'startsWith');
      preferredType(`${LINES};q=0${', */*'.repeat(ranges)}`, [LINES]);
      const { length } = read.mock.calls;
      read.mockRestore();
      return length;
    };
    expect(steps(3_900)).toBe(steps(31));
    expect(steps(31)).toBeLessThan(100);
  });
});
