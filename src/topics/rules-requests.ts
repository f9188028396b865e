/**
 * The rules of requests for topics and of their subscriptions, pure: which action is possible in which
 * status, and what is approved without review. The tables are total: a status or action without a rule does
 * not compile.
 */
import type { Settings } from '../communities/rules-settings.js';
import type { Step } from '../members/rules.js';

export const REQUEST_STATUSES = ['pending', 'approved', 'active', 'rejected', 'cancelled'] as const;
export const SUBSCRIPTION_STATUSES = ['active', 'paused', 'ended'] as const;
export type RequestStatus = (typeof REQUEST_STATUSES)[number];
export type SubscriptionStatus = (typeof SUBSCRIPTION_STATUSES)[number];

export type RequestAction = 'approve' | 'reject' | 'cancel';
export type SubscriptionAction = 'pause' | 'resume' | 'end';

/** Approval creates the subscription at once, so `approved` exists only within one transaction. */
export const REQUEST_STEPS: Record<RequestAction, Record<RequestStatus, Step>> = {
  approve: { pending: 'do', approved: 'do', active: 'done', rejected: 'conflict', cancelled: 'conflict' },
  reject: {
    pending: 'do',
    approved: 'conflict',
    active: 'conflict',
    rejected: 'done',
    cancelled: 'conflict',
  },
  cancel: {
    pending: 'do',
    approved: 'conflict',
    active: 'conflict',
    rejected: 'conflict',
    cancelled: 'done',
  },
};

export const SUBSCRIPTION_STEPS: Record<SubscriptionAction, Record<SubscriptionStatus, Step>> = {
  pause: { active: 'do', paused: 'done', ended: 'conflict' },
  resume: { active: 'done', paused: 'do', ended: 'conflict' },
  end: { active: 'do', paused: 'do', ended: 'done' },
};

export type AutoApproval = Settings['subscription.autoApproval'];

/** The community's settings about requests. */
export interface RequestRules {
  readonly pendingMax: number;
  /** Limit of all members together. */
  readonly pendingTotalMax: number;
  readonly enabledMax: number;
  readonly autoApproval: AutoApproval;
  readonly allowList: readonly string[];
}

export function requestRules(settings: Settings): RequestRules {
  return {
    pendingMax: settings['subscription.pendingMax'],
    pendingTotalMax: settings['subscription.pendingTotalMax'],
    enabledMax: settings['topic.enabledMax'],
    autoApproval: settings['subscription.autoApproval'],
    allowList: settings['subscription.allowList'],
  };
}

/** Whether a request is approved without review. Never when the topic does not fit under the cap. */
export function needsNoReview(
  { autoApproval, allowList }: Pick<RequestRules, 'autoApproval' | 'allowList'>,
  { pubkey, invited, room }: { readonly pubkey: string; readonly invited: boolean; readonly room: boolean },
): boolean {
  const allowed: Record<AutoApproval, boolean> = {
    off: false,
    'within-limits': true,
    'allow-list': allowList.includes(pubkey),
    invite: invited,
  };
  return room && allowed[autoApproval];
}
