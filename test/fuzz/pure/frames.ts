/** The text of a frame, measured and parsed; the shape of JSON against a naive count. */
import type { Dice } from '../../../src/demo/rules-dice.js';
import { isRefusal, words } from '../../../src/events/rules/reply.js';
import { weightOfInput } from '../../../src/events/rules/weight.js';
import { jsonShape } from '../../../src/limits/rules-json-shape.js';
import { eventIdIn, eventIdOf, kindOf } from '../../../src/relay/input/incoming.js';
import { parseMessage } from '../../../src/relay/input/message.js';
import { makeFrame } from '../make/frames.js';
import { must, type PureTarget } from '../target.js';
import { NOW } from './now.js';

const BYTES_MAX = 20_000;
const CONTEXT = { now: NOW, relay: 'ws://127.0.0.1:7447', challenge: 'challenge', serial: 1 };

interface Counted {
  readonly depth: number;
  readonly keys: number;
}

function countJson(value: unknown): Counted {
  if (typeof value !== 'object' || value === null) return { depth: 0, keys: 0 };
  const members = Object.values(value).map(countJson);
  const own = Array.isArray(value) ? 0 : members.length;
  return {
    depth: 1 + Math.max(0, ...members.map(({ depth }) => depth)),
    keys: members.reduce((sum, { keys }) => sum + keys, own),
  };
}

export const frames: PureTarget = {
  name: 'frames',
  corpus: ['frames'],
  make: (dice: Dice) => makeFrame(dice, CONTEXT),
  run: (input) => {
    const data = Buffer.from(input);
    let charged = 0;
    const message = parseMessage(data, BYTES_MAX, (costMs) => (charged += costMs));
    must(charged >= 0 && Number.isFinite(charged), 'the charge is a finite number, not negative');
    eventIdIn(data);
    if (isRefusal(message)) {
      must(/^invalid: ./.test(words(message)), 'a message that is not parsed is invalid, with a reason');
      return;
    }
    const { depth, keys } = jsonShape(data, Number.POSITIVE_INFINITY);
    const counted = countJson(message);
    // A key that is there twice is parsed twice, and its last value stays.
    must(depth >= counted.depth, `the depth is ${counted.depth}, not ${depth}`);
    must(keys >= counted.keys, `there are ${counted.keys} keys, not ${keys}`);
    must((eventIdOf(message[1]) ?? '').length <= 128, 'the id of an answer is bounded');
    kindOf(message[1]);
    const weight = weightOfInput(message[1], data.length);
    must(Number.isFinite(weight) && weight > 0, 'the weight of an event is a number above 0');
  },
};
