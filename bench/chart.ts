/**
 * A bar chart as one self-contained SVG, readable on a light and on a dark page. Rates and latencies
 * are two panels, each on a logarithmic axis, because the rows span four decades; each bar carries its figure
 * and a line from min to max.
 */
import { formatNumber, headlineOf, type Report, type RowReport } from './report.js';

const WIDTH = 860;
const LABEL_WIDTH = 290;
const VALUE_WIDTH = 150;
const BAR_HEIGHT = 16;
const ROW_GAP = 12;
const PANEL_HEAD = 44;
const PANEL_FOOT = 28;
const TOP = 58;

export const STYLE = `
  text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; }
  .panel { font-weight: 600; }
  .faint { fill: #59636e; font-size: 11px; }
  .grid { stroke: #d1d9e0; }
  .spread { stroke: #1f2328; stroke-width: 1.5; }
  .bar0 { fill: #2f6fdb; }
  .bar1 { fill: #9aa4af; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .faint { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .spread { stroke: #e6edf3; }
    .bar0 { fill: #5b93f5; }
    .bar1 { fill: #6b7580; }
  }`;

interface Bar {
  readonly value: number;
  readonly min: number;
  readonly max: number;
  readonly text: string;
}

interface Line {
  readonly title: string;
  readonly bars: readonly (Bar | undefined)[];
}

interface Panel {
  readonly title: string;
  readonly lines: readonly Line[];
}

export function renderChart(report: Report, other: Report | undefined): string {
  const reports = other === undefined ? [report] : [report, other];
  const panels = [
    {
      title: 'per second (log scale), longer is better',
      lines: linesOf(reports, (row) => row.headline === 'perSecond'),
    },
    {
      title: 'p50 in milliseconds (log scale), shorter is better',
      lines: linesOf(reports, (row) => row.headline === 'p50Ms'),
    },
  ].filter((panel) => panel.lines.length > 0);
  let top = TOP;
  const drawn = panels.map((panel) => {
    const svg = drawPanel(panel, top);
    top += heightOf(panel);
    return svg;
  });
  return [
    openSvg(WIDTH, top, `Bench of ${report.label}`),
    `<style>${STYLE}</style>`,
    text(0, 20, reports.map((each) => each.label).join(' and '), 'title'),
    text(0, 40, subtitle(report), 'faint'),
    ...(reports.length > 1 ? legend(reports) : []),
    ...drawn,
    '</svg>',
    '',
  ].join('\n');
}

function subtitle({ machine, date, storedEvents, quick }: Report): string {
  const stored = `${storedEvents.toLocaleString('en')} events stored`;
  const about = `${machine.cores} cores shared by relay and load, ${stored}, ${date.slice(0, 10)}`;
  return quick ? `${about}, quick smoke test` : about;
}

function legend(reports: readonly Report[]): string[] {
  return reports.flatMap((report, index) => {
    const x = WIDTH - 150;
    const y = 8 + index * 20;
    return [
      `<rect class="bar${index}" x="${x}" y="${y}" width="12" height="12" rx="2"/>`,
      text(x + 18, y + 11, report.label),
    ];
  });
}

function linesOf(reports: readonly Report[], wanted: (row: RowReport) => boolean): Line[] {
  return reports[0]!.rows
    .filter((row) => wanted(row) && barOf(row) !== undefined)
    .map((row) => ({
      title: row.title,
      bars: reports.map((report) => barOf(report.rows.find((candidate) => candidate.id === row.id))),
    }));
}

function barOf(row: RowReport | undefined): Bar | undefined {
  const headline = row === undefined ? undefined : headlineOf(row);
  if (row === undefined || headline === undefined || !(headline.median > 0)) return undefined;
  return {
    value: headline.median,
    min: headline.min,
    max: headline.max,
    text: `${formatNumber(headline.median)} ${row.unit}`,
  };
}

function drawPanel(panel: Panel, top: number): string {
  const bars = panel.lines.flatMap((line) => line.bars.filter((bar) => bar !== undefined));
  const scale = logScale(bars);
  const bottom = top + heightOf(panel) - PANEL_FOOT;
  const parts = [text(0, top + 20, panel.title, 'panel'), ...gridOf(scale, top + PANEL_HEAD - 10, bottom)];
  let y = top + PANEL_HEAD;
  for (const line of panel.lines) {
    parts.push(text(0, y + 12, line.title));
    line.bars.forEach((bar, index) => {
      if (bar !== undefined) parts.push(drawBar(bar, index, y + index * BAR_HEIGHT, scale));
    });
    y += heightOfLine(line);
  }
  return parts.join('\n');
}

function drawBar(bar: Bar, index: number, y: number, scale: Scale): string {
  const middle = y + BAR_HEIGHT / 2 - 1;
  const end = Math.max(scale.x(bar.value), scale.x(bar.max));
  const width = (scale.x(bar.value) - LABEL_WIDTH).toFixed(1);
  const [from, to] = [bar.min, bar.max].map((value) => scale.x(value).toFixed(1));
  return [
    `<rect class="bar${index}" x="${LABEL_WIDTH}" y="${y}" width="${width}" ` +
      `height="${BAR_HEIGHT - 2}" rx="2"/>`,
    `<line class="spread" x1="${from}" x2="${to}" y1="${middle}" y2="${middle}"/>`,
    text(end + 6, y + 12, bar.text),
  ].join('\n');
}

interface Scale {
  readonly decades: readonly number[];
  x(value: number): number;
}

/** From one decade below the smallest bar, so that it has a length, to the decade above the largest. */
function logScale(bars: readonly Bar[]): Scale {
  const low = Math.floor(Math.log10(Math.min(...bars.map((bar) => bar.min))) - 0.5);
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...bars.map((bar) => bar.max)))));
  const width = WIDTH - LABEL_WIDTH - VALUE_WIDTH;
  return {
    decades: Array.from({ length: high - low + 1 }, (_, step) => low + step),
    x: (value) => LABEL_WIDTH + ((Math.log10(value) - low) / (high - low)) * width,
  };
}

function gridOf(scale: Scale, top: number, bottom: number): string[] {
  return scale.decades.flatMap((decade) => {
    const x = scale.x(10 ** decade).toFixed(1);
    return [
      `<line class="grid" x1="${x}" x2="${x}" y1="${top}" y2="${bottom}"/>`,
      text(
        Number(x),
        bottom + 14,
        (10 ** decade).toLocaleString('en', { maximumFractionDigits: 4 }),
        'faint',
        'middle',
      ),
    ];
  });
}

function heightOf(panel: Panel): number {
  return PANEL_HEAD + PANEL_FOOT + panel.lines.reduce((sum, line) => sum + heightOfLine(line), 0);
}

function heightOfLine(line: Line): number {
  return line.bars.length * BAR_HEIGHT + ROW_GAP;
}

export function text(x: number, y: number, content: string, style = '', anchor = 'start'): string {
  const attributes = style === '' ? '' : ` class="${style}"`;
  const place = `x="${x.toFixed(1)}" y="${y}" text-anchor="${anchor}"`;
  return `<text${attributes} ${place}>${escapeXml(content)}</text>`;
}

/** The opening tag of a chart, with its title for screen readers. */
export function openSvg(width: number, height: number, title: string): string {
  const size = `viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img" aria-label="${escapeXml(title)}">`;
}

export function escapeXml(content: string): string {
  return content
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
