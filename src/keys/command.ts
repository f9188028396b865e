/** The command `minato keys`: lists and rotates the keys of the node. It never prints a secret. */
import { Argument, Command } from 'commander';
import { npubEncode } from 'nostr-tools/nip19';
import { granted, oneOf, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { NodeKeys } from './keys.js';
import { KEY_PURPOSES, type KeyPurpose, listKeys, type NodeKey } from './keys.sql.js';

const EXAMPLES = `
A key is made when it is first needed. Its secret is a file in the data folder (keys/), readable by its
owner only. No backup of the database contains it. Machines with a worker get the secrets from each other,
encrypted, while a machine that has them runs.

Examples:
  $ minato keys                       which keys sign, and whether their secrets are here
  $ minato keys rotate moderation     sign with a new key from now on; existing signatures stay valid`;

interface Chosen {
  readonly community: string;
}

export function keysCommand(): Command {
  const keys = new Command('keys')
    .description('the keys that this node signs labels and scores with; secrets are never shown')
    .addHelpText('after', EXAMPLES);
  keys
    .command('list', { isDefault: true })
    .description('show each key: purpose, public key, age, and whether its secret is on this machine')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action(({ community: slug }: Chosen) => list(slug));
  keys
    .command('rotate')
    .addArgument(new Argument('<purpose>', KEY_PURPOSES.join(', ')).argParser(oneOf(KEY_PURPOSES)))
    .description('make a new key; the old one is kept as retired, with its file')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((purpose: KeyPurpose, { community: slug }: Chosen) =>
      withCommunity(slug, async ({ database, config }, { id }) => {
        const kept = new NodeKeys({ folder: config.dataDir, pool: database.pool, now: Date.now });
        const pubkey = granted(await kept.rotate(id, purpose));
        process.stdout.write(`${purpose} now signs as ${npubEncode(pubkey)}\n`);
        process.stdout.write(
          `its secret is in ${kept.pathOf(pubkey)}: back it up. Other machines get it from a node here.\n`,
        );
      }),
    );
  return keys;
}

async function list(slug: string): Promise<void> {
  await withCommunity(slug, async ({ database, config }, { id }) => {
    const kept = new NodeKeys({ folder: config.dataDir, pool: database.pool, now: Date.now });
    const all = await listKeys(database.pool, id);
    if (all.length === 0) process.stdout.write('no keys yet: a key is made when it is first needed\n');
    for (const key of all) process.stdout.write(`${await lineOf(kept, key)}\n`);
  });
}

async function lineOf(
  kept: NodeKeys,
  { purpose, pubkey, createdAt, retiredAt, reason }: NodeKey,
): Promise<string> {
  const place = (await kept.isHere(pubkey)) ? 'secret here' : `secret missing: ${kept.pathOf(pubkey)}`;
  const until = retiredAt === null ? 'current' : `retired ${timeText(retiredAt)}`;
  const why = reason === null ? '' : `  made by the node: ${reason}`;
  const times = `since ${timeText(createdAt)}  ${until}`;
  return `${purpose.padEnd(21)}  ${npubEncode(pubkey)}  ${times}  ${place}${why}`;
}
