/** Two commits side by side: each row before and after, the ratio, and the spread of each over the rounds. */
import { readFileSync } from 'node:fs';
import type { Metric, Spread } from './measure.js';
import {
  alignColumns,
  formatNumber,
  type Machine,
  machineText,
  markdownTable,
  type RowReport,
} from './report.js';
import { FLOORS, isRate, judge, LINES, type Verdict } from './targets.js';

export interface Comparison {
  readonly format: 2;
  readonly command: string;
  readonly date: string;
  readonly quick: boolean;
  readonly machine: Machine;
  /** Short hash and subject of the commit measured as `before`. */
  readonly commit: string;
  /** Of this tree; undefined while something is uncommitted. */
  readonly tree: string | undefined;
  readonly rounds: number;
  /** False with `--consumers off`. */
  readonly consumers: boolean;
  /** The load average of the minute before. If it is far from 0, the figures mean little. */
  readonly loadBefore: number;
  readonly before: readonly RowReport[];
  readonly after: readonly RowReport[];
  /** Rows that cannot be compared. */
  readonly left: readonly string[];
}

export interface Change {
  readonly row: string;
  readonly metric: Metric;
  readonly title: string;
  readonly unit: string;
  readonly before: Spread;
  readonly after: Spread;
  /** A ratio above 1 is always better than before: for a latency, a memory or a cost it is inverted. */
  readonly ratio: number;
  readonly verdict?: Verdict;
}

/** Every line that has a figure on both sides, in the order and with the names of targets.ts. */
export function changesOf(before: RowReport, after: RowReport): Change[] {
  return LINES.flatMap(({ row, metric, work, unit }) => {
    if (row !== before.id || metric === 'ratio') return [];
    const [old, young] = [before.summary[metric], after.summary[metric]];
    if (old === undefined || young === undefined) return [];
    const floor = FLOORS.find((candidate) => candidate.row === row && candidate.metric === metric);
    const ratio = isRate(metric) ? young.median / old.median : old.median / young.median;
    const change: Change = { row, metric, title: work, unit, before: old, after: young, ratio };
    return [floor === undefined ? change : { ...change, verdict: judge(floor, old.median, young.median) }];
  });
}

/** When the spreads overlap, the rounds cannot tell the two apart. */
export function isClear(before: Spread, after: Spread): boolean {
  return before.max < after.min || after.max < before.min;
}

export function renderComparison(comparison: Comparison): string {
  const { before, after } = comparison;
  const changes = before.flatMap((old, place) => changesOf(old, after[place]!));
  const head = ['work', 'before', 'spread', 'this tree', 'spread', 'new ÷ old', '', 'floor', ''];
  return [
    ...introductionOf(comparison),
    '',
    alignColumns([head, ...changes.map(cells)]),
    '',
    ...summaryOf(changes),
    ...remarksOf(comparison),
    '',
  ].join('\n');
}

/** The table for docs/performance.md, with the figures of strfry and of the node when the floors were set. */
export function renderComparisonMarkdown(comparison: Comparison): string {
  const { before, after } = comparison;
  const changes = before.flatMap((old, place) => changesOf(old, after[place]!));
  const head = [
    'work',
    'before',
    'least – most',
    'this tree',
    'least – most',
    'new ÷ old',
    'floor',
    'goal',
    'met',
  ];
  const rows = changes.map((change) => {
    const [title, oldFigure, oldSpread, figure, spread, ratio, clear] = cells(change);
    const { verdict } = change;
    return [
      title!,
      oldFigure!,
      oldSpread!,
      `**${figure}**`,
      spread!,
      `${ratio}${clear === '' ? '' : ` (${clear})`}`,
      verdict === undefined ? '' : neededText(change, verdict.needed),
      verdict === undefined ? '' : neededText(change, verdict.neededForGoal),
      verdict === undefined ? '' : MET[verdict.met],
    ];
  });
  return [
    `\`${comparison.command}\``,
    '',
    ...introductionOf(comparison),
    '',
    markdownTable(head, rows),
    '',
    ...[...summaryOf(changes), ...remarksOf(comparison)].map((line) => `- ${line}`),
    '',
  ].join('\n');
}

const MET: Readonly<Record<Verdict['met'], string>> = { goal: 'goal', floor: 'floor', no: '**no**' };

function introductionOf({
  commit,
  date,
  quick,
  machine,
  rounds,
  consumers,
  loadBefore,
}: Comparison): string[] {
  return [
    `this tree beside ${commit}, ${date}${quick ? ', QUICK: figures mean little' : ''}`,
    `${machineText(machine)}, ${machine.verifier}; ` +
      `load average of the minute before: ${loadBefore.toFixed(1)}`,
    `measured alternately, up to ${rounds} rounds each, median; consumers ${consumers ? 'on' : 'paused'}; ` +
      'above 1× this tree is better; "unclear" where the spreads overlap',
  ];
}

function cells(change: Change): string[] {
  const { title, unit, before, after, ratio, verdict } = change;
  return [
    title,
    ...[before, after].flatMap(({ median, min, max }) => [
      `${formatNumber(median)} ${unit}`,
      min === max ? '' : `${formatNumber(min)}–${formatNumber(max)}`,
    ]),
    `${formatNumber(ratio)}×`,
    isClear(before, after) ? '' : 'unclear',
    verdict === undefined ? '' : neededText(change, verdict.needed),
    verdict === undefined ? '' : verdict.met === 'no' ? 'NOT MET' : `${verdict.met} met`,
  ];
}

/** A factor where the floor is a ratio, otherwise the figure. */
function neededText({ metric, unit, verdict }: Change, needed: number): string {
  if (verdict!.floor.ratio !== undefined) return `${formatNumber(needed)}×`;
  return `${isRate(metric) ? '≥' : '≤'} ${formatNumber(needed)} ${unit}`;
}

function summaryOf(changes: readonly Change[]): string[] {
  const judged = changes.filter(({ verdict }) => verdict !== undefined);
  if (judged.length === 0) return [];
  const missed = judged.filter(({ verdict }) => verdict!.met === 'no');
  const names = missed.map(({ row, metric }) => `${row} ${metric}`).join(', ');
  return [
    `floors met: ${judged.length - missed.length} of ${judged.length}` +
      (missed.length > 0 ? `; not met: ${names}` : ''),
  ];
}

function remarksOf({ left, before, after }: Comparison): string[] {
  return [
    ...(left.length > 0 ? [`not compared, since they call this tree's own source: ${left.join(', ')}`] : []),
    ...problems('before', before),
    ...problems('this tree', after),
  ];
}

function problems(side: string, rows: readonly RowReport[]): string[] {
  return rows.flatMap(({ id, skipped, failures, notes }) => [
    ...(skipped === undefined ? [] : [`${id}, ${side}: skipped: ${skipped}`]),
    ...failures.map((failure) => `${id}, ${side}: FAILED: ${failure}`),
    ...notes.map((note) => `${id}, ${side}: ${note}`),
  ]);
}

export function readComparison(file: string): Comparison {
  const comparison = JSON.parse(readFileSync(file, 'utf8')) as Comparison;
  if (comparison.format !== 2 || comparison.before === undefined)
    throw new Error(`${file} is not a --compare report of this bench`);
  return comparison;
}
