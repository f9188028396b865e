/** What kind of failure it was: an outage is nobody's fault and passes; anything else is about what was applied. */

import { isOutageCode } from '../core/outage.js';

/** A session that broke says so by itself; what it threw need not have a code. */
export function isOutage(error: unknown, sessionLives: boolean): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  if (!sessionLives) return true;
  return isOutageCode(code);
}

/** The turn, the pause or the number is another by now: what was done is rolled back, and everything is looked at again. */
export class Overtaken extends Error {
  constructor() {
    super('somebody else has gone on from here');
  }
}

/** Waits longer each time, up to a bound. */
export const backOffMs = (failures: number, firstMs: number, mostMs: number): number =>
  Math.min(mostMs, firstMs * 2 ** Math.min(failures - 1, 20));

export const wordsOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
