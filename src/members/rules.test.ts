import { describe, expect, it } from 'vitest';
import { MEMBER_STATUSES, MEMBER_STEPS, refuseAccount } from './rules.js';

describe('steps', () => {
  it('an account changes between active and disabled; a deleted account never changes', () => {
    for (const from of MEMBER_STATUSES) {
      for (const to of MEMBER_STATUSES) {
        const expected = from === to ? 'done' : from === 'deleted' ? 'conflict' : 'do';
        expect(MEMBER_STEPS[from][to], `${from} → ${to}`).toBe(expected);
      }
    }
  });

  it('only accounts that are disabled or deleted are refused', () => {
    expect(refuseAccount(undefined)).toBeUndefined();
    expect(refuseAccount('active')).toBeUndefined();
    expect(refuseAccount('disabled')).toEqual({ denied: 'ACCOUNT_DISABLED' });
    expect(refuseAccount('deleted')).toEqual({ denied: 'ACCOUNT_DELETED' });
  });
});
