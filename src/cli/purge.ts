import { Command } from 'commander';
import { JOBS } from '../jobs/list.js';
import { runNow, showDryRun, withJobs } from './jobs.js';

export function purgeCommand(): Command {
  return new Command('purge')
    .description('take out of the database now what its time is over for; the node does the same by itself')
    .option('--dry-run', 'only print what would go: job, reason, class, rows')
    .option('--json', 'with --dry-run: as JSON')
    .addHelpText(
      'after',
      `
Nothing goes that the schedule would not take as well: expired events, deleted ones after deletion.auditDays, what
belongs to those who vanished, and the ids of events long gone. "minato jobs" shows the schedule.`,
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
