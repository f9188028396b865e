/**
 * Carries erasures out: of members who asked or vanished (NIP-62), and of communities. They take turns, so that a large one does not
 * hold up the small ones; what a run does not finish the next one goes on with.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { withRegistry } from '../erasure/all.js';
import { ErasureRun, type Outcome } from '../erasure/run.js';
import { countVanished, dueErasures, takeUpVanished } from '../store/erasures.js';
import type { Job, JobContext, JobResult } from './job.js';

/** Erasures that one run looks at; the others wait for the next. */
const ERASURES_MAX = 100;
/** Batches of one before the next has its turn. */
const TURN_BATCHES = 20;
/**
 * While all that are left wait for readers of the outbox: how long a run looks whether they have come so far.
 */
const PATIENCE_MS = 2_000;
const LOOK_MS = 100;

export const erase: Job = {
  name: 'erase',
  cron: '* * * * *',
  about: 'erases members and communities from every store, and signs the proof of it',
  purges: true,
  run: async (context, client) => {
    await takeUpVanished(client, context.now(), ERASURES_MAX);
    const due = await dueErasures(client, context.now(), ERASURES_MAX);
    if (due.length === 0) return { changed: 0, more: false };
    const { erasing, database, now, bounds, log } = context;
    return withRegistry(erasing, database, { now, rows: bounds.rows }, ({ registry }) => {
      const runs = due.map((erasure) => new ErasureRun({ ...erasing, registry, now, log }, erasure));
      return takeTurns(context, runs, due.length === ERASURES_MAX);
    });
  },
  dryRun: async (context, client) => {
    const due = await dueErasures(client, context.now(), ERASURES_MAX);
    const rows = due.length + (await countVanished(client));
    return rows === 0 ? [] : [{ reason: 'asked for', class: 'erasure', rows }];
  },
};

async function takeTurns(
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
      const turn = { left: Math.min(left, TURN_BATCHES), signal };
      const given = turn.left;
      const outcome = await run.advance(turn);
      outcomes.set(run, outcome);
      left -= Math.max(outcome === 'patient' ? 0 : 1, given - turn.left);
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
  // Behind the others in the next run: many that wait for one follower do not hold up those of another community.
  for (const run of waiting) await run.rest();
  // Where nothing moves, what is left waits for the next minute.
  return { changed: changed(), more: moreErasures && (completed > 0 || changed() > 0) };
}
