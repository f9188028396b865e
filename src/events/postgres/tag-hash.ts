/**
 * The 64-bit key of a tag. It is seeded with a secret of the node, so nobody can prepare values with the same
 * hash. If two values ever have the same hash, the exact value is still checked on the event itself.
 */
import xxhash from 'xxhash-wasm';
import { UNBOUND } from '../../topics/rules.js';
import type { NostrEvent } from '../rules/event.js';

export type TagHash = (community: number, letter: string, value: string) => bigint;

export async function createTagHash(seed: bigint): Promise<TagHash> {
  const { h64 } = await xxhash();
  return (community, letter, value) => BigInt.asIntN(64, h64(`${community}${letter}${value}`, seed));
}

/** Up to this length a list is searched faster than a set is built. */
const SHORT_LIST = 32;

/**
 * The keys of the tags that filters can query: single-letter names with a value, and the topics that the
 * event is bound to. Each key occurs once: two tags of one event with the same hash are one row; otherwise a
 * page would hold the event twice.
 */
export function tagKeys(
  community: number,
  { tags }: Pick<NostrEvent, 'tags'>,
  tagHash: TagHash,
  bound: readonly string[] = UNBOUND,
): bigint[] {
  const keys: bigint[] = [];
  const seen = tags.length > SHORT_LIST ? new Set<bigint>() : undefined;
  for (const [letter, value] of tags) {
    if (value === undefined || !isLetter(letter!)) continue;
    const key = tagHash(community, letter!, value);
    if (seen === undefined ? keys.includes(key) : seen.has(key)) continue;
    seen?.add(key);
    keys.push(key);
  }
  if (bound.length === 0) return keys;
  return [...new Set([...keys, ...bound.map((topic) => tagHash(community, 't', topic))])];
}

function isLetter(name: string): boolean {
  if (name.length !== 1) return false;
  const code = name.charCodeAt(0) | 0x20;
  return code >= 0x61 && code <= 0x7a;
}
