import { describe, expect, it } from 'vitest';
import {
  MEMBER_STATUSES,
  MEMBER_STEPS,
  needsNoReview,
  REQUEST_STATUSES,
  REQUEST_STEPS,
  refuseAccount,
  requestRules,
  SUBSCRIPTION_STATUSES,
  SUBSCRIPTION_STEPS,
} from './membership.js';
import { settingsFrom } from './settings.js';

describe('steps', () => {
  it('a request that waits can be settled in each way, and what is settled stays so', () => {
    for (const steps of Object.values(REQUEST_STEPS)) expect(steps.pending).toBe('do');
    const settled = REQUEST_STATUSES.filter((status) => status !== 'pending' && status !== 'approved');
    for (const steps of Object.values(REQUEST_STEPS)) {
      for (const status of settled) expect(steps[status]).not.toBe('do');
    }
  });

  it('each action on a request is repeatable, and none is taken for another', () => {
    const done = Object.entries(REQUEST_STEPS).map(([action, steps]) => [
      action,
      REQUEST_STATUSES.filter((status) => steps[status] === 'done'),
    ]);
    expect(Object.fromEntries(done)).toEqual({
      approve: ['active'],
      reject: ['rejected'],
      cancel: ['cancelled'],
    });
  });

  it('a subscription that has ended never comes back', () => {
    const after = (action: keyof typeof SUBSCRIPTION_STEPS) =>
      SUBSCRIPTION_STATUSES.map((status) => SUBSCRIPTION_STEPS[action][status]);
    expect(after('pause')).toEqual(['do', 'done', 'conflict']);
    expect(after('resume')).toEqual(['done', 'do', 'conflict']);
    expect(after('end')).toEqual(['do', 'do', 'done']);
  });

  it('an account changes between active and disabled, and a deleted one never again', () => {
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

describe('approval without review', () => {
  const settings = settingsFrom(new Map());
  const asks = (autoApproval: ReturnType<typeof requestRules>['autoApproval'], one = {}) =>
    needsNoReview(
      { autoApproval, allowList: ['friend'] },
      { pubkey: 'stranger', invited: false, room: true, ...one },
    );

  it('is off by default, with five requests that may wait', () => {
    expect(requestRules(settings)).toEqual({
      pendingMax: 5,
      pendingTotalMax: 10_000,
      enabledMax: 1_000,
      autoApproval: 'off',
      allowList: [],
    });
    expect(asks('off', { pubkey: 'friend', invited: true })).toBe(false);
  });

  it('is for all, for those of the list, or for those who are invited', () => {
    expect(asks('within-limits')).toBe(true);
    expect(asks('allow-list')).toBe(false);
    expect(asks('allow-list', { pubkey: 'friend' })).toBe(true);
    expect(asks('allow-list', { invited: true })).toBe(false);
    expect(asks('invite')).toBe(false);
    expect(asks('invite', { pubkey: 'friend' })).toBe(false);
    expect(asks('invite', { invited: true })).toBe(true);
  });

  it('never happens while there is no room for the topic', () => {
    const one = { pubkey: 'friend', invited: true, room: false };
    for (const mode of ['off', 'within-limits', 'allow-list', 'invite'] as const) {
      expect(asks(mode, one)).toBe(false);
    }
  });
});
