/**
 * How the buckets of rates are called, in PostgreSQL and in Redis: the community first, then what is counted, then by whom. So all of
 * a community, and all of a key in it, can be found.
 */

/** Of the buckets in Redis. */
export const RATE_PREFIX = 'minato:rate/';
/** Of credentials that were used, in Redis. */
export const USED_PREFIX = 'minato:used/';
/** Whatever the limits write in Redis begins with one of these. */
export const LIMIT_PREFIXES: readonly string[] = [RATE_PREFIX, USED_PREFIX];

export type Counted =
  | 'connections'
  | 'events'
  /** Events of an author that others bring. */
  | 'brought'
  | 'queries'
  | 'subscription-request'
  | 'session'
  | `http-${string}`
  | `rule/${string}`;

/** How the names of all buckets of a community, or of a key in it, begin and end. */
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
