/**
 * Retention: announces regular events that are past their days and purges them, moves those whose rules have changed to their
 * bucket, and drops the months and outbox ranges in which nothing is left. The sweep walks on from where its last run stopped, so that
 * what is kept longer does not stand in the way of what is not.
 */
import type { Client } from 'pg';
import type { Community } from '../communities.js';
import { cutoff } from '../core/retention.js';
import { dropPartitions, moveRows, type SweepStep, sweepStep } from '../store/keeping.js';
import { fixTagHashSeed, readCursor, writeCursor } from '../store/node-state.js';
import { dropOutboxRanges } from '../store/outbox.js';
import { ensurePartitionsOf } from '../store/partitions.js';
import { createTagHash } from '../store/tag-hash.js';
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
    let after: number | undefined = await readCursor(client, CURSOR);
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
  /** Looks with the same eyes, and changes nothing. */
  dryRun: async (context, client): Promise<DryRunCount[]> => {
    const tally = new Tally();
    let after: number | undefined = 0;
    for (let done = 0; done < context.bounds.batches && after !== undefined; done += 1) {
      const step: SweepStep = await sweepStep(client, after, rulesOf(context), context.now());
      for (const { event } of step.aged) tally.addEvent(event);
      after = step.next;
    }
    return tally.counts('retention');
  },
};

/** The longest of the communities' days: a partition holds rows of all of them. */
function longest(context: JobContext, days: (community: Community) => number): number {
  const all = context.communities.all().map(days);
  return all.includes(0) ? 0 : Math.max(0, ...all);
}

async function drop(context: JobContext, client: Client, dryRun: boolean): Promise<string[]> {
  const now = context.now();
  const outboxDays = longest(context, ({ settings }) => settings['retention.outboxDays']);
  return [
    ...(await dropPartitions(client, now, dryRun)),
    ...(await dropOutboxRanges(client, cutoff(outboxDays, now), dryRun)),
  ];
}

export const dropMonths: Job = {
  name: 'drop-months',
  cron: '17 * * * *',
  about: 'drops the months in which nothing is left, and old ranges of the outbox',
  purges: true,
  run: async (context, client) => ({ changed: (await drop(context, client, false)).length, more: false }),
  dryRun: async (context, client) => {
    const rows = (await drop(context, client, true)).length;
    return rows === 0 ? [] : [{ reason: 'drop', class: 'partition', rows }];
  },
};
