/**
 * The latest run of each job, and the locks that keep two instances from running jobs at the same time. A
 * lock belongs to a session: PostgreSQL frees it as soon as the process dies.
 */
import type { Client, ClientBase, Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { changeConfig, type Scope } from '../communities/config-change.sql.js';
import { errorCode, SQLSTATE } from '../postgres/rules-error-code.js';

/** One job at a time, over all instances and commands. */
const JOBS_LOCK = 7_447_010;
/** Held while the scheduler creates or migrates its own tables. */
const SCHEDULER_LOCK = 7_447_011;
const ERROR_CHARS_MAX = 500;
/** A schema of its own: another program in the same database may use the same scheduler. */
export const SCHEDULER_SCHEMA = 'minato_worker';

/** False if another job still runs after the session's lock time-out. */
export async function lockJobs(client: Client): Promise<boolean> {
  try {
    await client.query('SELECT pg_advisory_lock($1)', [JOBS_LOCK]);
    return true;
  } catch (error) {
    if (errorCode(error) === SQLSTATE.lockNotAvailable) return false;
    throw error;
  }
}

export async function unlockJobs(client: Client): Promise<void> {
  await client.query('SELECT pg_advisory_unlock($1)', [JOBS_LOCK]);
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
    `UPDATE job_runs SET finished_at = $2, changed = $3, more = $4, error = $5,
       failures = CASE WHEN $5::text IS NULL THEN 0 ELSE failures + 1 END,
       ok_at = CASE WHEN $5::text IS NULL THEN $2 ELSE ok_at END
     WHERE job = $1`,
    [job, now, end.changed, end.more, end.error?.slice(0, ERROR_CHARS_MAX) ?? null],
  );
}

export interface JobRun {
  readonly job: string;
  readonly startedAt: number;
  /** Null while it runs, or if it was interrupted. */
  readonly finishedAt: number | null;
  readonly changed: number;
  readonly more: boolean;
  readonly error: string | null;
  /** How often it has failed since it last succeeded. */
  readonly failures: number;
  readonly okAt: number | null;
}

export async function readJobRuns(db: Client | Pool): Promise<JobRun[]> {
  const { rows } = await db.query<JobRun>(
    `SELECT job, started_at AS "startedAt", finished_at AS "finishedAt", changed, more, error, failures,
       ok_at AS "okAt"
     FROM job_runs ORDER BY job`,
  );
  return rows;
}

/**
 * Queues a job for now, as the schedule does, with its audit row. Any worker takes it. Refused before the
 * first worker has made the queue.
 */
export async function runJobSoon(pool: Pool, scope: Scope, job: string): Promise<Denial | undefined> {
  const queued = await changeConfig(pool, scope, async ({ db, audit }) => {
    if (!(await hasQueue(db)))
      return denial('NOT_READY', { explanation: 'No worker has been started on this database yet.' });
    await db.query(
      `SELECT 1 FROM ${SCHEDULER_SCHEMA}.add_job($1, payload := '{}'::json, max_attempts := 1,
         job_key := $1, job_key_mode := 'replace')`,
      [job],
    );
    await audit('job.run', job);
    return true;
  });
  return isDenial(queued) ? queued : undefined;
}

async function hasQueue(client: ClientBase): Promise<boolean> {
  const made = await client.query<{ jobs: string | null }>('SELECT to_regclass($1) AS jobs', [
    `${SCHEDULER_SCHEMA}.jobs`,
  ]);
  return made.rows[0]!.jobs !== null;
}

export interface AbandonedJob {
  readonly id: string;
  /** Null if it has been queued again meanwhile. */
  readonly key: string | null;
  readonly takenBy: string;
}

/** Jobs that a worker took before this time and has neither finished nor released. */
export async function abandonedJobs(
  client: Client,
  takenBefore: number,
  limit: number,
): Promise<AbandonedJob[]> {
  if (!(await hasQueue(client))) return [];
  const { rows } = await client.query<AbandonedJob>(
    `SELECT id::text, key, locked_by AS "takenBy" FROM ${SCHEDULER_SCHEMA}.jobs
     WHERE locked_by IS NOT NULL AND locked_at < to_timestamp($1 / 1000.0) ORDER BY id LIMIT $2`,
    [takenBefore, limit],
  );
  return rows;
}

/** A job that still has its key is queued again. One without a key was queued meanwhile and is dropped. */
export async function takeUpAgain(client: Client, jobs: readonly AbandonedJob[], now: number): Promise<void> {
  const ids = (wanted: (job: AbandonedJob) => boolean) => jobs.filter(wanted).map(({ id }) => id);
  await client.query(`SELECT ${SCHEDULER_SCHEMA}.force_unlock_workers($1::text[])`, [
    jobs.map(({ takenBy }) => takenBy),
  ]);
  await client.query(`SELECT ${SCHEDULER_SCHEMA}.complete_jobs($1::bigint[])`, [
    ids(({ key }) => key === null),
  ]);
  await client.query(
    `SELECT ${SCHEDULER_SCHEMA}.reschedule_jobs(
       $1::bigint[], run_at := to_timestamp($2 / 1000.0), attempts := 0)`,
    [ids(({ key }) => key !== null), now],
  );
}
