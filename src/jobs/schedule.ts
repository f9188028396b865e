/**
 * Runs the jobs on their schedule with graphile-worker. Each time of the crontab is queued once over all
 * instances, and any instance runs it. I14: one job at a time, and at most one of each name is queued.
 *
 * A session lock (jobs/job-runs.sql.ts) keeps two jobs from running at the same time. A named queue of the
 * scheduler does not do for that: after a kill it stays locked for four hours, and all jobs would wait. The
 * session lock is free at once, and also covers commands. A job of a dead process is queued again at its next
 * time, by its key, or by `free-jobs`.
 *
 * The relay does not wait for the scheduler. If the scheduler cannot start or stops, it is started again.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type AddJobFunction, Logger, type Runner, run } from 'graphile-worker';
import type { Pool } from 'pg';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import type { Job, JobContext } from './job.js';
import { lockScheduler, SCHEDULER_SCHEMA } from './job-runs.sql.js';
import { JobSession } from './run.js';

/** One connection each for the listener, the worker and the cron of the scheduler. */
const POOL_SIZE = 3;
const SESSION_KEPT_MS = 90_000;
/** A new job wakes the worker at once; polling finds jobs that were queued for later. */
const POLL_MS = 10_000;
/**
 * The jobs of every minute are one task and share an open session. So a minute without work costs one row of
 * the queue and no new session.
 */
const EVERY_MINUTE = '* * * * *';
const MINUTE_TASK = 'every-minute';
const BUSY_RETRY_MS = 10_000;
const RESTART_MS_MAX = 60_000;
const STOP_MS_MAX = 20_000;

export interface ScheduleOptions {
  readonly context: Omit<JobContext, 'signal'>;
  readonly jobs: readonly Job[];
  readonly metrics: Metrics;
  readonly log: Log;
}

export interface Schedule {
  /** Queues a job for now, for whichever instance is free. */
  trigger(name: string): Promise<void>;
  /** Finishes the current batch. */
  stop(): Promise<void>;
}

export function startSchedule(options: ScheduleOptions): Schedule {
  const { log } = options;
  const stopping = new AbortController();
  // Longer than the minute of the cron: a new session for each poll would cost more than the poll.
  const pool = options.context.database.separatePool(POOL_SIZE, SESSION_KEPT_MS);
  const session = new JobSession(options.context.database);
  let runner: Runner | undefined;

  const untilStopped = new Promise<void>((resolve) => {
    stopping.signal.addEventListener('abort', () => resolve());
  });

  const keepRunning = async (): Promise<void> => {
    for (let failures = 0; !stopping.signal.aborted; failures += 1) {
      try {
        runner = await startRunner(options, { pool, session, signal: stopping.signal });
        failures = 0;
        await Promise.race([runner.promise, untilStopped]);
      } catch (error) {
        log.error({ error: String(error) }, 'the scheduler of jobs has failed; it is started again soon');
      }
      // After a failure it has stopped already, and stop() throws; that error is not interesting.
      await runner?.stop().catch(() => undefined);
      runner = undefined;
      const pause = Math.min(RESTART_MS_MAX, 1_000 * 2 ** failures);
      await delay(pause, undefined, { signal: stopping.signal }).catch(() => undefined);
    }
    await session.close();
    await pool.end();
  };

  const running = keepRunning();
  return {
    trigger: async (name) => {
      if (runner === undefined) throw new Error('the jobs have not started yet');
      await queue(runner.addJob, name, 0);
    },
    stop: async () => {
      stopping.abort();
      // Bounded: a database that does not answer must not keep the node from stopping.
      await Promise.race([running, delay(STOP_MS_MAX, undefined, { ref: false })]);
    },
  };
}

interface Running {
  readonly pool: Pool;
  /** One job runs at a time. */
  readonly session: JobSession;
  readonly signal: AbortSignal;
}

async function startRunner(options: ScheduleOptions, running: Running): Promise<Runner> {
  const { context, jobs, log } = options;
  const everyMinute = jobs.filter(({ cron }) => cron === EVERY_MINUTE);
  const others = jobs.filter(({ cron }) => cron !== EVERY_MINUTE);
  const starting = await context.database.connect({ lockTimeoutMs: STOP_MS_MAX });
  try {
    // The scheduler creates its tables when it starts. The lock lets one instance do that at a time.
    await lockScheduler(starting);
    return await run({
      pgPool: running.pool,
      schema: SCHEDULER_SCHEMA,
      concurrency: 1,
      pollInterval: POLL_MS,
      noHandleSignals: true,
      logger: quietLogger(log),
      // Only with these options set does stop() wait until finished jobs are also marked as finished.
      preset: { worker: { completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
      crontab: [...others, ...(everyMinute.length > 0 ? [{ name: MINUTE_TASK, cron: EVERY_MINUTE }] : [])]
        .map(cronLine)
        .join('\n'),
      taskList: {
        ...Object.fromEntries(jobs.map((job) => [job.name, taskOf([job], options, running)])),
        [MINUTE_TASK]: taskOf(everyMinute, options, running),
      },
    });
  } finally {
    await starting.end().catch(() => undefined);
  }
}

/** If a job has more to do, the rest is queued as a task of that job. */
function taskOf(jobs: readonly Job[], options: ScheduleOptions, running: Running) {
  return async (_payload: unknown, { addJob }: { addJob: AddJobFunction }): Promise<void> => {
    for (const job of jobs) {
      if (running.signal.aborted) return;
      await runScheduled(job, options, running, (afterMs) => queue(addJob, job.name, afterMs));
    }
  };
}

/** Several missed times are made up for by one run: they share one key. */
function cronLine({ name, cron, fill }: Pick<Job, 'name' | 'cron' | 'fill'>): string {
  const missed = fill === undefined ? '' : `&fill=${fill}`;
  return `${cron} ${name} ?jobKey=${name}&jobKeyMode=replace&max=1${missed}`;
}

async function queue(addJob: AddJobFunction, name: string, afterMs: number): Promise<void> {
  const runAt = afterMs === 0 ? {} : { runAt: new Date(Date.now() + afterMs) };
  await addJob(name, {}, { jobKey: name, jobKeyMode: 'replace', maxAttempts: 1, ...runAt });
}

/** Never throws. A failure is recorded, counted and logged; the job is tried again at its next time. */
async function runScheduled(
  job: Job,
  { context, metrics, log }: ScheduleOptions,
  { session, signal }: Running,
  again: (afterMs: number) => Promise<void>,
): Promise<void> {
  try {
    const result = await session.run(job, { ...context, signal });
    metrics.jobRuns.inc({ job: job.name, result: result === 'busy' ? 'busy' : 'ok' });
    log.debug({ job: job.name, result }, 'job');
    if (result === 'busy') await again(BUSY_RETRY_MS);
    else if (result.more) await again(0);
  } catch (error) {
    metrics.jobRuns.inc({ job: job.name, result: 'failed' });
    log.warn({ job: job.name, error: String(error) }, 'a job failed; it runs again at its next time');
  }
}

function quietLogger(log: Log): Logger {
  return new Logger(() => (level, message) => {
    const loud = String(level) === 'error' || String(level) === 'warning';
    log[loud ? 'warn' : 'debug']({ scheduler: message }, 'scheduler');
  });
}
