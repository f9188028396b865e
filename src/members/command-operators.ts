/** The command `minato operators`: lists, gives, changes and takes away roles in a community. */
import { Command } from 'commander';
import { granted, oneOf, printAll, pubkeyArgument, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { linkCommand } from './command-link.js';
import { addOperator, listOperators, removeOperator } from './operators.sql.js';
import { ROLES, type Role } from './rules-roles.js';

export function operatorsCommand(): Command {
  const operators = new Command('operators').description(
    'roles in a community; those in MINATO_ADMIN_PUBKEYS are operators of every community',
  );
  operators
    .command('list', { isDefault: true })
    .description('show them')
    .option(...COMMUNITY_OPTION)
    .action(({ community: slug }: { community: string }) =>
      withCommunity(slug, async ({ database, config }, { id }) => {
        for (const pubkey of config.adminPubkeys) {
          process.stdout.write(`${pubkey}  operator, set by MINATO_ADMIN_PUBKEYS\n`);
        }
        await printAll(
          (page) => listOperators(database.pool, id, page),
          ({ pubkey, role, addedBy, createdAt }) =>
            `${pubkey}  ${role}, added ${timeText(createdAt)} by ${addedBy ?? 'the command line'}`,
          'no added operators',
        );
      }),
    );
  operators
    .command('add')
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .description('give a key a role in a community, or change its role; takes effect at once')
    .option(
      '--role <role>',
      'viewer (reads), moderator (also reports, cases and labels) or operator (everything); ' +
        'by default operator, or the role that the key has',
      oneOf(ROLES),
    )
    .option(...COMMUNITY_OPTION)
    .addHelpText(
      'after',
      `
Examples:
  $ minato operators add npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 -c art
  $ minato operators add npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 --role moderator`,
    )
    .action((pubkey: string, { community: slug, role }: { community: string; role?: Role }) =>
      withCommunity(slug, async ({ database, config }, { id }) => {
        const fixed = { fixed: config.adminPubkeys };
        const given = { community: id, pubkey, role };
        const added = granted(await addOperator(database.pool, given, fixed, Date.now()));
        process.stdout.write(`${pubkey} has the role ${added.role} in ${slug}\n`);
      }),
    );
  operators
    .command('remove')
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .description('take the role of a key away; takes effect at once')
    .option(...COMMUNITY_OPTION)
    .action((pubkey: string, { community: slug }: { community: string }) =>
      withCommunity(slug, async ({ database, config }, { id }) => {
        const fixed = { fixed: config.adminPubkeys };
        granted(await removeOperator(database.pool, { community: id, pubkey }, fixed, Date.now()));
        process.stdout.write(`${pubkey} has no role in ${slug} any more\n`);
      }),
    );
  operators.addCommand(linkCommand());
  return operators;
}
