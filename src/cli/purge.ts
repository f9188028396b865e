import { Command } from 'commander';
import { BOUNDS } from '../jobs/job.js';
import { JOBS } from '../jobs/list.js';
import { COUNT_MAX, TOPIC_ROWS_MAX } from '../store/sweeps.js';
import { runNow, showDryRun, withJobs } from './jobs.js';
import { count } from './progress.js';

export function purgeCommand(): Command {
  return new Command('purge')
    .description('take out of the database now what its time is over for; the node does the same by itself')
    .option('--dry-run', 'only print what would go: job, reason, class, rows; for events also by topic')
    .option('--json', 'with --dry-run: as JSON')
    .addHelpText(
      'after',
      `
Nothing goes that the schedule would not take as well: expired events, deleted ones after deletion.auditDays, what
belongs to those who vanished, and the ids of events long gone. "minato jobs" shows the schedule.

A dry run changes nothing and is bounded: rows are counted along an index, up to ${count(COUNT_MAX)} for each reason; topics are read
from the first ${count(TOPIC_ROWS_MAX)} of them; retention and capacity look at ${count(BOUNDS.rows * BOUNDS.batches)} events. An event with two topics counts in both.`,
    )
    .action((options: { dryRun?: boolean; json?: boolean }) =>
      withJobs(async (context) => {
        const purging = JOBS.filter((job) => job.purges);
        if (options.dryRun) return showDryRun(purging, context, options.json);
        for (const job of purging) {
          if (!context.signal.aborted) await runNow(job, context);
        }
      }),
    );
}
