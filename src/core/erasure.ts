/** What is erased, and the way of an erasure. */

/**
 * Whose data. `until` (seconds, as Nostr has them) bounds it to what is from then or before; without it everything of the member is
 * meant.
 */
export interface MemberSubject {
  readonly type: 'member';
  readonly community: number;
  readonly pubkey: string;
  readonly until?: number;
  /** Milliseconds: since then nothing of theirs is taken in, though how often they ask is still counted. */
  readonly fencedAt?: number;
  /** Milliseconds: when an erasure that is over had ended. Whoever came back since is as new as that. */
  readonly erasedAt?: number;
  /** They asked to vanish (NIP-62): the request itself stays for the operator, and so does its mark. */
  readonly vanishes?: boolean;
}

export interface CommunitySubject {
  readonly type: 'community';
  readonly community: number;
  readonly fencedAt?: number;
}

export type Subject = MemberSubject | CommunitySubject;

/** Times in milliseconds up to this one are meant: of what the node itself has noted, nothing from after the erasure. */
export function untilMs({ until, erasedAt = Number.MAX_SAFE_INTEGER }: MemberSubject): number {
  return until === undefined ? Number.MAX_SAFE_INTEGER : Math.min(until * 1_000 + 999, erasedAt);
}

/**
 * requested → (grace: it can be taken back) → fenced: nothing new is taken in → counted → deleting → verifying → completed. A hold or a
 * failure stops it where it stands.
 */
export const ERASURE_STAGES = [
  'requested',
  'grace',
  'fenced',
  'counted',
  'deleting',
  'verifying',
  'completed',
  'cancelled',
] as const;
export type ErasureStage = (typeof ERASURE_STAGES)[number];
/** As people are told it. */
export const SHOWN_STAGES = [...ERASURE_STAGES, 'held', 'failed'] as const;
export type ShownStage = (typeof SHOWN_STAGES)[number];

/** Who asked: the member, an operator, a request to vanish (NIP-62), or the proof of an earlier one after a restore. */
export const ERASURE_CAUSES = ['member', 'operator', 'vanish', 'replay'] as const;
export type ErasureCause = (typeof ERASURE_CAUSES)[number];
