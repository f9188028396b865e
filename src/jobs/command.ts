import { Command } from 'commander';
import { withDatabase } from '../cli/context.js';
import { count, startProgress, watchInterruption } from '../cli/progress.js';
import { listWaiting } from '../erasure/erasures.sql.js';
import { erase } from '../erasure/jobs.js';
import { READER_WAITS_MAX, waitsForReaders } from '../erasure/stores/outbox.js';
import type { Config, EventStoreName } from '../node/config.js';
import { prepareDatabase } from '../node/prepare.js';
import type { Writer } from '../node/writer.js';
import type { Assisting } from '../outbox/consumers/assist.js';
import { BOUNDS, type DryRunCount, type Job, type JobContext } from './job.js';
import { type JobRun, readJobRuns } from './job-runs.sql.js';
import { JOBS } from './list.js';
import { dryRunJobs, runJob } from './run.js';

/** Topics that a dry run prints for one class; --json has more. */
const TOPICS_SHOWN = 20;
const WAITING_MAX = 100;

export function jobsCommand(): Command {
  const jobs = new Command('jobs').description(
    'background jobs: expiry, purging, erasure, upkeep; one at a time over all instances',
  );
  jobs
    .command('list', { isDefault: true })
    .description('show every job, its schedule (UTC) and its last run')
    .option('--json', 'print JSON')
    .action((options: { json?: boolean }) => list(options.json === true));
  jobs
    .command('run <name>')
    .description('run a job now, until nothing is left to do')
    .option('--dry-run', 'only print what it would do')
    .action((name: string, options: { dryRun?: boolean }) =>
      withJobs((context, { eventStore }) => {
        const job = known(name, eventStore);
        return options.dryRun ? showDryRun([job], context) : runNow(job, context);
      }),
    );
  return jobs;
}

function known(name: string, store: EventStoreName): Job {
  const job = JOBS.find((one) => one.name === name);
  const reason = job?.notIn?.[store];
  if (reason !== undefined) throw new Error(`${name} does not run with events in ${store}: ${reason}`);
  if (job !== undefined) return job;
  throw new Error(`there is no job "${name}"; there are: ${JOBS.map((one) => one.name).join(', ')}`);
}

function list(json: boolean): Promise<void> {
  return withDatabase(async ({ database, config, log }) => {
    await prepareDatabase(database, config, Date.now, log);
    const runs = new Map((await readJobRuns(database.pool)).map((run) => [run.job, run]));
    if (json) {
      const all = JOBS.map(({ name, cron, about, notIn }) => ({
        name,
        cron,
        about,
        notRun: notIn?.[config.eventStore] ?? null,
        lastRun: runs.get(name) ?? null,
      }));
      process.stdout.write(`${JSON.stringify(all, null, 2)}\n`);
      return;
    }
    for (const { name, cron, about, notIn } of JOBS) {
      const reason = notIn?.[config.eventStore];
      const last = reason === undefined ? lastRun(runs.get(name)) : `not run: ${reason}`;
      process.stdout.write(`${name.padEnd(16)} ${cron.padEnd(12)} ${last.padEnd(56)} ${about}\n`);
    }
  });
}

function lastRun(run: JobRun | undefined): string {
  if (run === undefined) return 'never ran';
  const at = new Date(run.startedAt).toISOString().slice(0, 19);
  if (run.finishedAt === null) return `${at}Z  running, or interrupted`;
  if (run.error !== null) return `${at}Z  failed: ${run.error}`;
  const more = run.more ? ', more is left' : '';
  return `${at}Z  ok in ${count(run.finishedAt - run.startedAt)} ms, ${count(run.changed)} changed${more}`;
}

/** The context of a command that runs jobs. It can run the consumers that an erasure waits for. */
export interface CommandJobs extends JobContext {
  readonly writer: Writer;
  withConsumers<T>(work: (consumers: Assisting) => Promise<T>): Promise<T>;
}

/** Opens a lane beside that of a running node: both use the same lock. */
export function withJobs(work: (context: CommandJobs, config: Config) => Promise<void>): Promise<void> {
  return withDatabase(async ({ database, config, log }) => {
    const interruption = watchInterruption();
    // Loaded here, so that `jobs list` starts quickly.
    const { startWriter } = await import('../node/writer.js');
    const { withConsumers } = await import('../erasure/erase-now.js');
    const writer = await startWriter({ database, config, log });
    try {
      const { store, changed, communities, erasing, audit } = writer;
      const { signal } = interruption;
      const now = Date.now;
      const diskLevel = () => writer.disk.now().level;
      const context = {
        database,
        store,
        changed,
        communities,
        erasing,
        now,
        signal,
        bounds: BOUNDS,
        audit,
        diskLevel,
      };
      const { keys, metrics, dynamodb } = writer;
      const reading = { ...context, keys, metrics, log, follow: dynamodb?.follow };
      await work({ ...context, writer, withConsumers: (part) => withConsumers(reading, part) }, config);
    } finally {
      await writer.close();
      interruption.done();
      const code = interruption.exitCode();
      if (code !== undefined) process.exitCode = code;
    }
  });
}

/** The result of a job that ran to its end, or until the operator interrupted it. */
export interface Ran {
  readonly job: string;
  readonly state: 'done' | 'interrupted';
  readonly changed: number;
  /** Lines about what changed, if the job writes any. */
  readonly said: readonly string[];
}

/** Repeats bounded runs until nothing is left to do or the operator interrupts. */
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

/** Runs consumers meanwhile, and repeats the erasures while one waits for consumers that make progress. */
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

/** A line for the class, one for each of its topics, and one with the number of topics not shown. */
function lines({ job, topics = [], topicsFromRows, ...found }: DryRunCount & { job: string }): string[] {
  const start = `${job.padEnd(16)} ${found.reason.padEnd(12)} ${found.class.padEnd(12)}`;
  const line = (rows: string, note = '') => `${`${start} ${rows.padStart(10)}  ${note}`.trimEnd()}\n`;
  const shown = topics.slice(0, TOPICS_SHOWN);
  const partly = topicsFromRows === undefined ? '' : ` (of ${count(topicsFromRows)} rows read)`;
  return [
    line(count(found.rows)),
    // Quoted: a topic may contain any characters.
    ...shown.map(({ topic, rows }) => line(count(rows), `topic ${JSON.stringify(topic)}${partly}`)),
    ...(topics.length > shown.length
      ? [line('', `and ${count(topics.length - shown.length)} more topics`)]
      : []),
  ];
}
