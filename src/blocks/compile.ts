/**
 * Turns rows of blocks into sets and matchers. Unchanged blocks are not compiled again, because settings
 * change more often than blocks.
 */
import { BlockList } from 'node:net';
import type { BlockedValues } from './blocks.sql.js';
import type { Blocks } from './rules.js';
import { WordMatcher } from './rules-words.js';

interface Compiled {
  readonly values: BlockedValues;
  readonly blocks: Blocks;
}

export class CompiledBlocks {
  private readonly known = new Map<number, Compiled>();

  of(community: number, values: BlockedValues): Blocks {
    const before = this.known.get(community);
    const same = (kind: keyof BlockedValues) =>
      before?.values[kind].length === values[kind].length &&
      values[kind].every((value, at) => value === before.values[kind][at]);
    const blocks: Blocks = {
      authors: same('author') ? before!.blocks.authors : new Set(values.author),
      words: same('word') ? before!.blocks.words : new WordMatcher(values.word),
      addresses: same('address') ? before!.blocks.addresses : networks(values.address),
    };
    this.known.set(community, { values, blocks });
    return blocks;
  }
}

function networks(texts: readonly string[]): Blocks['addresses'] {
  const list = new BlockList();
  const family = (address: string) => (address.includes(':') ? 'ipv6' : 'ipv4');
  for (const text of texts) {
    const [address, prefix] = text.split('/') as [string, string];
    list.addSubnet(address, Number(prefix), family(address));
  }
  return { has: (address) => texts.length > 0 && address !== '' && list.check(address, family(address)) };
}
