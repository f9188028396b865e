/**
 * What a person may ask of the node about themselves: a file of everything that is held, or its deletion. The rules are pure:
 * which request can be taken back in which status, and whether a link to a file holds.
 */
import type { ShownStage } from './erasure.js';
import type { Step } from './membership.js';

export const PERSONAL_KINDS = ['export', 'deletion'] as const;
/** pending → running → ready → expired, or failed, or cancelled by the member; a deletion ends as `done`. */
export const PERSONAL_STATUSES = [
  'pending',
  'running',
  'ready',
  'failed',
  'expired',
  'cancelled',
  'done',
] as const;
export type PersonalKind = (typeof PERSONAL_KINDS)[number];
export type PersonalStatus = (typeof PERSONAL_STATUSES)[number];

/** A file that is ready can be thrown away before its time. A deletion that has begun cannot be stopped halfway. */
export const CANCEL_STEPS: Record<PersonalKind, Record<PersonalStatus, Step>> = {
  export: {
    pending: 'do',
    running: 'do',
    ready: 'do',
    failed: 'conflict',
    expired: 'conflict',
    cancelled: 'done',
    done: 'conflict',
  },
  deletion: {
    pending: 'do',
    running: 'conflict',
    ready: 'conflict',
    failed: 'conflict',
    expired: 'conflict',
    cancelled: 'done',
    done: 'conflict',
  },
};

/** From its time on a file is gone for everyone, also before a job has taken it away. */
export function statusAt(
  { status, expiresAt }: { readonly status: PersonalStatus; readonly expiresAt: number | null },
  now: number,
): PersonalStatus {
  return status === 'ready' && expiresAt !== null && expiresAt <= now ? 'expired' : status;
}

/** What a request for deletion is, by the erasure that carries it out. A hold stops it where it stands. */
export function deletionStatus(stage: ShownStage, isFenced: boolean): PersonalStatus {
  switch (stage) {
    case 'completed':
      return 'done';
    case 'cancelled':
    case 'failed':
      return stage;
    default:
      return isFenced ? 'running' : 'pending';
  }
}
