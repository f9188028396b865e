/**
 * Bytes of events read or written lately. It only saves reading bytes: which events a query may see is always asked of
 * the database, so a stale entry is never served.
 */
import { LRUCache } from 'lru-cache';
import { factKey } from '../core/plan.js';

const CACHE_BYTES_MAX = 48 * 1_048_576;

export class PayloadCache {
  private readonly payloads = new LRUCache<string, string>({
    maxSize: CACHE_BYTES_MAX,
    sizeCalculation: (payload) => payload.length + 200,
  });

  get(community: number, id: string): string | undefined {
    return this.payloads.get(factKey(community, id));
  }
  set(community: number, id: string, payload: string): void {
    this.payloads.set(factKey(community, id), payload);
  }
  forget(community: number, id: string): void {
    this.payloads.delete(factKey(community, id));
  }
}
