/** The command `minato members`: lists members, and changes their status or name. */
import { Command, InvalidArgumentError } from 'commander';
import { granted, oneOf, printAll, pubkeyArgument, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { listSubscriptions } from '../topics/subscriptions.sql.js';
import { changeMember, listMembers, type Member, readMember } from './members.sql.js';
import { MEMBER_NAME, MEMBER_NAME_WORDS, MEMBER_STATUSES, type MemberStatus } from './rules.js';

export function membersCommand(): Command {
  const members = new Command('members').description(
    'show members; disable, enable, delete or name a member',
  );
  members
    .command('list', { isDefault: true })
    .description('show the members and how many requests and subscriptions each has')
    .option(...COMMUNITY_OPTION)
    .option('--status <status>', MEMBER_STATUSES.join(', '), oneOf(MEMBER_STATUSES))
    .addHelpText(
      'after',
      `
Examples:
  $ minato members
  $ minato members list --status disabled -c art`,
    )
    .action(({ community: slug, status }: { community: string; status?: MemberStatus }) =>
      withCommunity(slug, ({ database }, { id }) =>
        printAll(
          (page) => listMembers(database.pool, { community: id, status }, page),
          lineOf,
          status === undefined ? 'no members yet' : `no member is ${status}`,
        ),
      ),
    );
  members
    .command('show')
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .description('show one member and the topics that the member subscribes to')
    .option(...COMMUNITY_OPTION)
    .addHelpText(
      'after',
      `
Examples:
  $ minato members show npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6`,
    )
    .action((pubkey: string, { community: slug }: { community: string }) => show(pubkey, slug));
  for (const each of CHANGES) members.addCommand(changeCommand(each));
  members.addCommand(nameCommand());
  return members;
}

interface StatusChange {
  readonly name: string;
  readonly status: MemberStatus;
  readonly about: string;
}

const CHANGES: readonly StatusChange[] = [
  {
    name: 'disable',
    status: 'disabled',
    about: 'stop a member from posting and from requesting topics; subscriptions are paused',
  },
  {
    name: 'enable',
    status: 'active',
    about: 'enable a disabled member; the subscriptions become active again',
  },
  {
    name: 'delete',
    status: 'deleted',
    about: 'end the membership of a key for good; its events stay',
  },
];

function changeCommand({ name, status, about }: StatusChange): Command {
  return new Command(name)
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .description(about)
    .option(...COMMUNITY_OPTION)
    .option('--note <text>', 'why; shown to operators')
    .addHelpText(
      'after',
      `
Examples:
  $ minato members ${name} npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 --note agreed`,
    )
    .action((pubkey: string, { community: slug, note }: { community: string; note?: string }) =>
      withCommunity(slug, async ({ database, config }, { id }) => {
        const change = { community: id, pubkey, status, note };
        const fixed = { fixed: config.adminPubkeys };
        const member = granted(await changeMember(database.pool, change, fixed, Date.now()));
        process.stdout.write(`${lineOf(member)}\n`);
      }),
    );
}

function nameCommand(): Command {
  return new Command('name')
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .argument('[name]', MEMBER_NAME_WORDS, nameArgument)
    .description('give a member a NIP-05 name; without <name>, remove the name')
    .option(...COMMUNITY_OPTION)
    .addHelpText(
      'after',
      `
The name is found at /.well-known/nostr.json?name=… under the host name of the community.

Examples:
  $ minato members name npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 alice
  $ minato members name npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6`,
    )
    .action((pubkey: string, name: string | undefined, { community: slug }: { community: string }) =>
      withCommunity(slug, async ({ database, config }, { id }) => {
        const change = { community: id, pubkey, name: name ?? null };
        const fixed = { fixed: config.adminPubkeys };
        const member = granted(await changeMember(database.pool, change, fixed, Date.now()));
        process.stdout.write(`${lineOf(member)}\n`);
      }),
    );
}

function nameArgument(text: string): string {
  if (!MEMBER_NAME.test(text)) throw new InvalidArgumentError(`${MEMBER_NAME_WORDS} are allowed.`);
  return text;
}

async function show(pubkey: string, slug: string): Promise<void> {
  await withCommunity(slug, async ({ database }, { id }) => {
    const member = await readMember(database.pool, id, pubkey);
    if (member === undefined) throw new Error(`${pubkey} is not a member of ${slug}`);
    process.stdout.write(`${lineOf(member)}\n`);
    await printAll(
      (page) => listSubscriptions(database.pool, { community: id, pubkey }, page),
      ({ topic, status, startedAt, endedAt }) =>
        `  ${status.padEnd(7)} ${topic}  since ${timeText(startedAt)}` +
        `${endedAt === null ? '' : ` until ${timeText(endedAt)}`}`,
      '  no subscriptions',
    );
  });
}

function lineOf({ pubkey, status, pending, active, paused, createdAt, note, name, leftAt }: Member): string {
  const counts = `${pending} pending, ${active} active, ${paused} paused`;
  const more = `${name === null ? '' : `  ${name}`}${leftAt === null ? '' : `  left ${timeText(leftAt)}`}`;
  const noted = note === null ? '' : `  ${JSON.stringify(note)}`;
  return `${pubkey}  ${status.padEnd(8)}  since ${timeText(createdAt)}  ${counts}${more}${noted}`;
}
