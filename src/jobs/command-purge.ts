import { Command } from 'commander';
import { count } from '../cli/progress.js';
import { COUNT_MAX } from '../events/postgres/sweeps.js';
import { PREVIEWED_MAX } from '../events/store.js';
import { type Ran, runNow, runWithConsumers, showDryRun, withJobs } from './command.js';
import { jobsIn } from './list.js';

export function purgeCommand(): Command {
  return new Command('purge')
    .description('purge now what is due; the node does the same on its schedule')
    .option(
      '--dry-run',
      'only print what would be purged: job, reason, class, rows; for events also by topic',
    )
    .option('--json', 'print JSON: with --dry-run what would be purged, with --yes what was purged')
    .option('--yes', 'purge; required with --json, which could be taken for a report')
    .addHelpText(
      'after',
      `
It purges only what the scheduled jobs purge as well: expired events, deleted events after
deletion.auditDays, events past their retention, data of vanished members, and old ids of purged events.
"minato jobs" shows the schedule.

A dry run changes nothing. It counts for each job what it would purge after the jobs before it, so that a
purge right after it gives the same numbers. An event with two topics counts in both. It reads up to
${count(COUNT_MAX)} events for each reason, of events in DynamoDB ${count(PREVIEWED_MAX)}.
It counts erasures, not the rows that each erasure deletes.`,
    )
    .action((options: { dryRun?: boolean; json?: boolean; yes?: boolean }) => {
      if (options.json && !options.dryRun && !options.yes)
        throw new Error(
          '--json needs --dry-run, which prints what would be purged, ' +
            'or --yes, which purges and prints what was purged',
        );
      return withJobs(async (context, { eventStore }) => {
        const purging = jobsIn(eventStore).filter((job) => job.purges);
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
