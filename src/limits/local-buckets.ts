/** Token buckets of this process alone. Bounded: the keys longest unseen are forgotten, which only ever favours a client. */
import { LRUCache } from 'lru-cache';

export interface Verdict {
  readonly allowed: boolean;
  /** How long until it may be allowed again; 0 when it is. */
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

  take(key: string, perSecond: number, burst: number, nowMs: number): Verdict {
    const bucket = this.buckets.get(key) ?? { tokens: burst, at: nowMs };
    const refilled = bucket.tokens + (Math.max(0, nowMs - bucket.at) / 1_000) * perSecond;
    const tokens = Math.min(burst, refilled);
    const allowed = tokens >= 1;
    this.buckets.set(key, { tokens: allowed ? tokens - 1 : tokens, at: nowMs });
    return allowed ? ALLOWED : { allowed, retryAfterMs: Math.ceil(((1 - tokens) / perSecond) * 1_000) };
  }

  clear(): void {
    this.buckets.clear();
  }
}
