import { Command } from 'commander';
import { JOBS } from '../jobs/list.js';
import { COUNT_MAX } from '../store/sweeps.js';
import { type Ran, runNow, runWithConsumers, showDryRun, withJobs } from './jobs.js';
import { count } from './progress.js';

export function purgeCommand(): Command {
  return new Command('purge')
    .description('take out of the database now what its time is over for; the node does the same by itself')
    .option('--dry-run', 'only print what would go: job, reason, class, rows; for events also by topic')
    .option(
      '--json',
      'with --dry-run: what would go, as JSON; with --yes: purges, and prints what was purged',
    )
    .option('--yes', 'purge; needed with --json, which could be taken for a report')
    .addHelpText(
      'after',
      `
Nothing goes that the schedule would not take as well: expired events, deleted ones after deletion.auditDays, what is past its
retention, what belongs to those who vanished, and the ids of events long gone. "minato jobs" shows the schedule.

A dry run changes nothing. It counts job after job what each would take when those before it are done, so that a purge right after it
takes just that; an event with two topics counts in both. It reads up to ${count(COUNT_MAX)} events for each reason. Erasures are counted as
such: what each takes from the stores is not told apart.`,
    )
    .action((options: { dryRun?: boolean; json?: boolean; yes?: boolean }) => {
      if (options.json && !options.dryRun && !options.yes)
        throw new Error(
          'with --json, say which is meant: --dry-run prints what would go, --yes purges and prints what was purged',
        );
      return withJobs(async (context) => {
        const purging = JOBS.filter((job) => job.purges);
        if (options.dryRun) return showDryRun(purging, context, options.json);
        const ran: Ran[] = [];
        for (const job of purging) {
          if (context.signal.aborted) break;
          if (options.json) ran.push(await runWithConsumers(job, context));
          else await runNow(job, context);
        }
        if (options.json) process.stdout.write(`${JSON.stringify(ran, null, 2)}\n`);
      });
    });
}
