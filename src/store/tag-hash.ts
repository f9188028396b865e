/**
 * The 64-bit key of a tag. Seeded with a secret of the node, so that nobody can prepare values that fall together;
 * should two ever do, the exact value is still checked on the event itself.
 */
import xxhash from 'xxhash-wasm';
import type { NostrEvent } from '../core/event.js';

export type TagHash = (community: number, letter: string, value: string) => bigint;

export async function createTagHash(seed: bigint): Promise<TagHash> {
  const { h64 } = await xxhash();
  return (community, letter, value) => BigInt.asIntN(64, h64(`${community}${letter}${value}`, seed));
}

const SINGLE_LETTER = /^[a-zA-Z]$/;

/** The tags that filters can ask for: single-letter names with a value, each pair once. */
export function indexedTags(event: NostrEvent): [letter: string, value: string][] {
  const seen = new Set<string>();
  const tags: [string, string][] = [];
  for (const tag of event.tags) {
    const letter = tag[0]!;
    const value = tag[1];
    if (value === undefined || !SINGLE_LETTER.test(letter) || seen.has(letter + value)) continue;
    seen.add(letter + value);
    tags.push([letter, value]);
  }
  return tags;
}
