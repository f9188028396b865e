/** What a community keeps out at the door, in the form in which it is asked for each event and each client. */
import type { WordMatcher } from './blocked-words.js';

export interface Blocks {
  readonly authors: ReadonlySet<string>;
  readonly words: Pick<WordMatcher, 'matches'>;
  readonly addresses: { has(address: string): boolean };
}

/** A client on the machine of the node is never kept out: an operator there can undo what went wrong. */
export function isKeptOut(
  { addresses }: Blocks,
  { address, isLoopback }: { readonly address: string; readonly isLoopback: boolean },
): boolean {
  return !isLoopback && addresses.has(address);
}
