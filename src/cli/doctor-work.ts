/** The part of `minato doctor` about consumers and jobs. */
import type { Client } from 'pg';
import { type Finding, ok, warn } from '../health/finding.js';
import { readJobRuns } from '../jobs/job-runs.sql.js';
import { JOBS } from '../jobs/list.js';
import { problemsOf, stateText, watchConsumers } from '../outbox/consumers/words.js';
import { count } from './progress.js';

export async function* checkConsumers(client: Client): AsyncGenerator<Finding> {
  for (const state of await watchConsumers(client, Date.now)) {
    const problems = problemsOf(state);
    for (const { text, advice } of problems) yield warn(`consumer ${text}`, advice);
    if (problems.length === 0) yield ok(`consumer ${state.consumer}: ${stateText(state)}`);
  }
}

/** Jobs whose last run failed. A job that only an older version had is ignored. */
export async function* checkJobs(client: Client): AsyncGenerator<Finding> {
  const names = new Set(JOBS.map(({ name }) => name));
  const runs = (await readJobRuns(client)).filter(({ job }) => names.has(job));
  const failed = runs.filter(({ error }) => error !== null);
  for (const { job, startedAt, finishedAt, error } of failed)
    yield warn(
      `job ${job} failed at ${new Date(finishedAt ?? startedAt).toISOString().slice(0, 16)}Z: ${error}`,
      `Fix what the error names. It runs again at its next time; to run it now: minato jobs run ${job}`,
    );
  if (failed.length === 0) yield ok(`no job failed at its last run (${count(runs.length)} have run)`);
}
