/**
 * Splits texts into tokens, in the same way for posts and queries: words, runs of scripts without blanks,
 * hashtags, mentions, emoji, and names of code (C#, --force, node.js). A change of script ends a word:
 * iPhone15, AI가.
 */
import { pubkeyOf } from '../events/rules/public-key-text.js';
import { foldWords, isAscii, simplify } from './rules-fold.js';
import { Known } from './rules-known.js';
import { koreanStems, pairedPart } from './rules-korean.js';
import { stemOf, withoutApostrophes, withoutJoined } from './rules-stems.js';

/** Longer words are cut, because keys of an index must be short. */
export const LEXEME_LENGTH_MAX = 64;

export type Token =
  | WordsToken
  /** Characters without blanks between words. */
  | Run
  /** `shown` is its text, for the words in it. */
  | { readonly type: 'hashtag'; readonly lexeme: string; readonly shown: string }
  | { readonly type: 'mention'; readonly lexeme: string };

/** Words in sequence; an address has several. */
export interface WordsToken {
  readonly type: 'words';
  readonly words: readonly string[];
  /** All of them as one lexeme at the position of the first: --force, which is more specific than force. */
  readonly name?: string;
  /** A query for the name also matches the separate words: node.js, node js. */
  readonly isLoose?: boolean;
  /** Other forms by which the first word of a post can be found. */
  readonly also?: readonly string[];
}

/** A run of Chinese and Japanese, of Korean (one word with its particles), or of Thai and others. */
export interface Run {
  readonly type: 'run';
  readonly text: string;
  readonly script: 'ideographs' | 'hangul' | 'blankless';
}

const IDEOGRAPHIC = '[[\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}]&&[\\p{L}\\p{M}\\p{N}]]';
const BLANKLESS = '[[\\p{scx=Thai}\\p{scx=Laoo}\\p{scx=Khmr}\\p{scx=Mymr}]&&[\\p{L}\\p{M}\\p{N}]]';
const HANGUL = '[\\u1100-\\u11ff\\uac00-\\ud7a3]';
const LETTER = `[[\\p{L}\\p{M}\\p{N}]--${IDEOGRAPHIC}--${BLANKLESS}--${HANGUL}]`;
const ADDRESS = '(?:https?|wss?):\\/\\/[!#-;=?-~]+';
/** Keys and other NIP-19 entities, which are not words. */
const ENTITY = '(?:nostr:)?n(?:pub|profile|event|ote|addr)1[02-9ac-hj-np-z]{20,}';
/**
 * c#, c++, notepad++; --flag, -f; .net; .env; node.js. Each begins at a word boundary, so that no text is
 * matched twice.
 */
const FREE = '(?<![a-z0-9])';
const ENDS = '(?![a-z0-9])';
const CODE = [
  `${FREE}[a-z](?:#(?![a-z0-9_])|\\+\\+)`,
  `${FREE}[a-z][a-z0-9]{1,30}(?:\\+\\+|\\.js${ENDS})`,
  `(?<![a-z0-9\\-])-(?:-[a-z][a-z0-9]*(?:-[a-z0-9]+)*|[a-z]{1,2}(?![a-z0-9'\\-]))`,
  `(?:(?<=${FREE}(?:ado|asp|vb))|${FREE})\\.net${ENDS}`,
  `(?<![^\\s"'=])\\.[a-z][a-z0-9_]{1,30}`,
].join('|');
/** A joined sequence is one emoji, even if it lacks the variation selectors that it should have. */
const PICTURE = '\\p{Extended_Pictographic}\\p{Emoji_Modifier}?';
const EMOJI = `\\p{RGI_Emoji_Tag_Sequence}|${PICTURE}(?:\\u200d${PICTURE})*|\\p{RGI_Emoji}`;

/**
 * The groups: address, entity, hashtag, code, ideographs, Korean, other runs, emoji. A match without a group
 * is a word.
 */
const TOKENS = new RegExp(
  `(${ADDRESS})|(${ENTITY})|#([\\p{L}\\p{M}\\p{N}_][\\p{L}\\p{M}\\p{N}_:\\-]*)|(${CODE})|` +
    `(${IDEOGRAPHIC}+)|(${HANGUL}+)|(${BLANKLESS}+)|${LETTER}+(?:'${LETTER}+)*|(${EMOJI})`,
  'gv',
);
/** The same for ASCII: three times as fast. */
const ASCII_TOKENS = new RegExp(
  `(${ADDRESS})|(${ENTITY})|#([a-z0-9_][a-z0-9_:\\-]*)|(${CODE})|[a-z0-9]+(?:'[a-z0-9]+)*`,
  'g',
);

// ── Words ──────────────────────────────────────────────────────────────────────────────────────────────────

export function wordOf(text: string): string {
  return stemOf(cut(withoutApostrophes(text)));
}

const HAS_DIGIT = /\p{N}/u;
const HAS_LATIN = /[a-z]/;
const HAS_OTHER = /[\u0370-\u1dff]/;
/** Digits, Latin letters, other letters. */
const PIECES = /\p{N}+|[a-z\u00df-\u024f\u1e00-\u1eff']+|[^\p{N}a-z\u00df-\u024f\u1e00-\u1eff']+/gu;
/** A text with more pieces is an id, not a word. */
const PIECES_MAX = 4;

/** Splits a word where the script changes. */
function piecesOf(found: string): string[] {
  if (!HAS_DIGIT.test(found) && !(HAS_LATIN.test(found) && HAS_OTHER.test(found))) return [wordOf(found)];
  const pieces = cut(found).match(PIECES) ?? [];
  return pieces.length > PIECES_MAX ? [wordOf(found)] : pieces.map(wordOf).filter((word) => word !== '');
}

function plainWords(found: string): WordsToken {
  const words = piecesOf(found);
  const joined = words.length === 1 ? withoutJoined(found) : undefined;
  return joined === undefined ? { type: 'words', words } : { type: 'words', words, also: [joined] };
}

function codeWords(found: string): WordsToken {
  if (found.startsWith('--'))
    return { type: 'words', words: found.slice(2).split('-').flatMap(piecesOf), name: cut(found) };
  if (found.startsWith('.') && found !== '.net')
    return { type: 'words', words: found.slice(1).split('_').flatMap(piecesOf), name: found };
  if (found.endsWith('.js')) {
    const base = found.slice(0, -3);
    return { type: 'words', words: [...piecesOf(base), 'js'], name: wordOf(`${base}js`), isLoose: true };
  }
  if (found.endsWith('++') && found.length > 3)
    return { type: 'words', words: piecesOf(found.slice(0, -2)), name: found };
  return { type: 'words', words: [found] };
}

/** Cuts to LEXEME_LENGTH_MAX, never in the middle of a character. */
export function cut(text: string): string {
  return text.length <= LEXEME_LENGTH_MAX ? text : wellFormed(text.slice(0, LEXEME_LENGTH_MAX));
}

function wellFormed(beginning: string): string {
  return beginning.isWellFormed() ? beginning : beginning.slice(0, -1);
}

const UNSEEN = /[\p{C}\s]/gu;

/** The lexeme of a topic or a hashtag; undefined when it has no visible character. */
export function hashtagOf(value: string): string | undefined {
  return hashtags.get(value).lexeme;
}

const hashtags = new Known(
  (value) => ({
    lexeme: foldedHashtag(foldWords(value.slice(0, 4 * LEXEME_LENGTH_MAX), 2 * LEXEME_LENGTH_MAX)),
  }),
  LEXEME_LENGTH_MAX,
);

function foldedHashtag(folded: string): string | undefined {
  const seen = folded.replace(UNSEEN, '');
  return seen === '' ? undefined : `#${cut(seen)}`;
}

/** Whole keys would be a large part of a document. Nobody makes two keys with the same first 64 bits. */
const MENTION_DIGITS = 16;

export function mentionOf(pubkey: string): string {
  return `@${pubkey.slice(0, MENTION_DIGITS)}`;
}

// ── Runs ───────────────────────────────────────────────────────────────────────────────────────────────────

export const japanese = new Intl.Segmenter('ja', { granularity: 'word' });
const thai = new Intl.Segmenter('th', { granularity: 'word' });
/** The long vowel mark at the end is optional: サーバー, サーバ. */
const LONG_ENDING = /^([\u30a1-\u30fa\u30fc]{3,})\u30fc$/;

/** Runs are segmented in pieces, because the cost of a segmenter grows faster than its text. */
const PIECE_LENGTH = 256;

/**
 * Only short runs are cached: a call of the segmenter is expensive for them, and longer runs rarely repeat.
 */
const RUN_LENGTH_MAX = 8;
const cutRuns = {
  ideographs: new Known(
    (text) => [...segmentsOf({ type: 'run', text, script: 'ideographs' })],
    RUN_LENGTH_MAX,
  ),
  blankless: new Known((text) => [...segmentsOf({ type: 'run', text, script: 'blankless' })], RUN_LENGTH_MAX),
};

export function* wordsOfRun(run: Run): Generator<string> {
  const { text, script } = run;
  if (script === 'hangul') yield cut(text);
  else if (text.length <= RUN_LENGTH_MAX) yield* cutRuns[script].get(text);
  else yield* segmentsOf(run);
}

/**
 * Works in pieces, so that no more is segmented than the caller reads. A word at the end of a piece may
 * continue, so the next piece begins with it.
 */
function* segmentsOf({ text, script }: Run): Generator<string> {
  const segmenter = script === 'ideographs' ? japanese : thai;
  const simplified = script === 'ideographs' ? simplify(text) : text;
  for (let from = 0; from < text.length; ) {
    const piece = wellFormed(text.slice(from, from + PIECE_LENGTH));
    const isLast = from + piece.length === text.length;
    for (const { segment, index } of segmenter.segment(piece)) {
      const goesOn = index > 0 && index + segment.length === piece.length && !isLast;
      if (goesOn) break;
      const word = simplified.slice(from, from + segment.length);
      from += segment.length;
      yield cut(word.endsWith('ー') ? word.replace(LONG_ENDING, '$1') : word);
    }
  }
}

/** Other forms by which a run that is one word can be found. */
export function stemsOfRun({ text, script }: Run): string[] {
  return script === 'hangul' && text.length <= LEXEME_LENGTH_MAX ? koreanStems(text) : [];
}

/** Each pair of neighbours; for ideographs also the last character alone, so that each one begins a pair. */
export function* pairsOfRun({ text, script }: Run): Generator<string> {
  if (script === 'blankless') return;
  let before = '';
  for (const character of script === 'hangul' ? pairedPart(text) : simplify(text)) {
    if (before !== '') yield before + character;
    before = character;
  }
  if (script === 'ideographs') yield before;
}

// ── Tokens ─────────────────────────────────────────────────────────────────────────────────────────────────

/** Maximum number of words of one address. */
const ADDRESS_WORDS_MAX = 20;

/**
 * No token contains a blank or depends on the text beyond one. So each part between blanks can be split alone
 * and cached.
 */
const BLANKS = /\s+/;
const PART_LENGTH_MAX = 32;
const parts = new Known((part) => [...tokensOfPart(part)], PART_LENGTH_MAX);

/** The tokens of a folded text, in order. */
export function* tokensOf(text: string): Generator<Token> {
  for (const part of text.split(BLANKS))
    if (part.length > PART_LENGTH_MAX) yield* tokensOfPart(part);
    else yield* parts.get(part);
}

function* tokensOfPart(text: string): Generator<Token> {
  const pattern = isAscii(text) ? ASCII_TOKENS : TOKENS;
  for (const [found, address, entity, hashtag, code, ideographs, hangul, run, emoji] of text.matchAll(
    pattern,
  )) {
    if (address !== undefined) yield { type: 'words', words: addressWords(address) };
    else if (entity !== undefined) yield* mentionIn(entity);
    else if (hashtag !== undefined) yield* hashtagIn(hashtag);
    else if (code !== undefined) yield codeWords(code);
    else if (ideographs !== undefined) yield { type: 'run', text: ideographs, script: 'ideographs' };
    else if (hangul !== undefined) yield { type: 'run', text: hangul, script: 'hangul' };
    else if (run !== undefined) yield { type: 'run', text: run, script: 'blankless' };
    else if (emoji !== undefined) yield { type: 'words', words: [cut(emoji)] };
    else yield plainWords(found);
  }
}

/** The words of the host and the path. */
function addressWords(address: string): string[] {
  const [place = ''] = address.slice(address.indexOf('//') + 2).split(/[?#]/, 1);
  return (place.match(/[a-z0-9]+/g) ?? []).slice(0, ADDRESS_WORDS_MAX).flatMap(piecesOf);
}

function* mentionIn(entity: string): Generator<Token> {
  const pubkey = pubkeyOf(entity.replace(/^nostr:/, ''));
  if (pubkey !== undefined) yield { type: 'mention', lexeme: mentionOf(pubkey) };
}

function* hashtagIn(found: string): Generator<Token> {
  let end = found.length;
  while (end > 0 && (found[end - 1] === ':' || found[end - 1] === '-')) end -= 1;
  const shown = found.slice(0, end);
  const lexeme = foldedHashtag(shown.slice(0, 2 * LEXEME_LENGTH_MAX));
  if (lexeme !== undefined) yield { type: 'hashtag', lexeme, shown };
}
