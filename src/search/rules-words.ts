/**
 * The words of an event, as the search index stores them and the live matcher reads them: each with its
 * positions and their weight. A: title and name; B: content; C: hashtags and mentions; D: pairs of
 * neighbouring characters, for scripts without blanks or with compounds written without them. A word may have
 * several forms at its position (서울에, 서울). Pure, and limited for any event (I14).
 *
 * Words and pairs count their positions separately, so that a query can ask for neighbours in both. The
 * limits are below those of a tsvector: 256 positions of a word, 16,383 as a position, 1 MB.
 */
import { parseEmbedded } from '../events/rules/embedded-json.js';
import { isHex64, type NostrEvent } from '../events/rules/event.js';
import type { MatchedEvent } from '../topics/rules.js';
import { foldWords } from './rules-fold.js';
import {
  hashtagOf,
  mentionOf,
  pairsOfRun,
  type Run,
  stemsOfRun,
  type Token,
  tokensOf,
  type WordsToken,
  wordsOfRun,
} from './rules-text.js';

/** The weights of a tsvector. */
export const WEIGHTS = { D: 0, C: 1, B: 2, A: 3 } as const;
export type Weight = keyof typeof WEIGHTS;

/** Must be raised whenever the same event would give other words. */
export const WORDS_VERSION = 4;

export const WORD_PLACES_MAX = 2_000;
export const PAIR_PLACES_MAX = 2_000;
const PLACES_OF_ONE_MAX = 250;
export const PAIRS_FROM = 8_000;
/** The position of hashtags and mentions, which have no neighbours. */
const ASIDE = 16_000;
/** Characters of one event that are read: about as many as the positions can hold. */
export const TEXT_LENGTH_MAX = 12_000;
/** Tokens between two steps of a long text: about half a millisecond. */
const STEP_TOKENS = 200;
const PLACE_BITS = 14;

/** The positions of each lexeme, with the weight in the higher bits. */
export type Words = ReadonlyMap<string, readonly number[]>;

export function placeOf(entry: number): number {
  return entry & ((1 << PLACE_BITS) - 1);
}
export function weightOf(entry: number): number {
  return entry >> PLACE_BITS;
}

class WordList {
  readonly words = new Map<string, number[]>();
  private place = 0;
  private pairs = PAIRS_FROM;
  private others = 0;
  private left = TEXT_LENGTH_MAX;

  private get isFull(): boolean {
    return this.place >= WORD_PLACES_MAX;
  }
  private get isFullOfPairs(): boolean {
    return this.pairs >= PAIRS_FROM + PAIR_PLACES_MAX;
  }

  /**
   * Leaves a gap between two texts, so that the last word of one is not a neighbour of the first of the next.
   * Yields between two steps of a long text.
   */
  *text(text: string, weight: Weight): Generator<undefined, void> {
    const part = text.slice(0, this.left);
    const folded = foldWords(part, this.left);
    this.left -= Math.max(part.length, folded.length);
    this.place += 1;
    this.pairs += 1;
    let tokens = 0;
    for (const token of tokensOf(folded)) {
      if (this.isFull && this.isFullOfPairs) return;
      this.token(token, weight);
      tokens += 1;
      if (tokens % STEP_TOKENS === 0) yield;
    }
  }

  private token(token: Token, weight: Weight): void {
    switch (token.type) {
      case 'words':
        this.inRow(token, weight);
        return;
      case 'run':
        this.run(token, weight);
        return;
      case 'hashtag':
        this.aside(token.lexeme);
        if (!this.isFull) for (const shown of tokensOf(token.shown)) this.token(shown, weight);
        return;
      case 'mention':
        this.aside(token.lexeme);
    }
  }

  private inRow({ words, name, also = [] }: WordsToken, weight: Weight): void {
    const first = this.place + 1;
    for (const word of words) this.word(word, weight);
    if (this.place < first) return;
    if (name !== undefined) this.other(name, first, weight);
    for (const lexeme of also) this.other(lexeme, first, weight);
  }

  /** Splits no more of the run than there are positions. */
  private run(run: Run, weight: Weight): void {
    if (!this.isFull) {
      for (const word of wordsOfRun(run)) {
        this.word(word, weight);
        if (this.isFull) break;
      }
      for (const stem of stemsOfRun(run)) this.other(stem, this.place, weight);
    }
    if (!this.isFullOfPairs)
      for (const pair of pairsOfRun(run)) {
        this.pair(pair);
        if (this.isFullOfPairs) break;
      }
    this.pairs += 1;
  }

  private word(lexeme: string, weight: Weight): void {
    if (this.isFull) return;
    this.place += 1;
    this.add(lexeme, this.place, weight);
  }

  /** Adds another form at the position of an existing word. */
  private other(lexeme: string, place: number, weight: Weight): void {
    if (this.others >= WORD_PLACES_MAX) return;
    this.others += 1;
    this.add(lexeme, place, weight);
  }

  private pair(lexeme: string): void {
    if (this.isFullOfPairs) return;
    this.pairs += 1;
    this.add(lexeme, this.pairs, 'D');
  }

  aside(lexeme: string): void {
    if (!this.words.has(lexeme) && this.words.size < WORD_PLACES_MAX) this.add(lexeme, ASIDE, 'C');
  }

  private add(lexeme: string, place: number, weight: Weight): void {
    const entry = (WEIGHTS[weight] << PLACE_BITS) | place;
    const places = this.words.get(lexeme);
    if (places === undefined) this.words.set(lexeme, [entry]);
    else if (places.length < PLACES_OF_ONE_MAX) places.push(entry);
  }
}

const KIND_PROFILE = 0;
const TITLES: Readonly<Record<string, Weight>> = { title: 'A', subject: 'A', summary: 'B' };
const TITLES_MAX = 20;
const PROFILE_FIELDS = [
  ['name', 'A'],
  ['display_name', 'A'],
  ['about', 'B'],
] as const;

/** Cached, because every live search that may match an event needs its words, and the index too. */
const known = new WeakMap<MatchedEvent, Words>();

export function wordsOf(event: MatchedEvent): Words {
  const work = wordsInSteps(event);
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
  }
}

/** The same in steps: 12,000 characters take some milliseconds. */
export function* wordsInSteps(event: MatchedEvent): Generator<undefined, Words> {
  let words = known.get(event);
  if (words === undefined) {
    words = yield* readWords(event);
    known.set(event, words);
  }
  return words;
}

const beginnings = new WeakMap<Words, ReadonlySet<string>>();

/** The first character of each lexeme, computed once for all searches. */
export function beginningsOf(words: Words): ReadonlySet<string> {
  let first = beginnings.get(words);
  if (first === undefined) {
    first = new Set([...words.keys()].map((lexeme) => String.fromCodePoint(lexeme.codePointAt(0) ?? 0)));
    beginnings.set(words, first);
  }
  return first;
}

/** Topics come first: a filter by topic must find them, whatever else the event has. */
function* readWords(event: MatchedEvent): Generator<undefined, Words> {
  const list = new WordList();
  for (const [name, value] of event.tags) if (name === 't' && value !== undefined) hashtag(list, value);
  for (const topic of event.bound ?? []) hashtag(list, topic);
  for (const [name, value] of event.tags) {
    if (name === 'p' && isHex64(value)) list.aside(mentionOf(value));
  }
  for (const [text, weight] of titlesOf(event)) yield* list.text(text, weight);
  for (const [text, weight] of textsOf(event)) yield* list.text(text, weight);
  return list.words;
}

function titlesOf({ tags }: NostrEvent): (readonly [string, Weight])[] {
  return tags
    .flatMap(([name = '', value]) => {
      const weight = Object.hasOwn(TITLES, name) ? TITLES[name] : undefined;
      return weight === undefined || value === undefined ? [] : [[value, weight] as const];
    })
    .slice(0, TITLES_MAX);
}

function hashtag(list: WordList, value: string): void {
  if (list.words.size >= WORD_PLACES_MAX) return;
  const lexeme = hashtagOf(value);
  if (lexeme !== undefined) list.aside(lexeme);
}

function textsOf({ kind, content }: NostrEvent): (readonly [string, Weight])[] {
  if (kind !== KIND_PROFILE) return [[content, 'B']];
  const profile = parseProfile(content);
  return PROFILE_FIELDS.flatMap(([field, weight]) => {
    const value = profile[field];
    return typeof value === 'string' ? [[value, weight] as const] : [];
  });
}

function parseProfile(content: string): Readonly<Record<string, unknown>> {
  const embedded = parseEmbedded(content);
  const profile = typeof embedded === 'string' ? undefined : embedded.json;
  return typeof profile === 'object' && profile !== null ? (profile as Record<string, unknown>) : {};
}

const LETTERS = ['D', 'C', 'B', 'A'];

/** The text of a tsvector. */
export function toTsvector(words: Words): string {
  const parts: string[] = [];
  for (const [lexeme, places] of words) {
    let spelt = '';
    for (const entry of places)
      spelt += `${spelt === '' ? '' : ','}${placeOf(entry)}${LETTERS[weightOf(entry)]}`;
    parts.push(`${quoteLexeme(lexeme)}:${spelt}`);
  }
  return parts.join(' ');
}

const SPECIAL = /['\\]/;

/** Quoted for tsvector and tsquery. */
export function quoteLexeme(lexeme: string): string {
  if (!SPECIAL.test(lexeme)) return `'${lexeme}'`;
  return `'${lexeme.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}
