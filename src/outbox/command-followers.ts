import { Command, InvalidArgumentError } from 'commander';
import { granted, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { count } from '../cli/progress.js';
import { lagText } from './consumers/words.js';
import { followerProblem } from './follower-words.js';
import { type Follower, listFollowers, registerFollower, removeFollower } from './followers.sql.js';
import { FOLLOWER_LIMIT_SECONDS, FOLLOWER_NAME, FOLLOWER_NAME_RULE } from './rules-follower.js';

const EXAMPLES = `
A follower is an external service that reads the outbox of a community and acknowledges what it has applied.
An erasure waits for it, up to its time limit. Then the erasure continues without it, and its certificate
names the follower. docs/outbox.md is for authors of such services.

Examples:
  $ minato followers                            all followers and their lag
  $ minato followers register index -c art      the service can do the same through the API
  $ minato followers remove index -c art        no erasure waits for it any more`;

export function followersCommand(): Command {
  const command = new Command('followers')
    .description('external services that follow the outbox: lag, last seen; register or remove one')
    .addHelpText('after', EXAMPLES);
  command
    .command('list', { isDefault: true })
    .description('show the followers of every community')
    .option('--json', 'print JSON')
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
    .description('register a follower, or change its time limit')
    .option(...COMMUNITY_OPTION)
    .option('--limit-seconds <seconds>', 'how long an erasure waits for it', limitArgument)
    .action((name: string, { community, limitSeconds }: { community: string; limitSeconds?: number }) =>
      withCommunity(community, async ({ database }, { id }) => {
        const registration = { community: id, name, limitSeconds };
        process.stdout.write(
          linesOf(granted(await registerFollower(database.pool, registration, Date.now()))),
        );
      }),
    );
  command
    .command('remove')
    .argument('<name>', 'the name of the follower', nameArgument)
    .description('remove a follower; no erasure waits for it any more')
    .option(...COMMUNITY_OPTION)
    .action((name: string, { community }: { community: string }) =>
      withCommunity(community, async ({ database }, { id, slug }) => {
        granted(await removeFollower(database.pool, { community: id, name }, Date.now()));
        process.stdout.write(
          `${name} is no longer a follower of ${slug}; delete its copy of the events yourself\n`,
        );
      }),
    );
  return command;
}

/** A line, and below it the problem and what to do about it. */
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
    throw new InvalidArgumentError(`must be a number of seconds from ${min} to ${max}.`);
  return seconds;
}
