/** Deletes in batches. */
import { performance } from 'node:perf_hooks';
import { IN_LANE, nextRows, type Pace } from '../rules.js';
import type { Progress } from '../rules-deleter.js';

export type { Deleter, Kept, Progress } from '../rules-deleter.js';

/**
 * One batch after another until one finds nothing. Their size follows the time that they take (rules.ts), so
 * that nobody waits long behind one of them.
 */
export async function inBatches(
  batch: (rows: number) => Promise<number>,
  progress: Progress,
  firstRows: number,
  pace: Pace = IN_LANE,
): Promise<number> {
  let deleted = 0;
  for (let rows = firstRows; ; ) {
    const startMs = performance.now();
    const taken = await batch(rows);
    if (taken === 0) return deleted;
    rows = nextRows(rows, performance.now() - startMs, firstRows, pace);
    deleted += taken;
    await progress(taken);
  }
}
