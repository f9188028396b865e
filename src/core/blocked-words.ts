/**
 * Words that the operator keeps out of contents. Pure, and in time that grows with the text alone, however many words there are
 * (Aho–Corasick): an event that is made to be slow is not.
 *
 * Both sides are compared without the case, in one spelling (NFKC), without characters that nobody sees, and with any run of
 * blanks as one. `spam` is not in `spammer`: where a word begins or ends with a letter or a digit, none may be beside it. Scripts
 * that put no blanks between words know no such bounds, as letters of the word and as letters beside it.
 */

export const BLOCKED_WORDS_MAX = 1_000;
export const BLOCKED_WORD_LENGTH_MAX = 100;

const UNSEEN = /\p{Default_Ignorable_Code_Point}/gu;
/** Hangul has blanks, but joins particles to its words. */
const WITHOUT_BLANKS = ['Han', 'Hira', 'Kana', 'Bopo', 'Hang', 'Thai', 'Laoo', 'Khmr', 'Mymr', 'Tibt'];
const BOUNDED = new RegExp(
  `^[[\\p{L}\\p{N}\\p{M}]--[${WITHOUT_BLANKS.map((script) => `\\p{scx=${script}}`).join('')}]]$`,
  'v',
);

/** As texts and words are compared. */
export function foldText(text: string): string {
  const seen = text.toWellFormed().replace(UNSEEN, '');
  return seen.normalize('NFKC').toLowerCase().replace(/\s+/gu, ' ');
}

/** The word as it is kept. The problem is a sentence for the operator. */
export function checkWord(text: string): { readonly word: string } | { readonly problem: string } {
  const word = foldText(text).trim();
  if (word === '') return { problem: 'a word has at least one character that can be seen' };
  if (word.includes('\u0000')) return { problem: 'a word holds no NUL' };
  if (word.length > BLOCKED_WORD_LENGTH_MAX)
    return { problem: `a word has at most ${BLOCKED_WORD_LENGTH_MAX} characters` };
  return { word };
}

export function isBounded(character: string | undefined): boolean {
  return character !== undefined && BOUNDED.test(character);
}

/** What may not be beside a match. */
interface Word {
  readonly length: number;
  readonly boundedLeft: boolean;
  readonly boundedRight: boolean;
}

const UNITS = 65_536;

export class WordMatcher {
  /** By node and code unit: the node of the text that is one longer. The root is 0. */
  private readonly longer = new Map<number, number>();
  /** The node of the longest end of this text that is the beginning of a word. */
  private readonly shorter: number[] = [0];
  private readonly words: (Word | undefined)[] = [undefined];
  /** The nearest shorter node at which a word ends; the root when there is none. */
  private readonly alsoEnds: number[] = [0];

  /** Words as `checkWord` gives them. */
  constructor(words: readonly string[]) {
    for (const word of words) this.add(word);
    this.link();
  }

  matches(content: string): boolean {
    return this.longer.size > 0 && this.matchesFolded(foldText(content));
  }

  /** Of a text as `foldText` gives it: where several ask, it is folded once. */
  matchesFolded(text: string): boolean {
    let node = 0;
    for (let at = 0; at < text.length; at += 1) {
      node = this.step(node, text.charCodeAt(at));
      for (let end = this.words[node] ? node : this.alsoEnds[node]!; end !== 0; end = this.alsoEnds[end]!)
        if (standsAlone(text, at + 1, this.words[end]!)) return true;
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

  private add(word: string): void {
    let node = 0;
    for (let at = 0; at < word.length; at += 1) {
      const key = node * UNITS + word.charCodeAt(at);
      const next = this.longer.get(key) ?? this.words.push(undefined) - 1;
      this.longer.set(key, next);
      node = next;
    }
    const characters = [...word];
    this.words[node] = {
      length: word.length,
      boundedLeft: isBounded(characters[0]),
      boundedRight: isBounded(characters.at(-1)),
    };
  }

  /** From the shortest texts to the longest, each by way of the one before it. */
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
