/** `npm run bench`: measures a relay over real WebSockets, row by row, and reports failed checks. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { renderChart } from './chart.js';
import { measureComparison } from './compare.js';
import { readComparison, renderComparison, renderComparisonMarkdown } from './comparison.js';
import { type Corpus, loadCorpus } from './corpus.js';
import { startLocalDynamodb } from './dynamodb.js';
import { drawProfiles } from './flame.js';
import { appendFloods, measureFloods, readFloods } from './floods/measure.js';
import { renderFloods, renderFloodsMarkdown } from './floods/report.js';
import { measureGrowth, readGrowth, renderGrowth } from './growth.js';
import { renderGrowthChart } from './growth-chart.js';
import { renderGrowthMarkdown, renderMarkdown } from './markdown.js';
import type { Bench } from './measure.js';
import { cleanUpOnSignal, withCleanUp } from './node.js';
import { FLOODS_ROW, type Options, readOptions } from './options.js';
import type { Peer } from './peers.js';
import { describeMachine, type Report, type RowReport, readReport, renderTable } from './report.js';
import { chosenRows, corpusSize, expectedSeconds, minutesText, ROWS, RowRun, withRelay } from './run.js';
import { measureYardsticks, type Yardsticks } from './yardsticks.js';

function say(text: string): void {
  process.stderr.write(`bench: ${text}\n`);
}

async function main(): Promise<void> {
  const options = readOptions(
    process.argv.slice(2),
    ROWS.map((row) => row.id),
  );
  if (options.growth) return showGrowth(options);
  if (options.only?.[0] === FLOODS_ROW) return showFloods(options);
  return options.compare?.with === 'revision' ? showComparison(options) : showRows(options);
}

async function showComparison(options: Options): Promise<void> {
  const comparison =
    options.from === undefined ? await measureComparison(options, say) : readComparison(options.from);
  process.stdout.write(
    options.markdown ? renderComparisonMarkdown(comparison) : renderComparison(comparison),
  );
  if (options.json !== undefined)
    writeFileSync(options.json, `${JSON.stringify(comparison, undefined, 2)}\n`);
  const failed = [...comparison.before, ...comparison.after].reduce((sum, row) => sum + row.failed, 0);
  process.exitCode = failed > 0 ? 1 : 0;
}

async function showFloods(options: Options): Promise<void> {
  const measured = options.from === undefined ? await measureFloods(options, say) : readFloods(options.from);
  const report = options.append ? appendFloods(options.json!, measured) : measured;
  process.stdout.write(options.markdown ? renderFloodsMarkdown(report) : renderFloods(report));
  if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(report, undefined, 2)}\n`);
  const failed = report.failures.length + report.floods.reduce((sum, row) => sum + row.failures.length, 0);
  process.exitCode = failed > 0 ? 1 : 0;
}

async function showGrowth(options: Options): Promise<void> {
  const growth = options.from === undefined ? await measureGrowth(options, say) : readGrowth(options.from);
  process.stdout.write(options.markdown ? renderGrowthMarkdown(growth) : renderGrowth(growth));
  if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(growth, undefined, 2)}\n`);
  if (options.svg !== undefined) writeFileSync(options.svg, renderGrowthChart(growth));
  process.exitCode = growth.failures.length > 0 ? 1 : 0;
}

async function showRows(options: Options): Promise<void> {
  const compared = options.compare?.with === 'file' ? readReport(options.compare.file) : undefined;
  const report = options.from === undefined ? await measureAll(options) : readReport(options.from);
  const other = report.peer ?? compared;
  process.stdout.write(options.markdown ? renderMarkdown(report) : renderTable(report, other));
  if (report.peer !== undefined && !options.markdown) {
    process.stdout.write(`\n${renderTable(report.peer, undefined)}`);
  }
  if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(report, undefined, 2)}\n`);
  if (options.svg !== undefined) writeFileSync(options.svg, renderChart(report, other));
  const failed = [...report.rows, ...(report.peer?.rows ?? [])].reduce((sum, row) => sum + row.failed, 0);
  if (failed > 0) say(`${failed} checks failed`);
  process.exitCode = failed > 0 ? 1 : 0;
}

async function measureAll(options: Options): Promise<Report> {
  const { corpus } = await loadCorpus(options.seed, corpusSize(options.sizes), say);
  const report = await run(options, corpus);
  if (options.peer === undefined) return report;
  return { ...report, peer: await run(forPeer(options, options.peer), corpus, options.peer) };
}

/** The rows that the peer supports, with its sizes where they are smaller. */
function forPeer(options: Options, { label, rows, sizes }: Peer): Options {
  const smaller = Object.entries(sizes).map(([size, most]) => [
    size,
    Math.min(options.sizes[size as keyof Peer['sizes']], most),
  ]);
  return {
    ...options,
    target: undefined,
    label,
    only: rows.filter((id) => chosenRows(options.only, 'all').some((row) => row.id === id)),
    nodeEnv: {},
    sizes: { ...options.sizes, ...Object.fromEntries(smaller) },
  };
}

async function run(options: Options, corpus: Corpus, peer?: Peer): Promise<Report> {
  let yardsticks: Yardsticks;
  const prepare = async (folder: string): Promise<void> => {
    say('measuring the yardsticks');
    yardsticks = await measureYardsticks(corpus, folder, options.sizes.yardstickSeconds);
  };
  const rows = chosenRows(options.only, options.quick ? 'main' : 'all');
  say(`${rows.length} rows: about ${minutesText(expectedSeconds(rows, options.sizes))} on a quiet machine`);
  const profileFolder = options.profile === undefined ? undefined : join(options.profile, 'node');
  const isLocal = options.store === 'dynamodb' && peer === undefined;
  const local = isLocal ? await startLocalDynamodb() : undefined;
  const relay = { options, corpus, peer, prepare, profileFolder, endpoint: local?.endpoint, say };
  const measureRows = async (bench: Bench): Promise<Report> => {
    const reports: RowReport[] = [];
    for (const row of rows) {
      const rowRun = new RowRun(row, bench);
      for (let repeat = 0; repeat < rowRun.repeats; repeat++) {
        say(`${row.id} ${repeat + 1}/${rowRun.repeats}`);
        await rowRun.measure(repeat);
      }
      reports.push(rowRun.report(yardsticks));
    }
    return toReport(options, bench, yardsticks, reports);
  };
  const report = await withCleanUp(
    async () => local?.stop(),
    () => withRelay(relay, measureRows),
  );
  const drawn = profileFolder === undefined ? undefined : drawProfiles(profileFolder, options.label);
  if (drawn !== undefined) say(`flame graph: ${drawn}`);
  return report;
}

function toReport(
  options: Options,
  bench: Bench,
  yardsticks: Yardsticks,
  rows: readonly RowReport[],
): Report {
  return {
    format: 1,
    label: options.label,
    command: options.command,
    date: new Date().toISOString(),
    target: options.target,
    quick: options.quick,
    seed: options.seed,
    sizes: options.sizes,
    nodeEnv: options.nodeEnv,
    consumers: options.consumers,
    machine: describeMachine(),
    yardsticks,
    storedEvents: bench.stored,
    rows,
  };
}

cleanUpOnSignal(say);
await main().catch((error: Error) => {
  say(error.message);
  process.exitCode = 1;
});
