/** Messages of a client (NIP-01, 42, 45, 77): the text of one frame. */
import type { Dice } from '../../../src/demo/rules-dice.js';
import { sign } from '../../support/events.js';
import { AUTHORS, makeEvent, makeSigned } from './events.js';
import { makeFilter } from './filters.js';
import { makeNegentropy, toHexText } from './negentropy.js';
import { hex, oddJson, oddText } from './values.js';

export interface FrameContext {
  /** Seconds. */
  readonly now: number;
  /** Where the node is: for AUTH (NIP-42). */
  readonly relay: string;
  /** The challenge of the connection, if it has had one. */
  readonly challenge: string | undefined;
  /** A number of its own, for ids of subscriptions. */
  readonly serial: number;
}

function subscriptionId(dice: Dice, serial: number): unknown {
  const kind = dice.next();
  if (kind < 0.8) return `s${serial}`;
  if (kind < 0.95) return oddText(dice, 70);
  return oddJson(dice, 1);
}

export function makeFrame(dice: Dice, { now, relay, challenge, serial }: FrameContext): string {
  const id = () => subscriptionId(dice, serial);
  const filters = () => Array.from({ length: dice.between(1, 3) }, () => makeFilter(dice, now));
  const kind = dice.next();
  if (kind < 0.12) return JSON.stringify(['EVENT', makeSigned(dice, now)]);
  if (kind < 0.3) return JSON.stringify(['EVENT', makeEvent(dice, now)]);
  if (kind < 0.55) return JSON.stringify(['REQ', id(), ...filters()]);
  if (kind < 0.62) return JSON.stringify(['COUNT', id(), ...filters()]);
  if (kind < 0.68) return JSON.stringify(['CLOSE', id()]);
  if (kind < 0.74) return JSON.stringify(['AUTH', makeAuth(dice, now, relay, challenge)]);
  if (kind < 0.8)
    return JSON.stringify(['NEG-OPEN', id(), makeFilter(dice, now), toHexText(makeNegentropy(dice))]);
  if (kind < 0.84) return JSON.stringify(['NEG-MSG', id(), toHexText(makeNegentropy(dice))]);
  if (kind < 0.86) return JSON.stringify(['NEG-CLOSE', id()]);
  if (kind < 0.93)
    return JSON.stringify([
      dice.pick(['EVENT', 'REQ', 'COUNT', 'AUTH', 'NEG-OPEN', 'PING']),
      oddJson(dice),
      oddJson(dice),
    ]);
  return dice.chance(0.5) ? JSON.stringify(oddJson(dice)) : oddText(dice, 60).toWellFormed();
}

/** A proof of a key (NIP-42), good or wrong in one place. */
function makeAuth(dice: Dice, now: number, relay: string, challenge: string | undefined): unknown {
  const tags = [
    ['relay', dice.chance(0.8) ? relay : oddText(dice).toWellFormed()],
    ['challenge', dice.chance(0.8) && challenge !== undefined ? challenge : hex(dice, 32)],
  ];
  const kind = dice.chance(0.9) ? 22_242 : 1;
  const created_at = dice.chance(0.8) ? now : dice.between(0, 2 ** 33);
  const event = sign(dice.pick(AUTHORS), { kind, created_at, tags, content: '' });
  return dice.chance(0.2) ? { ...event, [dice.pick(Object.keys(event))]: oddJson(dice) } : event;
}
