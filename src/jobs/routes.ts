/**
 * The jobs of the node over HTTP. They belong to the whole node: people of a community see their state; only
 * operators of the node run one, and see the text of an error.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { isNodeOperator, type NodeOperators, refuseOthers } from '../api/node-operators.js';
import { denial } from '../api/rules-errors.js';
import { milliseconds } from '../api/schemas.js';
import type { EventStoreName } from '../node/config.js';
import type { Job } from './job.js';
import { type JobRun, readJobRuns, runJobSoon } from './job-runs.sql.js';

const count = z.number().int();
const job = z.strictObject({
  name: z.string(),
  about: z.string(),
  schedule: z.string().describe('UTC, in the five fields of cron'),
  purges: z.boolean().describe('It deletes events or what belongs to them'),
  state: z
    .enum(['never', 'running', 'ok', 'failed'])
    .describe('Of its last run; one that was interrupted is shown as running until it runs again'),
  started_at: milliseconds.nullable(),
  finished_at: milliseconds.nullable(),
  changed: count.describe('What the last run changed'),
  more: z.boolean().describe('Something was left for the next run'),
  ok_at: milliseconds.nullable().describe('When it last succeeded'),
  failures: count.describe('How often it has failed since then'),
  error: z.string().nullable().describe('Shown to operators of the node only'),
});

function stateOf(run: JobRun | undefined): z.output<typeof job>['state'] {
  if (run === undefined) return 'never';
  if (run.finishedAt === null) return 'running';
  return run.error === null ? 'ok' : 'failed';
}

function show({ name, about, cron, purges }: Job, run: JobRun | undefined, isOfNode: boolean) {
  return {
    name,
    about,
    schedule: cron,
    purges,
    state: stateOf(run),
    started_at: run?.startedAt ?? null,
    finished_at: run?.finishedAt ?? null,
    changed: run?.changed ?? 0,
    more: run?.more ?? false,
    ok_at: run?.okAt ?? null,
    failures: run?.failures ?? 0,
    error: isOfNode ? (run?.error ?? null) : null,
  };
}

export interface JobRouteOptions extends NodeOperators {
  readonly pool: Pool;
  /** PostgreSQL by default. */
  readonly eventStore?: EventStoreName;
}

export function jobRoutes(options: JobRouteOptions, jobs: readonly Job[]): Route[] {
  const { pool } = options;
  const shared = { tags: ['admin: jobs'], who: 'operator' } as const;
  return [
    route({
      ...shared,
      method: 'GET',
      url: '/admin/jobs',
      role: 'viewer',
      summary: 'List the jobs of the node with their schedule and last run',
      response: z.strictObject({
        items: z.array(job),
        may_run: z.boolean().describe('You are an operator of the node: you may run them'),
      }),
      errors: [],
      handler: async (call) => {
        const runs = new Map((await readJobRuns(pool)).map((run) => [run.job, run]));
        const isOfNode = isNodeOperator(options, call);
        return { items: jobs.map((one) => show(one, runs.get(one.name), isOfNode)), may_run: isOfNode };
      },
    }),
    route({
      ...shared,
      method: 'POST',
      url: '/admin/jobs/:name/run',
      summary: 'Run a job now',
      description:
        'It is queued, and the next worker that is free runs it, as on its schedule: one job at a time, ' +
        'until nothing is left to do.',
      params: z.strictObject({ name: z.string().min(1).max(100) }),
      status: 202,
      response: z.strictObject({ name: z.string(), queued: z.literal(true) }),
      errors: ['NOT_FOUND', 'NOT_READY'],
      handler: async (call) => {
        const refused = refuseOthers(options, call, 'Jobs belong to the whole node');
        if (refused !== undefined) return refused;
        const { name } = call.params;
        if (!jobs.some((one) => one.name === name)) return denial('NOT_FOUND');
        const scope = { community: call.community.id, actor: call.pubkey, now: call.now };
        return (await runJobSoon(pool, scope, name)) ?? { name, queued: true as const };
      },
    }),
  ];
}
