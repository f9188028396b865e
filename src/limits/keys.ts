/**
 * The names of rate buckets in PostgreSQL and Redis: the community, what is counted, and the client. So all
 * buckets of a community, and all of a public key in it, can be found.
 */

/** Prefix of the buckets in Redis. */
export const RATE_PREFIX = 'minato:rate/';
/** Prefix of used credentials in Redis. */
export const USED_PREFIX = 'minato:used/';
/** All keys of limits in Redis begin with one of these. */
export const LIMIT_PREFIXES: readonly string[] = [RATE_PREFIX, USED_PREFIX];

export type Counted =
  | 'connections'
  | 'events'
  /** Events of an author that somebody else sends. */
  | 'brought'
  | 'queries'
  | 'subscription-request'
  | 'deletion-request'
  | 'vanish-request'
  | 'session'
  | `http-${string}`
  | `rule/${string}`;

/** The start and the end of the names of all buckets of a community, or of a public key in it. */
export function bucketNames({
  community,
  pubkey,
}: {
  readonly community: number;
  readonly pubkey?: string;
}): {
  readonly start: string;
  readonly end: string;
} {
  return { start: `${community}:`, end: pubkey === undefined ? '' : `:${pubkey}` };
}

/** `by` is a public key or an address. */
export function rateKey(community: number, what: Counted, by: string): string {
  return `${community}:${what}:${by}`;
}
