/**
 * What the figures are held against. The other relays were measured once, on a machine of this size (2 cores, 24 GiB, load and relay
 * together), with events of the same shape, 100,000 stored for the queries, median of 3. Their fastest, strfry, is the floor of each row;
 * most targets are a multiple of it.
 */
import type { Metric } from './measure.js';

export const OTHERS = [
  'strfry (C++, LMDB)',
  'nostream (TypeScript, PostgreSQL, Redis)',
  '@nostr-relay/core 0.0.40 (TypeScript, SQLite)',
] as const;

export interface Line {
  readonly row: string;
  readonly work: string;
  /** Of the row's summary; `ratio` is the row's ratio. */
  readonly metric: Metric | 'ratio';
  readonly better: 'more' | 'less';
  readonly unit: string;
  /** In the order of OTHERS. */
  readonly others?: readonly (number | undefined)[];
  readonly target?: number;
}

type Figures = readonly (number | undefined)[];

const rate = (row: string, work: string, unit: string, others: Figures = [], target?: number): Line => ({
  ...{ row, work, unit, others },
  metric: 'perSecond',
  better: 'more',
  ...(target === undefined ? {} : { target }),
});
const cost = (
  row: string,
  metric: Line['metric'],
  work: string,
  unit: string,
  others: Figures = [],
  target?: number,
): Line => ({
  ...{ row, work, unit, metric, others },
  better: 'less',
  ...(target === undefined ? {} : { target }),
});

export const LINES: readonly Line[] = [
  rate('ingest', 'ingest, 8 connections × 100 in flight', 'events/s', [3_668, 360, 155], 2 * 3_668),
  {
    ...rate('ingest', '– as a part of what one core verifies', '×', [], 0.5),
    metric: 'ratio',
  },
  cost('ingest', 'p50Ms', '– `OK` p50 there', 'ms', [187, 1_994, 656]),
  cost('ingest', 'p99Ms', '– `OK` p99 there', 'ms', [336, 4_975, 85_851]),
  cost('ingest', 'cpuMicrosPerEvent', '– CPU per event, relay and database', 'µs', [480, 5_050, 6_200]),
  cost('memory', 'megabytes', 'memory of the node after 20,000 events', 'MB', [115, 1_349, undefined], 300),
  cost('single', 'p50Ms', 'one event in flight, `OK` p50', 'ms', [3.0, 6.5, 7.1], 1.2 * 3.0),
  cost('single', 'p99Ms', '– p99', 'ms', [6.4, 16.5, 26.5]),
  rate('author', 'REQ author, 50 rows, 16 loops', '/s', [2_314, 360, 423], 2 * 2_314),
  rate('topic', 'REQ `#t`, 100 rows', '/s', [1_438, 180, 129], 2 * 1_438),
  rate('ids', 'REQ 20 ids', '/s', [3_397, 483, 686], 1.5 * 3_397),
  rate('newest', 'REQ newest 500', '/s', [475, 62, 90], 1.5 * 475),
  rate('count', 'COUNT of kind 1 with a `#t`', '/s'),
  rate(
    'fanout',
    'fan-out to 1,000 subscriptions, saturated',
    'deliveries/s',
    [13_360, 2_001, undefined],
    4 * 13_360,
  ),
  cost('deliver', 'p50Ms', 'publish → deliver at 100 events/s, p50', 'ms', [53, 8.6, undefined], 5),
  cost('deliver', 'p99Ms', '– p99', 'ms', [103, 24, undefined], 20),
  cost('delete', 'p50Ms', 'one deletion of 1,000 events, to `OK`', 'ms'),
  rate('search', 'search of two common words, 20 rows', '/s'),
  cost('search', 'p99Ms', '– p99', 'ms'),
  cost('searchable', 'p50Ms', '`OK` of a post → found by search, 300 posts/s beside it, p50', 'ms'),
  cost('searchable', 'p99Ms', '– p99', 'ms', [], 1_000),
  cost('gone', 'p50Ms', '`OK` of a deletion → gone from search and API, beside the same, p50', 'ms'),
  cost('gone', 'p99Ms', '– p99', 'ms', [], 1_000),
  rate('import', '`minato import`', 'events/s'),
  rate('export', '`minato export`', 'events/s'),
  cost('sweep', 'p50Ms', 'retention sweep, a batch of 500, p50', 'ms'),
  cost('sweep', 'p99Ms', '– p99', 'ms'),
  cost('purge', 'dropMs', 'drop of a month of 1,000,000 events', 'ms'),
  cost('purge', 'ratio', '– against a month of 10,000', '×', [], 2),
];

/** p99 of a query at the largest store over p99 at the smallest. */
export const GROWTH_TARGET = 1.5;

export function isMet({ better }: Line, figure: number, target: number): boolean {
  return better === 'more' ? figure >= target : figure <= target;
}
