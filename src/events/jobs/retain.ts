/**
 * Retention: announces regular events past their days and purges them, moves events to another bucket when
 * their rules have changed, and drops empty months. The sweep continues where its last run stopped, so that
 * events with longer retention do not hold up the others.
 */
import type { Client } from 'pg';
import type { DryRunCount, Job, JobContext, JobResult } from '../../jobs/job.js';
import { Tally } from '../../jobs/tally.js';
import { readCursor, writeCursor } from '../../node/state.sql.js';
import type { DryRunState } from '../postgres/dry-run.js';
import { dropPartitions, SWEEP_ROWS_MAX, type SweepStep, sweepStep } from '../postgres/keeping.js';
import { COUNT_MAX } from '../postgres/sweeps.js';
import { type NostrEvent, serializeEvent } from '../rules/event.js';
import type { Swept } from '../store.js';
import { tallyPreviews } from './previewed.js';

const CURSOR = 'retention_cursor';

const rulesOf = ({ communities }: JobContext) =>
  new Map(communities.all().map((community) => [community.id, community]));

export const retain: Job = {
  name: 'retain',
  cron: '* * * * *',
  about: 'announces regular events that are past the days of their topics, and purges them',
  purges: true,
  run: async (context, client): Promise<JobResult> => {
    const rules = rulesOf(context);
    let after: number | undefined = context.fromStart ? 0 : await readCursor(client, CURSOR);
    let changed = 0;
    for (let done = 0; done < context.bounds.batches && after !== undefined; done += 1) {
      if (context.signal.aborted) break;
      const step: Swept = await context.store.sweep({ after, rules });
      changed += step.hidden + step.moved;
      after = step.next;
      await writeCursor(client, CURSOR, after ?? 0);
    }
    return { changed, more: after !== undefined };
  },
  /** Uses the same query, from the start, as a run by command does. */
  dryRun: async (context, client, state): Promise<DryRunCount[]> => {
    const { preview } = context.store;
    if (preview !== undefined)
      return tallyPreviews(preview, state, 'retention', [{ by: 'sweep', rules: rulesOf(context) }]);
    const tally = new Tally();
    let after: number | undefined = 0;
    for (let looked = 0; looked < COUNT_MAX && after !== undefined; looked += SWEEP_ROWS_MAX) {
      const step: SweepStep = await sweepStep(client, after, rulesOf(context), context.now());
      const taken = (await state.left(step.aged)).map((row) => ({ ...row, bytes: bytesOf(row.event) }));
      for (const { event } of taken) tally.addEvent(event);
      await state.take(taken, { served: true });
      const moved = await state.left(step.misplaced);
      await state.move(moved.map(({ row, to }) => ({ ...row, keep: to })));
      after = step.next;
    }
    return tally.counts('retention');
  },
};

/** The size of the stored payload. */
const bytesOf = (event: NostrEvent) => Buffer.byteLength(serializeEvent(event));

async function drop(context: JobContext, client: Client, dryRun: false | DryRunState): Promise<string[]> {
  return dropPartitions(client, context.now(), dryRun);
}

export const dropMonths: Job = {
  name: 'drop-months',
  cron: '17 * * * *',
  about: 'drops the months in which nothing is left',
  purges: true,
  notIn: { dynamodb: 'its tables have no months' },
  run: async (context, client) => ({ changed: (await drop(context, client, false)).length, more: false }),
  dryRun: async (context, client, state) => {
    const rows = (await drop(context, client, state)).length;
    return rows === 0 ? [] : [{ reason: 'drop', class: 'partition', rows }];
  },
};
