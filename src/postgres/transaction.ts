/** Runs one transaction on a connection of a pool. A denial rolls it back. */
import type { ClientBase, Pool, PoolClient } from 'pg';
import { type Denial, isDenial } from '../api/rules-errors.js';

/** A transaction of the control plane. The caller begins and ends it. */
export type ControlTx = ClientBase;

/** A process that hangs would keep its locks, so the server ends its session. */
export const BEGIN_BRIEFLY = `BEGIN ISOLATION LEVEL READ COMMITTED;
  SET LOCAL idle_in_transaction_session_timeout = '10s'`;

export async function inTransaction<T>(
  pool: Pool,
  begin: string,
  work: (db: PoolClient) => Promise<T | Denial>,
): Promise<T | Denial> {
  const db = await pool.connect();
  try {
    await db.query(begin);
    const result = await work(db);
    await db.query(isDenial(result) ? 'ROLLBACK' : 'COMMIT');
    db.release();
    return result;
  } catch (error) {
    // The state of the session is unknown: ending it rolls back and frees its locks.
    db.release(true);
    throw error;
  }
}
