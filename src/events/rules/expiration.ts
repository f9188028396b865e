/**
 * Expiration (NIP-40). Pure. The first `expiration` tag counts. A value that is not a plain whole number of
 * seconds is ignored, so that a malformed tag never makes an event disappear. A huge value is a time far in
 * the future.
 */
import { firstTagValue, type NostrEvent } from './event.js';

/** The second from which the event is no longer served (I7), or undefined. */
export function expirationOf(event: NostrEvent): number | undefined {
  const value = firstTagValue(event, 'expiration');
  if (value === undefined || !/^\d{1,20}$/.test(value)) return undefined;
  return Math.min(Number(value), Number.MAX_SAFE_INTEGER);
}

export function isExpired(event: NostrEvent, nowSeconds: number): boolean {
  const expiration = expirationOf(event);
  return expiration !== undefined && expiration <= nowSeconds;
}
