/** The command `minato operators link`: a one-time link that signs a key with a role in to the console. */
import { Command } from 'commander';
import { granted, pubkeyArgument, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { addressesOf, basesOf, toHttp } from '../communities/addresses.js';
import type { Community } from '../communities/communities.js';
import type { Config } from '../node/config.js';
import { makeLink } from '../sessions/links.sql.js';
import type { Role } from './rules-roles.js';

export function linkCommand(): Command {
  return new Command('link')
    .argument('[pubkey]', 'hex or npub; by default the only operator', pubkeyArgument)
    .description('print a link that signs a key with a role in with a browser, once, within ten minutes')
    .option(...COMMUNITY_OPTION)
    .addHelpText(
      'after',
      `
Whoever has the link signs in as this key, so share it with nobody. A new link replaces the one before.

Examples:
  $ minato operators link
  $ minato operators link npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 -c art`,
    )
    .action((named: string | undefined, { community: slug }: { community: string }) =>
      withCommunity(slug, async ({ database, config }, community) => {
        const roles = new Map<string, Role>([
          ...community.operators,
          ...config.adminPubkeys.map((pubkey) => [pubkey, 'operator'] as const),
        ]);
        const pubkey = named ?? onlyOperator(roles, slug);
        const role = roles.get(pubkey);
        if (role === undefined)
          throw new Error(`this key has no role in ${slug}; see "minato operators add --help"`);
        const made = granted(await makeLink(database.pool, { community: community.id, pubkey }, Date.now()));
        process.stdout.write(
          `${consoleLink(community, config, made.code)}\n` +
            `signs ${pubkey} in as ${role} of ${slug}, once, until ${timeText(made.expiresAt)}\n`,
        );
      }),
    );
}

/** The code is after `#`: a browser sends that part to no server, so it is in no log. */
export function consoleLink(
  community: Community,
  { publicUrl, host, port }: Pick<Config, 'publicUrl' | 'host' | 'port'>,
  code: string,
): string {
  const base = toHttp(addressesOf(community, basesOf(publicUrl, host, port))[0]!).replace(/\/$/, '');
  return `${base}/admin/#code=${code}`;
}

function onlyOperator(roles: ReadonlyMap<string, Role>, slug: string): string {
  const operators = [...roles].filter(([, role]) => role === 'operator').map(([pubkey]) => pubkey);
  const [first] = operators;
  if (first !== undefined && operators.length === 1) return first;
  const known = first === undefined ? 'has no operator' : `has ${operators.length} operators`;
  throw new Error(`${slug} ${known}; name the key that should sign in`);
}
