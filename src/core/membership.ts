/**
 * The rules of membership, pure: which action fits which status, who is approved without review. The tables are total, so that
 * a status or an action without its rule does not compile.
 */
import { type Denial, denial, type ErrorCode } from './errors.js';
import type { Settings } from './settings.js';

export const REQUEST_STATUSES = ['pending', 'approved', 'active', 'rejected', 'cancelled'] as const;
export const SUBSCRIPTION_STATUSES = ['active', 'paused', 'ended'] as const;
export const MEMBER_STATUSES = ['active', 'disabled', 'deleted'] as const;
/** NIP-05. */
export const MEMBER_NAME = /^[a-z0-9._-]{1,64}$/;
export const MEMBER_NAME_WORDS = '1 to 64 of a-z, 0-9, ., _ and -';
export type RequestStatus = (typeof REQUEST_STATUSES)[number];
export type SubscriptionStatus = (typeof SUBSCRIPTION_STATUSES)[number];
export type MemberStatus = (typeof MEMBER_STATUSES)[number];

export type RequestAction = 'approve' | 'reject' | 'cancel';
export type SubscriptionAction = 'pause' | 'resume' | 'end';

/** What an action finds: something to do, its own work done already, or a status that it cannot leave. */
export type Step = 'do' | 'done' | 'conflict';

/** Approval makes the subscription at once, so that `approved` is passed within one transaction. */
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

/** From the status on the left to the one that the operator sets. A deleted account stays deleted. */
export const MEMBER_STEPS: Record<MemberStatus, Record<MemberStatus, Step>> = {
  active: { active: 'done', disabled: 'do', deleted: 'do' },
  disabled: { active: 'do', disabled: 'done', deleted: 'do' },
  deleted: { active: 'conflict', disabled: 'conflict', deleted: 'done' },
};

/** Why a key neither posts nor reads as a member: what the operator decided, or that it is being erased. */
export const REFUSED_AS = ['disabled', 'deleted', 'erasing'] as const;
export type RefusedAs = (typeof REFUSED_AS)[number];

const DENIED = {
  disabled: 'ACCOUNT_DISABLED',
  deleted: 'ACCOUNT_DELETED',
  erasing: 'BEING_ERASED',
} as const satisfies Record<RefusedAs, ErrorCode>;

/** Somebody who is no member yet may become one. */
export function refuseAccount(status: MemberStatus | RefusedAs | undefined): Denial | undefined {
  return status === undefined || status === 'active' ? undefined : denial(DENIED[status]);
}

export type AutoApproval = Settings['subscription.autoApproval'];

/** What the community's settings say about requests. */
export interface RequestRules {
  readonly pendingMax: number;
  /** Of all members together. */
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

/** Would this one be approved without review? Only while there is room for the topic, whatever the mode. */
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

/** What an operator can do, in the words of the audit log. */
export const AUDIT_ACTIONS = [
  'request.approve',
  'request.reject',
  'topic.create',
  'topic.change',
  'topic.delete',
  'topic.block',
  'topic.unblock',
  'member.change',
  'operator.add',
  'operator.remove',
  'invite.create',
  'invite.revoke',
  'setting.change',
  'setting.reset',
  'policy.create',
  'policy.delete',
  'policy.publish',
  'policy.make-current',
  'policy-text.write',
  'policy-text.delete',
  'author.block',
  'author.unblock',
  'word.block',
  'word.unblock',
  'address.block',
  'address.unblock',
  'plan.create',
  'plan.change',
  'plan.delete',
  'plan.assign',
  'webhook-secret.create',
  'webhook-secret.delete',
  'personal-data.export',
  'consumer.pause',
  'consumer.resume',
  'consumer.replay',
  'consumer.rebuild',
  'consumer.retry',
  'follower.register',
  'follower.change',
  'follower.remove',
  'key.change',
  'rule.create',
  'rule.change',
  'rule.delete',
  'moderation.remove',
  'moderation.restore',
  'moderation.label',
  'moderation.unlabel',
  'moderation.ban',
  'moderation.unban',
  'moderation.dismiss',
  'moderation.open',
  'moderation.appeal',
  'moderation.batch',
  'moderation.undo',
  'moderation.reopen',
  'session.start',
  'session.end',
  'erasure.request',
  'erasure.cancel',
  'erasure.hold',
  'erasure.release',
  'erasure.retry',
  'erasure.complete',
] as const;
export type AuditAction = (typeof AUDIT_ACTIONS)[number];
