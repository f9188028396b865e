/** What a fuzz target is, and how it reports a broken rule. */
import type { Dice } from '../../src/demo/rules-dice.js';

/** A pure part of the node, run in this process. An input is a string; bytes are its Latin-1 characters. */
export interface PureTarget {
  readonly name: string;
  /** The files of `corpus/` whose lines are its first inputs. */
  readonly corpus: readonly string[];
  /** A new input from the grammar. */
  make(dice: Dice): string;
  /** Throws if the input breaks a rule. */
  run(input: string): void | Promise<void>;
}

/** What one target did with its share of the inputs. */
export interface Done {
  readonly target: string;
  readonly inputs: number;
  readonly seconds: number;
  /** More figures for the report, such as inputs that covered new code. */
  readonly notes: Readonly<Record<string, number>>;
}

/** A rule that an input broke. The input can be replayed: `--replay TARGET:BASE64`. */
export class Broken extends Error {
  constructor(
    readonly target: string,
    readonly input: string,
    readonly why: string,
  ) {
    super(`${target}: ${why}`);
  }
}

export function must(holds: boolean, rule: string): asserts holds {
  if (!holds) throw new Error(rule);
}
