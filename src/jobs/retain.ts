/**
 * Retention: announces regular events that are past their days and purges them, moves those whose rules have changed to their
 * bucket, and drops the months in which nothing is left. The sweep walks on from where its last run stopped, so that
 * what is kept longer does not stand in the way of what is not.
 */
import type { Client } from 'pg';
import { type NostrEvent, serializeEvent } from '../core/event.js';
import { dropPartitions, moveRows, SWEEP_ROWS_MAX, type SweepStep, sweepStep } from '../store/keeping.js';
import { fixTagHashSeed, readCursor, writeCursor } from '../store/node-state.js';
import { ensurePartitionsOf } from '../store/partitions.js';
import { COUNT_MAX } from '../store/sweeps.js';
import { createTagHash } from '../store/tag-hash.js';
import type { WouldGo } from '../store/would-go.js';
import type { DryRunCount, Job, JobContext, JobResult } from './job.js';
import { Tally } from './tally.js';

const CURSOR = 'retention_cursor';
/** SQLSTATE of a row that no partition takes. */
const NO_PARTITION = '23514';

const rulesOf = ({ communities }: JobContext) =>
  new Map(communities.all().map((community) => [community.id, community]));

export const retain: Job = {
  name: 'retain',
  cron: '* * * * *',
  about: 'announces regular events that are past the days of their topics, and purges them',
  purges: true,
  run: async (context, client): Promise<JobResult> => {
    const tagHash = await createTagHash(await fixTagHashSeed(client));
    const rules = rulesOf(context);
    let after: number | undefined = context.fromStart ? 0 : await readCursor(client, CURSOR);
    let changed = 0;
    for (let done = 0; done < context.bounds.batches && after !== undefined; done += 1) {
      if (context.signal.aborted) break;
      const from: number = after;
      let step: SweepStep | undefined;
      const sweep = () =>
        context.lane.hide({
          hidden: 'retention',
          purge: true,
          select: async (session, now) => {
            step = await sweepStep(session, from, rules, now);
            await moveRows(session, step.misplaced, tagHash);
            return [...step.aged];
          },
        });
      changed += await sweep().catch(async (error: { code?: string }) => {
        if (error.code !== NO_PARTITION) throw error;
        const moved = step?.misplaced ?? [];
        await ensurePartitionsOf(
          client,
          moved.map(({ row, to }) => ({ keep: to, ingestedAt: row.ingestedAt })),
        );
        return sweep();
      });
      changed += step?.misplaced.length ?? 0;
      after = step?.next;
      await writeCursor(client, CURSOR, after ?? 0);
    }
    return { changed, more: after !== undefined };
  },
  /** Looks with the same eyes, from the start, as a run by command does. */
  dryRun: async (context, client, gone): Promise<DryRunCount[]> => {
    const tally = new Tally();
    let after: number | undefined = 0;
    for (let looked = 0; looked < COUNT_MAX && after !== undefined; looked += SWEEP_ROWS_MAX) {
      const step: SweepStep = await sweepStep(client, after, rulesOf(context), context.now());
      const going = (await gone.left(step.aged)).map((row) => ({ ...row, bytes: bytesOf(row.event) }));
      for (const { event } of going) tally.addEvent(event);
      await gone.take(going, { served: true });
      const moving = await gone.left(step.misplaced);
      await gone.move(moving.map(({ row, to }) => ({ ...row, keep: to })));
      after = step.next;
    }
    return tally.counts('retention');
  },
};

/** As it is stored. */
const bytesOf = (event: NostrEvent) => Buffer.byteLength(serializeEvent(event));

async function drop(context: JobContext, client: Client, dryRun: false | WouldGo): Promise<string[]> {
  return dropPartitions(client, context.now(), dryRun);
}

export const dropMonths: Job = {
  name: 'drop-months',
  cron: '17 * * * *',
  about: 'drops the months in which nothing is left',
  purges: true,
  run: async (context, client) => ({ changed: (await drop(context, client, false)).length, more: false }),
  dryRun: async (context, client, gone) => {
    const rows = (await drop(context, client, gone)).length;
    return rows === 0 ? [] : [{ reason: 'drop', class: 'partition', rows }];
  },
};
