import { Command, InvalidArgumentError } from 'commander';
import { DAY_MS } from '../core/retention.js';
import { isTopicId } from '../core/topic-id.js';
import { createInvite, type Invite, listInvites, revokeInvite } from '../store/invites.js';
import { granted, printAll, timeText } from './answers.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';

const DAYS_MAX = 3_650;

export function invitesCommand(): Command {
  const invites = new Command('invites').description(
    'codes that let one request be approved at once, while subscription.autoApproval is "invite"',
  );
  invites
    .command('list', { isDefault: true })
    .description('show them, the newest first; a code is shown only when it is made')
    .option(...COMMUNITY_OPTION)
    .action(({ community: slug }: { community: string }) =>
      withCommunity(slug, ({ database }, { id }) =>
        printAll((page) => listInvites(database.pool, id, page), lineOf, 'there are no invites'),
      ),
    );
  invites
    .command('create')
    .description('make one and show its code, once')
    .option(...COMMUNITY_OPTION)
    .option('--topic <topic-id>', 'the only topic that it is good for; any without it')
    .option('--days <days>', 'how long it is good', days, 7)
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
    .description('make one worthless that is not used yet')
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
      throw new Error(`"${topic}" is no topic id; one looks like ${namespace}:global`);
    }
    const now = Date.now();
    const wanted = { community: id, topic, expiresAt: now + options.days * DAY_MS };
    const { invite, code } = granted(await createInvite(database.pool, wanted, now));
    process.stdout.write(`${lineOf(invite)}\ncode: ${code}\n`);
    if (settings['subscription.autoApproval'] !== 'invite') {
      process.stderr.write(
        `It approves nothing until: minato settings set subscription.autoApproval invite -c ${slug}\n`,
      );
    }
  });
}

function days(text: string): number {
  const count = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (count < 1 || count > DAYS_MAX) {
    throw new InvalidArgumentError(`a whole number from 1 to ${DAYS_MAX} is needed.`);
  }
  return count;
}

function lineOf(invite: Invite): string {
  return `${invite.inviteId}  ${invite.topic ?? 'any topic'}  ${stateOf(invite)}`;
}

function stateOf({ usedBy, usedAt, revokedAt, expiresAt }: Invite): string {
  if (usedAt !== null) return `used ${timeText(usedAt)} by ${usedBy}`;
  if (revokedAt !== null) return `revoked ${timeText(revokedAt)}`;
  return expiresAt <= Date.now() ? `ended ${timeText(expiresAt)}` : `good until ${timeText(expiresAt)}`;
}
