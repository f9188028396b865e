import { Command, InvalidArgumentError } from 'commander';
import { MEMBER_NAME, MEMBER_NAME_WORDS, MEMBER_STATUSES, type MemberStatus } from '../core/membership.js';
import { changeMember, listMembers, type Member, readMember } from '../store/members.js';
import { listSubscriptions } from '../store/subscriptions.js';
import { granted, oneOf, printAll, pubkeyArgument, timeText } from './answers.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';

export function membersCommand(): Command {
  const members = new Command('members').description(
    'those who ask for topics: show them, disable, enable or delete them, give them a name',
  );
  members
    .command('list', { isDefault: true })
    .description('show the members, with how many requests and subscriptions they have')
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
          status === undefined ? 'there are no members yet' : `no member is ${status}`,
        ),
      ),
    );
  members
    .command('show')
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .description('show one member and the topics of the subscriptions')
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
    about: 'let a key neither post nor ask; its subscriptions wait',
  },
  { name: 'enable', status: 'active', about: 'take that back; its subscriptions are in force again' },
  {
    name: 'delete',
    status: 'deleted',
    about: 'end everything of a key in this community, for good; its events stay',
  },
];

function changeCommand({ name, status, about }: StatusChange): Command {
  return new Command(name)
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .description(about)
    .option(...COMMUNITY_OPTION)
    .option('--note <text>', 'why; for operators only')
    .addHelpText(
      'after',
      `
Examples:
  $ minato members ${name} npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 --note "as agreed"`,
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
    .description('give a key a name that others find it by (NIP-05); without one, take it away')
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
  if (!MEMBER_NAME.test(text)) throw new InvalidArgumentError(`${MEMBER_NAME_WORDS} are needed.`);
  return text;
}

async function show(pubkey: string, slug: string): Promise<void> {
  await withCommunity(slug, async ({ database }, { id }) => {
    const member = await readMember(database.pool, id, pubkey);
    if (member === undefined) throw new Error(`${pubkey} is no member of ${slug}`);
    process.stdout.write(`${lineOf(member)}\n`);
    await printAll(
      (page) => listSubscriptions(database.pool, { community: id, pubkey }, page),
      ({ topic, status, startedAt, endedAt }) =>
        `  ${status.padEnd(7)} ${topic}  since ${timeText(startedAt)}${endedAt === null ? '' : ` until ${timeText(endedAt)}`}`,
      '  no subscriptions',
    );
  });
}

function lineOf({ pubkey, status, pending, active, paused, createdAt, note, name, leftAt }: Member): string {
  const counts = `${pending} pending, ${active} active, ${paused} paused`;
  const more = `${name === null ? '' : `  ${name}`}${leftAt === null ? '' : `  left ${timeText(leftAt)}`}`;
  return `${pubkey}  ${status.padEnd(8)}  since ${timeText(createdAt)}  ${counts}${more}${note === null ? '' : `  ${JSON.stringify(note)}`}`;
}
