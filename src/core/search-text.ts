/**
 * Texts cut into what can be searched for, the same for posts and for queries: words, runs of scripts without
 * blanks, hashtags, mentions, emoji, and the names that code has (C#, --force, node.js). A change of script
 * ends a word: iPhone15, AI가.
 */
import { pubkeyOf } from './public-key-text.js';
import { foldWords, isAscii, simplify } from './search-fold.js';
import { koreanStems, pairedPart } from './search-korean.js';
import { stemOf, withoutApostrophes, withoutJoined } from './search-stems.js';

/** Longer words are cut; a key of an index is short. */
export const LEXEME_LENGTH_MAX = 64;

export type Token =
  | WordsToken
  /** Characters without blanks between words. */
  | Run
  /** With the words that it shows. */
  | { readonly type: 'hashtag'; readonly lexeme: string; readonly shown: string }
  | { readonly type: 'mention'; readonly lexeme: string };

/** Words that follow one another; an address has several. */
export interface WordsToken {
  readonly type: 'words';
  readonly words: readonly string[];
  /** All of them as one, at the place of the first: --force, which is more than force. */
  readonly name?: string;
  /** What is asked for as a name may also be written apart: node.js, node js. */
  readonly isLoose?: boolean;
  /** By which the first word of a post can be found too. */
  readonly also?: readonly string[];
}

/** Of Chinese and Japanese; of Korean, where it is one word with its particles; of Thai and others. */
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
/** Keys, and other things that NIP-19 spells, which are no words. */
const ENTITY = '(?:nostr:)?n(?:pub|profile|event|ote|addr)1[02-9ac-hj-np-z]{20,}';
/**
 * c#, c++, notepad++; --flag, -f; .net; .env; node.js. Each begins where no word goes on, so that none is
 * looked at twice.
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
/** What is joined is one, also where it is spelt without the variation selectors that it should have. */
const PICTURE = '\\p{Extended_Pictographic}\\p{Emoji_Modifier}?';
const EMOJI = `\\p{RGI_Emoji_Tag_Sequence}|${PICTURE}(?:\\u200d${PICTURE})*|\\p{RGI_Emoji}`;

/**
 * The groups: address, entity, hashtag, code, ideographs, Korean, other runs, emoji; what is in none is a
 * word.
 */
const TOKENS = new RegExp(
  `(${ADDRESS})|(${ENTITY})|#([\\p{L}\\p{M}\\p{N}_][\\p{L}\\p{M}\\p{N}_:\\-]*)|(${CODE})|(${IDEOGRAPHIC}+)|(${HANGUL}+)|(${BLANKLESS}+)|${LETTER}+(?:'${LETTER}+)*|(${EMOJI})`,
  'gv',
);
/** The same for ASCII: three times as fast. */
const ASCII_TOKENS = new RegExp(
  `(${ADDRESS})|(${ENTITY})|#([a-z0-9_][a-z0-9_:\\-]*)|(${CODE})|[a-z0-9]+(?:'[a-z0-9]+)*`,
  'g',
);

// ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────

export function wordOf(text: string): string {
  return stemOf(cut(withoutApostrophes(text)));
}

const HAS_DIGIT = /\p{N}/u;
const HAS_LATIN = /[a-z]/;
const HAS_OTHER = /[\u0370-\u1dff]/;
/** Digits, Latin letters, other letters. */
const PIECES = /\p{N}+|[a-z\u00df-\u024f\u1e00-\u1eff']+|[^\p{N}a-z\u00df-\u024f\u1e00-\u1eff']+/gu;
/** What has more is no word but an id. */
const PIECES_MAX = 4;

/** A word, in the pieces that a change of script makes. */
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

export const japanese = new Intl.Segmenter('ja', { granularity: 'word' });
const thai = new Intl.Segmenter('th', { granularity: 'word' });
/** Servers and users drop the last stroke as they like: サーバー, サーバ. */
const LONG_ENDING = /^([\u30a1-\u30fa\u30fc]{3,})\u30fc$/;

/** The cost of a segmenter grows faster than its text. */
const PIECE_LENGTH = 256;

/** Piece by piece, so that no more is cut than is asked for. What ends with a piece may go on: it begins the next. */
export function* wordsOfRun({ text, script }: Run): Generator<string> {
  if (script === 'hangul') {
    yield cut(text);
    return;
  }
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

/** By which a run that is one word can be found too. */
export function stemsOfRun({ text, script }: Run): string[] {
  return script === 'hangul' && text.length <= LEXEME_LENGTH_MAX ? koreanStems(text) : [];
}

/** Each two neighbours; of ideographs also the last one alone, so that every character begins one of them. */
export function* pairsOfRun({ text, script }: Run): Generator<string> {
  if (script === 'blankless') return;
  let before = '';
  for (const character of script === 'hangul' ? pairedPart(text) : simplify(text)) {
    if (before !== '') yield before + character;
    before = character;
  }
  if (script === 'ideographs') yield before;
}

// ── Tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Words of one address. */
const ADDRESS_WORDS_MAX = 20;

/** The tokens of a folded text, in their order. */
export function* tokensOf(text: string): Generator<Token> {
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

/** Of its host and path. */
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
