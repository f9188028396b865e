/**
 * Messages of negentropy (NIP-77), as bytes in Latin-1: bounds, modes and lists that follow its grammar or
 * not.
 */
import type { Dice } from '../../../src/demo/rules-dice.js';
import { bytes } from './values.js';

const VERSION = '\u0061';

function varint(value: number): string {
  const digits: number[] = [];
  let rest = value;
  do {
    digits.unshift(rest % 128);
    rest = Math.floor(rest / 128);
  } while (rest > 0);
  return digits
    .map((digit, at) => String.fromCharCode(at === digits.length - 1 ? digit : digit | 128))
    .join('');
}

function fixed(dice: Dice, length: number): string {
  let text = '';
  while (text.length < length) text += String.fromCharCode(dice.between(0, 255));
  return text;
}

function range(dice: Dice): string {
  const prefix = dice.between(0, dice.chance(0.9) ? 32 : 200);
  const bound =
    varint(dice.between(0, dice.chance(0.8) ? 3 : 2 ** 45)) + varint(prefix) + fixed(dice, prefix);
  switch (dice.between(0, 4)) {
    case 0:
      return bound + varint(0);
    case 1:
      return bound + varint(1) + fixed(dice, 16);
    case 2: {
      const ids = dice.between(0, 5);
      return bound + varint(2) + varint(ids) + fixed(dice, 32 * ids);
    }
    case 3:
      return bound + varint(2) + varint(dice.between(0, 2 ** 40)) + bytes(dice, 40);
    default:
      return bound + varint(dice.between(0, 200)) + bytes(dice, 20);
  }
}

export function makeNegentropy(dice: Dice): string {
  if (dice.chance(0.1)) return bytes(dice, 60);
  const version = dice.chance(0.95) ? VERSION : String.fromCharCode(dice.between(0x50, 0x70));
  return version + Array.from({ length: dice.between(0, 6) }, () => range(dice)).join('');
}

export function toHexText(latin1: string): string {
  return Buffer.from(latin1, 'latin1').toString('hex');
}
