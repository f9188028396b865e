/** Filters: mostly good ones, with odd values and fields in between. */
import type { Dice } from '../../../src/demo/rules-dice.js';
import { AUTHORS } from './events.js';
import { hex, oddJson, oddNumber, oddText } from './values.js';

const many = <T>(dice: Dice, make: () => T, max = 4): T[] =>
  Array.from({ length: dice.between(0, dice.chance(0.02) ? 300 : max) }, make);

/** `now`: seconds. */
export function makeFilter(dice: Dice, now: number): Record<string, unknown> {
  const filter: Record<string, unknown> = {};
  const fields: Record<string, () => unknown> = {
    ids: () => many(dice, () => hex(dice, 64)),
    authors: () => many(dice, () => dice.pick(AUTHORS).pubkey),
    kinds: () => many(dice, () => dice.pick([0, 1, 3, 4, 5, 7, 1_059, 10_002, 20_001, 30_023])),
    since: () => now - dice.between(0, 10_000),
    until: () => now + dice.between(-10_000, 10_000),
    limit: () => dice.between(0, 50),
    search: () => oddText(dice, 30),
    '#e': () => many(dice, () => hex(dice, 64)),
    '#t': () => many(dice, () => oddText(dice, 12)),
    '#d': () => many(dice, () => oddText(dice, 12)),
    '#p': () => many(dice, () => dice.pick(AUTHORS).pubkey),
    cursor: () => oddText(dice, 60),
  };
  const names = Object.keys(fields);
  for (let field = dice.between(0, 4); field > 0; field -= 1) {
    const name = dice.pick(names);
    // Few of them: a cursor that is not known ends the REQ, and a search is dear.
    if ((name === 'cursor' || name === 'search') && dice.chance(0.7)) continue;
    filter[name] = fields[name]!();
  }
  if (dice.chance(0.15)) filter[dice.chance(0.5) ? dice.pick(names) : oddText(dice, 4)] = oddJson(dice);
  if (dice.chance(0.1)) filter[dice.pick(['since', 'until', 'limit'])] = oddNumber(dice);
  return filter;
}
