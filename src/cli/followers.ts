import { Command, InvalidArgumentError } from 'commander';
import { FOLLOWER_LIMIT_SECONDS, FOLLOWER_NAME, FOLLOWER_NAME_RULE } from '../core/follower.js';
import { type Follower, listFollowers, registerFollower, removeFollower } from '../store/followers.js';
import { granted, timeText } from './answers.js';
import { lagText } from './consumer-words.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';
import { followerProblem } from './follower-words.js';
import { count } from './progress.js';

const EXAMPLES = `
A follower is a service outside of the node that follows the outbox of a community and acknowledges what it has taken in. An erasure waits for
it, up to its time limit; then it goes on, and its certificate names the follower. docs/outbox.md is for authors of such services.

Examples:
  $ minato followers                            all of them, and how far behind each is
  $ minato followers register index -c art      as the service itself does over the API
  $ minato followers remove index -c art        no erasure waits for it any more`;

export function followersCommand(): Command {
  const command = new Command('followers')
    .description('services outside that follow the outbox: how far behind, last seen; remove one')
    .addHelpText('after', EXAMPLES);
  command
    .command('list', { isDefault: true })
    .description('show them, of every community')
    .option('--json', 'as JSON')
    .action(({ json = false }: { json?: boolean }) =>
      withCommunity('default', async ({ database }) => {
        const all = await listFollowers(database.pool, undefined, Date.now());
        if (json) process.stdout.write(`${JSON.stringify(all, null, 2)}\n`);
        else process.stdout.write(all.length === 0 ? 'there are no followers\n' : all.map(linesOf).join(''));
      }),
    );
  command
    .command('register')
    .argument('<name>', FOLLOWER_NAME_RULE, nameArgument)
    .description('register one, or change its time limit')
    .option(...COMMUNITY_OPTION)
    .option('--limit-seconds <seconds>', 'how long an erasure waits for it', limitArgument)
    .action((name: string, { community, limitSeconds }: { community: string; limitSeconds?: number }) =>
      withCommunity(community, async ({ database }, { id }) => {
        const asked = { community: id, name, limitSeconds };
        process.stdout.write(linesOf(granted(await registerFollower(database.pool, asked, Date.now()))));
      }),
    );
  command
    .command('remove')
    .argument('<name>', 'which one', nameArgument)
    .description('no erasure waits for it any more')
    .option(...COMMUNITY_OPTION)
    .action((name: string, { community }: { community: string }) =>
      withCommunity(community, async ({ database }, { id, slug }) => {
        granted(await removeFollower(database.pool, { community: id, name }, Date.now()));
        process.stdout.write(
          `${name} is no follower of ${slug} any more; what it holds is yours to delete\n`,
        );
      }),
    );
  return command;
}

/** Under its line what is wrong with it, and what to do. */
function linesOf(follower: Follower): string {
  const { slug, name, acknowledgedSeq, headSeq, seenAt, limitSeconds } = follower;
  const problem = followerProblem(follower);
  const line = [
    slug.padEnd(12),
    name.padEnd(20),
    lagText(follower).padEnd(18),
    `at ${count(acknowledgedSeq)} of ${count(headSeq)}`.padEnd(24),
    `seen ${timeText(seenAt)}`,
    `limit ${count(limitSeconds)} s`,
  ].join('  ');
  return `${line}\n${problem === undefined ? '' : `  ${problem.text}\n  → ${problem.advice}\n`}`;
}

function nameArgument(text: string): string {
  if (!FOLLOWER_NAME.test(text)) throw new InvalidArgumentError(`use ${FOLLOWER_NAME_RULE}.`);
  return text;
}

function limitArgument(text: string): number {
  const seconds = Number(text);
  const { min, max } = FOLLOWER_LIMIT_SECONDS;
  if (!/^\d+$/.test(text) || seconds < min || seconds > max)
    throw new InvalidArgumentError(`a number of seconds from ${min} to ${max} is needed.`);
  return seconds;
}
