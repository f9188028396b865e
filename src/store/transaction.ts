/** One transaction on a connection of a pool. A denial takes everything back. */
import type { Pool, PoolClient } from 'pg';
import { type Denial, isDenial } from '../core/errors.js';

/** A holder that falls silent would keep its locks, so the server ends it. */
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
