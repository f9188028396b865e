/**
 * Followers of the outbox, outside of the node: what a registration may say, and for how long an erasure
 * waits for one (I17).
 */
export const FOLLOWER_NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
export const FOLLOWER_NAME_RULE = '1 to 63 of a–z, 0–9, ".", "_" and "-", starting with a letter or digit';
/** Of one community. */
export const FOLLOWERS_MAX = 32;
/** How long an erasure waits for its acknowledgement, in seconds. */
export const FOLLOWER_LIMIT_SECONDS = { min: 10, default: 86_400, max: 604_800 } as const;
/** How long an erasure lets an open stream send the deletes, registered or not. */
export const STREAM_WAIT_MS = 10_000;

/** A follower that has not acknowledged the deletes of an erasure. */
export interface Unacknowledged {
  readonly name: string;
  /** Up to which offset it had acknowledged. */
  readonly acknowledgedSeq: number;
  /** The offset that it should have. */
  readonly neededSeq: number;
  readonly limitSeconds: number;
}

/** One that an erasure still waits for. */
export interface Awaited extends Unacknowledged {
  /** Milliseconds: then the erasure goes on without it. */
  readonly until: number;
}

export interface FollowerState extends Omit<Unacknowledged, 'neededSeq'> {
  /** An earlier erasure went on without it, and it has not begun to rebuild: it must rebuild in any case. */
  readonly isOverrun: boolean;
}

/**
 * Those who have not acknowledged the deletes of an erasure: whom it waits for, until when, and whom it does
 * not.
 */
export function judgeFollowers(
  behind: readonly FollowerState[],
  { neededSeq, announcedAt }: { readonly neededSeq: number; readonly announcedAt: number },
): { readonly awaited: Awaited[]; readonly overrun: Unacknowledged[] } {
  const known = behind.map(({ isOverrun, ...follower }) => ({
    isOverrun,
    follower: { ...follower, neededSeq },
  }));
  return {
    awaited: known.flatMap(({ isOverrun, follower }) =>
      isOverrun ? [] : [{ ...follower, until: announcedAt + follower.limitSeconds * 1_000 }],
    ),
    overrun: known.flatMap(({ isOverrun, follower }) => (isOverrun ? [follower] : [])),
  };
}
