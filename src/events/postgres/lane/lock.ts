/**
 * Begin and end of a lane transaction.
 *
 * The lock is a statement of its own before any read. Under READ COMMITTED each statement sees what was
 * committed before it began. A statement that waits for the lock inside itself has taken its snapshot too
 * early.
 */
import type { BatchWrites } from '../../rules/writes.js';

export const LANE_LOCK = 7_447_001;

export const BEGIN_LOCKED = `BEGIN ISOLATION LEVEL READ COMMITTED;
  SELECT pg_advisory_xact_lock(${LANE_LOCK})`;

/**
 * Ephemeral events are not kept, so their commit need not wait for the disk. All others wait, whatever the
 * server's default is (I1).
 */
export function commitOf(writes: BatchWrites, isDurable?: true): string {
  const { outbox, rows, held, heads, tombstones, appliedTombstones, hidden, vanishMarks } = writes;
  const written = [outbox, rows, held, heads, tombstones, appliedTombstones, hidden, vanishMarks];
  const durable = isDurable ?? written.some(({ length }) => length > 0);
  return `SET LOCAL synchronous_commit = ${durable ? 'on' : 'off'}; COMMIT`;
}
