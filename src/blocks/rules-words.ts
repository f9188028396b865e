/**
 * Words that the operator refuses. Pure. The time depends only on the length of the text, not on the number
 * of words (Aho–Corasick) or on the content, so no event can be made slow to check.
 *
 * Words and texts are compared in lower case, in one spelling (NFKC), without invisible characters, and with
 * white space collapsed. Then the text is compared again with look-alike letters replaced where they are a
 * disguise (rules-look-alikes.ts). `spam` is not in `spammer`: where a word begins or ends with a letter or a
 * digit, no letter or digit may be next to it. This does not apply to letters of scripts without spaces
 * between words, neither in the word nor next to it.
 */

import { toNfkc } from '../events/rules/text.js';
import { findDisguised, type Undisguised, undisguise } from './rules-look-alikes.js';

export const BLOCKED_WORDS_MAX = 1_000;
export const BLOCKED_WORD_LENGTH_MAX = 100;

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are part of ASCII
const IS_ASCII = /^[\x00-\x7f]*$/;
/** Includes control characters that are not white space, and annotation marks. */
const UNSEEN = /[\p{Default_Ignorable_Code_Point}\ufff9-\ufffb]|(?!\s)\p{Cc}/gu;
/** The last one is the blank of Braille. */
const BLANKS = /[\s\u2800]+/gu;
/** White letters on a dark circle or square: NFKC converts only the dark letters on white. */
const ENCLOSED = /[\u{1f150}-\u{1f169}\u{1f170}-\u{1f189}]/gu;
/** Hangul uses spaces, but joins particles to words. */
const WITHOUT_BLANKS = ['Han', 'Hira', 'Kana', 'Bopo', 'Hang', 'Thai', 'Laoo', 'Khmr', 'Mymr', 'Tibt'];
const BOUNDED = new RegExp(
  `^[[\\p{L}\\p{N}\\p{M}]--[${WITHOUT_BLANKS.map((script) => `\\p{scx=${script}}`).join('')}]]$`,
  'v',
);

/**
 * Characters that one step reads before it yields. One pass of a regular expression takes 1 to 2 ms for
 * 100,000 characters and is one step.
 */
const CHARACTERS_PER_STEP = 4_096;

/** Work in steps: it yields undefined between steps, so that other work can run. */
type Stepwise<T> = Generator<undefined, T>;

function atOnce<T>(work: Stepwise<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
  }
}

interface Spelled {
  readonly text: string;
  /** It is as long as it may be, so that something may be missing at its end. */
  readonly isCut: boolean;
}

/**
 * The text in one spelling, still with its capitals, at most `lengthMax` characters: one character may expand
 * to eighteen.
 */
function* spell(text: string, lengthMax = Number.POSITIVE_INFINITY): Stepwise<Spelled> {
  const isLong = text.length > CHARACTERS_PER_STEP;
  if (IS_ASCII.test(text)) {
    const seen = text.slice(0, lengthMax).replace(UNSEEN, '');
    if (isLong) yield;
    return { text: seen.replace(BLANKS, ' '), isCut: text.length > lengthMax };
  }
  const seen = text.toWellFormed().replace(UNSEEN, '').replace(ENCLOSED, letterIn);
  if (isLong) yield;
  const spelled = toNfkc(seen, lengthMax);
  if (isLong) yield;
  return { text: spelled.replace(BLANKS, ' '), isCut: spelled.length >= lengthMax };
}

function letterIn(enclosed: string): string {
  const place = enclosed.codePointAt(0)! - 0x1f150;
  return String.fromCharCode(0x61 + (place % 32));
}

/** The form in which texts and words are compared. */
export function foldText(text: string): string {
  return atOnce(spell(text)).text.toLowerCase();
}

/** A text prepared for matching. */
export interface Compared {
  readonly text: string;
  readonly disguised: Undisguised | undefined;
  /** The text was longer than what is compared. */
  readonly isCut: boolean;
}

/** No step takes longer than a millisecond or two, however long the text is. */
export function* compareText(text: string, lengthMax?: number): Stepwise<Compared> {
  const { text: spelled, isCut } = yield* spell(text, lengthMax);
  if (spelled.length > CHARACTERS_PER_STEP) yield;
  return { text: spelled.toLowerCase(), disguised: yield* findDisguised(spelled), isCut };
}

/** The word in the form that is stored. The problem is a sentence for the operator. */
export function checkWord(text: string): { readonly word: string } | { readonly problem: string } {
  if (text.includes('\u0000')) return { problem: 'a word must not contain NUL' };
  const word = foldText(text).trim();
  if (word === '') return { problem: 'a word must have at least one visible character' };
  if (word.length > BLOCKED_WORD_LENGTH_MAX)
    return { problem: `a word must have at most ${BLOCKED_WORD_LENGTH_MAX} characters` };
  return { word };
}

export function isBounded(character: string | undefined): boolean {
  return character !== undefined && BOUNDED.test(character);
}

/**
 * What may not be next to a match, and in which form of a text it counts: as it is, or with its disguised
 * runs in Latin letters.
 */
interface Word {
  readonly length: number;
  readonly boundedLeft: boolean;
  readonly boundedRight: boolean;
  readonly isPlain: boolean;
  readonly isUndisguised: boolean;
}

const UNITS = 65_536;

export class WordMatcher {
  /** By node and code unit: the node for the text with this unit appended. The root is 0. */
  private readonly longer = new Map<number, number>();
  /** The node of the longest suffix of this text that is a prefix of a word. */
  private readonly shorter: number[] = [0];
  private readonly words: (Word | undefined)[] = [undefined];
  /** The nearest shorter node at which a word ends; the root if there is none. */
  private readonly alsoEnds: number[] = [0];

  /** Words as `checkWord` returns them. */
  constructor(words: readonly string[]) {
    for (const word of words) this.add(word, { isPlain: true });
    for (const word of words) this.add(undisguise(word), { isUndisguised: true });
    this.link();
  }

  /** Without words no text needs to be read. */
  get isEmpty(): boolean {
    return this.longer.size === 0;
  }

  matches(content: string): boolean {
    return !this.isEmpty && atOnce(this.matchesCompared(atOnce(compareText(content))));
  }

  /** For a text from `compareText`, so that several matchers can share it. */
  *matchesCompared({ text, disguised }: Compared): Stepwise<boolean> {
    if (yield* this.finds(text, ({ isPlain }) => isPlain)) return true;
    if (disguised === undefined) return false;
    const { runs } = disguised;
    let begun = 0;
    // The text outside of disguised runs is unchanged and was matched before. Matches come in the order of
    // their ends.
    return yield* this.finds(disguised.text, ({ isUndisguised, length }, end) => {
      while (begun < runs.length && runs[begun]![0] < end) begun += 1;
      return isUndisguised && begun > 0 && runs[begun - 1]![1] > end - length;
    });
  }

  private *finds(text: string, counts: (word: Word, end: number) => boolean): Stepwise<boolean> {
    let node = 0;
    for (let at = 0; at < text.length; at += 1) {
      if (at > 0 && at % CHARACTERS_PER_STEP === 0) yield;
      node = this.step(node, text.charCodeAt(at));
      for (let end = this.words[node] ? node : this.alsoEnds[node]!; end !== 0; end = this.alsoEnds[end]!) {
        const word = this.words[end]!;
        if (counts(word, at + 1) && standsAlone(text, at + 1, word)) return true;
      }
    }
    return false;
  }

  private step(from: number, unit: number): number {
    for (let node = from; ; node = this.shorter[node]!) {
      const next = this.longer.get(node * UNITS + unit);
      if (next !== undefined) return next;
      if (node === 0) return 0;
    }
  }

  private add(word: string, counts: Partial<Pick<Word, 'isPlain' | 'isUndisguised'>>): void {
    let node = 0;
    for (let at = 0; at < word.length; at += 1) {
      const key = node * UNITS + word.charCodeAt(at);
      const next = this.longer.get(key) ?? this.words.push(undefined) - 1;
      this.longer.set(key, next);
      node = next;
    }
    const characters = [...word];
    this.words[node] = {
      isPlain: false,
      isUndisguised: false,
      ...this.words[node],
      ...counts,
      length: word.length,
      boundedLeft: isBounded(characters[0]),
      boundedRight: isBounded(characters.at(-1)),
    };
  }

  /** From the shortest texts to the longest; each uses the result of the one before. */
  private link(): void {
    const children = new Map<number, [unit: number, node: number][]>();
    for (const [key, node] of this.longer) {
      const parent = Math.floor(key / UNITS);
      children.set(parent, [...(children.get(parent) ?? []), [key % UNITS, node]]);
    }
    const waiting = [0];
    for (const parent of waiting) {
      for (const [unit, node] of children.get(parent) ?? []) {
        const shorter = parent === 0 ? 0 : this.step(this.shorter[parent]!, unit);
        this.shorter[node] = shorter;
        this.alsoEnds[node] = this.words[shorter] === undefined ? this.alsoEnds[shorter]! : shorter;
        waiting.push(node);
      }
    }
  }
}

function standsAlone(text: string, end: number, { length, boundedLeft, boundedRight }: Word): boolean {
  if (boundedLeft && isBounded(characterBefore(text, end - length))) return false;
  return !(boundedRight && isBounded(characterAt(text, end)));
}

function characterAt(text: string, at: number): string | undefined {
  const code = text.codePointAt(at);
  return code === undefined ? undefined : String.fromCodePoint(code);
}

function characterBefore(text: string, at: number): string | undefined {
  const pair = characterAt(text, at - 2);
  return pair?.length === 2 ? pair : text[at - 1];
}
