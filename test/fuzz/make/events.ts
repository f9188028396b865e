/** Events: signed ones of a few authors, and ones that are wrong somewhere. */

import { getPublicKey } from 'nostr-tools/pure';
import type { Dice } from '../../../src/demo/rules-dice.js';
import { secretOf } from '../../../src/demo/rules-dice.js';
import { type Author, sign } from '../../support/events.js';
import { hex, oddJson, oddNumber, oddText } from './values.js';

const KINDS = [
  0, 1, 1, 1, 3, 4, 5, 5, 6, 7, 14, 16, 40, 62, 1_059, 1_984, 9_735, 10_002, 13_534, 20_001, 22_242, 24_133,
  24_242, 27_235, 28_934, 28_936, 30_023, 30_382, 39_020, 65_535,
];
const TAGS = [
  'e',
  'p',
  'a',
  't',
  'd',
  'k',
  'expiration',
  'relay',
  'challenge',
  'u',
  'method',
  'payload',
  '-',
  'nonce',
  'subject',
  'title',
  'alt',
  'claim',
  'l',
  'L',
  'h',
  'q',
  'emoji',
  'delegation',
];

export const AUTHORS: readonly Author[] = Array.from({ length: 4 }, (_, place) => {
  const secret = Buffer.from(secretOf('fuzz', place), 'hex');
  return { secret, pubkey: getPublicKey(secret) };
});

export function makeTags(dice: Dice): string[][] {
  const count = dice.chance(0.05) ? dice.between(0, 60) : dice.between(0, 5);
  return Array.from({ length: count }, () => {
    const name = dice.chance(0.9) ? dice.pick(TAGS) : oddText(dice, 4);
    const more = dice.between(0, 3);
    return [name, ...Array.from({ length: more }, () => tagValue(dice, name))];
  });
}

function tagValue(dice: Dice, name: string): string {
  const kind = dice.next();
  if (name === 'a' && kind < 0.6)
    return `${dice.pick(KINDS)}:${dice.pick(AUTHORS).pubkey}:${oddText(dice, 6)}`;
  if (name === 'expiration' && kind < 0.6) return String(oddNumber(dice));
  if (name === 'p' && kind < 0.6) return dice.pick(AUTHORS).pubkey;
  if (kind < 0.3) return hex(dice, 64);
  return oddText(dice, 20);
}

/** Signed, so that it passes the checks of its id and signature. `now`: seconds. */
export function makeSigned(dice: Dice, now: number): Record<string, unknown> {
  const created_at = dice.chance(0.9) ? now - dice.between(0, 5_000) : Math.abs(Math.trunc(oddNumber(dice)));
  const content = makeContent(dice).toWellFormed();
  const tags = makeTags(dice).map((tag) => tag.map((value) => value.toWellFormed()));
  const isSafe = Number.isSafeInteger(created_at);
  const draft = { kind: dice.pick(KINDS), created_at: isSafe ? created_at : now, tags, content };
  return { ...sign(dice.pick(AUTHORS), draft) };
}

function makeContent(dice: Dice): string {
  const kind = dice.next();
  if (kind < 0.2) return JSON.stringify(oddJson(dice));
  return oddText(dice, kind < 0.25 ? 2_000 : 80);
}

/** With the seven fields, unsigned, and often wrong. `now`: seconds. */
export function makeEvent(dice: Dice, now: number): Record<string, unknown> {
  const event: Record<string, unknown> = {
    id: hex(dice, 64),
    pubkey: dice.chance(0.5) ? dice.pick(AUTHORS).pubkey : hex(dice, 64),
    created_at: dice.chance(0.7) ? now - dice.between(-1_000, 100_000) : oddNumber(dice),
    kind: dice.chance(0.8) ? dice.pick(KINDS) : oddNumber(dice),
    tags: makeTags(dice),
    content: makeContent(dice),
    sig: hex(dice, 128),
  };
  if (dice.chance(0.4)) event[dice.pick(Object.keys(event))] = oddJson(dice);
  if (dice.chance(0.1)) delete event[dice.pick(Object.keys(event))];
  if (dice.chance(0.1)) event[oddText(dice, 6)] = oddJson(dice);
  return event;
}
