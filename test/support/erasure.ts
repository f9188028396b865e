/** Erasures in a test: asked for, carried out, and what the registry counts. */
import { expect } from 'vitest';
import type { Subject } from '../../src/core/erasure.js';
import { isDenial } from '../../src/core/errors.js';
import { type Erasing, withRegistry } from '../../src/erasure/all.js';
import { erase } from '../../src/jobs/erase.js';
import { BOUNDS, type Job, type JobContext } from '../../src/jobs/job.js';
import { runJob } from '../../src/jobs/run.js';
import type { Database } from '../../src/postgres/database.js';
import { type Erasure, readErasure, requestErasure } from '../../src/store/erasures.js';
import type { TestNode } from './node.js';

/** What a client is answered; the time is that of the mark. */
export const ERASED =
  /^blocked: erased; (what was signed up to \S+Z is refused|nothing of this key is taken in now)$/;

export function jobContext(
  { node, database }: Pick<TestNode, 'node' | 'database'>,
  more: Partial<JobContext> = {},
): JobContext {
  const { lane, communities, erasing } = node;
  const { signal } = new AbortController();
  return { database, lane, communities, erasing, now: Date.now, signal, bounds: BOUNDS, ...more };
}

/** Run after run, until nothing is left to do now. The node's own schedule may be at it. */
export async function runErasures(context: JobContext, job: Job = erase): Promise<void> {
  for (let runs = 0; runs < 1_000; runs += 1) {
    const result = await runJob(job, context);
    if (result !== 'busy' && !result.more) return;
  }
  throw new Error('it does not come to an end');
}

export async function askFor(
  { pool }: Pick<Database, 'pool'>,
  asked: { community: number; slug?: string; pubkey?: string; graceDays?: number },
  now = Date.now(),
): Promise<Erasure> {
  const { slug = 'default', graceDays = 0, ...rest } = asked;
  const erasure = await requestErasure(pool, { ...rest, slug, graceDays, cause: 'operator' }, now);
  if (isDenial(erasure)) throw new Error(erasure.denied);
  return erasure;
}

export async function stateOf({ pool }: Pick<Database, 'pool'>, { erasureId }: Erasure): Promise<Erasure> {
  return (await readErasure(pool, erasureId))!;
}

/** What each store counts; none of them may fail. */
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
