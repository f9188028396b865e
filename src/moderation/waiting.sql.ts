/**
 * The pending work of moderation. For the node one query that tells whether there is any: so an idle node
 * runs one query a second instead of five. For people, bounded counts.
 */
import type { Pool } from 'pg';
import { type Bounded, countUpTo } from '../postgres/page.js';
import type { Db } from '../postgres/values.js';

/** Old counts of rates, running batches, pending actions, and labels to publish or to withdraw. */
export async function isAnyWaiting(pool: Pool, ratesBefore: number): Promise<boolean> {
  const { rows } = await pool.query<{ waiting: boolean }>({
    name: 'moderation-waiting',
    text: `SELECT EXISTS (SELECT 1 FROM moderation_rates WHERE at < $1)
        OR EXISTS (SELECT 1 FROM moderation_batches WHERE status IN ('running', 'undoing'))
        OR EXISTS (SELECT 1 FROM moderation_actions WHERE done_at IS NULL)
        OR EXISTS (SELECT 1 FROM labels WHERE published_at IS NULL
          OR (withdrawn_at IS NOT NULL AND withdrawal_published_at IS NULL)) AS waiting`,
    values: [ratesBefore],
  });
  return rows[0]!.waiting;
}

export interface WaitingCases {
  /** Cases that nobody has decided. */
  readonly open: Bounded;
  /** Posts that a rule holds until somebody decides. */
  readonly held: Bounded;
  /** Appeals among both. */
  readonly appealed: Bounded;
}

/** Counted up to `max`. */
export async function countCases(db: Db, community: number, max: number): Promise<WaitingCases> {
  const count = (where: string) =>
    countUpTo(db, `moderation_cases WHERE community = $1 AND ${where}`, [community], max);
  return {
    open: await count(`status = 'open'`),
    held: await count(`status = 'held'`),
    appealed: await count(`appealed_at IS NOT NULL AND status IN ('open', 'held')`),
  };
}
