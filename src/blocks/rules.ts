/** The blocks of a community, in the form in which each event and client is checked. */
import type { WordMatcher } from './rules-words.js';

export interface Blocks {
  readonly authors: ReadonlySet<string>;
  readonly words: Pick<WordMatcher, 'isEmpty' | 'matchesCompared'>;
  readonly addresses: { has(address: string): boolean };
}

interface Caller {
  readonly address: string;
  readonly isLoopback: boolean;
  /** Addresses that contradict each other; one of them is the client's. */
  readonly alsoNamed?: readonly string[];
}

/** A client on the node's machine is never blocked, so that an operator there can undo a mistake. */
export function isKeptOut({ addresses }: Blocks, { address, isLoopback, alsoNamed = [] }: Caller): boolean {
  return !isLoopback && [address, ...alsoNamed].some((each) => addresses.has(each));
}
