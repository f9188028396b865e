/**
 * Rules for followers of the outbox: what a registration may contain, and how long an erasure waits for a
 * follower (I17). Pure.
 */
export const FOLLOWER_NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
export const FOLLOWER_NAME_RULE = '1 to 63 of a–z, 0–9, ".", "_" and "-", starting with a letter or digit';
/** Per community. */
export const FOLLOWERS_MAX = 32;
/** How long an erasure waits for its acknowledgement, in seconds. */
export const FOLLOWER_LIMIT_SECONDS = { min: 10, default: 86_400, max: 604_800 } as const;
/** How long an erasure lets an open stream send the deletes, registered or not. */
export const STREAM_WAIT_MS = 10_000;

/** A follower that has not acknowledged the deletes of an erasure. */
export interface Unacknowledged {
  readonly name: string;
  /** The offset that it had acknowledged. */
  readonly acknowledgedSeq: number;
  /** The offset that the erasure needs. */
  readonly neededSeq: number;
  readonly limitSeconds: number;
}

/** A follower that an erasure still waits for. */
export interface Awaited extends Unacknowledged {
  /** Milliseconds: at this time the erasure continues without it. */
  readonly until: number;
}

export interface FollowerState extends Omit<Unacknowledged, 'neededSeq'> {
  /** An earlier erasure continued without it, and it has not begun to rebuild: it must rebuild anyway. */
  readonly isOverrun: boolean;
}

/**
 * Splits the followers that have not acknowledged the deletes of an erasure: those that it waits for, with
 * their deadline, and those that it does not wait for.
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
