/** One small panel for the growth of each query, all on one logarithmic scale. A flat line is good. */
import { openSvg, STYLE, text } from './chart.js';
import { type Growth, type GrowthShape, growthOf, type Point } from './growth.js';
import { formatNumber } from './report.js';

const COLUMNS = 4;
const PANEL = { width: 240, height: 204, head: 58, foot: 24, left: 34, right: 14 };
const TOP = 64;

interface Scale {
  readonly decades: readonly number[];
  y(ms: number): number;
}

export function renderGrowthChart(growth: Growth): string {
  const { shapes, machine, date, quick } = growth;
  const scale = scaleOf(shapes.flatMap(({ points }) => points));
  const width = COLUMNS * PANEL.width;
  const height = TOP + Math.ceil(shapes.length / COLUMNS) * PANEL.height;
  const about =
    `${machine.cores} cores shared by node, PostgreSQL and client, ` +
    `one query at a time, ${date.slice(0, 10)}`;
  return [
    openSvg(width, height, 'Time of queries by events stored'),
    `<style>${STYLE}
  .p99 { fill: none; stroke: #2f6fdb; stroke-width: 2; }
  .p50 { fill: none; stroke: #9aa4af; stroke-width: 2; }
  .dot { fill: #2f6fdb; }</style>`,
    text(0, 20, 'Time of a query by events stored: p99 (blue) and p50 (grey), ms', 'title'),
    text(0, 42, `${about}${quick ? ', quick smoke test' : ''}`, 'faint'),
    ...shapes.map((shape, place) => drawPanel(shape, scale, place)),
    '</svg>',
    '',
  ].join('\n');
}

/** Whole decades around everything that was measured. */
function scaleOf(points: readonly Point[]): Scale {
  const all = points.flatMap(({ p50Ms, p99Ms }) => [Math.log10(p50Ms.median), Math.log10(p99Ms.median)]);
  const low = Math.floor(Math.min(...all));
  const high = Math.max(low + 1, Math.ceil(Math.max(...all)));
  const span = PANEL.height - PANEL.head - PANEL.foot;
  return {
    decades: Array.from({ length: high - low + 1 }, (_, step) => low + step),
    y: (ms) => PANEL.head + span * (1 - (Math.log10(ms) - low) / (high - low)),
  };
}

function drawPanel(shape: GrowthShape, scale: Scale, place: number): string {
  const x = (place % COLUMNS) * PANEL.width;
  const y = TOP + Math.floor(place / COLUMNS) * PANEL.height;
  const span = PANEL.width - PANEL.left - PANEL.right;
  const at = (number: number): number => PANEL.left + (span * (number + 0.5)) / shape.points.length;
  const ratio = growthOf(shape);
  return [
    `<g transform="translate(${x} ${y})">`,
    text(0, 16, shape.title),
    text(0, 32, ratio === undefined ? '' : `p99 ${formatNumber(ratio)}× from first to last`, 'faint'),
    ...scale.decades.flatMap((decade) => gridLine(decade, scale)),
    line(shape.points, (point) => point.p50Ms.median, 'p50', at, scale),
    line(shape.points, (point) => point.p99Ms.median, 'p99', at, scale),
    ...shape.points.flatMap((point, number) => dot(point, at(number), scale)),
    '</g>',
  ].join('\n');
}

function gridLine(decade: number, scale: Scale): string[] {
  const y = scale.y(10 ** decade);
  const label = (10 ** decade).toLocaleString('en', { maximumFractionDigits: 4 });
  return [
    `<line class="grid" x1="${PANEL.left}" x2="${PANEL.width - PANEL.right}" ` +
      `y1="${y.toFixed(1)}" y2="${y.toFixed(1)}"/>`,
    text(PANEL.left - 5, Math.round(y + 4), label, 'faint', 'end'),
  ];
}

function line(
  points: readonly Point[],
  msOf: (point: Point) => number,
  style: string,
  at: (number: number) => number,
  scale: Scale,
): string {
  const path = points.map((point, number) => `${at(number).toFixed(1)},${scale.y(msOf(point)).toFixed(1)}`);
  return `<polyline class="${style}" points="${path.join(' ')}"/>`;
}

function dot({ events, p99Ms }: Point, x: number, scale: Scale): string[] {
  const y = scale.y(p99Ms.median);
  const short = events >= 1e6 ? `${events / 1e6} M` : `${events / 1e3} k`;
  return [
    `<circle class="dot" cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="3"/>`,
    text(x, Math.round(y - 7), formatNumber(p99Ms.median), 'faint', 'middle'),
    text(x, PANEL.height - 8, short, 'faint', 'middle'),
  ];
}
