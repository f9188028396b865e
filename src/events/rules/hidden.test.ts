import { describe, expect, it } from 'vitest';
import { HIDDEN_CODES, type Hidden, hiddenOf, OUTBOX_REASONS } from './hidden.js';

describe('why an event is hidden', () => {
  it('the numbers are those that the database has', () => {
    expect(HIDDEN_CODES).toEqual({
      superseded: 1,
      deleted: 2,
      expired: 3,
      retention: 4,
      capacity: 5,
      vanished: 6,
      withheld: 7,
      removed: 8,
      erased: 9,
    });
  });

  it.each(Object.entries(HIDDEN_CODES) as [Hidden, number][])('%s is read back from %i', (hidden, code) => {
    expect(hiddenOf(code)).toBe(hidden);
  });

  it.each([0, 10, -1, 1.5, Number.NaN])('an unknown number (%s) throws', (code) => {
    expect(() => hiddenOf(code)).toThrow(`events.hidden is ${code}`);
  });

  it('each reason but withheld has its own word in the outbox', () => {
    expect(OUTBOX_REASONS).toEqual({
      superseded: 'superseded',
      deleted: 'nip09',
      expired: 'expiration',
      retention: 'retention',
      capacity: 'capacity',
      vanished: 'vanish',
      removed: 'moderation',
      erased: 'erasure',
    });
  });
});
