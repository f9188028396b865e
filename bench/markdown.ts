/**
 * `--markdown`: a report as the table of docs/performance.md, with the targets, and a line for each missed
 * target.
 */
import { type Growth, growthOf } from './growth.js';
import type { Spread } from './measure.js';
import { formatNumber, type Machine, machineText, markdownTable, QUICK_MARK, type Report } from './report.js';
import { GROWTH_TARGET, isMet, LINES, type Line } from './targets.js';

export function renderMarkdown(report: Report): string {
  const lines = LINES.map((line) => ({ line, figure: figureOf(report, line) })).filter(
    ({ figure }) => figure !== undefined,
  );
  const head = ['work', 'figure', 'least – most', 'target'];
  const rows = lines.map(({ line, figure }) => [
    line.work,
    `**${formatNumber(figure!.median)}** ${line.unit}`,
    figure!.min === figure!.max ? '' : `${formatNumber(figure!.min)} – ${formatNumber(figure!.max)}`,
    targetText(line),
  ]);
  return [
    headOf(report, report.machine, report.sizes.repeat),
    markdownTable(head, rows),
    '',
    ...notMet(lines.map(({ line, figure }) => ({ line, figure: figure!.median }))),
    ...report.rows
      .filter((row) => row.skipped !== undefined)
      .map((row) => `- Not measured: ${row.title}: ${row.skipped}.`),
    ...report.rows
      .filter((row) => row.failed > 0)
      .map((row) => `- **Failed checks**: ${row.title}: ${row.failures.join('; ')}.`),
    '',
  ].join('\n');
}

export function renderGrowthMarkdown(growth: Growth): string {
  const sizes = growth.shapes[0]!.points.map(({ events }) => `${events.toLocaleString('en')} stored`);
  const rows = growth.shapes.map((shape) => [
    shape.title,
    ...shape.points.map(
      ({ p50Ms, p99Ms }) => `${formatNumber(p50Ms.median)} / ${formatNumber(p99Ms.median)}`,
    ),
    numberOr(growthOf(shape)),
  ]);
  const missed = growth.shapes.filter((shape) => (growthOf(shape) ?? 0) > GROWTH_TARGET);
  return [
    headOf(growth, growth.machine, growth.repeat),
    markdownTable(['query, p50 / p99 in ms', ...sizes, `p99, last to first (target ${GROWTH_TARGET})`], rows),
    '',
    ...missed.map(
      (shape) =>
        `- **Not met**: ${shape.title}: ${formatNumber(growthOf(shape)!)}, the target is ${GROWTH_TARGET}.`,
    ),
    ...growth.notes.map((note) => `- ${note}.`),
    ...growth.failures.map((failure) => `- **Failed check**: ${failure}.`),
    '',
  ].join('\n');
}

function headOf(
  { command, date, quick }: { command: string; date: string; quick: boolean },
  machine: Machine,
  repeat: number,
): string {
  return [
    `\`${command}\`, ${date.slice(0, 10)}: ${machineText(machine)}, ` +
      `shared by relay, database and load. Median of ${repeat}.${quick ? QUICK_MARK : ''}`,
    '',
  ].join('\n');
}

function figureOf(report: Report, { row: id, metric }: Line): Spread | undefined {
  const row = report.rows.find((candidate) => candidate.id === id);
  if (metric !== 'ratio') return row?.summary[metric];
  const value = row?.ratio?.value;
  return value === undefined ? undefined : { median: value, min: value, max: value };
}

function targetText(line: Line): string {
  const { target } = line;
  return target === undefined ? '' : `${line.better === 'more' ? '≥' : '≤'} ${formatNumber(target)}`;
}

function notMet(lines: readonly { line: Line; figure: number }[]): string[] {
  return lines.flatMap(({ line, figure }) => {
    const { target } = line;
    if (target === undefined || isMet(line, figure, target)) return [];
    const work = line.work.startsWith('–') ? `\`${line.row}\` ${line.work}` : line.work;
    return [
      `- **Not met**: ${work}: ${formatNumber(figure)} ${line.unit}, the target is ${formatNumber(target)}.`,
    ];
  });
}

function numberOr(figure: number | undefined): string {
  return figure === undefined ? '–' : formatNumber(figure);
}
