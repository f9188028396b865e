/** The targets of the figures: what an operator should be able to rely on. */
import type { Metric } from './measure.js';

export interface Line {
  readonly row: string;
  readonly work: string;
  /** A figure of the row's summary; `ratio` is the row's ratio. */
  readonly metric: Metric | 'ratio';
  readonly better: 'more' | 'less';
  readonly unit: string;
  readonly target?: number;
}

const rate = (row: string, work: string, unit: string, target?: number): Line => ({
  ...{ row, work, unit },
  metric: 'perSecond',
  better: 'more',
  ...(target === undefined ? {} : { target }),
});
const cost = (row: string, metric: Line['metric'], work: string, unit: string, target?: number): Line => ({
  ...{ row, work, unit, metric },
  better: 'less',
  ...(target === undefined ? {} : { target }),
});

export const LINES: readonly Line[] = [
  rate('ingest', 'ingest of 20,000, 8 connections × 100 in flight', 'events/s'),
  { ...rate('ingest', '– as a part of what one core verifies', '×', 0.5), metric: 'ratio' },
  cost('ingest', 'p50Ms', '– `OK` p50 there', 'ms'),
  cost('ingest', 'p99Ms', '– `OK` p99 there', 'ms'),
  rate('ingest-full', 'ingest of 100,000, consumers reading along', 'events/s'),
  cost('ingest-full', 'cpuMicrosPerEvent', '– CPU an event until the last `OK`', 'µs'),
  cost('ingest-full', 'cpuSettledMicrosPerEvent', '– CPU an event until every consumer is up to date', 'µs'),
  cost('ingest-full', 'cpuQuietMicrosPerEvent', '– CPU an event until the node is quiet', 'µs'),
  cost('ingest-full', 'settleSeconds', '– from the last `OK` until every consumer is up to date', 's'),
  cost('ingest-full', 'megabytes', 'memory (PSS) after 100,000, node and database', 'MB'),
  cost('ingest-full', 'nodeMegabytes', '– the node', 'MB'),
  cost('ingest-full', 'databaseMegabytes', '– the database', 'MB'),
  cost('ingest-full', 'diskMegabytes', 'disk after 100,000', 'MB'),
  cost('ingest-full', 'diskEvents', '– events', 'MB'),
  cost('ingest-full', 'diskTags', '– tags', 'MB'),
  cost('ingest-full', 'diskIndexes', '– indexes of events and tags', 'MB'),
  cost('ingest-full', 'diskDedupe', '– dedupe', 'MB'),
  cost('ingest-full', 'diskOutbox', '– outbox', 'MB'),
  cost('ingest-full', 'diskSearch', '– search', 'MB'),
  cost('ingest-full', 'diskTrust', '– trust', 'MB'),
  cost('ingest-full', 'diskWal', '– write-ahead log', 'MB'),
  cost('ingest-full', 'diskOther', '– other', 'MB'),
  cost('single', 'p50Ms', '`OK`, one event in flight, p50', 'ms'),
  cost('single', 'p99Ms', '– p99', 'ms'),
  rate('author', 'REQ author, 50 rows, at random', '/s'),
  rate('topic', 'REQ `#t`, 100 rows, at random', '/s'),
  rate('ids', 'REQ 20 ids, at random', '/s'),
  rate('newest', 'REQ newest 500', '/s'),
  rate('author-repeated', 'REQ author, 200 filters again and again', '/s'),
  rate('topic-repeated', 'REQ `#t`, 200 filters again and again', '/s'),
  rate('ids-repeated', 'REQ 20 ids, 200 filters again and again', '/s'),
  rate('count', 'COUNT of kind 1 with a `#t`', '/s'),
  rate('fanout', 'fan-out, saturated: 5 of 1,000 subscriptions match', 'deliveries/s'),
  rate('fanout-all', 'fan-out, saturated: all of 1,000 match', 'deliveries/s'),
  cost('deliver', 'p50Ms', 'publish → deliver at 100 events/s, p50', 'ms', 5),
  cost('deliver', 'p99Ms', '– p99', 'ms', 20),
  cost('deliver', 'cpuPercent', '– CPU meanwhile, 1,000 subscriptions', '% of a core'),
  cost('idle', 'cpuPercent', 'CPU of an idle node', '% of a core', 1),
  rate('erase', 'erasing 100,000 events of a member, others posting', 'events/s', 10_000),
  cost('erase', 'p99Ms', '– `OK` of the others meanwhile, p99', 'ms'),
  cost('delete', 'p50Ms', 'one deletion of 1,000 events, to `OK`', 'ms'),
  rate('search', 'search of two common words, 20 rows', '/s'),
  cost('search', 'p99Ms', '– p99', 'ms'),
  cost('searchable', 'p50Ms', '`OK` of a post → found by search, 300 posts/s beside it, p50', 'ms'),
  cost('searchable', 'p99Ms', '– p99', 'ms', 1_000),
  cost('gone', 'p50Ms', '`OK` of a deletion → gone from search and API, beside the same, p50', 'ms'),
  cost('gone', 'p99Ms', '– p99', 'ms', 1_000),
  rate('reports', 'reports (kind 1984) of 250 keys, until each is in its case', '/s'),
  rate('import', '`minato import`', 'events/s'),
  rate('export', '`minato export`', 'events/s'),
  cost('sweep', 'p50Ms', 'retention sweep, a batch of 500, p50', 'ms'),
  cost('sweep', 'p99Ms', '– p99', 'ms'),
  cost('purge', 'dropMs', 'drop of a month of 1,000,000 events', 'ms'),
  cost('purge', 'ratio', '– against a month of 10,000', '×', 2),
];

/**
 * What a change has to reach. On 2026-11-16 the node, as it was then, and strfry (C++, LMDB) were measured
 * within one hour on one machine: 2 cores shared by load, relay and database, 100,000 events of about 10 tags
 * and 1.1 kB, 1,000 authors and 1,000 topics, every filter drawn at random, the node as shipped with its
 * consumers on. `ratio` is node ÷ strfry of that day; `floor` and `goal` are the same ratio as it should be.
 * They can be checked without strfry: a node that is floor ÷ ratio times as good as that commit reaches the
 * floor. Where there is nothing to compare with, floor and goal are the figure itself.
 */
export interface Floor {
  readonly row: string;
  readonly metric: Metric;
  /** The figures measured that day. */
  readonly strfry: string;
  readonly node: string;
  readonly ratio?: number;
  readonly floor: number;
  readonly goal: number;
}

export const FLOORS: readonly Floor[] = [
  {
    ...{ row: 'ingest', metric: 'perSecond', strfry: '4,500', node: '2,820–3,470' },
    ...{ ratio: 0.7, floor: 1.2, goal: 2 },
  },
  {
    ...{ row: 'ingest-full', metric: 'perSecond', strfry: '3,157', node: '3,611' },
    ...{ ratio: 1.1, floor: 1.5, goal: 2 },
  },
  {
    ...{ row: 'ingest-full', metric: 'cpuSettledMicrosPerEvent', strfry: '380', node: '676' },
    ...{ ratio: 1.8, floor: 1, goal: 0.75 },
  },
  {
    ...{ row: 'ingest-full', metric: 'megabytes', strfry: '407', node: '1,040–1,420' },
    ...{ ratio: 3, floor: 2, goal: 1 },
  },
  {
    ...{ row: 'ingest-full', metric: 'diskMegabytes', strfry: '364', node: '979' },
    ...{ ratio: 2.7, floor: 1.5, goal: 1 },
  },
  { row: 'single', metric: 'p50Ms', strfry: '1.9', node: '3.6', ratio: 1.9, floor: 1.2, goal: 1 },
  { row: 'single', metric: 'p99Ms', strfry: '3.5', node: '35–46', ratio: 11, floor: 2, goal: 1.5 },
  { row: 'author', metric: 'perSecond', strfry: '2,440', node: '1,300', ratio: 0.53, floor: 1.2, goal: 2 },
  { row: 'topic', metric: 'perSecond', strfry: '1,500', node: '470', ratio: 0.31, floor: 1.2, goal: 2 },
  { row: 'ids', metric: 'perSecond', strfry: '3,600', node: '1,050', ratio: 0.29, floor: 1, goal: 1.5 },
  { row: 'newest', metric: 'perSecond', strfry: '478', node: '1,130–1,660', ratio: 2.9, floor: 2, goal: 4 },
  {
    ...{ row: 'fanout', metric: 'perSecond', strfry: '21,600', node: '14,400–20,600' },
    ...{ ratio: 0.8, floor: 1.5, goal: 3 },
  },
  { row: 'deliver', metric: 'p50Ms', strfry: '46', node: '5–10', floor: 5, goal: 2 },
  { row: 'deliver', metric: 'p99Ms', strfry: '102', node: '23–125', floor: 20, goal: 8 },
  { row: 'deliver', metric: 'cpuPercent', strfry: '25', node: '120', ratio: 4.9, floor: 1.5, goal: 1 },
  { row: 'idle', metric: 'cpuPercent', strfry: '~0', node: '4.9', floor: 1, goal: 0.3 },
  { row: 'erase', metric: 'perSecond', strfry: '–', node: '1,674', floor: 10_000, goal: 20_000 },
];

export interface Verdict {
  readonly floor: Floor;
  /** How many times as good as before, or the figure itself where there is no ratio. */
  readonly reached: number;
  readonly needed: number;
  readonly neededForGoal: number;
  readonly met: 'goal' | 'floor' | 'no';
}

/** For a rate more is better, for everything else less. */
export function isRate(metric: Metric | 'ratio'): boolean {
  return metric === 'perSecond' || metric === 'rowsPerSecond';
}

/** Whether a figure meets the floor, given the figure of the other commit in the same run. */
export function judge(floor: Floor, before: number, after: number): Verdict {
  const rising = isRate(floor.metric);
  const { ratio } = floor;
  const need = (level: number): number => {
    if (ratio === undefined) return level;
    return rising ? level / ratio : ratio / level;
  };
  const gain = rising ? after / before : before / after;
  const reached = ratio === undefined ? after : gain;
  const enough = (level: number): boolean =>
    ratio === undefined && !rising ? reached <= need(level) : reached >= need(level);
  const met = enough(floor.goal) ? 'goal' : enough(floor.floor) ? 'floor' : 'no';
  return { floor, reached, needed: need(floor.floor), neededForGoal: need(floor.goal), met };
}

/** p99 of a query at the largest store over p99 at the smallest. */
export const GROWTH_TARGET = 1.5;

export function isMet({ better }: Line, figure: number, target: number): boolean {
  return better === 'more' ? figure >= target : figure <= target;
}
