/**
 * The jobs on their schedule, by graphile-worker: each time of the crontab is queued once over all instances, and any of them
 * takes it. I14: one job at a time here, and at most one of each name waits.
 *
 * That no two run at the same time is not left to a named queue of the scheduler: it frees the queue of a process that was
 * killed only after four hours, and all jobs would stand still. The lock of a session (store/job-runs.ts) is free at once, and
 * holds for a command as well. A job that a dead process had taken is queued again at its next time, by its key, or by `free-jobs`.
 *
 * The relay does not wait for the scheduler: while it cannot start, or after it gave up, it is started again.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type AddJobFunction, Logger, type Runner, run } from 'graphile-worker';
import type { Pool } from 'pg';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { lockScheduler, SCHEDULER_SCHEMA } from '../store/job-runs.js';
import type { Job, JobContext } from './job.js';
import { runJob } from './run.js';

/** The listener, the one worker, and the clock. */
const POOL_SIZE = 3;
/** What is queued wakes the worker at once; polling finds what was queued for later. */
const POLL_MS = 10_000;
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
  /** Finishes the batch at hand. */
  stop(): Promise<void>;
}

export function startSchedule(options: ScheduleOptions): Schedule {
  const { log } = options;
  const stopping = new AbortController();
  const pool = options.context.database.separatePool(POOL_SIZE);
  let runner: Runner | undefined;

  const untilStopped = new Promise<void>((resolve) => {
    stopping.signal.addEventListener('abort', () => resolve());
  });

  const keepRunning = async (): Promise<void> => {
    for (let failures = 0; !stopping.signal.aborted; failures += 1) {
      try {
        runner = await startRunner(options, pool, stopping.signal);
        failures = 0;
        await Promise.race([runner.promise, untilStopped]);
      } catch (error) {
        log.error({ error: String(error) }, 'the jobs do not run; they are started again soon');
      }
      // It has stopped by itself when it failed, and says so; there is nothing to do about that.
      await runner?.stop().catch(() => undefined);
      runner = undefined;
      const pause = Math.min(RESTART_MS_MAX, 1_000 * 2 ** failures);
      await delay(pause, undefined, { signal: stopping.signal }).catch(() => undefined);
    }
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

async function startRunner(options: ScheduleOptions, pool: Pool, signal: AbortSignal): Promise<Runner> {
  const { context, jobs, log } = options;
  const session = await context.database.connect({ lockTimeoutMs: STOP_MS_MAX });
  try {
    // The scheduler makes its tables as it starts, and two at once may meet: instances start one after another.
    await lockScheduler(session);
    return await run({
      pgPool: pool,
      schema: SCHEDULER_SCHEMA,
      concurrency: 1,
      pollInterval: POLL_MS,
      noHandleSignals: true,
      logger: quietLogger(log),
      // Only with a delay does it wait, when it stops, until what is done is also marked as done.
      preset: { worker: { completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
      crontab: jobs.map(cronLine).join('\n'),
      taskList: Object.fromEntries(
        jobs.map((job) => [
          job.name,
          (_payload: unknown, { addJob }: { addJob: AddJobFunction }) =>
            runScheduled(job, options, signal, (afterMs) => queue(addJob, job.name, afterMs)),
        ]),
      ),
    });
  } finally {
    await session.end().catch(() => undefined);
  }
}

/** A time that was missed is made up for once, however many were missed: they share one key. */
function cronLine({ name, cron, fill }: Job): string {
  const missed = fill === undefined ? '' : `&fill=${fill}`;
  return `${cron} ${name} ?jobKey=${name}&jobKeyMode=replace&max=1${missed}`;
}

async function queue(addJob: AddJobFunction, name: string, afterMs: number): Promise<void> {
  const runAt = afterMs === 0 ? {} : { runAt: new Date(Date.now() + afterMs) };
  await addJob(name, {}, { jobKey: name, jobKeyMode: 'replace', maxAttempts: 1, ...runAt });
}

/** Never throws: what failed is recorded, counted and logged here, and its next time is its next try. */
async function runScheduled(
  job: Job,
  { context, metrics, log }: ScheduleOptions,
  signal: AbortSignal,
  again: (afterMs: number) => Promise<void>,
): Promise<void> {
  try {
    const result = await runJob(job, { ...context, signal });
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
