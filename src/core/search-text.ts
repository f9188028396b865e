/**
 * Texts cut into what can be searched for, the same for posts and for queries: words, runs of scripts without blanks, hashtags,
 * mentions, emoji. Both sides are compared in one spelling (NFKC), without case, and without the accents of Latin letters; marks of
 * other scripts, such as dakuten, tell words apart and stay.
 */
import { stemmer } from 'stemmer';
import { pubkeyOf } from './public-key-text.js';

/** Longer words are cut; a key of an index is short. */
export const LEXEME_LENGTH_MAX = 64;

export type Token =
  /** Words that follow one another; an address has several. */
  | { readonly type: 'words'; readonly words: readonly string[] }
  /** Characters without blanks between words; pairs of them are worth finding only in some scripts. */
  | Run
  /** With the words that it shows. */
  | { readonly type: 'hashtag'; readonly lexeme: string; readonly shown: string }
  | { readonly type: 'mention'; readonly lexeme: string };

export interface Run {
  readonly type: 'run';
  readonly text: string;
  readonly isPaired: boolean;
}

const IDEOGRAPHIC = '[[\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}]&&[\\p{L}\\p{M}\\p{N}]]';
const BLANKLESS = '[[\\p{scx=Thai}\\p{scx=Laoo}\\p{scx=Khmr}\\p{scx=Mymr}]&&[\\p{L}\\p{M}\\p{N}]]';
const LETTER = `[[\\p{L}\\p{M}\\p{N}]--${IDEOGRAPHIC}--${BLANKLESS}]`;
const ADDRESS = 'https?:\\/\\/[!#-;=?-~]+';
/** Keys, and other things that NIP-19 spells, which are no words. */
const ENTITY = '(?:nostr:)?n(?:pub|profile|event|ote|addr)1[02-9ac-hj-np-z]{20,}';
/** What is joined is one, also where it is spelt without the variation selectors that it should have. */
const PICTURE = '\\p{Extended_Pictographic}\\p{Emoji_Modifier}?';
const EMOJI = `\\p{RGI_Emoji_Tag_Sequence}|${PICTURE}(?:\\u200d${PICTURE})*|\\p{RGI_Emoji}`;

/** The groups: address, entity, hashtag, emoji, ideographs, other runs; what is in none is a word. */
const TOKENS = new RegExp(
  `(${ADDRESS})|(${ENTITY})|#([\\p{L}\\p{M}\\p{N}_][\\p{L}\\p{M}\\p{N}_:\\-]*)|(${IDEOGRAPHIC}+)|(${BLANKLESS}+)|${LETTER}+(?:'${LETTER}+)*|(${EMOJI})`,
  'gv',
);
/** The same for ASCII: three times as fast. */
const ASCII_TOKENS = new RegExp(
  `(${ADDRESS})|(${ENTITY})|#([a-z0-9_][a-z0-9_:\\-]*)|[a-z0-9]+(?:'[a-z0-9]+)*`,
  'g',
);
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are part of ASCII
const IS_ASCII = /^[\x00-\x7f]*$/;

// ── One spelling ──────────────────────────────────────────────────────────────────────────────────────────────────

/** Latin letters that are no letter with an accent, and yet are typed as one. */
const LATIN: Readonly<Record<string, string>> = { ß: 'ss', æ: 'ae', œ: 'oe', ø: 'o', đ: 'd', ł: 'l', ı: 'i' };
const ACCENTED = /[\u00df-\u024f\u1e00-\u1eff]/g;
const ACCENTS = /(?<=[a-z])[\u0300-\u036f]+/g;

/** No word has more marks in a row; the two are marks once they are folded. To put thousands in order takes seconds. */
const MARKS = /([\p{M}\uff9e\uff9f]{16})[\p{M}\uff9e\uff9f]+/gu;
/** How a character is drawn. */
const VARIATIONS = /[\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;

/** At most so many characters of the result: one character may stand for eighteen. */
export function foldWords(text: string, lengthMax = Number.POSITIVE_INFINITY): string {
  if (IS_ASCII.test(text)) return text.slice(0, lengthMax).toLowerCase();
  return text
    .toWellFormed()
    .replace(VARIATIONS, '')
    .replace(MARKS, '$1')
    .normalize('NFKC')
    .slice(0, lengthMax)
    .toWellFormed()
    .toLowerCase()
    .replace(ACCENTED, (letter) => LATIN[letter] ?? letter.normalize('NFD').charAt(0))
    .replace(ACCENTS, '')
    .replaceAll('’', "'");
}

// ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const STEMS_MAX = 20_000;
const stems = new Map<string, string>();
const ENGLISH = /^[a-z]+$/;

/** English words without their endings. The cache changes nothing but the time: words are few, and come again and again. */
function stemOf(word: string): string {
  let stem = stems.get(word);
  if (stem !== undefined) return stem;
  stem = stemmer(word);
  if (stems.size >= STEMS_MAX) stems.clear();
  stems.set(word, stem);
  return stem;
}

export function wordOf(text: string): string {
  const word = cut(text.includes("'") ? text.replace(/'s$/, '').replaceAll("'", '') : text);
  return ENGLISH.test(word) ? stemOf(word) : word;
}

/** Never through the middle of a character. */
export function cut(text: string): string {
  return text.length <= LEXEME_LENGTH_MAX ? text : wellFormed(text.slice(0, LEXEME_LENGTH_MAX));
}

function wellFormed(beginning: string): string {
  return beginning.isWellFormed() ? beginning : beginning.slice(0, -1);
}

const UNSEEN = /[\p{C}\s]/gu;

/** The lexeme of a topic or a hashtag; nothing is left of one that has no visible character. */
export function hashtagOf(value: string): string | undefined {
  return foldedHashtag(foldWords(value.slice(0, 4 * LEXEME_LENGTH_MAX), 2 * LEXEME_LENGTH_MAX));
}

function foldedHashtag(folded: string): string | undefined {
  const seen = folded.replace(UNSEEN, '');
  return seen === '' ? undefined : `#${cut(seen)}`;
}

export function mentionOf(pubkey: string): string {
  return `@${pubkey}`;
}

// ── Runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const japanese = new Intl.Segmenter('ja', { granularity: 'word' });
const thai = new Intl.Segmenter('th', { granularity: 'word' });
/** Servers and users drop the last stroke as they like: サーバー, サーバ. */
const LONG_ENDING = /^([\u30a1-\u30fa\u30fc]{3,})\u30fc$/;

/** The cost of a segmenter grows faster than its text. */
const PIECE_LENGTH = 256;

/** Piece by piece, so that no more is cut than is asked for. What ends with a piece may go on: it begins the next. */
export function* wordsOfRun({ text, isPaired }: Run): Generator<string> {
  const segmenter = isPaired ? japanese : thai;
  for (let from = 0; from < text.length; ) {
    const piece = wellFormed(text.slice(from, from + PIECE_LENGTH));
    const isLast = from + piece.length === text.length;
    for (const { segment, index } of segmenter.segment(piece)) {
      const goesOn = index > 0 && index + segment.length === piece.length && !isLast;
      if (goesOn) break;
      from += segment.length;
      yield cut(segment.endsWith('ー') ? segment.replace(LONG_ENDING, '$1') : segment);
    }
  }
}

/** Each two neighbours, and the last one alone: so every character begins one of them. */
export function* pairsOfRun({ text, isPaired }: Run): Generator<string> {
  if (!isPaired) return;
  let before = '';
  for (const character of text) {
    if (before !== '') yield before + character;
    before = character;
  }
  yield before;
}

// ── Tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Words of one address. */
const ADDRESS_WORDS_MAX = 20;

/** The tokens of a folded text, in their order. */
export function* tokensOf(text: string): Generator<Token> {
  const pattern = IS_ASCII.test(text) ? ASCII_TOKENS : TOKENS;
  for (const [found, address, entity, hashtag, ideographs, run, emoji] of text.matchAll(pattern)) {
    if (address !== undefined) yield { type: 'words', words: addressWords(address) };
    else if (entity !== undefined) yield* mentionIn(entity);
    else if (hashtag !== undefined) yield* hashtagIn(hashtag);
    else if (ideographs !== undefined) yield { type: 'run', text: ideographs, isPaired: true };
    else if (run !== undefined) yield { type: 'run', text: run, isPaired: false };
    else if (emoji !== undefined) yield { type: 'words', words: [cut(emoji)] };
    else yield { type: 'words', words: [wordOf(found)] };
  }
}

/** Of its host and path. */
function addressWords(address: string): string[] {
  const [place = ''] = address.slice(address.indexOf('//') + 2).split(/[?#]/, 1);
  return (place.match(/[a-z0-9]+/g) ?? []).slice(0, ADDRESS_WORDS_MAX).map(wordOf);
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
