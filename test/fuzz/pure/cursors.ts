/** Cursors: nothing that the node has not made is opened, and what it has made is. */
import type { Dice } from '../../../src/demo/rules-dice.js';
import { isRefusal } from '../../../src/events/rules/reply.js';
import { openPlace, sealPlace } from '../../../src/postgres/sealed-cursor.js';
import { CursorMaker } from '../../../src/relay/cursors/cursor.js';
import { PositionSeal } from '../../../src/relay/cursors/sealed-position.js';
import { oddText } from '../make/values.js';
import { must, type PureTarget } from '../target.js';

const SECRET = '11'.repeat(32);
const maker = new CursorMaker(new PositionSeal(SECRET), () => 1);
const cursors = maker.cursorsOf(1, [{ tags: [] }]);
const good = cursors.at({ seq: 5, at: 7 });
const place = { asOf: 1, cut: 2, score: 3, createdAt: 4, id: 'a'.repeat(64) };
const sealed = sealPlace({ secret: SECRET, community: 1 }, place);
const sameBytes = (one: string, other: string) =>
  Buffer.from(one, 'base64url').equals(Buffer.from(other, 'base64url'));

function changed(dice: Dice, text: string): string {
  const at = dice.between(0, text.length - 1);
  return text.slice(0, at) + oddText(dice, 3) + text.slice(at + dice.between(0, 3));
}

export const cursorTexts: PureTarget = {
  name: 'cursors',
  corpus: [],
  make: (dice) => (dice.chance(0.2) ? oddText(dice, 80) : changed(dice, dice.pick([good, sealed]))),
  run: (input) => {
    const opened = cursors.open(input);
    const [version, position = '', query] = input.split('.');
    const [, goodPosition, goodQuery] = good.split('.');
    // Base64 has several spellings of the same bytes.
    const isGood = version === 'c1' && sameBytes(position, goodPosition!) && query === goodQuery;
    must(isRefusal(opened) || isGood || input === good, 'a cursor that was not made here is opened');
    const found = openPlace({ secret: SECRET, community: 1 }, input);
    must(found === undefined || sameBytes(input, sealed), 'a sealed place that was not made here is opened');
    must(openPlace({ secret: SECRET, community: 2 }, input) === undefined, 'another community opens it');
  },
};
