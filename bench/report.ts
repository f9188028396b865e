/** What was measured, as a value: the table on stdout and the JSON file are two views of it. */
import { readFileSync } from 'node:fs';
import { availableParallelism, cpus, totalmem } from 'node:os';
import type { Metric, Ratio, Sample, Spread, Summary } from './measure.js';
import type { Sizes } from './options.js';
import { nativeSchnorr } from './sign.js';
import { LINES } from './targets.js';
import type { Yardsticks } from './yardsticks.js';

export interface RowReport {
  readonly id: string;
  readonly title: string;
  readonly headline: Metric;
  readonly unit: string;
  readonly summary: Summary;
  readonly samples: readonly Sample[];
  readonly ratio?: Ratio;
  readonly notes: readonly string[];
  readonly failures: readonly string[];
  /** How many checks failed; `failures` holds only the first few. */
  readonly failed: number;
  readonly skipped?: string;
}

export interface Machine {
  readonly cores: number;
  readonly cpu: string;
  readonly memoryGigabytes: number;
  readonly platform: string;
  readonly node: string;
  /** What signs the corpus and gives the yardstick; the node chooses its own verifier by the same rule. */
  readonly verifier: 'bcrypto native' | 'no native verifier';
}

export interface Report {
  readonly format: 1;
  readonly label: string;
  readonly command: string;
  readonly date: string;
  readonly target: string | undefined;
  readonly quick: boolean;
  readonly seed: number;
  readonly sizes: Sizes;
  readonly nodeEnv: Readonly<Record<string, string>>;
  /** False with `--consumers off`. */
  readonly consumers: boolean;
  readonly machine: Machine;
  readonly yardsticks: Yardsticks;
  readonly storedEvents: number;
  readonly rows: readonly RowReport[];
  /** Measured in the same run, with `--peer`. */
  readonly peer?: Report | undefined;
}

export function describeMachine(): Machine {
  return {
    cores: availableParallelism(),
    cpu: cpus()[0]?.model ?? 'unknown',
    memoryGigabytes: Math.round(totalmem() / 1e9),
    platform: `${process.platform} ${process.arch}`,
    node: process.version,
    verifier: nativeSchnorr() === undefined ? 'no native verifier' : 'bcrypto native',
  };
}

/** The machine in one phrase. */
export function machineText({ cores, cpu, memoryGigabytes, platform, node }: Machine): string {
  return `${cores} cores (${cpu}), ${memoryGigabytes} GB, ${platform}, Node ${node}`;
}

/** Ends the introduction of a Markdown table of a quick run. */
export const QUICK_MARK = ' **A quick smoke test, not a measurement.**';

export function readReport(file: string): Report {
  const report = JSON.parse(readFileSync(file, 'utf8')) as Report;
  if (report.format !== 1 || report.rows === undefined)
    throw new Error(`${file} is not a report of this bench`);
  return report;
}

/** The main figure of a row. */
export function headlineOf(row: RowReport): Spread | undefined {
  return row.summary[row.headline];
}

export function renderTable(report: Report, other: Report | undefined): string {
  const header = ['row', 'median', 'spread', 'p50 ms', 'p95 ms', 'p99 ms', 'rows/s', 'load', 'ratio'];
  const hasUnits = report.rows.some(({ summary }) => summary.readUnits !== undefined);
  if (hasUnits) header.push('read units', 'write units');
  if (other !== undefined) header.push(`to ${other.label}`);
  const lines = report.rows.map((row) => cells(row, other));
  return [
    headOf(report),
    alignColumns([header, ...lines]),
    '',
    ...yardstickLines(report.yardsticks),
    ...report.rows.flatMap(remarksOf),
    '',
  ].join('\n');
}

function headOf(report: Report): string {
  const { machine, sizes } = report;
  const unnamed = report.target === undefined || report.target === report.label;
  const what = unnamed ? report.label : `${report.label} at ${report.target}`;
  return [
    `${what}, ${report.date}${report.quick ? ', QUICK: a smoke test, not a measurement' : ''}`,
    `${machineText(machine)}, ${machine.verifier}`,
    `relay and load share this machine; ${report.storedEvents.toLocaleString('en')} events stored; ` +
      `consumers ${report.consumers ? 'on' : 'paused'}; median and min–max of ${sizes.repeat}`,
    '',
  ].join('\n');
}

function cells(row: RowReport, other: Report | undefined): string[] {
  const { summary } = row;
  const headline = headlineOf(row);
  if (row.skipped !== undefined || headline === undefined) {
    return [row.title, row.skipped === undefined ? 'failed' : 'skipped'];
  }
  const line = [
    row.title,
    `${formatNumber(headline.median)} ${row.unit}`,
    `${formatNumber(headline.min)}–${formatNumber(headline.max)}`,
    formatMedian(summary.p50Ms),
    formatMedian(summary.p95Ms),
    formatMedian(summary.p99Ms),
    formatMedian(summary.rowsPerSecond),
    formatMedian(summary.loadCores),
    row.ratio === undefined ? '' : `${formatNumber(row.ratio.value)} ${row.ratio.to}`,
  ];
  if (summary.readUnits !== undefined)
    line.push(formatMedian(summary.readUnits), formatMedian(summary.writeUnits));
  if (other !== undefined) line.push(comparison(row, other));
  return line;
}

/** A ratio above 1 is always better: for a latency or a memory it is inverted. */
function comparison(row: RowReport, other: Report): string {
  const theirs = other.rows.find((candidate) => candidate.id === row.id);
  const [mine, its] = [headlineOf(row)?.median, theirs && headlineOf(theirs)?.median];
  if (mine === undefined || its === undefined) return '';
  return `${formatNumber(row.headline === 'perSecond' ? mine / its : its / mine)}×`;
}

function yardstickLines(yardsticks: Yardsticks): string[] {
  const { verificationsPerSecond, framesPerSecond, flushesPerSecond } = yardsticks;
  const verified =
    verificationsPerSecond === undefined ? 'no native verifier here' : formatNumber(verificationsPerSecond);
  return [
    `verify/s of one core   ${verified}`,
    `frames/s of bare ws    ${formatNumber(framesPerSecond)}`,
    `fsync/s of the disk    ${formatNumber(flushesPerSecond)}`,
    ...yardsticks.notes.map((note) => `note: ${note}`),
  ];
}

/** The other figures of a row, named as in targets.ts. */
function remarksOf(row: RowReport): string[] {
  const { slowestMs, smallDropMs } = row.summary;
  const remarks: string[] = [];
  if (row.skipped !== undefined) remarks.push(`skipped: ${row.skipped}`);
  for (const { row: id, metric, work, unit } of LINES) {
    if (id !== row.id || metric === 'ratio' || metric === row.headline || IN_TABLE.has(metric)) continue;
    const figure = row.summary[metric];
    if (figure !== undefined) remarks.push(`${work.replace(/^– /, '')}: ${formatMedian(figure)} ${unit}`);
  }
  if (slowestMs !== undefined) remarks.push(`slowest ${formatMedian(slowestMs)} ms`);
  if (smallDropMs !== undefined) remarks.push(`a month of a 100th of it ${formatMedian(smallDropMs)} ms`);
  remarks.push(...row.notes, ...row.failures.map((failure) => `FAILED: ${failure}`));
  const more = row.failed - row.failures.length;
  if (more > 0) remarks.push(`FAILED: ${more} more checks`);
  return remarks.map((remark) => `${row.id}: ${remark}`);
}

/** Figures that have their own columns. */
const IN_TABLE: ReadonlySet<Metric> = new Set(['p50Ms', 'p95Ms', 'p99Ms', 'rowsPerSecond', 'loadCores']);

function formatMedian(spread: Spread | undefined): string {
  return spread === undefined ? '' : formatNumber(spread.median);
}

export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return '–';
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Aligns the first column to the left, all others to the right. */
export function alignColumns(lines: readonly (readonly string[])[]): string {
  const widths = lines[0]!.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, place) => (place === 0 ? '---' : '---:'))), ...rows.map(line)].join(
    '\n',
  );
}
