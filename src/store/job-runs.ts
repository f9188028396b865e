/**
 * The jobs' own records: the latest run of each, and the locks that keep two instances from running one at the same time.
 * The locks belong to a session: when its process dies, however it dies, they are free at once.
 */
import type { Client, Pool } from 'pg';

/** One job at a time, over all instances and commands. */
const JOBS_LOCK = 7_447_010;
/** Held while the scheduler makes or changes its own tables. */
const SCHEDULER_LOCK = 7_447_011;
/** SQLSTATE of a lock that was not free within the session's lock timeout. */
const LOCK_NOT_AVAILABLE = '55P03';
const ERROR_CHARS_MAX = 500;

/** Waits for the session's lock timeout at most; false when another job is still running then. */
export async function lockJobs(client: Client): Promise<boolean> {
  try {
    await client.query('SELECT pg_advisory_lock($1)', [JOBS_LOCK]);
    return true;
  } catch (error) {
    if ((error as { code?: string }).code === LOCK_NOT_AVAILABLE) return false;
    throw error;
  }
}

/** Freed when the session ends. */
export async function lockScheduler(client: Client): Promise<void> {
  await client.query('SELECT pg_advisory_lock($1)', [SCHEDULER_LOCK]);
}

export async function recordStart(client: Client, job: string, now: number): Promise<void> {
  await client.query(
    `INSERT INTO job_runs (job, started_at) VALUES ($1, $2) ON CONFLICT (job) DO UPDATE
     SET started_at = excluded.started_at, finished_at = NULL, changed = 0, more = false, error = NULL`,
    [job, now],
  );
}

export interface RunEnd {
  readonly changed: number;
  readonly more: boolean;
  readonly error: string | undefined;
}

export async function recordEnd(client: Client, job: string, now: number, end: RunEnd): Promise<void> {
  await client.query(
    'UPDATE job_runs SET finished_at = $2, changed = $3, more = $4, error = $5 WHERE job = $1',
    [job, now, end.changed, end.more, end.error?.slice(0, ERROR_CHARS_MAX) ?? null],
  );
}

export interface JobRun {
  readonly job: string;
  readonly startedAt: number;
  /** Empty while it runs, or when it was cut off. */
  readonly finishedAt: number | null;
  readonly changed: number;
  readonly more: boolean;
  readonly error: string | null;
}

export async function readJobRuns(db: Client | Pool): Promise<JobRun[]> {
  const { rows } = await db.query<JobRun>(
    'SELECT job, started_at AS "startedAt", finished_at AS "finishedAt", changed, more, error FROM job_runs ORDER BY job',
  );
  return rows;
}
