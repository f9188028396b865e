/** Lines of an import file, in any chunks, and messages of gossip, in any order. */
import type { Dice } from '../../../src/demo/rules-dice.js';
import { readLines } from '../../../src/events/files/jsonl.js';
import { messagesOf, parseMessage } from '../../../src/p2p/rules-envelope.js';
import { Parts } from '../../../src/p2p/rules-parts.js';
import { makeEvent } from '../make/events.js';
import { bytes, oddText } from '../make/values.js';
import { must, type PureTarget } from '../target.js';
import { NOW } from './now.js';

const LINE_BYTES_MAX = 500;
const ENDS = ['\n', '\r\n', '\n\n', '\r', ''];

function make(dice: Dice): string {
  const line = () => (dice.chance(0.5) ? JSON.stringify(makeEvent(dice, NOW)) : oddText(dice, 40));
  return Array.from({ length: dice.between(0, 6) }, () => line() + dice.pick(ENDS)).join('');
}

export const files: PureTarget = {
  name: 'files',
  corpus: ['events', 'texts'],
  make,
  run: async (input) => {
    const data = Buffer.from(input);
    const read = async (size: number) => {
      async function* chunks(): AsyncGenerator<Buffer> {
        for (let at = 0; at < data.length; at += size) yield data.subarray(at, at + size);
      }
      const lines = [];
      for await (const some of readLines(chunks(), LINE_BYTES_MAX)) lines.push(...some);
      return lines;
    };
    const whole = await read(Math.max(1, data.length));
    const parts = await read(7);
    const show = (lines: typeof whole) =>
      lines.map(({ number, bytes: line, tooLong }) => [
        number,
        tooLong,
        tooLong ? '' : line.toString('latin1'),
      ]);
    must(JSON.stringify(show(whole)) === JSON.stringify(show(parts)), 'lines depend on the size of chunks');
    must(
      whole.every(({ bytes: line }) => line.length <= LINE_BYTES_MAX + 1),
      'a line is bounded',
    );
  },
};

const gathered = new Parts();
let time = 0;

export const gossip: PureTarget = {
  name: 'gossip',
  corpus: [],
  make: (dice: Dice) => {
    if (dice.chance(0.3)) return `\u0001${dice.pick(['\u0000', '\u0001', '\u0002'])}${bytes(dice, 60)}`;
    const payload = 'x'.repeat(dice.between(0, 12_000));
    const messages = messagesOf('ab'.repeat(32), payload);
    return Buffer.from(dice.pick(messages)).toString('latin1');
  },
  run: (input) => {
    const message = parseMessage(Buffer.from(input, 'latin1'));
    if (message?.type !== 'part') return;
    time += 100;
    gathered.add(`peer ${time % 3_000}`, message, time);
    gathered.expire(time);
    must(gathered.bytes <= 16 * 1_048_576 && gathered.bytes >= 0, 'parts that wait are bounded');
  },
};
