import { Command } from 'commander';
import type { Config } from '../config.js';
import { READER_WAITS_MAX, waitsForReaders } from '../erasure/outbox.js';
import { erase } from '../jobs/erase.js';
import { BOUNDS, type DryRunCount, type Job, type JobContext } from '../jobs/job.js';
import { JOBS } from '../jobs/list.js';
import { dryRunJobs, runJob } from '../jobs/run.js';
import { prepareDatabase } from '../prepare.js';
import type { Assisting } from '../services/assist.js';
import { listWaiting } from '../store/erasures.js';
import { type JobRun, readJobRuns } from '../store/job-runs.js';
import { withDatabase } from './context.js';
import { count, startProgress, watchInterruption } from './progress.js';

/** Topics that a dry run prints for one class; --json has more. */
const TOPICS_SHOWN = 20;
const WAITING_MAX = 100;

export function jobsCommand(): Command {
  const jobs = new Command('jobs').description(
    'what the node does by itself: expiry, purging, erasure, upkeep; one at a time over all instances',
  );
  jobs
    .command('list', { isDefault: true })
    .description('show every job, its schedule (UTC) and its last run')
    .option('--json', 'as JSON')
    .action((options: { json?: boolean }) => list(options.json === true));
  jobs
    .command('run <name>')
    .description('run a job now, until nothing is left to do')
    .option('--dry-run', 'only say what it would do')
    .action((name: string, options: { dryRun?: boolean }) =>
      withJobs((context) =>
        options.dryRun ? showDryRun([known(name)], context) : runNow(known(name), context),
      ),
    );
  return jobs;
}

function known(name: string): Job {
  const job = JOBS.find((one) => one.name === name);
  if (job !== undefined) return job;
  throw new Error(`there is no job "${name}"; there are: ${JOBS.map((one) => one.name).join(', ')}`);
}

function list(json: boolean): Promise<void> {
  return withDatabase(async ({ database, config, log }) => {
    await prepareDatabase(database, config, Date.now, log);
    const runs = new Map((await readJobRuns(database.pool)).map((run) => [run.job, run]));
    if (json) {
      const all = JOBS.map(({ name, cron, about }) => ({
        name,
        cron,
        about,
        lastRun: runs.get(name) ?? null,
      }));
      process.stdout.write(`${JSON.stringify(all, null, 2)}\n`);
      return;
    }
    for (const { name, cron, about } of JOBS) {
      const last = lastRun(runs.get(name));
      process.stdout.write(`${name.padEnd(16)} ${cron.padEnd(12)} ${last.padEnd(56)} ${about}\n`);
    }
  });
}

function lastRun(run: JobRun | undefined): string {
  if (run === undefined) return 'never ran';
  const at = new Date(run.startedAt).toISOString().slice(0, 19);
  if (run.finishedAt === null) return `${at}Z  running, or cut off`;
  if (run.error !== null) return `${at}Z  failed: ${run.error}`;
  const more = run.more ? ', more is left' : '';
  return `${at}Z  ok in ${count(run.finishedAt - run.startedAt)} ms, ${count(run.changed)} changed${more}`;
}

/** What a command that runs jobs has: also the consumers, which an erasure waits for, where no node runs. */
export interface CommandJobs extends JobContext {
  withConsumers<T>(work: (consumers: Assisting) => Promise<T>): Promise<T>;
}

/** A lane of its own beside that of a running node: the lane's lock is one for both. */
export function withJobs(work: (context: CommandJobs, config: Config) => Promise<void>): Promise<void> {
  return withDatabase(async ({ database, config, log }) => {
    const interruption = watchInterruption();
    // Only now: a command that lists is quick to start.
    const { startWriter } = await import('../writer.js');
    const { withConsumers } = await import('../erase-now.js');
    const writer = await startWriter({ database, config, log });
    try {
      const { lane, communities, erasing, audit } = writer;
      const { signal } = interruption;
      const now = Date.now;
      const context = { database, lane, communities, erasing, now, signal, bounds: BOUNDS, audit };
      const reading = { ...context, keys: writer.keys, metrics: writer.metrics, log };
      await work({ ...context, withConsumers: (part) => withConsumers(reading, part) }, config);
    } finally {
      await writer.close();
      interruption.done();
      const code = interruption.exitCode();
      if (code !== undefined) process.exitCode = code;
    }
  });
}

/** What a command did to the end, or until the operator interrupted it. */
export interface Ran {
  readonly job: string;
  readonly state: 'done' | 'interrupted';
  readonly changed: number;
  /** What changed, in words, where the job says it. */
  readonly said: readonly string[];
}

/** Run after run, each bounded, until nothing is left or the operator interrupts. */
export async function runToEnd(job: Job, context: JobContext): Promise<Ran> {
  let changed = 0;
  const said: string[] = [];
  const say = (line: string) => {
    if (said.length < SAID_MAX) said.push(line);
  };
  for (let first = true; ; first = false) {
    const result = await runJob(job, { ...context, say, fromStart: first });
    if (result === 'busy') throw new Error('another job is running; try again when it has ended');
    changed += result.changed;
    if (!result.more || context.signal.aborted) break;
  }
  return { job: job.name, state: context.signal.aborted ? 'interrupted' : 'done', changed, said };
}
const SAID_MAX = 1_000;

/** Erasures again, as long as one waits for consumers that move; these read meanwhile. */
export async function runWithConsumers(job: Job, context: CommandJobs): Promise<Ran> {
  return job === erase
    ? context.withConsumers((consumers) => runErasing(context, consumers))
    : runToEnd(job, context);
}

async function runErasing(context: CommandJobs, consumers: Assisting): Promise<Ran> {
  const progress = startProgress(undefined);
  let ran: Ran = { job: erase.name, state: 'done', changed: 0, said: [] };
  for (let tries = 0; tries < READER_WAITS_MAX; tries += 1) {
    const last = await runToEnd(erase, context);
    ran = { ...last, changed: ran.changed + last.changed };
    if (!(await listWaiting(context.database.pool, WAITING_MAX)).some(waitsForReaders)) break;
    if (!(await consumers.caughtUp(context.signal, (about) => progress.update(0, about)))) break;
  }
  progress.stop();
  return ran;
}

export async function runNow(job: Job, context: CommandJobs): Promise<void> {
  const { state, changed, said } = await runWithConsumers(job, context);
  process.stdout.write(`${job.name.padEnd(16)} ${state}, ${count(changed)} changed\n`);
  for (const line of said) process.stdout.write(`${''.padEnd(16)} ${line}\n`);
}

export async function showDryRun(jobs: readonly Job[], context: JobContext, json = false): Promise<void> {
  const rows = await dryRunJobs(jobs, context);
  if (json) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
  else process.stdout.write(rows.length === 0 ? 'nothing to do now\n' : rows.flatMap(lines).join(''));
}

/** A line for the class, then one for each of its topics; the other topics in a line of their own. */
function lines({ job, topics = [], topicsFromRows, ...found }: DryRunCount & { job: string }): string[] {
  const line = (rows: string, note = '') =>
    `${`${job.padEnd(16)} ${found.reason.padEnd(12)} ${found.class.padEnd(12)} ${rows.padStart(10)}  ${note}`.trimEnd()}\n`;
  const shown = topics.slice(0, TOPICS_SHOWN);
  const partly = topicsFromRows === undefined ? '' : ` (of ${count(topicsFromRows)} rows looked at)`;
  return [
    line(count(found.rows)),
    // Quoted: a topic may hold anything.
    ...shown.map(({ topic, rows }) => line(count(rows), `topic ${JSON.stringify(topic)}${partly}`)),
    ...(topics.length > shown.length
      ? [line('', `and ${count(topics.length - shown.length)} topics more`)]
      : []),
  ];
}
