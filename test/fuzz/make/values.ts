/** Values that programs get wrong: numbers at their limits, texts that break encodings, JSON of any shape. */
import type { Dice } from '../../../src/demo/rules-dice.js';

export const NUMBERS: readonly number[] = [
  0,
  -0,
  1,
  -1,
  2,
  0.5,
  -1.5,
  255,
  256,
  65_535,
  65_536,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 32,
  2 ** 53 - 1,
  2 ** 53,
  2 ** 63,
  1e21,
  1e308,
  -1e308,
  5e-324,
  1_700_000_000,
  4_102_444_800,
];

export const TEXTS: readonly string[] = [
  '',
  ' ',
  '\u0000',
  'a\u0000b',
  '\ud800',
  '\udc00x',
  '\ufeff',
  '\u2028\u2029',
  '\u202eabc',
  '\u200b',
  'ﷺ',
  'é\u0301\u0302\u0303\u0304',
  'ß',
  'İ',
  '日本語',
  '👨‍👩‍👧',
  "'",
  '"',
  '\\',
  "'; DROP TABLE events; --",
  '%',
  '_',
  '%s%n',
  '$1',
  '../../../etc/passwd',
  '..%2f..%2f',
  '<script>alert(1)</script>',
  '{{7*7}}',
  '\r\nX-Injected: 1',
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  'null',
  'undefined',
  'NaN',
  'true',
  '1e3',
  '0x10',
  '-1',
  '00',
  'a'.repeat(64),
  'A'.repeat(64),
  'f'.repeat(63),
  '0'.repeat(128),
  'x'.repeat(300),
  'npub1',
  'nsec1',
  'nostr:',
  'wss://example.com',
  'http://127.0.0.1/',
  '::1',
  '127.0.0.1',
  'kukuri:global',
  'kukuri:topic:x',
  '1970-01-01T00:00:00Z',
  '2026-13-45',
  '*',
  '**',
  '/',
  '//',
  '?',
  '#',
  '&',
  '=',
  ';',
  ',',
];

export function oddNumber(dice: Dice): number {
  return dice.chance(0.6) ? dice.pick(NUMBERS) : dice.between(-(2 ** 40), 2 ** 40);
}

export function oddText(dice: Dice, lengthMax = 40): string {
  const kind = dice.next();
  if (kind < 0.5) return dice.pick(TEXTS);
  if (kind < 0.6) return dice.pick(TEXTS) + dice.pick(TEXTS);
  let text = '';
  const length = dice.between(0, lengthMax);
  for (let at = 0; at < length; at += 1) text += String.fromCharCode(charCode(dice));
  return text;
}

function charCode(dice: Dice): number {
  const kind = dice.next();
  if (kind < 0.7) return dice.between(0x20, 0x7e);
  if (kind < 0.8) return dice.between(0, 0x1f);
  return dice.between(0x80, 0xffff);
}

/** Any JSON value, a few levels deep. */
export function oddJson(dice: Dice, depth = 3): unknown {
  const kind = dice.between(0, depth > 0 ? 8 : 4);
  if (kind === 0) return null;
  if (kind === 1) return dice.chance(0.5);
  if (kind === 2) return oddNumber(dice);
  if (kind <= 4) return oddText(dice);
  const size = dice.between(0, 4);
  if (kind <= 6) return Array.from({ length: size }, () => oddJson(dice, depth - 1));
  return Object.fromEntries(
    Array.from({ length: size }, () => [oddText(dice, 8), oddJson(dice, depth - 1)] as const),
  );
}

const HEX = '0123456789abcdef';
export function hex(dice: Dice, length: number): string {
  let text = '';
  while (text.length < length) text += HEX[dice.between(0, 15)];
  return text;
}

export function bytes(dice: Dice, lengthMax: number): string {
  const length = dice.between(0, lengthMax);
  let text = '';
  while (text.length < length) text += String.fromCharCode(dice.between(0, 255));
  return text;
}
