/** Filters: parsing, cost, cursors, and the live matcher against a naive one. */
import { settingsFrom } from '../../../src/communities/rules-settings.js';
import type { Dice } from '../../../src/demo/rules-dice.js';
import { parseEvent } from '../../../src/events/rules/event.js';
import { type Filter, matchesNothing, matchFilter, parseFilters } from '../../../src/events/rules/filter.js';
import { classOf, countCost, findCost } from '../../../src/events/rules/query-cost.js';
import { isRefusal, words } from '../../../src/events/rules/reply.js';
import { queryText, takeCursor } from '../../../src/relay/cursors/cursor.js';
import { toRankQuery, toTsquery } from '../../../src/search/rules.js';
import { asMatched, type MatchedEvent } from '../../../src/topics/rules.js';
import { AUTHORS } from '../make/events.js';
import { makeFilter } from '../make/filters.js';
import { must, type PureTarget } from '../target.js';
import { NOW } from './now.js';

const SETTINGS = settingsFrom(new Map());
const SAMPLES: readonly MatchedEvent[] = [0, 1, 5, 30_023].map((kind, at) => {
  const event = parseEvent({
    id: 'a'.repeat(64),
    pubkey: AUTHORS[at]!.pubkey,
    created_at: NOW - at * 1_000,
    kind,
    tags: [
      ['t', 'sea'],
      ['d', ''],
      ['p', AUTHORS[0]!.pubkey],
      ['e', 'f'.repeat(64)],
    ],
    content: 'free words',
    sig: 'b'.repeat(128),
  });
  if (isRefusal(event)) throw new Error(event.why);
  return asMatched(event, []);
});

function matchesNaively(filter: Filter, event: MatchedEvent): boolean {
  const { ids, authors, kinds, since, until, tags } = filter;
  if (ids && ![...ids].includes(event.id)) return false;
  if (authors && ![...authors].includes(event.pubkey)) return false;
  if (kinds && ![...kinds].includes(event.kind)) return false;
  if (since !== undefined && event.created_at < since) return false;
  if (until !== undefined && event.created_at > until) return false;
  return tags.every(({ name, values }) =>
    event.tags.some(([key, value]) => key === name && value !== undefined && values.has(value)),
  );
}

function check(filter: Filter): void {
  for (const cost of [findCost(filter, 500), countCost(filter, 1_000_000)])
    must(Number.isFinite(cost.ms) && cost.ms >= 0, 'a cost is a number, not negative');
  if (filter.search !== undefined) {
    must(!toTsquery(filter.search, undefined).includes('\u0000'), 'a query can be sent');
    toRankQuery(filter.search);
  }
  for (const event of SAMPLES) {
    const isMatch = matchFilter(filter, event);
    if (filter.search === undefined)
      must(isMatch === matchesNaively(filter, event), `the live matcher says ${isMatch}`);
    must(!(isMatch && matchesNothing(filter)), 'a filter that matches nothing matches');
  }
}

export const filters: PureTarget = {
  name: 'filters',
  corpus: ['filters'],
  make: (dice: Dice) =>
    JSON.stringify(Array.from({ length: dice.between(1, 3) }, () => makeFilter(dice, NOW))),
  run: (input) => {
    let inputs: unknown;
    try {
      inputs = JSON.parse(input);
    } catch {
      return;
    }
    if (!Array.isArray(inputs)) return;
    const taken = takeCursor(inputs);
    const parsed = isRefusal(taken) ? taken : parseFilters(taken.inputs, SETTINGS);
    if (isRefusal(parsed)) return must(/^[a-z-]+: ./.test(words(parsed)), 'a refusal has its reason');
    parsed.forEach(check);
    must(
      ['light', 'medium', 'heavy', 'search'].includes(classOf(parsed.map((one) => findCost(one, 1)))),
      'class',
    );
    must(queryText(parsed) === queryText([...parsed].reverse()), 'the order of filters means nothing');
  },
};
