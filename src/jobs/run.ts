/**
 * Runs one job: under the lock of jobs, on a session for jobs, with a row about the run. The scheduler and
 * the commands both use it.
 */
import type { Client } from 'pg';
import { DryRunState } from '../events/postgres/dry-run.js';
import type { Database } from '../postgres/database.js';
import type { DryRunCount, Job, JobContext, JobResult } from './job.js';
import { lockJobs, recordEnd, recordStart, unlockJobs } from './job-runs.sql.js';

/** How long a run waits for another one: longer than most runs take. */
const LOCK_TIMEOUT_MS = 15_000;
const STATEMENT_TIMEOUT_MS = 60_000;
const IDLE_TIMEOUT_MS = 10_000;

/**
 * 'busy': another run, on any instance, did not end in time. A failure is recorded and then thrown.
 */
export type RunOutcome = JobResult | 'busy';

export async function runJob(job: Job, context: JobContext): Promise<RunOutcome> {
  const session = new JobSession(context.database);
  try {
    return await session.run(job, context);
  } finally {
    await session.close();
  }
}

/**
 * A session for jobs that run one after another. Opening one costs more than most jobs do
 * (docs/decisions/0017-an-idle-node-idles.md). After a failure the next job gets a new session.
 */
export class JobSession {
  private client: Client | undefined;

  constructor(private readonly database: Database) {}

  async run(job: Job, context: JobContext): Promise<RunOutcome> {
    const client = await this.open();
    try {
      if (!(await lockJobs(client))) return 'busy';
      await recordStart(client, job.name, context.now());
      const result = await job.run(context, client);
      await recordEnd(client, job.name, context.now(), { ...result, error: undefined });
      await unlockJobs(client);
      return result;
    } catch (error) {
      const end = { changed: 0, more: true, error: String(error) };
      // If the session itself has failed, this fails too. The first error is the one to report.
      await recordEnd(client, job.name, context.now(), end).catch(() => undefined);
      await this.close();
      throw error;
    }
  }

  /** Also frees the lock, in any state. */
  async close(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    await client?.end().catch(() => undefined);
  }

  private async open(): Promise<Client> {
    if (this.client !== undefined) return this.client;
    const client = await openSession(this.database);
    client.once('end', () => {
      if (this.client === client) this.client = undefined;
    });
    this.client = client;
    return client;
  }
}

/** Counts what a run would do now. Changes nothing and takes no lock. */
export async function dryRunJob(job: Job, context: JobContext): Promise<DryRunCount[]> {
  return (await dryRunJobs([job], context)).map(({ job: _job, ...count }) => count);
}

/** The same for several jobs, as if they ran one after another. */
export async function dryRunJobs(
  jobs: readonly Job[],
  context: JobContext,
): Promise<(DryRunCount & { readonly job: string })[]> {
  const client = await openSession(context.database);
  try {
    const gone = await DryRunState.open(client);
    const counts: (DryRunCount & { readonly job: string })[] = [];
    for (const job of jobs) {
      const found = await job.dryRun(context, client, gone);
      counts.push(...found.map((count) => ({ job: job.name, ...count })));
    }
    return counts;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** A dry run with a deadline. */
export interface JobsPreview {
  /** False: the time was over before all jobs were counted. */
  readonly complete: boolean;
  /** Those that were counted. */
  readonly jobs: readonly string[];
  readonly counts: readonly (DryRunCount & { readonly job: string })[];
}

/** Like `dryRunJobs`, but ends after a time with what it has counted by then. */
export async function previewJobs(
  jobs: readonly Job[],
  context: JobContext,
  msMax: number,
): Promise<JobsPreview> {
  // A statement that runs when the time is over ends soon after; before that it would be an error.
  const client = await openSession(context.database, 2 * msMax);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<'late'>((resolve) => {
    timer = setTimeout(() => resolve('late'), msMax);
  });
  const counts: (DryRunCount & { readonly job: string })[] = [];
  const done: string[] = [];
  try {
    const state = await DryRunState.open(client);
    for (const job of jobs) {
      const counting = job.dryRun(context, client, state);
      // If the time is over, the session is closed below, and the job fails with nobody waiting for it.
      counting.catch(() => undefined);
      const found = await Promise.race([counting, late]);
      if (found === 'late') return { complete: false, jobs: done, counts };
      counts.push(...found.map((count) => ({ job: job.name, ...count })));
      done.push(job.name);
    }
    return { complete: true, jobs: done, counts };
  } finally {
    clearTimeout(timer);
    await client.end().catch(() => undefined);
  }
}

function openSession(database: Database, statementTimeoutMs = STATEMENT_TIMEOUT_MS): Promise<Client> {
  return database.connect({
    lockTimeoutMs: LOCK_TIMEOUT_MS,
    statementTimeoutMs,
    idleInTransactionTimeoutMs: IDLE_TIMEOUT_MS,
    indexWalks: true,
  });
}
