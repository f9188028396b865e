/**
 * One query that tells whether moderation has any pending work: so an idle node runs one query a second
 * instead of five.
 */
import type { Pool } from 'pg';

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
