/**
 * The limits that all instances share: token buckets, and credentials that are accepted once. They are kept
 * in Redis if there is one, otherwise in PostgreSQL.
 */
import type { Pool } from 'pg';
import type { Log } from '../node/log.js';
import { PostgresLimits } from './postgres.js';

export interface Taken {
  /** Whole tokens, at most as many as wanted. */
  readonly granted: number;
  /** The tokens that are left, with fractions. */
  readonly left: number;
  /** If less than a whole token is left: the time until there is one. */
  readonly retryAfterMs: number;
}

/** Both methods reject if the store does not answer. */
export interface SharedLimits {
  /** Takes tokens from a bucket of `burst` tokens that gains `perSecond`. Exact over all instances. */
  take(key: string, wanted: number, perSecond: number, burst: number, nowMs: number): Promise<Taken>;
  /** True for the first use of a credential within its lifetime; of concurrent uses exactly one gets true. */
  useOnce(key: string, ttlMs: number, nowMs: number): Promise<boolean>;
  close(): Promise<void>;
}

export async function openLimits(redisUrl: string | undefined, pool: Pool, log: Log): Promise<SharedLimits> {
  if (redisUrl === undefined) return new PostgresLimits(pool);
  // Loaded only if needed: the Redis client takes longer to load than everything else.
  const { openRedisLimits } = await import('./redis.js');
  return openRedisLimits(redisUrl, log);
}
