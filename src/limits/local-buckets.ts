/**
 * Token buckets of this process alone. Bounded (I14): the least recently used keys are dropped, which only
 * ever favours a client.
 */
import { LRUCache } from 'lru-cache';

export interface Verdict {
  readonly allowed: boolean;
  /** The time until a retry may be allowed; 0 if it is allowed now. */
  readonly retryAfterMs: number;
}

export const ALLOWED: Verdict = { allowed: true, retryAfterMs: 0 };

export class LocalBuckets {
  private readonly buckets: LRUCache<string, { readonly tokens: number; readonly at: number }>;

  constructor(keysMax: number) {
    this.buckets = new LRUCache({ max: keysMax });
  }

  get size(): number {
    return this.buckets.size;
  }

  take(key: string, perSecond: number, burst: number, nowMs: number, wanted = 1): Verdict {
    const bucket = this.buckets.get(key) ?? { tokens: burst, at: nowMs };
    const refilled = bucket.tokens + (Math.max(0, nowMs - bucket.at) / 1_000) * perSecond;
    const tokens = Math.min(burst, refilled);
    const allowed = tokens >= wanted;
    this.buckets.set(key, { tokens: allowed ? tokens - wanted : tokens, at: nowMs });
    return allowed ? ALLOWED : { allowed, retryAfterMs: Math.ceil(((wanted - tokens) / perSecond) * 1_000) };
  }

  clear(): void {
    this.buckets.clear();
  }
}
