/**
 * The rules of members' requests about their own data, an export or a deletion. Pure: which request can be
 * cancelled in which status, and whether a file can still be downloaded.
 */
import type { ShownStage } from '../erasure/rules.js';
import type { Step } from '../members/rules.js';

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

/** A file that is ready can be deleted early. A deletion that has begun cannot be stopped. */
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

/** A file expires for everyone at its time, even before the job has deleted it. */
export function statusAt(
  { status, expiresAt }: { readonly status: PersonalStatus; readonly expiresAt: number | null },
  now: number,
): PersonalStatus {
  return status === 'ready' && expiresAt !== null && expiresAt <= now ? 'expired' : status;
}

/**
 * The status of a request for deletion, from the stage of its erasure. A hold pauses the erasure at its
 * stage.
 */
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
