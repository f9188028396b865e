/**
 * The outbox reaches back `retention.outboxDays`: of all communities the longest, since it is one sequence for all of them. Ranges
 * are dropped once every row of them is older; in a range that takes longer than a day to grow old, rows are deleted in batches.
 * A reader that is behind gets an error (OutboxBehind) and rebuilds: the outbox waits for nobody, or one that never comes back would
 * keep everything.
 */
import { cutoff } from '../core/retention.js';
import { countTrimmed, dropOutboxRanges, trimOutbox } from '../store/outbox.js';
import { type DryRunCount, inBatches, type Job, type JobContext } from './job.js';

function keptFrom({ communities, now }: JobContext): number {
  const days = communities.all().map(({ settings }) => settings['retention.outboxDays']);
  return cutoff(Math.max(1, ...days), now());
}

export const trimOutboxRows: Job = {
  name: 'trim-outbox',
  cron: '19 * * * *',
  fill: '2h',
  about: 'drops ranges and rows of the outbox that are older than retention.outboxDays',
  purges: true,
  run: async (context, client) => {
    const ranges = await dropOutboxRanges(client, keptFrom(context), false);
    const trimmed = await inBatches(context, () =>
      trimOutbox(client, keptFrom(context), context.bounds.rows),
    );
    return { changed: ranges.length + trimmed.changed, more: trimmed.more };
  },
  dryRun: async (context, client) => {
    const ranges = await dropOutboxRanges(client, keptFrom(context), true);
    const counts: DryRunCount[] = [
      { reason: 'old', class: 'partition', rows: ranges.length },
      { reason: 'old', class: 'outbox', rows: await countTrimmed(client, keptFrom(context), ranges) },
    ];
    return counts.filter(({ rows }) => rows > 0);
  },
};
