/**
 * Begins a batch: takes the lock, reads the facts, and judges the events by the moderation rules in force
 * under the lock (I16).
 */
import type { Client } from 'pg';
import type { OnArrival } from '../../../moderation/arrival/on-arrival.js';
import type { BatchFacts, Submission } from '../../rules/facts.js';
import { type FactOptions, readFacts } from '../facts.js';
import { beginLocked } from './lock.js';

/** People change the rules, and not this often while one batch is judged. */
const JUDGED_AGAIN_MAX = 10;

export interface JudgingOptions extends Omit<FactOptions, 'now'> {
  /** Milliseconds; the only clock of the lane. */
  readonly now: () => number;
  /** Judges events by the moderation rules; undefined where there are none. */
  readonly onArrival?: OnArrival | undefined;
}

/**
 * Texts are judged before the lock is taken. If the rules have changed in the meantime, on any instance, the
 * lock is released and everything is judged again.
 */
export async function beginJudged(
  session: Client,
  submissions: readonly Submission[],
  options: JudgingOptions,
): Promise<{ readonly facts: BatchFacts; readonly now: number }> {
  const { onArrival } = options;
  for (let attempt = 1; attempt <= JUDGED_AGAIN_MAX; attempt += 1) {
    const judged = await onArrival?.judge(submissions);
    const now = options.now();
    const [, facts] = await Promise.all([
      beginLocked(session),
      readFacts(session, submissions, { ...options, now }),
    ]);
    if (onArrival === undefined || judged === undefined) return { facts, now };
    if (judged.version === facts.rulesVersion) {
      const arrival = await onArrival.readFacts(session, judged, now);
      // Not by a spread, as in `seenBy`.
      return { facts: Object.assign({}, facts, { arrival }), now };
    }
    await session.query('ROLLBACK');
    await onArrival.refresh();
  }
  throw new Error(`the moderation rules changed ${JUDGED_AGAIN_MAX} times while one batch was judged`);
}
