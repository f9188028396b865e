/** Converts the state of a stored bucket to the result of a take. */
import { ROUNDING } from './limits.sql.js';
import type { Taken } from './shared.js';

/** `at`: the time of the bucket. The clock of another instance may have set it ahead of `nowMs`. */
export function takenOf(
  { granted, tokens, at }: { readonly granted: number; readonly tokens: number; readonly at: number },
  perSecond: number,
  nowMs: number,
): Taken {
  const missing = 1 - ROUNDING - tokens;
  const retryAfterMs = missing <= 0 ? 0 : Math.max(0, at - nowMs) + Math.ceil((missing / perSecond) * 1_000);
  return { granted, left: tokens, retryAfterMs };
}
