/** What holds across instances: token buckets, and credentials that count once. In PostgreSQL, or in Redis when there is one. */
import type { Pool } from 'pg';
import type { Log } from '../log.js';
import { PostgresLimits } from './postgres.js';

export interface Taken {
  /** Whole tokens, at most as many as wanted. */
  readonly granted: number;
  /** What the bucket still holds, in fractions too. */
  readonly left: number;
  /** When less than a whole token is left: how long until there is one. */
  readonly retryAfterMs: number;
}

/** Either rejects when its store does not answer. */
export interface SharedLimits {
  /** Tokens of a bucket that holds `burst` and gains `perSecond`. Never more over all instances than it holds. */
  take(key: string, wanted: number, perSecond: number, burst: number, nowMs: number): Promise<Taken>;
  /** True for the first use of a credential within its time; exactly one of many at the same moment gets it. */
  useOnce(key: string, ttlMs: number, nowMs: number): Promise<boolean>;
  close(): Promise<void>;
}

export async function openLimits(redisUrl: string | undefined, pool: Pool, log: Log): Promise<SharedLimits> {
  if (redisUrl === undefined) return new PostgresLimits(pool);
  // A node without Redis does not load its client, which takes longer than the rest together.
  const { openRedisLimits } = await import('./redis.js');
  return openRedisLimits(redisUrl, log);
}
