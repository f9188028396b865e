/** Token buckets by address. Bounded: the addresses longest unseen are forgotten, which only ever favours a client. */
import { LRUCache } from 'lru-cache';

const ADDRESSES_MAX = 20_000;

interface Bucket {
  tokens: number;
  at: number;
}

export class RateLimit {
  private readonly buckets = new LRUCache<string, Bucket>({ max: ADDRESSES_MAX });

  /** Takes one token; false when the address is over its rate. A rate of 0 means no limit. */
  take(key: string, perSecond: number, burst: number, nowMs: number): boolean {
    if (perSecond === 0) return true;
    const bucket = this.buckets.get(key) ?? { tokens: burst, at: nowMs };
    const refilled = bucket.tokens + (Math.max(0, nowMs - bucket.at) / 1_000) * perSecond;
    const tokens = Math.min(burst, refilled);
    const allowed = tokens >= 1;
    this.buckets.set(key, { tokens: allowed ? tokens - 1 : tokens, at: nowMs });
    return allowed;
  }
}
