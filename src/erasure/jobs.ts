/**
 * Carries erasures out: of members who requested it or vanished (NIP-62), and of communities. Each gets a few
 * batches at a time, so that a large one does not hold up the small ones. The next run continues what this
 * one does not finish.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Job, JobContext, JobResult } from '../jobs/job.js';
import { countVanished, dueErasures, takeUpVanished } from './erasures.sql.js';
import { ErasureRun, type Outcome } from './run.js';
import { withRegistry } from './stores/registry.js';

/** Erasures of one run; the others wait for the next run. */
const ERASURES_MAX = 100;
/** Batches of one erasure before the next one has its share. */
const SHARE_BATCHES = 20;
/** How long a run waits when all that are left wait for readers of the outbox. */
const PATIENCE_MS = 2_000;
const LOOK_MS = 100;

export const erase: Job = {
  name: 'erase',
  cron: '* * * * *',
  about: 'erases members and communities from every store, and signs the proof of it',
  purges: true,
  run: async (context, client) => {
    await takeUpVanished(client, context.store, context.now(), ERASURES_MAX);
    const due = await dueErasures(client, context.now(), ERASURES_MAX);
    if (due.length === 0) return { changed: 0, more: false };
    const { erasing, database, now, bounds, log } = context;
    return withRegistry(erasing, database, { now, rows: bounds.rows }, ({ registry }) => {
      const runs = due.map((erasure) => new ErasureRun({ ...erasing, registry, now, log }, erasure));
      return shareRun(context, runs, due.length === ERASURES_MAX);
    });
  },
  dryRun: async (context, client) => {
    const due = await dueErasures(client, context.now(), ERASURES_MAX);
    const rows = due.length + (await countVanished(client));
    return rows === 0 ? [] : [{ reason: 'asked for', class: 'erasure', rows }];
  },
};

async function shareRun(
  { bounds, signal }: JobContext,
  runs: readonly ErasureRun[],
  moreErasures: boolean,
): Promise<JobResult> {
  let waiting = [...runs];
  let left = bounds.batches;
  let completed = 0;
  let idleSince: number | undefined;
  const changed = () => runs.reduce((sum, run) => sum + run.changed, 0);
  while (waiting.length > 0) {
    const outcomes = new Map<ErasureRun, Outcome>();
    for (const run of waiting) {
      if (left <= 0 || signal.aborted) return { changed: changed(), more: true };
      const budget = { left: Math.min(left, SHARE_BATCHES), signal };
      const given = budget.left;
      const outcome = await run.advance(budget);
      outcomes.set(run, outcome);
      left -= Math.max(outcome === 'patient' ? 0 : 1, given - budget.left);
    }
    const are = (outcome: Outcome) => waiting.filter((run) => outcomes.get(run) === outcome);
    completed += are('completed').length;
    if (are('completed').length + are('more').length > 0) idleSince = undefined;
    else idleSince ??= performance.now();
    waiting = [...are('more'), ...are('patient')];
    if (idleSince === undefined || waiting.length === 0) continue;
    if (performance.now() - idleSince > PATIENCE_MS) break;
    await delay(LOOK_MS, undefined, { signal }).catch(() => undefined);
  }
  // The next run takes them last: many that wait for one follower do not hold up those of another community.
  for (const run of waiting) await run.rest();
  // When nothing has moved, the rest waits for the next minute.
  return { changed: changed(), more: moreErasures && (completed > 0 || changed() > 0) };
}
