/**
 * Stems: a word without its ending, so that the forms of one word find each other. The language of a word is
 * unknown, only its script is known; an ending whose removal would merge two different words is kept. Pure,
 * and the same for posts and queries.
 */
import { stemmer } from 'stemmer';

const STEMS_MAX = 20_000;
const stems = new Map<string, string>();
const LATIN = /^[a-z]+$/;
const GREEK = /^[\u0370-\u03ff]{4,}$/;
const CYRILLIC = /^[\u0430-\u045f]{4,}$/;
const ARABIC_FROM = 0x620;
const ARABIC = /^[\u0620-\u06ff]{3,}$/;

/** Cached, because the same few words occur again and again. */
export function stemOf(word: string): string {
  const known = stems.get(word);
  if (known !== undefined) return known;
  const stem = readStem(word);
  if (stems.size >= STEMS_MAX) stems.clear();
  stems.set(word, stem);
  return stem;
}

function readStem(word: string): string {
  if (LATIN.test(word)) return latinStem(word);
  if (CYRILLIC.test(word)) return word.replace(RUSSIAN_ENDING, '');
  if (ARABIC.test(word)) return arabicStem(word);
  return GREEK.test(word) ? greekStem(word) : word;
}

// ── Latin ──────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Words that the stemmer would merge with words of another meaning. Each group between line breaks or `|` has
 * one stem, its first word.
 */
const APART = `
news|bios|aids|https|ads ad|ids id|one ones|ore ores|ate|use uses used using|add adds added adding
paste pastes pasted pasting
university universities|universal universally|organ organs|organic organically|animal animals|anime
organize organizes organized organizing organizer organizers organization organizations
organise organises organised organising organiser organisers organisation organisations
general generally|generic generics|generous generously
experiment experiments experimental experimented experimenting
important importantly importance|community communities|communism communist communists
international|internal internally
authority authorities|authorize authorizes authorized authorizing authorization
business businesses|customer customers
emergency emergencies|engine engines|polite politely|hospitality|department departments|apartment apartments
digital digitally|formation formations|informal informally|unite unites united|evening evenings
herring herrings
severe severely|several|past|bus buses|gas gases|lens lenses|status statuses|statue statues
virus viruses|campus campuses|bonus bonuses|focus focuses focused focusing|bias biases biased|canvas canvases
`;
const APART_STEMS = new Map(
  APART.trim()
    .split(/[|\n]/)
    .map((line) => line.split(' '))
    .flatMap((words) => words.map((word) => [word, words[0]!] as const)),
);
/** The French porte and carte are not port and cart. */
const KEEPS_E = /(?:[clnpr]t|[eio]st)e$/;

/** Porter's stemmer, but a word of three letters keeps its s: gas, bus, iOS, DNS. */
function latinStem(word: string): string {
  const apart = APART_STEMS.get(word);
  if (apart !== undefined) return apart;
  if (word.length === 3 && word.endsWith('s')) return word;
  const single = word.endsWith('tes') ? word.slice(0, -1) : word;
  if (KEEPS_E.test(single)) return single;
  const stem = stemmer(word);
  if (!stem.endsWith('i')) return stem;
  // The stemmer makes "parti" of party, which is a word of another language.
  const isFromY = word[stem.length - 1] === 'y' || word[stem.length] === 'e';
  return isFromY ? `${stem.slice(0, -1)}y` : stem;
}

/** l'eau, d'or, qu'elle; dell'arte; but j'ai does not become AI. */
const ELISION =
  /^(?:[dl]|qu|jusqu|lorsqu|puisqu|quoiqu|dell|nell|sull|dall|all|un|quell|[cjmnst](?='...))'(?=.)/;

export function withoutApostrophes(text: string): string {
  if (!text.includes("'")) return text;
  return text.replace(ELISION, '').replace(/'s$/, '').replaceAll("'", '');
}

// ── Greek ──────────────────────────────────────────────────────────────────────────────────────────────────

/** All endings of a declension become one: δρόμος, δρόμου, δρόμοι; θάλασσα, θάλασσας; πόλη, πόλης. */
const GREEK_ENDINGS: readonly (readonly [RegExp, string])[] = [
  [/(?:ουσ|οσ|ου|οι|ον)$/, 'ο'],
  [/(?:ασ|αν)$/, 'α'],
  [/(?:ησ|ην|εισ)$/, 'η'],
  [/εσ$/, 'ε'],
];

function greekStem(word: string): string {
  for (const [ending, by] of GREEK_ENDINGS) if (ending.test(word)) return word.replace(ending, by);
  return word;
}

// ── Russian ────────────────────────────────────────────────────────────────────────────────────────────────

/** Case endings of nouns and adjectives. At least three letters are left. */
const RUSSIAN_ENDING = new RegExp(
  '(?<=^.{3,})(?:иями|ями|ами|иях|ях|ах|ого|его|ому|ему|ыми|ими|ой|ей|ий|ый|ое|ее|ая|яя|ые|ие|ую|юю|' +
    'ом|ем|ам|ям|ов|ев|ых|их|ым|им|ы|и|а|я|о|е|у|ю|ь|й)$',
);

// ── Arabic ─────────────────────────────────────────────────────────────────────────────────────────────────

/** The article with its joined prefixes. It is removed twice, because words may begin like it: الألوان. */
const ARTICLE = /^(?:[وف]?(?:[بك]?ال)|[وف]?لل)(?=...)/;
/** للغة, "for the language": the word itself begins with the same letter. */
const SHORT_ARTICLE = /^لل(?=..$)/;
const FEMININE_PLURAL = /(?<=...)ات$/;
const MASCULINE_PLURAL = /(?<=....)(?:ون|ين)$/;
/** بيتا, from بيت. */
const ACCUSATIVE = /(?<=^...)ا$/;
/** Possessive pronouns. */
const OWNERS = /(?<=....)(?:ها|هم|هما|كم|نا)$/;

function arabicStem(word: string): string {
  const bare = word.replace(ARTICLE, '').replace(ARTICLE, '').replace(SHORT_ARTICLE, 'ل').replace(OWNERS, '');
  return bare.replace(FEMININE_PLURAL, 'ه').replace(MASCULINE_PLURAL, '').replace(ACCUSATIVE, '');
}

/**
 * "And", "in", "for" and "my" are written together with their word; short words are excluded, because they
 * may begin or end with the same letters.
 */
const JOINED = /^(?:و(?=....)|[بل](?=.....))/;
const MINE = /(?<=....)ي$/;

/** A second form by which the word of a post can be found. */
export function withoutJoined(word: string): string | undefined {
  if (word.charCodeAt(0) < ARABIC_FROM || !ARABIC.test(word)) return undefined;
  const stem = stemOf(word);
  const bare = stemOf(word.replace(JOINED, '')).replace(MINE, '');
  return bare === stem ? undefined : bare;
}
