/**
 * After one failed try iroh 0.35 never dials a peer again, whatever it is asked. If no known node is a
 * neighbour for some time, but the relay of one answers, another endpoint tries again. A node may have a
 * relay and no way for UDP: so the time doubles with each endpoint in a row that reached no known node.
 */
export const UNREACHED_MS = 90_000;
const UNREACHED_MS_MAX = 1_800_000;

export interface Reached {
  /** A known node was among the neighbours. */
  readonly hasReached: boolean;
  /** The endpoint was replaced because no known node could be reached. */
  readonly isUnreached: boolean;
}

/** How long the next endpoint waits, if the one before it waited for `ms`. */
export function nextUnreachedMs(ms: number, { hasReached, isUnreached }: Reached): number {
  if (hasReached) return UNREACHED_MS;
  return isUnreached ? Math.min(UNREACHED_MS_MAX, ms * 2) : ms;
}
