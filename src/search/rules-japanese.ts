/**
 * Expands a Japanese query: its words without the particles between them, the forms of its verbs and
 * adjectives, and both kinds of kana. Posts are indexed as they are written and a query searches for every
 * form, so the rules can be broad where no other word has the form. Pure.
 */
import { japanese } from './rules-text.js';

/**
 * By row of the kana table: what can follow the stem of a verb. The last vowel counts only with its う,
 * because other verbs begin with it (起こる).
 */
const ROWS = [
  ['かきくけいっ', 'こう'],
  ['がぎぐげい', 'ごう'],
  ['さしすせ', 'そう'],
  ['たちつてっ', 'とう'],
  ['なにぬねん', 'のう'],
  ['ばびぶべん', 'ぼう'],
  ['まみむめん', 'もう'],
  ['らりるれっ', 'ろう'],
  ['わいうえっ', 'おう'],
] as const;
const rowsWith = (kana: string): string[] => [
  ...new Set(ROWS.flatMap(([row, will]) => (row.includes(kana) ? [...row, will] : []))),
];
/** Verbs can look like adjectives: 高く, 書く. */
const ADJECTIVE = [...'いくかけきっ', 'すぎ', 'こう'];
/** 見る: verbs whose stem is exactly one character; the rest is the ending. */
const SHORT_VERB = [...'るたてなまよられずろ'];

const I_OR_E = 'いきぎしじちぢにひびみりえけげせぜてでねへべめれ';
const ENDING = '(?:ない|なか|なく|なけ|ず|ます|まし|ませ|たい|たか|たく|ながら)';

/** A stem, and the kana of which one must follow it; without kana the stem alone. */
interface Form {
  readonly stem: string;
  readonly behind: readonly string[];
}

type Rule = readonly [RegExp, (stem: string, match: RegExpExecArray, isShort: boolean) => Form];

/**
 * The first rule that matches the kana after the characters of a word applies. The stem is the characters and
 * what the rule keeps.
 */
const RULES: readonly Rule[] = [
  // 高かった, 美味しくない
  [
    /^(し?|.{1,3}?)(?:かった|かっ.+|くて|くな.+|ければ|く)$/,
    (stem, [, base = '']) => (base === '' ? { stem, behind: ADJECTIVE } : { stem: stem + base, behind: [] }),
  ],
  // 飲んだ, 走って, 書いた
  [
    /^(.{0,2})([っん])([ただてで].*)$/,
    (stem, [, base, kana]) => ({ stem: stem + base, behind: rowsWith(kana!) }),
  ],
  [
    /^(.{0,2})い[ただてで].*$/,
    (stem, [, base]) => ({ stem: stem + base, behind: [...'かがきぎくぐけげい', 'こう', 'ごう'] }),
  ],
  [/^(.{0,2})し[たて].*$/, (stem, [, base]) => ({ stem: stem + base, behind: rowsWith('し') })],
  // 食べた, 起きて, 食べない; 書きます and 起きます are alike
  [
    new RegExp(`^(.?[${I_OR_E}])(?:た(?![いかく]).*|て.*|よう|ろ|られ.*|れば)$`),
    (stem, [, base]) => ({ stem: stem + base, behind: [] }),
  ],
  [
    new RegExp(`^(.?[えけげせぜてでねへべめれ])${ENDING}.*$`),
    (stem, [, base]) => ({ stem: stem + base, behind: [] }),
  ],
  [
    /^(.?)([いきぎしちにびみり])(?:ます|まし|ませ|たい|たか|たく|ながら).*$/,
    (stem, [, base, kana]) => ({ stem: stem + base, behind: rowsWith(kana!) }),
  ],
  [
    /^(.?)([かがさたなばまらわ])(?:ない|なか|なく|なけ|ず|れ|せ).*$/,
    (stem, [, base, kana]) => ({ stem: stem + base, behind: rowsWith(kana!) }),
  ],
  // 見た, 来ない
  [
    new RegExp(`^(?:[たて].*|よう|られ.*|れば|${ENDING}.*)$`),
    (stem, _match, isShort) => (isShort ? { stem, behind: SHORT_VERB } : { stem, behind: [] }),
  ],
  // Dictionary forms: 食べる, 起きる, then 見る and 走る, 飲む, 高い, 美味しい
  [new RegExp(`^(.?[${I_OR_E}])る$`), (stem, [, base]) => ({ stem: stem + base, behind: [] })],
  [
    /^()る$/,
    (stem, _match, isShort) => ({
      stem,
      behind: isShort ? [...SHORT_VERB, ...rowsWith('る')] : rowsWith('る'),
    }),
  ],
  [
    /^(.{0,2})([うくぐすつぬぶむる])$/,
    (stem, [, base, kana]) => ({ stem: stem + base, behind: rowsWith(kana!) }),
  ],
  [/^(.{1,3})い$/, (stem, [, base]) => ({ stem: stem + base, behind: [] })],
  [/^い$/, (stem) => ({ stem, behind: [...ADJECTIVE, ...'わうえっ', 'おう'] })],
];

/** 勉強する: the noun of several characters is searched. */
const DOES = /^(?:する|すれば|した.*|して.*|しな.*|しま.*|しよう|しろ|され.*|させ.*|でき.*)$/;
const PARTICLES =
  /^(?:の|を|が|に|は|へ|と|も|や|で|か|から|まで|より|だけ|など|って|には|では|とは|での|への|との|にも|でも|からの|までの|です|でした|だ|だった|な|ね|よ)$/;

/** 静かな, 引っ越しの */
const LAST_PARTICLE = /(?<=[^なにのをがはもとへで])[なにのをがはもとへで]$/;
const CHINESE_PARTICLES = new Set(['的', '和', '与', '與']);

/** Splits 北京的天气 in two: here the particle is a word, not part of one as in 目的地. */
function withoutChineseParticles(run: string): string {
  if (![...CHINESE_PARTICLES].some((particle) => run.includes(particle))) return run;
  const words = [...japanese.segment(run)].map(({ segment }) => segment);
  return words.map((word) => (CHINESE_PARTICLES.has(word) ? ' ' : word)).join('');
}

const PIECES = /([\p{sc=Han}々〆ヶ]+)([ぁ-ゟー]*)|[ァ-ヺー]+|[ぁ-ゟー]+| /gu;
const HIRAGANA = /^[ぁ-ゟー]+$/;

/** One required part, with the ways to write it. */
export interface Meaning {
  readonly text: string;
  /** Other ways to write it: each may occur anywhere in a run. */
  readonly forms: readonly string[];
  /** Those that are too short for that: each must be a word. */
  readonly words: readonly string[];
}

/** The required parts of a run, in any place: particles join them, and a verb is a part of its own. */
export function meaningsOf(run: string): Meaning[] {
  const meanings: Meaning[] = [];
  let joined = '';
  const finish = () => {
    if (joined !== '') meanings.push({ text: joined, forms: kanaOf(joined), words: shortKanaOf(joined) });
    joined = '';
  };
  for (const [piece, characters, kana = ''] of withoutChineseParticles(run).matchAll(PIECES)) {
    if (piece === ' ') finish();
    else if (characters === undefined) {
      const forms = formsInKana(piece);
      if (PARTICLES.test(piece) || forms.length > 0) finish();
      else joined += piece;
      if (forms.length > 0) meanings.push({ text: piece, forms: [...forms, ...kanaOf(piece)], words: [] });
    } else if (kana === '') joined += characters;
    else if (PARTICLES.test(kana)) {
      joined += characters;
      finish();
    } else if (characters.length > 1 && DOES.test(kana)) {
      joined += characters;
      finish();
    } else {
      const forms = formsOf(characters, kana);
      if (forms.length === 0) {
        const base = kana.replace(LAST_PARTICLE, '');
        joined += characters + base;
        if (base !== kana) finish();
      } else {
        finish();
        meanings.push({ text: piece, forms, words: [] });
      }
    }
  }
  finish();
  return meanings.length === 0 ? [{ text: run, forms: [], words: [] }] : meanings;
}

/** For a word in hiragana only: わかる, おいしかった. Two kana are too few to find the stem. */
function formsInKana(text: string): string[] {
  if (!HIRAGANA.test(text) || PARTICLES.test(text)) return [];
  for (let at = 1; at < text.length; at += 1) {
    const forms = formsOf(text.slice(0, at), text.slice(at), 2);
    if (forms.length > 0) return forms;
  }
  return [];
}

function formsOf(characters: string, kana: string, stemLengthMin = 1): string[] {
  const isShort = characters.length === 1;
  for (const [pattern, form] of RULES) {
    const match = pattern.exec(kana);
    if (match === null) continue;
    const { stem, behind } = form(characters, match, isShort);
    if (stem.length < stemLengthMin) continue;
    if (behind.length > 0) return behind.map((each) => stem + each);
    if (stem.length > 1) return [stem];
  }
  return [];
}

// ── Kana ───────────────────────────────────────────────────────────────────────────────────────────────────

const BETWEEN = 0x60;
const shift = (text: string, from: RegExp, by: number) =>
  text.replace(from, (kana) => String.fromCharCode(kana.charCodeAt(0) + by));

const toHiragana = (text: string) => shift(text, /[ァ-ヶ]/g, -BETWEEN);
const toKatakana = (text: string) => shift(text, /[ぁ-ゖ]/g, BETWEEN);

/** The same sound in the other kana. */
function kanaOf(text: string): string[] {
  const others = [text.replace(/[ァ-ヶー]{3,}/g, toHiragana), text.replace(/[ぁ-ゖー]{3,}/g, toKatakana)];
  return others.filter((other) => other !== text);
}

/** Two kana also occur inside other words: カニ, 静かに. */
function shortKanaOf(text: string): string[] {
  if (/^[ァ-ヶ]{2}$/.test(text)) return [toHiragana(text)];
  return /^[ぁ-ゖ]{2}$/.test(text) ? [toKatakana(text)] : [];
}
