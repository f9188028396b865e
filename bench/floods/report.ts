/** The floods as a table on stdout and as the table of docs/performance.md. */
import { alignColumns, formatNumber, machineText, QUICK_MARK } from '../report.js';
import type { FloodRow, FloodsReport } from './measure.js';
import type { Ratio } from './ratio.js';
import type { Use } from './use.js';
import type { Latency, Question, Visit } from './visitors.js';

/** p99 of a well-behaved client beside a flood over its p99 beside the same flood against a sink. */
export const FLOOD_TARGET = 1.5;

const QUESTIONS: readonly Question[] = ['ok', 'eose'];

/** The larger of both ratios. */
export function worstRatio({ ratio }: Pick<FloodRow, 'ratio'>): Ratio {
  return ratio.ok.value > ratio.eose.value ? ratio.ok : ratio.eose;
}

const ratioText = ({ value, low, high }: Ratio): string =>
  `${formatNumber(value)} (${formatNumber(low)}–${formatNumber(high)})`;

const HEAD = [
  'flood',
  'OK alone',
  'sink',
  'flood',
  'ratio',
  'EOSE alone',
  'sink',
  'flood',
  'ratio',
  'MB before',
  'most',
  'after',
];

function cells(row: FloodRow): string[] {
  const { before, most, after } = row.megabytes;
  return [
    ...QUESTIONS.flatMap((question) => [
      ...[row.alone, row.besideSink, row.besideFlood].map((visit: Visit) => both(visit[question])),
      ratioText(row.ratio[question]),
    ]),
    ...[before, most].map(whole),
    after.length === 0 ? '–' : after.map(whole).join(', '),
  ];
}

const whole = (megabytes: number): string => (Number.isNaN(megabytes) ? '–' : String(Math.round(megabytes)));

/** Explains the last three columns. */
function memoryLine({ rounds, restSeconds }: FloodsReport): string {
  const often = rounds === 1 ? 'its round' : `each of its ${rounds} rounds`;
  return (
    `MB: resident memory of the node's process, a fresh one for each flood: ` +
    `before it, at most, and ${restSeconds} s after ${often}.`
  );
}

const both = ({ p50Ms, p99Ms }: Latency): string => `${formatNumber(p50Ms)} / ${formatNumber(p99Ms)}`;

export function renderFloods(report: FloodsReport): string {
  const { machine, quick, seconds, rounds, storedEvents } = report;
  const samples = report.floods[0]?.alone.ok.samples ?? 0;
  return [
    `floods, ${report.date}${quick ? ', QUICK: a smoke test, not a measurement' : ''}`,
    `${machineText(machine)}, ${machine.verifier}`,
    'node, database, attacker, sink and visitors share this machine; ' +
      `${storedEvents.toLocaleString('en')} events stored`,
    memoryLine(report),
    `p50 / p99 in ms of well-behaved clients, about ${samples} of each (${rounds} × ${seconds} s a phase); ` +
      'ratio: p99 beside the flood to p99 beside the sink, in brackets what chance alone makes of it',
    '',
    alignColumns([HEAD, ...report.floods.map((row) => [row.name, ...cells(row)])]),
    '',
    ...report.floods.map(sentLine),
    '',
    ...remarks(report).map((remark) => remark.replaceAll('**', '')),
    '',
  ].join('\n');
}

export function renderFloodsMarkdown(report: FloodsReport): string {
  const { command, date, machine, quick, seconds, rounds, storedEvents } = report;
  const line = (values: readonly string[]): string => `| ${values.join(' | ')} |`;
  const head = ['flood', ...HEAD.slice(1)];
  return [
    `\`${command}\`, ${date.slice(0, 10)}: ${machineText(machine)}, ` +
      'shared by node, database, attacker, sink and visitors. ' +
      `${storedEvents.toLocaleString('en')} events stored, ` +
      `${rounds} × ${seconds} s a phase.${quick ? QUICK_MARK : ''}`,
    '',
    memoryLine(report),
    '',
    line(head),
    line(head.map((_, place) => (place === 0 ? '---' : '---:'))),
    ...report.floods.map((row) => line([row.title, ...cells(row)])),
    '',
    ...remarks(report).map((remark) => `- ${remark}`),
    '',
  ].join('\n');
}

/** Floods above the target, and failed checks. */
function remarks(report: FloodsReport): string[] {
  const { loadBefore, machine } = report;
  return [
    ...(loadBefore > machine.cores / 4
      ? [`The machine was busy before: a load of ${formatNumber(loadBefore)} on ${machine.cores} cores.`]
      : []),
    ...report.floods
      .filter((row) => !(worstRatio(row).value <= FLOOD_TARGET))
      .map(
        (row) =>
          `**${verdictOf(worstRatio(row))}**: ${row.name}: ${ratioText(worstRatio(row))}, ` +
          `the target is ${FLOOD_TARGET.toFixed(1)}. ${row.cause}`,
      ),
    ...report.floods.flatMap((row) =>
      row.failures.map((failure) => `**Failed check**: ${row.name}: ${failure}.`),
    ),
    ...report.failures.map((failure) => `**Failed check**: ${failure}.`),
  ];
}

/** Above the target; also without the help of chance? */
const verdictOf = ({ low }: Ratio): string => (low <= FLOOD_TARGET ? 'Unclear' : 'Not met');

/** How much the attacker sent to each, what became of its sockets, and what the node used. */
function sentLine({ name, toSink, toNode, use, besideSink, besideFlood, stolen }: FloodRow): string {
  const rate = ({ messages, bytes, seconds }: FloodRow['toNode']): string =>
    `${formatNumber(messages / seconds)} messages/s, ${formatNumber(bytes / 1e6 / seconds)} MB/s`;
  return [
    `${name}: ${rate(toSink)} to the sink; ${rate(toNode)} to the node`,
    `${toNode.opened} sockets opened, ${toNode.closed} closed, ${toNode.refused} refused`,
    `samples left out: ${percent(besideSink.leftOut)} beside the sink, ` +
      `${percent(besideFlood.leftOut)} beside the flood`,
    `the host took up to ${percent(stolen)} of a core`,
    ...useText('sink', use.besideSink),
    ...useText('flood', use.besideFlood),
  ].join('; ');
}

const percent = (part: number): string => `${formatNumber(part * 100)} %`;

function useText(beside: string, { cores, passMsMax }: Use): string[] {
  const parts = [
    ...(cores === undefined
      ? []
      : [`${formatNumber(cores.node)} cores of the node, ${formatNumber(cores.database)} of the database`]),
    ...(passMsMax === undefined ? [] : [`longest pass of the event loop ${formatNumber(passMsMax)} ms`]),
  ];
  return parts.length === 0 ? [] : [`beside the ${beside}: ${parts.join(', ')}`];
}
