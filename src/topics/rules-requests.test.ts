import { describe, expect, it } from 'vitest';
import { settingsFrom } from '../communities/rules-settings.js';
import {
  needsNoReview,
  REQUEST_STATUSES,
  REQUEST_STEPS,
  requestRules,
  SUBSCRIPTION_STATUSES,
  SUBSCRIPTION_STEPS,
} from './rules-requests.js';

describe('steps', () => {
  it('a pending request can be decided in each way, and a decided one does not change', () => {
    for (const steps of Object.values(REQUEST_STEPS)) expect(steps.pending).toBe('do');
    const settled = REQUEST_STATUSES.filter((status) => status !== 'pending' && status !== 'approved');
    for (const steps of Object.values(REQUEST_STEPS)) {
      for (const status of settled) expect(steps[status]).not.toBe('do');
    }
  });

  it('each action on a request is repeatable, and no action counts as another', () => {
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

  it('an ended subscription never becomes active again', () => {
    const after = (action: keyof typeof SUBSCRIPTION_STEPS) =>
      SUBSCRIPTION_STATUSES.map((status) => SUBSCRIPTION_STEPS[action][status]);
    expect(after('pause')).toEqual(['do', 'done', 'conflict']);
    expect(after('resume')).toEqual(['done', 'do', 'conflict']);
    expect(after('end')).toEqual(['do', 'do', 'done']);
  });
});

describe('approval without review', () => {
  const settings = settingsFrom(new Map());
  const approves = (autoApproval: ReturnType<typeof requestRules>['autoApproval'], one = {}) =>
    needsNoReview(
      { autoApproval, allowList: ['friend'] },
      { pubkey: 'stranger', invited: false, room: true, ...one },
    );

  it('is off by default, with a limit of five pending requests', () => {
    expect(requestRules(settings)).toEqual({
      pendingMax: 5,
      pendingTotalMax: 10_000,
      enabledMax: 1_000,
      autoApproval: 'off',
      allowList: [],
    });
    expect(approves('off', { pubkey: 'friend', invited: true })).toBe(false);
  });

  it('is for all, for listed topics or keys, or for invites', () => {
    expect(approves('within-limits')).toBe(true);
    expect(approves('allow-list')).toBe(false);
    expect(approves('allow-list', { pubkey: 'friend' })).toBe(true);
    expect(approves('allow-list', { invited: true })).toBe(false);
    expect(approves('invite')).toBe(false);
    expect(approves('invite', { pubkey: 'friend' })).toBe(false);
    expect(approves('invite', { invited: true })).toBe(true);
  });

  it('never happens while the topic does not fit under the cap', () => {
    const one = { pubkey: 'friend', invited: true, room: false };
    for (const mode of ['off', 'within-limits', 'allow-list', 'invite'] as const) {
      expect(approves(mode, one)).toBe(false);
    }
  });
});
