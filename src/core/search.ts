/**
 * What a client searches for (NIP-50): words that are all needed, "phrases", -excluded, #hashtags, npub mentions. Pure: the text of a
 * query, its form as a tsquery, and the live matcher, which is the twin of `words @@ query`; a test holds the two, and a naive
 * third, together.
 */
import { type Refusal, refusal } from './reply.js';
import {
  foldWords,
  hashtagOf,
  pairsOfRun,
  type Run,
  type Token,
  tokensOf,
  wordsOfRun,
} from './search-text.js';
import { beginningsOf, placeOf, quoteLexeme, WEIGHTS, type Words, weightOf } from './search-words.js';

export const SEARCH_LENGTH_MAX = 256;
export const SEARCH_TERMS_MAX = 16;

/** Lexemes that are all needed. */
export interface Phrase {
  readonly lexemes: readonly string[];
  /** Of which list they are neighbours, one after another. */
  readonly among: 'words' | 'pairs' | 'anywhere';
  /** The last one may be the beginning of another. */
  readonly isPrefix: boolean;
}

/** One of the phrases is needed, or none of them may be there. */
export interface Term {
  readonly anyOf: readonly Phrase[];
  readonly excluded: boolean;
}

export interface SearchQuery {
  /** Those that are needed first. None: nothing in it can be searched for, and it matches nothing. */
  readonly terms: readonly Term[];
}

/** Extensions of NIP-50; what they ask for is not offered here, so they are passed over. */
const EXTENSION = /^(include|domain|language|sentiment|nsfw):\S*$/i;
const PART = /(-?)"([^"]*)"?|(-?)(\S+)/g;

/** An empty query is as if there were none. */
export function parseSearch(text: string): SearchQuery | Refusal | undefined {
  if (text.length > SEARCH_LENGTH_MAX)
    return refusal('invalid', `a search may have at most ${SEARCH_LENGTH_MAX} characters`);
  const folded = foldWords(text);
  const parts = [...folded.matchAll(PART)].filter(([part]) => !EXTENSION.test(part));
  if (parts.length === 0) return undefined;
  const terms = parts.flatMap(([, minus, quoted, bareMinus, bare]) =>
    quoted === undefined ? termsOf(bare!, bareMinus === '-', false) : termsOf(quoted, minus === '-', true),
  );
  if (terms.length > SEARCH_TERMS_MAX)
    return refusal('invalid', `a search may have at most ${SEARCH_TERMS_MAX} words`);
  return {
    terms: [...terms.filter(({ excluded }) => !excluded), ...terms.filter(({ excluded }) => excluded)],
  };
}

/** What belongs together in one part of a query. */
function termsOf(part: string, excluded: boolean, quoted: boolean): Term[] {
  const tokens = [...tokensOf(part)];
  const loose = quoted ? quotedTerms(tokens) : bareTerms(tokens);
  // What is excluded, or in quotes, is meant as it is written.
  const isMeant = quoted || excluded ? isStrict : isUsable;
  const anyOf = loose.map((phrases) => phrases.filter(isMeant)).filter(({ length }) => length > 0);
  if (!excluded || anyOf.length <= 1) return anyOf.map((phrases) => ({ anyOf: phrases, excluded }));
  // To exclude several things that belong together would need "not all of these": the words in a row are what is meant.
  return [{ anyOf: [wordsInARow(tokens)], excluded }];
}

type Phrases = readonly Phrase[];
/** An address may have no word in it. */
const isUsable = ({ lexemes }: Phrase) => lexemes.length > 0;
const isStrict = (phrase: Phrase) => isUsable(phrase) && phrase.among !== 'anywhere';

/** Words that are written together (well-known, example.com) follow one another; each run is looked for by itself. */
function bareTerms(tokens: readonly Token[]): Phrases[] {
  const terms: Phrases[] = [];
  let words: string[] = [];
  const finish = () => {
    if (words.length > 0) terms.push([phrase(words)]);
    words = [];
  };
  for (const token of tokens) {
    if (token.type === 'words') {
      words.push(...token.words);
      continue;
    }
    finish();
    terms.push(token.type === 'run' ? runPhrases(token) : [phrase([token.lexeme])]);
  }
  finish();
  return terms;
}

function quotedTerms(tokens: readonly Token[]): Phrases[] {
  const aside = tokens.filter((token) => token.type === 'hashtag' || token.type === 'mention');
  const inRow = tokens.filter((token) => token.type === 'words' || token.type === 'run');
  const [first] = inRow;
  const terms: Phrases[] = aside.map(({ lexeme }) => [phrase([lexeme])]);
  if (first === undefined) return terms;
  const isOneRun = inRow.length === 1 && first.type === 'run';
  return [...terms, isOneRun ? runPhrases(first) : [wordsInARow(inRow)]];
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

/** Particles and endings, for the most part. */
const HIRAGANA = /^[\u3041-\u309f]+$/;

/**
 * By its words, and by its characters wherever the words of the post begin and end. One character is the beginning of a pair.
 * What particles join (京都の紅葉) may also be apart.
 */
function runPhrases(run: Run): Phrases {
  const words = [...wordsOfRun(run)];
  const pairs = [...pairsOfRun(run)];
  const byWords = phrase(words);
  if (pairs.length === 0) return [byWords];
  if (pairs.length === 1) return [{ lexemes: pairs, among: 'pairs', isPrefix: true }];
  if (pairs.length === 2 && words[0] === pairs[0]) return [byWords];
  const byPairs = { lexemes: pairs.slice(0, -1), among: 'pairs', isPrefix: false } as const;
  const joined = words.filter((word) => !HIRAGANA.test(word));
  if (joined.length < 2 || joined.length === words.length) return [byWords, byPairs];
  return [byWords, byPairs, { lexemes: joined, among: 'anywhere', isPrefix: false }];
}

// ── As SQL ────────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The text of a tsquery. A lexeme alone needs no weights: it is the same wherever it stands, and an index answers for it without
 * looking at the document. Of the topics, those that the filter asks for, one is needed.
 */
export function toTsquery({ terms }: SearchQuery, topics: ReadonlySet<string> | undefined): string {
  const parts = terms.map(
    ({ anyOf, excluded }) => `${excluded ? '!' : ''}(${anyOf.map(phraseText).join(' | ')})`,
  );
  return [...parts, ...topicsText(topics)].join(' & ');
}

/** A topic that has no lexeme could be missed: then the event alone decides. */
function topicsText(topics: ReadonlySet<string> | undefined): string[] {
  if (topics === undefined) return [];
  const lexemes = [...topics].map(hashtagOf);
  if (lexemes.some((lexeme) => lexeme === undefined)) return [];
  return [`(${lexemes.map((lexeme) => quoteLexeme(lexeme!)).join(' | ')})`];
}

function phraseText({ lexemes, among, isPrefix }: Phrase): string {
  if (among === 'anywhere') return `(${lexemes.map(quoteLexeme).join(' & ')})`;
  const weights = lexemes.length === 1 ? '' : among === 'pairs' ? 'D' : 'ABC';
  const marks = `${isPrefix ? '*' : ''}${weights}`;
  const spelt = lexemes.map((lexeme) => quoteLexeme(lexeme) + (marks === '' ? '' : `:${marks}`));
  return spelt.length === 1 ? spelt[0]! : `(${spelt.join(' <-> ')})`;
}

/** What ranks a document: each lexeme that is looked for counts, wherever it stands. Undefined when all are excluded. */
export function toRankQuery({ terms }: SearchQuery): string | undefined {
  const lexemes = new Set<string>();
  for (const { anyOf, excluded } of terms) {
    if (excluded) continue;
    for (const { lexemes: wanted, isPrefix } of anyOf)
      for (const lexeme of wanted) lexemes.add(quoteLexeme(lexeme) + (isPrefix ? ':*' : ''));
  }
  return lexemes.size === 0 ? undefined : [...lexemes].join(' | ');
}

// ── Live ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The live twin of the tsquery. Terms that exclude are the last: most posts lack what is needed, and are done with. */
export function matchSearch({ terms }: SearchQuery, words: Words): boolean {
  if (terms.length === 0) return false;
  return terms.every(({ anyOf, excluded }) => anyOf.some((phrase) => holds(words, phrase)) !== excluded);
}

function holds(words: Words, { lexemes, among, isPrefix }: Phrase): boolean {
  const [first, ...rest] = lexemes;
  if (first === undefined) return false;
  if (isPrefix) return holdsBeginning(words, first);
  if (among === 'anywhere') return lexemes.every((lexeme) => words.has(lexeme));
  const entries = words.get(first);
  if (entries === undefined || rest.length === 0) return entries !== undefined;
  const isAmong = (entry: number) => (weightOf(entry) === WEIGHTS.D) === (among === 'pairs');
  const followers = rest.map((lexeme) => new Set((words.get(lexeme) ?? []).filter(isAmong).map(placeOf)));
  return entries
    .filter(isAmong)
    .some((entry) => followers.every((places, at) => places.has(placeOf(entry) + at + 1)));
}

/** A beginning is one character (runPhrases). */
function holdsBeginning(words: Words, beginning: string): boolean {
  return beginningsOf(words).has(beginning);
}
