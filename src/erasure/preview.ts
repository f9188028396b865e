/**
 * What the stores hold of a member, counted by the registry that would delete it. A count may read many rows,
 * so few run at the same time, each with a deadline (I14, I15).
 */
import { type Denial, denial } from '../api/rules-errors.js';
import { inTime, isNoAnswer } from '../limits/in-time.js';
import type { Database } from '../postgres/database.js';
import type { MemberSubject } from './rules.js';
import type { Collected } from './stores/deletion-registry.js';
import { type Erasing, withRegistry } from './stores/registry.js';

const COUNT_MS_MAX = 10_000;
const AT_ONCE_MAX = 2;
/** Nothing is deleted, so the size of a batch does not matter. */
const ROWS = 1;

export type CountHeld = (subject: MemberSubject) => Promise<Collected<number> | Denial>;

/** Each process counts for itself. */
export function heldCounter(erasing: Erasing, database: Database, now: () => number): CountHeld {
  let running = 0;
  return async (subject) => {
    if (running >= AT_ONCE_MAX) return denial('RATE_LIMITED', { retry_after_seconds: 3 });
    running += 1;
    try {
      return await withRegistry(
        erasing,
        database,
        { now, rows: ROWS, statementMsMax: COUNT_MS_MAX },
        ({ registry }) => inTime(registry.countAll(subject), COUNT_MS_MAX, 'the count of all stores'),
      );
    } catch (error) {
      if (isNoAnswer(error)) return denial('UNAVAILABLE');
      throw error;
    } finally {
      running -= 1;
    }
  };
}
