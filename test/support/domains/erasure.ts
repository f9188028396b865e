/** Erasures in a test: requests them, runs them, and reads the counts of the registry. */
import { expect } from 'vitest';
import { isDenial } from '../../../src/api/rules-errors.js';
import { type Erasure, readErasure, requestErasure } from '../../../src/erasure/erasures.sql.js';
import { erase } from '../../../src/erasure/jobs.js';
import type { Subject } from '../../../src/erasure/rules.js';
import { type Erasing, withRegistry } from '../../../src/erasure/stores/registry.js';
import { BOUNDS, type Job, type JobContext } from '../../../src/jobs/job.js';
import { runJob } from '../../../src/jobs/run.js';
import type { Database } from '../../../src/postgres/database.js';
import type { TestNode } from '../node.js';

/** The refusal that a client gets; the time is that of the mark. */
export const ERASED =
  /^blocked: erased; (what was signed up to \S+Z is refused|nothing of this key is taken in now)$/;

export function jobContext(
  { node, database }: Pick<TestNode, 'node' | 'database'>,
  more: Partial<JobContext> = {},
): JobContext {
  const { store, communities, erasing } = node;
  const { signal } = new AbortController();
  return { database, store, communities, erasing, now: Date.now, signal, bounds: BOUNDS, ...more };
}

/** Repeats the job until nothing is left to do. The node's own schedule may run it at the same time. */
export async function runErasures(context: JobContext, job: Job = erase): Promise<void> {
  for (let runs = 0; runs < 1_000; runs += 1) {
    const result = await runJob(job, context);
    if (result !== 'busy' && !result.more) return;
  }
  throw new Error('the erasures do not come to an end');
}

export async function askFor(
  { pool }: Pick<Database, 'pool'>,
  request: { community: number; slug?: string; pubkey?: string; graceDays?: number },
  now = Date.now(),
): Promise<Erasure> {
  const { slug = 'default', graceDays = 0, ...rest } = request;
  const erasure = await requestErasure(pool, { ...rest, slug, graceDays, cause: 'operator' }, now);
  if (isDenial(erasure)) throw new Error(erasure.denied);
  return erasure;
}

export async function stateOf(
  { pool }: Pick<Database, 'pool'>,
  { erasureId }: Pick<Erasure, 'erasureId'>,
): Promise<Erasure> {
  return (await readErasure(pool, erasureId))!;
}

/** The count of each store; none may fail. */
export function countsOf(
  database: Database,
  erasing: Erasing,
  subject: Subject,
): Promise<Record<string, number>> {
  return withRegistry(erasing, database, { now: Date.now, rows: 500 }, async ({ registry }) => {
    const { succeeded, failed } = await registry.countAll(subject);
    expect([...failed]).toEqual([]);
    return Object.fromEntries(succeeded);
  });
}

export const zeros = (counts: Record<string, number>) =>
  Object.fromEntries(Object.keys(counts).map((name) => [name, 0]));
