/**
 * The rules of membership, pure: which change is possible in which status, and who is refused. The table is
 * total: a status without a rule does not compile.
 */
import { type Denial, denial, type ErrorCode } from '../api/rules-errors.js';

export const MEMBER_STATUSES = ['active', 'disabled', 'deleted'] as const;
/** NIP-05. */
export const MEMBER_NAME = /^[a-z0-9._-]{1,64}$/;
export const MEMBER_NAME_WORDS = '1 to 64 of a-z, 0-9, ., _ and -';
export type MemberStatus = (typeof MEMBER_STATUSES)[number];

/** Result for an action in a status: it can be done, it was done already, or it conflicts with the status. */
export type Step = 'do' | 'done' | 'conflict';

/** From the status on the left to the status that the operator sets. A deleted account stays deleted. */
export const MEMBER_STEPS: Record<MemberStatus, Record<MemberStatus, Step>> = {
  active: { active: 'done', disabled: 'do', deleted: 'do' },
  disabled: { active: 'do', disabled: 'done', deleted: 'do' },
  deleted: { active: 'conflict', disabled: 'conflict', deleted: 'done' },
};

/** Why a key can neither post nor read as a member: the operator's decision, or a running erasure. */
export const REFUSED_AS = ['disabled', 'deleted', 'erasing'] as const;
export type RefusedAs = (typeof REFUSED_AS)[number];

const DENIED = {
  disabled: 'ACCOUNT_DISABLED',
  deleted: 'ACCOUNT_DELETED',
  erasing: 'BEING_ERASED',
} as const satisfies Record<RefusedAs, ErrorCode>;

/** A key that is not a member yet may become one. */
export function refuseAccount(status: MemberStatus | RefusedAs | undefined): Denial | undefined {
  return status === undefined || status === 'active' ? undefined : denial(DENIED[status]);
}
