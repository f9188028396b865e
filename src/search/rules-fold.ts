/**
 * Folds a text to one spelling, the same for posts and queries: NFKC, without case, without accents of Latin
 * and Greek letters and vowel marks of Arabic and Hebrew. Letters that people use for one another become one:
 * the forms of alef, ё and е, ヴァ and バ. Marks that distinguish words, such as dakuten, stay. The cost is
 * linear in the length of any text.
 */
import TRADITIONAL from 'opencc-js/dict/TSCharacters';

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are part of ASCII
const IS_ASCII = /^[\x00-\x7f]*$/;
export const isAscii = (text: string): boolean => IS_ASCII.test(text);

/** PCs, TVs; for a longer acronym the stemmer removes the ending. */
const ACRONYMS = /\b([A-Z]{2})s\b/g;

/** Latin letters that NFKC does not decompose, but that people type as other letters. */
const LATIN: Readonly<Record<string, string>> = { ß: 'ss', æ: 'ae', œ: 'oe', ø: 'o', đ: 'd', ł: 'l', ı: 'i' };
const ACCENTED = /[\u00df-\u024f\u1e00-\u1eff]/g;
/** Also on Cyrillic letters, where they show the stress. */
const ACCENTS = /(?<=[a-z\u0400-\u04ff])[\u0300-\u036f]+/g;

/**
 * No word has more marks in sequence (the two listed characters become marks when folded). Normalizing
 * thousands of marks in sequence takes seconds.
 */
const MARKS = /([\p{M}\uff9e\uff9f]{16})[\p{M}\uff9e\uff9f]+/gu;
/** Variation selectors: how a character is drawn. */
const VARIATIONS = /[\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;
const APOSTROPHES = /[\u2018\u2019\u02bc\u00b4]/g;

/** `lengthMax` limits the length of the result, because one character may become eighteen. */
export function foldWords(text: string, lengthMax = Number.POSITIVE_INFINITY): string {
  if (IS_ASCII.test(text)) return text.slice(0, lengthMax).replace(ACRONYMS, '$1').toLowerCase();
  return foldScripts(
    text
      .toWellFormed()
      .replace(APOSTROPHES, "'")
      .replace(VARIATIONS, '')
      .replace(MARKS, '$1')
      .normalize('NFKC')
      .slice(0, lengthMax)
      .toWellFormed()
      .replace(ACRONYMS, '$1')
      .toLowerCase()
      .replace(ACCENTED, (letter) => LATIN[letter] ?? letter.normalize('NFD').charAt(0))
      .replace(ACCENTS, ''),
  );
}

// ── By script ──────────────────────────────────────────────────────────────────────────────────────────────

type Replacement = readonly [RegExp, string | ((found: string) => string)];

/** None of them makes a text longer. */
const SCRIPTS: readonly { readonly has: RegExp; readonly replaced: readonly Replacement[] }[] = [
  {
    has: /[\u0370-\u03ff\u1f00-\u1fff]/,
    replaced: [
      [/[ΐΰϊϋάέήίόύώ\u1f00-\u1fff]/g, (letter) => letter.normalize('NFD').charAt(0)],
      [/(?<=[\u0370-\u03ff])[\u0300-\u036f]+/g, ''],
      [/ς/g, 'σ'],
    ],
  },
  { has: /ё/, replaced: [[/ё/g, 'е']] },
  { has: /[\u0590-\u05ff]/, replaced: [[/[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]/g, '']] },
  {
    has: /[\u0600-\u06ff]/,
    replaced: [
      // Vowel marks, tatweel, and the hamza that stands alone.
      [/[\u0610-\u061a\u0621\u0640\u064b-\u065f\u0670\u06d6-\u06ed]/g, ''],
      [/[آأإٱ]/g, 'ا'],
      [/[ىئی]/g, 'ي'],
      [/ؤ/g, 'و'],
      [/ة/g, 'ه'],
      [/ک/g, 'ك'],
      [/[٠-٩۰-۹]/g, (digit) => String(digit.charCodeAt(0) & 15)],
    ],
  },
  {
    has: /ヴ/,
    replaced: [
      [/ヴ[ァィェォ]?/g, (found) => 'ブバビベボ'.charAt(' ァィェォ'.indexOf(found.charAt(1) || ' '))],
    ],
  },
  { has: /♯/, replaced: [[/♯/g, '#']] },
];

function foldScripts(text: string): string {
  let folded = text;
  for (const { has, replaced } of SCRIPTS)
    if (has.test(folded))
      for (const [found, by] of replaced)
        folded = typeof by === 'string' ? folded.replace(found, by) : folded.replace(found, by);
  return folded;
}

// ── Chinese characters ─────────────────────────────────────────────────────────────────────────────────────

/**
 * The simplified form of each traditional character (OpenCC), by code unit. In this direction every character
 * has one form; where simplified writing has merged two (後 and 后), a search finds both.
 */
const SIMPLIFIED = new Uint16Array(0x1_0000);
for (const pair of TRADITIONAL.split('|')) {
  const [traditional = '', simplified = ''] = pair.split(' ');
  if (traditional.length === 1 && simplified.length === 1)
    SIMPLIFIED[traditional.charCodeAt(0)] = simplified.charCodeAt(0);
}

/** Keeps the length. Words are split before this step, because Japanese is written in traditional forms. */
export function simplify(text: string): string {
  let simplified = '';
  let from = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = SIMPLIFIED[text.charCodeAt(at)]!;
    if (unit === 0) continue;
    simplified += text.slice(from, at) + String.fromCharCode(unit);
    from = at + 1;
  }
  return from === 0 ? text : simplified + text.slice(from);
}
