/**
 * Finds letters of other scripts that stand in for Latin ones (`sраm` with a Cyrillic р and а), or the other
 * way round. The table has the letters that common fonts do not distinguish, from the confusables of Unicode
 * (UTS #39). It has no digits: reading `4` as `a` would turn numbers into words. Pure.
 *
 * Honest text must not become another word. So a run of letters counts as disguised only where no language
 * would write it:
 * - letters of two scripts in one run, or
 * - a run of look-alikes only, in a text that has Latin letters but no letter of the run's script without a
 *   look-alike. Text in Russian, Greek or Armenian always has some.
 */

/**
 * By the Latin letter that they look like. Capitals that look like another letter than their small form are
 * listed separately.
 */
const TABLE: Readonly<Record<string, string>> = {
  a: 'АаΑαɑᴀᎪꓮ',
  b: 'ВвЬьΒβʙᏴⲂꓐ',
  c: 'СсᴄᏟⲤⲥꓚ',
  d: 'ԀԁᴅᎠꓓ',
  e: 'ЕеҼҽΕεᴇᎬꓰ',
  f: 'Ғғꜰꓝ',
  g: 'ԌԍɡɢցᏀꓖ',
  h: 'НнҺһΗʜհᎻⲎꓧ',
  i: 'ІіΙιɪⲒⲓꓲ',
  j: 'ЈјϳᴊյᎫꓙ',
  k: 'КкΚκᴋᏦⲔⲕꓗ',
  l: 'ӀӏʟᏞꓡ',
  m: 'МмΜᴍᎷⲘⲙꓟ',
  n: 'ΝηɴոⲚⲛꓠ',
  o: 'ОоΟοσᴏՕօⲞⲟꓳ',
  p: 'РрΡρᴘᏢⲢⲣꓑ',
  q: 'Ԛԛզ',
  r: 'ʀᎡꓣ',
  s: 'ЅѕꜱՏᏚꓢ',
  t: 'ТтΤτᴛᎢⲦⲧꓔ',
  u: 'υᴜՍսꓴ',
  v: 'ѴѵνᴠᏙꓦ',
  w: 'ԜԝѠѡωᴡᎳꓪ',
  x: 'ХхΧχⲬⲭꓫ',
  y: 'УуҮүΥγʏⲨⲩꓬ',
  z: 'ΖᴢᏃⲌⲍꓜ',
};
/** By code unit: the Latin letter that it looks like, or 0. */
const LOOKS = new Uint16Array(0x1_0000);
for (const [latin, others] of Object.entries(TABLE))
  for (const other of others) LOOKS[other.charCodeAt(0)] = latin.charCodeAt(0);

/** Characters that one step reads before it yields. */
const CHARACTERS_PER_STEP = 4_096;

const LATIN = 1;
/** A letter of another script that does not look like a Latin letter. */
const OWN = 32;
/** A Latin letter in the place of another one. */
const ODD = 64;
/** A digit or a mark: it continues a run and fits every script. */
const NEUTRAL = 128;
const COPTIC = 256;
const LISU = 512;
const SCRIPTS = LATIN | 2 | 4 | 8 | 16 | COPTIC | LISU;
const RANGES: readonly (readonly [script: number, from: number, to: number])[] = [
  [LATIN, 0x0041, 0x02af],
  [LATIN, 0x1d00, 0x1dbf],
  [LATIN, 0x1e00, 0x1eff],
  [LATIN, 0xa720, 0xa7ff],
  [2, 0x0370, 0x03ff],
  [2, 0x1f00, 0x1fff],
  [4, 0x0400, 0x052f],
  [4, 0x1c80, 0x1c8f],
  [4, 0xa640, 0xa69f],
  [8, 0x0531, 0x0587],
  [16, 0x13a0, 0x13ff],
  [16, 0xab70, 0xabbf],
  [COPTIC, 0x2c80, 0x2cee],
  [LISU, 0xa4d0, 0xa4f7],
];
/** By code unit; 0 for characters that end a run. */
const CLASSES = new Uint16Array(0x1_0000);
for (const [script, from, to] of RANGES)
  for (let unit = from; unit <= to; unit += 1)
    if (/\p{L}/u.test(String.fromCharCode(unit))) CLASSES[unit] = script | oddness(script, LOOKS[unit] !== 0);
for (let unit = 0x30; unit <= 0x39; unit += 1) CLASSES[unit] = NEUTRAL;
for (let unit = 0x0300; unit <= 0x036f; unit += 1) CLASSES[unit] = NEUTRAL;

function oddness(script: number, looks: boolean): number {
  if (script === LATIN) return looks ? ODD : 0;
  return looks ? 0 : OWN;
}

/**
 * A text with its disguised runs in Latin letters, and the positions of these runs: pairs of start and end,
 * in order.
 */
export interface Undisguised {
  readonly text: string;
  readonly runs: readonly (readonly [from: number, to: number])[];
}

/**
 * Replaces every look-alike with the letter that it looks like. A disguised run and the word that it imitates
 * give the same result.
 */
export function undisguise(text: string): string {
  let found = '';
  for (let at = 0; at < text.length; at += 1)
    found += String.fromCharCode(LOOKS[text.charCodeAt(at)]! || text.charCodeAt(at));
  return found;
}

/**
 * Takes a text in NFKC with its capitals; the result is in lower case. Undefined when nothing is disguised,
 * as in nearly every text.
 */
export function* findDisguised(text: string): Generator<undefined, Undisguised | undefined> {
  const whole = scriptsOf(text);
  if (whole.used === LATIN || whole.used === 0) return undefined;
  // İ becomes two characters in lower case, which would shift all positions after it.
  const shown = text.replaceAll('İ', 'I');
  const runs: [from: number, to: number][] = [];
  for (let at = 0; at < shown.length; ) {
    at = disguisedRuns(shown, whole, at, runs);
    if (at < shown.length) yield;
  }
  if (runs.length === 0) return undefined;
  let found = '';
  let end = 0;
  let looked = 0;
  for (const [from, to] of runs) {
    found += shown.slice(end, from);
    for (let at = from; at < to; at += CHARACTERS_PER_STEP) {
      const piece = shown.slice(at, Math.min(to, at + CHARACTERS_PER_STEP));
      found += undisguise(piece);
      looked += piece.length;
      if (looked < CHARACTERS_PER_STEP) continue;
      looked = 0;
      yield;
    }
    end = to;
  }
  return { text: (found + shown.slice(end)).toLowerCase(), runs };
}

interface Scripts {
  /** Bits of the scripts that its letters belong to, and `ODD`. */
  readonly used: number;
  /** Bits of the scripts with a letter that has no look-alike. */
  readonly own: number;
}

function scriptsOf(text: string): Scripts {
  let used = 0;
  let own = 0;
  for (let at = 0; at < text.length; at += 1) {
    const found = CLASSES[text.charCodeAt(at)]!;
    used |= found & (SCRIPTS | ODD);
    if ((found & OWN) !== 0) own |= found & SCRIPTS;
  }
  return { used, own };
}

/** Adds the disguised runs after a position. Returns the position after the last run that it has read. */
function disguisedRuns(
  text: string,
  whole: Scripts,
  begin: number,
  runs: [from: number, to: number][],
): number {
  let from = begin;
  let used = 0;
  for (let at = begin; at <= text.length; at += 1) {
    const found = at === text.length ? 0 : CLASSES[text.charCodeAt(at)]!;
    if (found !== 0) {
      used |= found & (SCRIPTS | ODD);
      continue;
    }
    if (isDisguised(used, whole)) runs.push([from, at]);
    from = at + 1;
    used = 0;
    if (at - begin >= CHARACTERS_PER_STEP) break;
  }
  return from;
}

function isDisguised(used: number, whole: Scripts): boolean {
  const others = used & SCRIPTS & ~LATIN;
  if (others === 0) return (used & ODD) !== 0;
  const isMixed = (used & LATIN) !== 0 || (others & (others - 1)) !== 0;
  return isMixed || ((whole.used & LATIN) !== 0 && (whole.own & others) === 0);
}
