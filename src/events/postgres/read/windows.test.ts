import { describe, expect, it } from 'vitest';
import { type Filter, parseFilter } from '../../rules/filter.js';
import { windowsOf } from './windows.js';

const NOW = 1_700_000_000;
const filterOf = (raw: object) => parseFilter(raw, { 'limits.filterValuesMax': 5_000 }) as Filter;
const authors = (count: number) => Array.from({ length: count }, (_, at) => `${at}`.padStart(64, 'a'));
const begins = (raw: object) => windowsOf(filterOf(raw), NOW).map(({ since }) => since);

describe('the windows of a filter', () => {
  it('reach further and further back, and end with the filter as it is', () => {
    const windows = begins({ kinds: [1], authors: authors(51) });
    expect(windows).toHaveLength(6);
    expect(windows.at(-1)).toBeUndefined();
    const reaches = windows.slice(0, -1).map((since) => NOW - since!);
    expect(reaches).toEqual([...reaches].sort((a, b) => a - b));
    expect(windowsOf(filterOf({ '#p': authors(51) }), NOW)).toHaveLength(6);
  });

  it('never begin before `since` of the filter, and are counted back from its `until`', () => {
    expect(begins({ authors: authors(60), since: NOW - 7_200 })).toEqual([NOW - 3_600, NOW - 7_200]);
    expect(begins({ authors: authors(60), since: NOW - 60 })).toEqual([NOW - 60]);
    expect(begins({ authors: authors(60), until: 10_000_000 })[0]).toBe(10_000_000 - 3_600);
    expect(begins({ authors: authors(60), until: NOW + 10_000_000 })[0]).toBe(NOW - 3_600);
  });

  it('are not used for few values, ids, or replaceable kinds', () => {
    for (const raw of [
      {},
      { authors: authors(50) },
      { ids: authors(500) },
      { kinds: [0, 3, 10_002], authors: authors(500) },
    ])
      expect(begins(raw)).toHaveLength(1);
  });
});
