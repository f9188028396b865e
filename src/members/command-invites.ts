/** The command `minato invites`: lists, makes and revokes invites. */
import { Command, InvalidArgumentError } from 'commander';
import { granted, printAll, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { DAY_MS } from '../events/rules/retention.js';
import { isTopicId } from '../topics/rules-id.js';
import { createInvite, type Invite, listInvites, revokeInvite } from './invites.sql.js';

const DAYS_MAX = 3_650;

export function invitesCommand(): Command {
  const invites = new Command('invites').description(
    'codes that approve one request at once, while subscription.autoApproval is "invite"',
  );
  invites
    .command('list', { isDefault: true })
    .description('show the invites, newest first; a code is shown only when it is made')
    .option(...COMMUNITY_OPTION)
    .action(({ community: slug }: { community: string }) =>
      withCommunity(slug, ({ database }, { id }) =>
        printAll((page) => listInvites(database.pool, id, page), lineOf, 'no invites'),
      ),
    );
  invites
    .command('create')
    .description('make an invite and show its code once')
    .option(...COMMUNITY_OPTION)
    .option('--topic <topic-id>', 'limit the invite to this topic; default: any topic')
    .option('--days <days>', 'how long it is valid', days, 7)
    .addHelpText(
      'after',
      `
Examples:
  $ minato settings set subscription.autoApproval invite
  $ minato invites create --days 3
  $ minato invites create --topic kukuri:global -c art`,
    )
    .action(create);
  invites
    .command('revoke <invite-id>')
    .description('revoke an invite that was not used yet')
    .option(...COMMUNITY_OPTION)
    .action((inviteId: string, { community: slug }: { community: string }) =>
      withCommunity(slug, async ({ database }, { id }) => {
        const invite = granted(await revokeInvite(database.pool, { community: id, inviteId }, Date.now()));
        process.stdout.write(`${lineOf(invite)}\n`);
      }),
    );
  return invites;
}

async function create(options: { community: string; topic?: string; days: number }): Promise<void> {
  const { community: slug, topic } = options;
  await withCommunity(slug, async ({ database }, { id, settings }) => {
    const namespace = settings['topic.namespace'];
    if (topic !== undefined && !isTopicId(topic, namespace)) {
      throw new Error(`"${topic}" is not a topic id; an example is ${namespace}:global`);
    }
    const now = Date.now();
    const wanted = { community: id, topic, expiresAt: now + options.days * DAY_MS };
    const { invite, code } = granted(await createInvite(database.pool, wanted, now));
    process.stdout.write(`${lineOf(invite)}\ncode: ${code}\n`);
    if (settings['subscription.autoApproval'] !== 'invite') {
      process.stderr.write(
        `It approves nothing yet. Run: minato settings set subscription.autoApproval invite -c ${slug}\n`,
      );
    }
  });
}

function days(text: string): number {
  const count = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (count < 1 || count > DAYS_MAX) {
    throw new InvalidArgumentError(`use a whole number from 1 to ${DAYS_MAX}.`);
  }
  return count;
}

function lineOf(invite: Invite): string {
  return `${invite.inviteId}  ${invite.topic ?? 'any topic'}  ${stateOf(invite)}`;
}

function stateOf({ usedBy, usedAt, revokedAt, expiresAt }: Invite): string {
  if (usedAt !== null) return `used ${timeText(usedAt)} by ${usedBy}`;
  if (revokedAt !== null) return `revoked ${timeText(revokedAt)}`;
  return expiresAt <= Date.now() ? `expired ${timeText(expiresAt)}` : `valid until ${timeText(expiresAt)}`;
}
