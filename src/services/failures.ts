/** What kind of failure it was: an outage is nobody's fault and passes; anything else is about what was applied. */

/** Failures of the network, as Node calls them. */
const NETWORK = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EAI_AGAIN',
]);
/**
 * Connection (08), out of room (53), shutdown and cancelling (57), the system around it (58), serialization and deadlock (40), a lock
 * that did not come, and a transaction that was idle for too long.
 */
const OUTAGES = /^(08|53|57|58|40)|^(55P03|25P03|25P04)$/;

/** A session that broke says so by itself; what it threw need not have a code. */
export function isOutage(error: unknown, sessionLives: boolean): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  if (!sessionLives) return true;
  return typeof code === 'string' && (NETWORK.has(code) || OUTAGES.test(code));
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
