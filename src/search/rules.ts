/**
 * Search queries (NIP-50): words that are all required, "phrases", -excluded, #hashtags, npub mentions. Pure:
 * parsing, the query as a tsquery, and the live matcher. The live matcher must give the same result as
 * `words @@ query`; a test compares both with a naive third one.
 */
import { type Refusal, refusal } from '../events/rules/reply.js';
import { foldWords } from './rules-fold.js';
import { meaningsOf } from './rules-japanese.js';
import { isParticle, koreanMeaning, koreanParts } from './rules-korean.js';
import { follow, placesOf } from './rules-places.js';
import {
  hashtagOf,
  pairsOfRun,
  type Run,
  type Token,
  tokensOf,
  type WordsToken,
  wordsOfRun,
} from './rules-text.js';
import { beginningsOf, quoteLexeme, type Words } from './rules-words.js';

export const SEARCH_LENGTH_MAX = 256;
export const SEARCH_TERMS_MAX = 16;

/** Lexemes that are all required. */
export interface Phrase {
  readonly lexemes: readonly string[];
  /**
   * The list in which the lexemes follow one another. `whole`: one lexeme that is a word of its own, not only
   * a pair inside other words.
   */
  readonly among: 'words' | 'pairs' | 'whole';
  /** The last lexeme may be the beginning of a longer one. */
  readonly isPrefix: boolean;
}

/** One of the phrases is required or, when excluded, none may occur. */
export interface Term {
  readonly anyOf: readonly Phrase[];
  readonly excluded: boolean;
}

export interface SearchQuery {
  /**
   * Required terms first. Without terms the query has nothing that can be searched for and matches nothing.
   */
  readonly terms: readonly Term[];
}

/**
 * key:value is an extension of NIP-50 and is ignored, known or not. Texts that only look like one are kept:
 * an address, a key of one letter (C:\\x), digits before the colon (12:30), std::vector, localhost:7447. In
 * quotes everything is text.
 */
const EXTENSION = /^-?(?!(?:nostr|mailto|localhost):)[a-z][a-z0-9_.-]+:(?![:/\\])(?:"[^"]*"?|\S)+$/;
/** An excluded part begins with one minus; --force and -f are flags of programs. */
const PART = /(?<![^\s])-?[a-z][a-z0-9_.-]+:"[^"]*"?|(-?)"([^"]*)"?|((?:-(?!-|[a-z](?!\S)))?)(\S+)/g;

/** Returns undefined for an empty query: it counts as no search. */
export function parseSearch(text: string): SearchQuery | Refusal | undefined {
  if (text.length > SEARCH_LENGTH_MAX)
    return refusal('invalid', `a search may have at most ${SEARCH_LENGTH_MAX} characters`);
  const folded = foldWords(text);
  const parts = [...folded.matchAll(PART)].filter(([part]) => !EXTENSION.test(part));
  if (parts.length === 0) return undefined;
  const asked = parts.map(([part, minus, quoted, bareMinus, bare]) =>
    quoted === undefined
      ? termsOf(bare ?? part, bareMinus === '-', false)
      : termsOf(quoted, minus === '-', true),
  );
  const terms = asked.flatMap((each) => each.terms);
  if (asked.reduce((sum, { words }) => sum + words, 0) > SEARCH_TERMS_MAX)
    return refusal('invalid', `a search may have at most ${SEARCH_TERMS_MAX} words`);
  return {
    terms: [...terms.filter(({ excluded }) => !excluded), ...terms.filter(({ excluded }) => excluded)],
  };
}

interface ParsedPart {
  readonly terms: readonly Term[];
  /** A run counts as one word, however many terms it has. */
  readonly words: number;
}

type Phrases = readonly Phrase[];
const isUsable = ({ lexemes }: Phrase) => lexemes.length > 0;

/** The terms of one part of a query. An excluded or quoted part is searched as it is written. */
function termsOf(part: string, excluded: boolean, quoted: boolean): ParsedPart {
  const tokens = [...tokensOf(part)];
  const groups = quoted
    ? quotedGroups(tokens)
    : excluded
      ? bareGroups(tokens, asWritten)
      : bareGroups(tokens, asMeant);
  const anyOf = groups
    .flat()
    .map((phrases) => phrases.filter(isUsable))
    .filter(({ length }) => length > 0);
  if (!excluded || anyOf.length <= 1)
    return { terms: anyOf.map((phrases) => ({ anyOf: phrases, excluded })), words: groups.length };
  // Excluding several terms would need "not all of these", so the words in sequence are excluded instead.
  return { terms: [{ anyOf: [wordsInARow(tokens)], excluded }], words: 1 };
}

/**
 * Words that are written together (well-known, example.com) must follow one another; each run is searched
 * separately.
 */
function bareGroups(tokens: readonly Token[], ofRun: (run: Run) => Phrases[]): Phrases[][] {
  const groups: Phrases[][] = [];
  let words: string[] = [];
  const finish = () => {
    if (words.length > 0) groups.push([[phrase(words)]]);
    words = [];
  };
  for (const [place, token] of tokens.entries()) {
    if (token.type === 'words' && token.name === undefined) {
      words.push(...token.words);
      continue;
    }
    finish();
    if (token.type === 'words') groups.push([named(token.name!, token)]);
    else if (token.type !== 'run') groups.push([[phrase([token.lexeme])]]);
    else if (place === 0 || token.script !== 'hangul' || !isParticle(token.text)) groups.push(ofRun(token));
  }
  finish();
  return groups;
}

function named(name: string, { words, isLoose }: WordsToken): Phrases {
  return isLoose ? [phrase([name]), phrase(words)] : [phrase([name])];
}

function quotedGroups(tokens: readonly Token[]): Phrases[][] {
  const aside = tokens.flatMap((token) => {
    if (token.type === 'run') return [];
    const lexeme = token.type === 'words' ? (token.isLoose ? undefined : token.name) : token.lexeme;
    return lexeme === undefined ? [] : [[[phrase([lexeme])]]];
  });
  const inRow = tokens.filter((token) => token.type === 'words' || token.type === 'run');
  const [first] = inRow;
  if (first === undefined) return aside;
  const isOneRun = inRow.length === 1 && first.type === 'run';
  return [...aside, isOneRun ? asWritten(first) : [[wordsInARow(inRow)]]];
}

function wordsInARow(tokens: readonly Token[]): Phrase {
  return phrase(
    tokens.flatMap((token) => {
      if (token.type === 'run') return [...wordsOfRun(token)];
      return token.type === 'words' ? token.words : [token.lexeme];
    }),
  );
}

function phrase(lexemes: readonly string[]): Phrase {
  return { lexemes, among: 'words', isPrefix: false };
}

/**
 * By the words of the run, or by its characters wherever the words of the post begin and end. One character
 * matches the beginning of a pair.
 */
function asWritten(run: Run): Phrases[] {
  const words = [...wordsOfRun(run)];
  const pairs = [...pairsOfRun(run)];
  const byWords = phrase(words);
  if (run.script === 'hangul') return [[byWords, ...inPairs(run.text)]];
  if (pairs.length === 0) return [[byWords]];
  if (pairs.length === 1) return [[{ lexemes: pairs, among: 'pairs', isPrefix: true }]];
  if (pairs.length === 2 && words[0] === pairs[0]) return [[byWords]];
  return [[byWords, ...inPairs(run.text)]];
}

/** The run without particles, and in every form. */
function asMeant(run: Run): Phrases[] {
  if (run.script === 'blankless') return asWritten(run);
  if (run.script === 'hangul') return [koreanPhrases(run)];
  return meaningsOf(run.text).flatMap(({ text, forms, words }) =>
    asWritten({ ...run, text }).map((written) => [
      ...written,
      ...forms.flatMap((form) => inPairs(form)),
      ...words.map((word) => ({ lexemes: [word], among: 'whole', isPrefix: false }) as const),
    ]),
  );
}

/** 서울에서 searches for 서울, 사랑하다 for 사랑, in any form; 서울여행 also for 서울 여행. */
function koreanPhrases(run: Run): Phrases {
  const meaning = koreanMeaning(run.text);
  const texts = meaning === run.text ? [run.text] : [run.text, meaning];
  return [
    ...texts.flatMap((text) => asWritten({ ...run, text }).flat()),
    ...koreanParts(meaning).map(phrase),
  ];
}

/** Two characters or more, anywhere in a run. */
function inPairs(text: string): Phrase[] {
  const pairs = [...pairsOfRun({ type: 'run', text, script: 'ideographs' })].slice(0, -1);
  return pairs.length === 0 ? [] : [{ lexemes: pairs, among: 'pairs', isPrefix: false }];
}

// ── As SQL ─────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The text of a tsquery. A single lexeme needs no weights: it matches anywhere, and the index answers without
 * reading the document. With `topics`, the topics of the filter, one of them is required.
 */
export function toTsquery({ terms }: SearchQuery, topics: ReadonlySet<string> | undefined): string {
  const parts = terms.map(
    ({ anyOf, excluded }) => `${excluded ? '!' : ''}(${anyOf.map(phraseText).join(' | ')})`,
  );
  return [...parts, ...topicsText(topics)].join(' & ');
}

/** If a topic has no lexeme, the query does not test topics; the check of the event decides. */
function topicsText(topics: ReadonlySet<string> | undefined): string[] {
  if (topics === undefined) return [];
  const lexemes = [...topics].map(hashtagOf);
  if (lexemes.some((lexeme) => lexeme === undefined)) return [];
  return [`(${lexemes.map((lexeme) => quoteLexeme(lexeme!)).join(' | ')})`];
}

function phraseText({ lexemes, among, isPrefix }: Phrase): string {
  const isAnyhow = lexemes.length === 1 && among !== 'whole';
  const weights = isAnyhow ? '' : among === 'pairs' ? 'D' : 'ABC';
  const marks = `${isPrefix ? '*' : ''}${weights}`;
  const spelt = lexemes.map((lexeme) => quoteLexeme(lexeme) + (marks === '' ? '' : `:${marks}`));
  return spelt.length === 1 ? spelt[0]! : `(${spelt.join(' <-> ')})`;
}

/**
 * The query for the rank: each lexeme that is searched for counts, wherever it occurs. Undefined when all
 * terms are excluded.
 */
export function toRankQuery({ terms }: SearchQuery): string | undefined {
  const lexemes = new Set<string>();
  for (const { anyOf, excluded } of terms) {
    if (excluded) continue;
    for (const { lexemes: wanted, isPrefix } of anyOf)
      for (const lexeme of wanted) lexemes.add(quoteLexeme(lexeme) + (isPrefix ? ':*' : ''));
  }
  return lexemes.size === 0 ? undefined : [...lexemes].join(' | ');
}

// ── Live ───────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The same test as the tsquery, for live events. Excluding terms come last, because most posts already fail a
 * required term.
 */
export function matchSearch({ terms }: SearchQuery, words: Words): boolean {
  if (terms.length === 0) return false;
  return terms.every(({ anyOf, excluded }) => anyOf.some((phrase) => holds(words, phrase)) !== excluded);
}

/** Most posts lack one of the lexemes. Only if all are there, their places are compared. */
function holds(words: Words, { lexemes, among, isPrefix }: Phrase): boolean {
  const [first] = lexemes;
  if (first === undefined) return false;
  if (isPrefix) return holdsBeginning(words, first);
  if (!lexemes.every((lexeme) => words.has(lexeme))) return false;
  if (lexemes.length === 1 && among !== 'whole') return true;
  return follow(lexemes.map((lexeme) => placesOf(words, lexeme, among === 'pairs' ? 'pairs' : 'words')));
}

/** A prefix is one character (asWritten). */
function holdsBeginning(words: Words, beginning: string): boolean {
  return beginningsOf(words).has(beginning);
}
