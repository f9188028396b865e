/** One run of a job: under the jobs' lock, on a session of its own, and recorded. The scheduler and the commands run jobs here. */
import type { Client } from 'pg';
import type { Database } from '../postgres/database.js';
import { lockJobs, recordEnd, recordStart } from '../store/job-runs.js';
import { WouldGo } from '../store/would-go.js';
import type { DryRunCount, Job, JobContext, JobResult } from './job.js';

/** How long a run waits for another one to end: longer than most runs take. */
const LOCK_TIMEOUT_MS = 15_000;
const STATEMENT_TIMEOUT_MS = 60_000;
const IDLE_TIMEOUT_MS = 10_000;

/** 'busy': another run, here or on another instance, did not end in time. A failure is thrown, after it was recorded. */
export async function runJob(job: Job, context: JobContext): Promise<JobResult | 'busy'> {
  return withSession(context.database, async (client) => {
    if (!(await lockJobs(client))) return 'busy';
    await recordStart(client, job.name, context.now());
    try {
      const result = await job.run(context, client);
      await recordEnd(client, job.name, context.now(), { ...result, error: undefined });
      return result;
    } catch (error) {
      const end = { changed: 0, more: true, error: String(error) };
      // The session itself may be what failed; what counts is the first error.
      await recordEnd(client, job.name, context.now(), end).catch(() => undefined);
      throw error;
    }
  });
}

/** Counts what a run would do now; changes nothing and waits for nobody. */
export async function dryRunJob(job: Job, context: JobContext): Promise<DryRunCount[]> {
  return (await dryRunJobs([job], context)).map(({ job: _job, ...count }) => count);
}

/** The same for several, as if they ran one after another. */
export async function dryRunJobs(
  jobs: readonly Job[],
  context: JobContext,
): Promise<(DryRunCount & { readonly job: string })[]> {
  return withSession(context.database, async (client) => {
    const gone = await WouldGo.open(client);
    const counts: (DryRunCount & { readonly job: string })[] = [];
    for (const job of jobs) {
      const found = await job.dryRun(context, client, gone);
      counts.push(...found.map((count) => ({ job: job.name, ...count })));
    }
    return counts;
  });
}

/** Its end frees the lock. */
async function withSession<T>(database: Database, work: (client: Client) => Promise<T>): Promise<T> {
  const client = await database.connect({
    lockTimeoutMs: LOCK_TIMEOUT_MS,
    statementTimeoutMs: STATEMENT_TIMEOUT_MS,
    idleInTransactionTimeoutMs: IDLE_TIMEOUT_MS,
    indexWalks: true,
  });
  try {
    return await work(client);
  } finally {
    await client.end().catch(() => undefined);
  }
}
