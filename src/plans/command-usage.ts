/** The command `minato usage`: what members used of their plans, by day. */
import { Command, InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { oneOf, printAll, pubkeyArgument } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { DAILY_METRICS, type DailyMetric } from './rules.js';
import { dayFrom, dayText, listUsage } from './usage.sql.js';

interface Chosen {
  readonly community: string;
  readonly metric?: DailyMetric;
  readonly day?: number;
}

export function usageCommand(): Command {
  return new Command('usage')
    .description('what members used of their plans, by day, newest first')
    .argument('[pubkey]', 'only this member: hex or npub', pubkeyArgument)
    .option(...COMMUNITY_OPTION)
    .option('--metric <metric>', DAILY_METRICS.join(', '), oneOf(DAILY_METRICS))
    .option('--day <day>', 'only this day, such as 2031-05-17, UTC', dayArgument)
    .addHelpText(
      'after',
      `
Examples:
  $ minato usage --metric search --day 2031-05-17
  $ minato usage npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6`,
    )
    .action((pubkey: string | undefined, { community: slug, metric, day }: Chosen) =>
      withCommunity(slug, ({ database }, { id }) =>
        printAll(
          (page) => listUsage(database.pool, { community: id, pubkey, metric, day }, page),
          (row) => `${dayText(row.day)}  ${row.pubkey}  ${row.metric.padEnd(7)}  ${row.used}`,
          'no usage',
        ),
      ),
    );
}

function dayArgument(text: string): number {
  if (!z.iso.date().safeParse(text).success) throw new InvalidArgumentError('use a day such as 2031-05-17.');
  return dayFrom(text);
}
