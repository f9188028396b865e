import { Command } from 'commander';
import { addOperator, listOperators, removeOperator } from '../store/operators.js';
import { granted, printAll, pubkeyArgument, timeText } from './answers.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';

export function operatorsCommand(): Command {
  const operators = new Command('operators').description(
    'who runs a community, beside those of MINATO_ADMIN_PUBKEYS, who run all of them',
  );
  operators
    .command('list', { isDefault: true })
    .description('show them')
    .option(...COMMUNITY_OPTION)
    .action(({ community: slug }: { community: string }) =>
      withCommunity(slug, async ({ database, config }, { id }) => {
        for (const pubkey of config.adminPubkeys) {
          process.stdout.write(`${pubkey}  set by MINATO_ADMIN_PUBKEYS\n`);
        }
        await printAll(
          (page) => listOperators(database.pool, id, page),
          ({ pubkey, addedBy, createdAt }) =>
            `${pubkey}  added ${timeText(createdAt)} by ${addedBy ?? 'the command line'}`,
          'no operator was added',
        );
      }),
    );
  operators
    .command('add')
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .description('let a key approve requests and change topics, members and settings of a community')
    .option(...COMMUNITY_OPTION)
    .addHelpText(
      'after',
      `
Examples:
  $ minato operators add npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 -c art`,
    )
    .action((pubkey: string, { community: slug }: { community: string }) =>
      withCommunity(slug, async ({ database, config }, { id }) => {
        const fixed = { fixed: config.adminPubkeys };
        granted(await addOperator(database.pool, { community: id, pubkey }, fixed, Date.now()));
        process.stdout.write(`${pubkey} is an operator of ${slug}\n`);
      }),
    );
  operators
    .command('remove')
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .description('take that back; on every instance within a second')
    .option(...COMMUNITY_OPTION)
    .action((pubkey: string, { community: slug }: { community: string }) =>
      withCommunity(slug, async ({ database, config }, { id }) => {
        const fixed = { fixed: config.adminPubkeys };
        granted(await removeOperator(database.pool, { community: id, pubkey }, fixed, Date.now()));
        process.stdout.write(`${pubkey} is no longer an operator of ${slug}\n`);
      }),
    );
  return operators;
}
