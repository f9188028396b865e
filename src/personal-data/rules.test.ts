import { describe, expect, it } from 'vitest';
import { CANCEL_STEPS, PERSONAL_STATUSES, statusAt } from './rules.js';

describe('CANCEL_STEPS', () => {
  it('an export can be cancelled until its file is deleted, a deletion until it has begun', () => {
    const can = (kind: keyof typeof CANCEL_STEPS) =>
      PERSONAL_STATUSES.filter((status) => CANCEL_STEPS[kind][status] === 'do');
    expect(can('export')).toEqual(['pending', 'running', 'ready']);
    expect(can('deletion')).toEqual(['pending']);
  });

  it('cancelling again is no conflict', () => {
    expect([CANCEL_STEPS.export.cancelled, CANCEL_STEPS.deletion.cancelled]).toEqual(['done', 'done']);
  });
});

describe('statusAt', () => {
  it.each([
    ['ready', 10, 9, 'ready'],
    ['ready', 10, 10, 'expired'],
    ['ready', null, 10, 'ready'],
    ['running', 10, 11, 'running'],
    ['cancelled', 10, 11, 'cancelled'],
  ] as const)('%s until %s is at %s %s', (status, expiresAt, now, then) => {
    expect(statusAt({ status, expiresAt }, now)).toBe(then);
  });
});
