/**
 * Retention: announces regular events that are past their days, moves those whose rules have changed to their bucket, and
 * drops the months in which nothing is left. The sweep walks on from where its last run stopped, so that
 * what is kept longer does not stand in the way of what is not.
 */
import type { Client } from 'pg';
import type { Community } from '../communities.js';
import { type NostrEvent, serializeEvent } from '../core/event.js';
import { dropPartitions, SWEEP_ROWS_MAX, type SweepStep, sweepStep } from '../store/keeping.js';
import { fixTagHashSeed, readCursor, writeCursor } from '../store/node-state.js';
import { ensurePastPartitions } from '../store/partitions.js';
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
  about: 'announces regular events that are past the days of their topics',
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
          purge: false,
          select: async (session, now) => {
            step = await sweepStep(session, from, rules, now, tagHash);
            return [...step.aged];
          },
        });
      changed += await sweep().catch(async (error: { code?: string }) => {
        if (error.code !== NO_PARTITION) throw error;
        const { places } = await sweepStep(client, from, rules, context.now(), undefined);
        await ensurePastPartitions(client, context.now(), places);
        return sweep();
      });
      changed += step?.moved ?? 0;
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
      const step: SweepStep = await sweepStep(client, after, rulesOf(context), context.now(), undefined);
      const going = (await gone.left(step.aged)).map((row) => ({ ...row, bytes: bytesOf(row.event) }));
      for (const { event } of going) tally.addEvent(event);
      await gone.take(going, { served: true });
      const moving = await gone.left(step.places.map((row) => ({ row })));
      await gone.move(moving.map(({ row }) => row));
      after = step.next;
    }
    return tally.counts('retention');
  },
};

/** As it is stored. */
const bytesOf = (event: NostrEvent) => Buffer.byteLength(serializeEvent(event));

/** The longest of the communities' days: a partition holds rows of all of them. */
function longest(context: JobContext, days: (community: Community) => number): number {
  const all = context.communities.all().map(days);
  return all.includes(0) ? 0 : Math.max(0, ...all);
}

async function drop(context: JobContext, client: Client, dryRun: false | WouldGo): Promise<string[]> {
  const options = {
    now: context.now(),
    historyDays: longest(context, ({ settings }) => settings['retention.historyDays']),
    auditDays: longest(context, ({ settings }) => settings['deletion.auditDays']),
  };
  return dropPartitions(client, options, dryRun);
}

export const dropMonths: Job = {
  name: 'drop-months',
  cron: '17 * * * *',
  about: 'drops the months in which nothing is served any more',
  purges: true,
  run: async (context, client) => ({ changed: (await drop(context, client, false)).length, more: false }),
  dryRun: async (context, client, gone) => {
    const rows = (await drop(context, client, gone)).length;
    return rows === 0 ? [] : [{ reason: 'drop', class: 'partition', rows }];
  },
};
