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
}

export interface CommunitySubject {
  readonly type: 'community';
  readonly community: number;
}

export type Subject = MemberSubject | CommunitySubject;

/** Times in milliseconds up to this one are meant. */
export function untilMs({ until }: MemberSubject): number {
  return until === undefined ? Number.MAX_SAFE_INTEGER : until * 1_000 + 999;
}
