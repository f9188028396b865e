import { Argument, Command } from 'commander';
import { npubEncode } from 'nostr-tools/nip19';
import { NodeKeys } from '../keys.js';
import { KEY_PURPOSES, type KeyPurpose, listKeys, type NodeKey } from '../store/node-keys.js';
import { granted, oneOf, timeText } from './answers.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';

const EXAMPLES = `
A key is made when it is first needed. Its secret is a file in the data folder (keys/), readable by its owner only; it is in no
backup of the database. Machines with a worker share the files with each other, sealed, while one that has them runs.

Examples:
  $ minato keys                       which keys sign, and whether their secrets are here
  $ minato keys rotate moderation     signs with a new key from now on; what the old one signed stays`;

interface Chosen {
  readonly community: string;
}

export function keysCommand(): Command {
  const keys = new Command('keys')
    .description('the keys that this node signs labels and scores with; secrets are never shown')
    .addHelpText('after', EXAMPLES);
  keys
    .command('list', { isDefault: true })
    .description('show them: purpose, public key, since when, whether the secret is here')
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
        process.stdout.write(`${purpose} signs as ${npubEncode(pubkey)} now\n`);
        process.stdout.write(
          `its secret is at ${kept.pathOf(pubkey)}: back it up; other machines get it from a node that runs here\n`,
        );
      }),
    );
  return keys;
}

async function list(slug: string): Promise<void> {
  await withCommunity(slug, async ({ database, config }, { id }) => {
    const kept = new NodeKeys({ folder: config.dataDir, pool: database.pool, now: Date.now });
    const all = await listKeys(database.pool, id);
    if (all.length === 0) process.stdout.write('no key was made yet: each is made when it is first needed\n');
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
  return `${purpose.padEnd(21)}  ${npubEncode(pubkey)}  since ${timeText(createdAt)}  ${until}  ${place}${why}`;
}
