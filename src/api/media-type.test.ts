import { describe, expect, it } from 'vitest';
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
});
