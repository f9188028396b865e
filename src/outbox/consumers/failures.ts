/**
 * Classifies failures of a consumer: an outage passes and is retried; any other failure is caused by the
 * changes that were applied.
 */

import { errorCode, isOutageCode } from '../../postgres/rules-error-code.js';

/** If the session broke it is an outage, even if the error has no code. */
export function isOutage(error: unknown, sessionLives: boolean): boolean {
  if (!sessionLives) return true;
  return isOutageCode(errorCode(error));
}

/**
 * The lease, the pause or the offset has changed meanwhile: the transaction is rolled back, and the state is
 * read again.
 */
export class Overtaken extends Error {
  constructor() {
    super('another instance holds the lease, or the offset has changed');
  }
}

/** Doubles with each failure, up to a limit. */
export const backOffMs = (failures: number, firstMs: number, mostMs: number): number =>
  Math.min(mostMs, firstMs * 2 ** Math.min(failures - 1, 20));

export const wordsOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
