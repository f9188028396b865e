import { describe, expect, it } from 'vitest';
import { subscribersOf } from '../../test/support/subscribers.js';
import type { Filter } from '../events/rules/filter.js';
import { SubscriptionIndex } from './subscription-index.js';

const TAGS = 1_900;
const event = (tags: string[][]) => ({
  ...{ id: '1'.repeat(64), pubkey: 'a'.repeat(64), created_at: 100, kind: 1, content: '', sig: '' },
  tags,
});

/** Counts how often one of its values is looked for or read. */
class CountedValues extends Set<string> {
  static looks = 0;
  override has(value: string): boolean {
    CountedValues.looks += 1;
    return super.has(value);
  }
  override *[Symbol.iterator](): SetIterator<string> {
    for (const value of super.values()) {
      CountedValues.looks += 1;
      yield value;
    }
    return undefined;
  }
}

describe('an event with many tags', () => {
  it('is compared with a filter once, however often it has the tag', () => {
    const index = new SubscriptionIndex<number>();
    let compared = 0;
    for (let number = 0; number < 10; number += 1) {
      const filter: Filter = {
        tags: [{ name: 't', values: new Set(['pop']) }],
        get since() {
          compared += 1;
          return 200;
        },
      };
      index.add(number, [filter]);
    }
    compared = 0;
    expect(subscribersOf(index.match(event(Array.from({ length: TAGS }, () => ['t', 'pop']))))).toEqual([]);
    expect(compared).toBeLessThan(50);
  });

  it('is not looked through once for each condition of a filter', () => {
    const index = new SubscriptionIndex<number>();
    const letters = [...'abcdefghijklmnopqrsuvwxyz'];
    const conditions = letters.map((name) => ({ name, values: new CountedValues(['v', 'w']) }));
    index.add(1, [{ tags: [{ name: 't', values: new Set(['pop']) }, ...conditions] }]);
    CountedValues.looks = 0;
    const filler = Array.from({ length: TAGS }, (_, number) => ['z', `filler ${number}`]);
    const tags = [...filler, ['t', 'pop'], ...letters.map((name) => [name, 'w'])];
    expect(subscribersOf(index.match(event(tags)))).toEqual([1]);
    expect(CountedValues.looks).toBeLessThan(10 * letters.length);
  });
});
