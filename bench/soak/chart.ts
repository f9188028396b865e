/** The plot of a soak: one small panel for each series, from zero, over the minutes of the run. */
import { openSvg, STYLE, text } from '../chart.js';
import { formatNumber } from '../report.js';
import type { Sample } from './sample.js';

const COLUMNS = 3;
const PANEL = { width: 300, height: 150, head: 44, foot: 20, left: 8, right: 20 };
const TOP = 60;

export const SERIES: readonly (readonly [keyof Sample, string])[] = [
  ['nodeMegabytes', 'memory of the node, MB'],
  ['databaseMegabytes', 'memory of PostgreSQL, MB'],
  ['files', 'open files of the node'],
  ['sockets', 'sockets of the node'],
  ['events', 'posts and versions served'],
  ['deadTuples', 'dead tuples'],
  ['tableMegabytes', 'tables of events and tags, MB'],
  ['indexMegabytes', 'their indexes, MB'],
  ['keptMegabytes', 'kept by design, MB'],
  ['keptDeadTuples', 'dead tuples of what is kept'],
  ['diskMegabytes', 'the whole database, MB'],
  ['walMegabytes', 'WAL, MB'],
  ['lagRows', 'outbox rows not read yet'],
  ['sentPerSecond', 'events sent a second'],
  ['p99Ms', 'p99 of OK, ms'],
];

export function renderSoak(samples: readonly Sample[], about: string): string {
  const width = COLUMNS * PANEL.width;
  const height = TOP + Math.ceil(SERIES.length / COLUMNS) * PANEL.height;
  return [
    openSvg(width, height, 'Soak'),
    `<style>${STYLE}\n  .line { fill: none; stroke: #2f6fdb; stroke-width: 1.5; }</style>`,
    text(0, 20, 'A node under steady load', 'title'),
    text(0, 42, about, 'faint'),
    ...SERIES.map(([name, title], place) => drawPanel(samples, name, title, place)),
    '</svg>',
    '',
  ].join('\n');
}

function drawPanel(samples: readonly Sample[], name: keyof Sample, title: string, place: number): string {
  const x = (place % COLUMNS) * PANEL.width;
  const y = TOP + Math.floor(place / COLUMNS) * PANEL.height;
  const top = Math.max(1, ...samples.map((sample) => sample[name]));
  const end = Math.max(1, samples.at(-1)?.at ?? 1);
  const across = PANEL.width - PANEL.left - PANEL.right;
  const down = PANEL.height - PANEL.head - PANEL.foot;
  const bottom = PANEL.head + down;
  const points = samples.map((sample) => {
    const left = PANEL.left + (sample.at / end) * across;
    return `${left.toFixed(1)},${(bottom - (sample[name] / top) * down).toFixed(1)}`;
  });
  return [
    `<g transform="translate(${x} ${y})">`,
    text(PANEL.left, 16, title),
    text(
      PANEL.left,
      33,
      `at most ${formatNumber(top)}, at the end ${formatNumber(samples.at(-1)?.[name] ?? 0)}`,
      'faint',
    ),
    `<line class="grid" x1="${PANEL.left}" x2="${PANEL.left + across}" y1="${bottom}" y2="${bottom}"/>`,
    `<polyline class="line" points="${points.join(' ')}"/>`,
    text(PANEL.left + across, bottom + 15, `${Math.round(end / 60)} min`, 'faint', 'end'),
    '</g>',
  ].join('\n');
}
