/** The command `minato blocks`: lists, adds and removes blocks of authors, words and addresses. */
import { Argument, Command } from 'commander';
import { granted, oneOf, printAll, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { checkNetwork } from '../limits/rules-network.js';
import { pubkeyOf } from '../node/config.js';
import { BLOCK_KINDS, type Block, type BlockKind, block, listBlocks, unblock } from './blocks.sql.js';
import { checkWord } from './rules-words.js';

const EXAMPLES = `
Examples:
  $ minato blocks
  $ minato blocks add author npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 --reason spam
  $ minato blocks add word "free money"
  $ minato blocks add address 192.0.2.0/24 --reason "a flood on 3 May" -c art
  $ minato blocks remove address 192.0.2.0/24`;

export function blocksCommand(): Command {
  const blocks = new Command('blocks').description(
    'what the node refuses: authors, words in contents, addresses and networks',
  );
  blocks
    .command('list', { isDefault: true })
    .description('show what is blocked')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action(({ community }: { community: string }) => list(community));
  blocks
    .command('add')
    .addArgument(kindArgument())
    .argument('<value>', VALUES)
    .description('block a value; takes effect on every instance within a second')
    .option(...COMMUNITY_OPTION)
    .option('--reason <text>', 'why; shown to operators')
    .addHelpText('after', EXAMPLES)
    .action((kind: BlockKind, text: string, options: { community: string; reason?: string }) =>
      withCommunity(options.community, async ({ database, config }, { id }) => {
        const wanted = { kind, community: id, value: read(kind, text), reason: options.reason };
        const fixed = { fixed: config.adminPubkeys };
        const blocked = granted(await block(database.pool, wanted, fixed, Date.now()));
        process.stdout.write(`${lineOf(kind, blocked)}\n`);
      }),
    );
  blocks
    .command('remove')
    .addArgument(kindArgument())
    .argument('<value>', VALUES)
    .description('unblock a value, written as "minato blocks" shows it')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((kind: BlockKind, text: string, options: { community: string }) =>
      withCommunity(options.community, async ({ database }, { id }) => {
        const wanted = { kind, community: id, value: read(kind, text) };
        const { value } = granted(await unblock(database.pool, wanted, Date.now()));
        process.stdout.write(`${kind} ${value} is no longer blocked\n`);
      }),
    );
  return blocks;
}

const VALUES = 'a key (hex or npub), a word, or an address or network';
const kindArgument = () => new Argument('<kind>', BLOCK_KINDS.join(', ')).argParser(oneOf(BLOCK_KINDS));

async function list(slug: string): Promise<void> {
  await withCommunity(slug, async ({ database }, { id }) => {
    for (const kind of BLOCK_KINDS)
      await printAll(
        (page) => listBlocks(database.pool, kind, id, page),
        (blocked) => lineOf(kind, blocked),
        `no ${kind} is blocked`,
      );
  });
}

/** Converts the value to its canonical form. */
function read(kind: BlockKind, text: string): string {
  if (kind === 'author') {
    const pubkey = pubkeyOf(text);
    if (pubkey === undefined) throw new Error('use 64 lowercase hex characters or an npub');
    return pubkey;
  }
  const checked = kind === 'word' ? checkWord(text) : checkNetwork(text);
  if ('problem' in checked) throw new Error(`"${text}" cannot be blocked: ${checked.problem}`);
  return 'word' in checked ? checked.word : checked.network;
}

function lineOf(kind: BlockKind, { value, reason, createdAt }: Block): string {
  const why = reason === null ? '' : `  ${JSON.stringify(reason)}`;
  return `${kind.padEnd(7)}  ${value}  since ${timeText(createdAt)}${why}`;
}
