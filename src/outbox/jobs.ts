/**
 * The outbox is kept for `retention.outboxDays`: the longest of all communities, since all share one
 * sequence. A range is dropped once all its rows are older. In a range that takes longer than a day to age,
 * rows are deleted in batches. A reader that is too far behind gets an error (OutboxBehind) and rebuilds. The
 * outbox does not wait for readers: otherwise one that never returns would keep everything.
 */
import { cutoff } from '../events/rules/retention.js';
import { type DryRunCount, inBatches, type Job, type JobContext } from '../jobs/job.js';
import { countTrimmed, dropOutboxRanges, trimOutbox } from './outbox.sql.js';

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
