/**
 * Begin and end of a lane transaction.
 *
 * The lock is a statement of its own before any read. Under READ COMMITTED each statement sees what was
 * committed before it began. A statement that waits for the lock inside itself has taken its snapshot too
 * early.
 */
import type { Client } from 'pg';
import type { BatchWrites } from '../../rules/writes.js';

export const LANE_LOCK = 7_447_001;

const BEGIN = { name: 'begin', text: 'BEGIN ISOLATION LEVEL READ COMMITTED' };
const LOCK = { name: 'lock', text: `SELECT pg_advisory_xact_lock(${LANE_LOCK})` };
const COMMIT = { name: 'commit', text: 'COMMIT' };

export async function beginLocked(session: Client): Promise<void> {
  await Promise.all([session.query(BEGIN), session.query(LOCK)]);
}

/**
 * Ephemeral events are not kept, so their commit need not wait for the disk. All others wait, whatever the
 * server's default is: the session of the lane says so (I1).
 */
export function commit(session: Client, writes: BatchWrites, isDurable?: true): Promise<unknown> {
  const { outbox, rows, held, heads, tombstones, appliedTombstones, hidden, vanishMarks } = writes;
  const written = [outbox, rows, held, heads, tombstones, appliedTombstones, hidden, vanishMarks];
  const durable = isDurable ?? written.some(({ length }) => length > 0);
  // If this fails, the server skips the COMMIT.
  if (!durable) session.query({ text: 'SET LOCAL synchronous_commit = off' }).catch(() => undefined);
  return session.query(COMMIT);
}
