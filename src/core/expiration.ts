/**
 * Expiration (NIP-40). The first `expiration` tag counts; one that is not a plain whole number of seconds is none at all,
 * so that a malformed tag never makes an event disappear. A huge one is simply far away.
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
