/** What a store tells about a bucket, in the words of those who ask. */
import { ROUNDING } from '../store/limits.js';
import type { Taken } from './shared.js';

/** `at`: the time that the bucket has come to, which another instance's clock may have put ahead of `nowMs`. */
export function takenOf(
  { granted, tokens, at }: { readonly granted: number; readonly tokens: number; readonly at: number },
  perSecond: number,
  nowMs: number,
): Taken {
  const missing = 1 - ROUNDING - tokens;
  const retryAfterMs = missing <= 0 ? 0 : Math.max(0, at - nowMs) + Math.ceil((missing / perSecond) * 1_000);
  return { granted, left: tokens, retryAfterMs };
}
