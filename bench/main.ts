/**
 * `npm run bench`: measures a relay over real websockets, row by row, and says what it found wrong. The order of the rows is
 * part of the measurement: ingest meets an empty store, queries a full one, live rows come last because they add events.
 */
import { writeFileSync } from 'node:fs';
import { renderChart } from './chart.js';
import { type Corpus, loadCorpus } from './corpus.js';
import { measureGrowth, readGrowth, renderGrowth } from './growth.js';
import { renderGrowthChart } from './growth-chart.js';
import { renderGrowthMarkdown, renderMarkdown } from './markdown.js';
import { type Bench, Findings, type Row, type Sample, Skip, summarize } from './measure.js';
import {
  type BootedNode,
  cleanUpOnSignal,
  makeFolder,
  removeFolder,
  startNode,
  withCleanUp,
} from './node.js';
import { type Options, readOptions, type Sizes } from './options.js';
import type { Peer } from './peers.js';
import { describeMachine, type Report, type RowReport, readReport, renderTable } from './report.js';
import { count } from './rows/count.js';
import { deletion } from './rows/delete.js';
import { erase } from './rows/erase.js';
import { exportFile, importFile } from './rows/files.js';
import { fill, ingest, memory, single } from './rows/ingest.js';
import { deliver, fanout } from './rows/live.js';
import { purge, sweep } from './rows/purge.js';
import { author, ids, newest, topic } from './rows/queries.js';
import { gone, search, searchable, searches } from './rows/search.js';
import { openSigner } from './sign.js';
import { measureYardsticks, type Yardsticks } from './yardsticks.js';

const ROWS: readonly Row[] = [
  memory,
  ingest,
  single,
  author,
  topic,
  ids,
  newest,
  count,
  search,
  fanout,
  deliver,
  deletion,
  searchable,
  gone,
  erase,
  importFile,
  exportFile,
  searches,
  sweep,
  purge,
];

function say(text: string): void {
  process.stderr.write(`bench: ${text}\n`);
}

async function main(): Promise<void> {
  const options = readOptions(
    process.argv.slice(2),
    ROWS.map((row) => row.id),
  );
  return options.growth ? showGrowth(options) : showRows(options);
}

async function showGrowth(options: Options): Promise<void> {
  const growth = options.from === undefined ? await measureGrowth(options, say) : readGrowth(options.from);
  process.stdout.write(options.markdown ? renderGrowthMarkdown(growth) : renderGrowth(growth));
  if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(growth, undefined, 2)}\n`);
  if (options.svg !== undefined) writeFileSync(options.svg, renderGrowthChart(growth));
  process.exitCode = growth.failures.length > 0 ? 1 : 0;
}

async function showRows(options: Options): Promise<void> {
  const compared = options.compare === undefined ? undefined : readReport(options.compare);
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

/** The same rows as far as the peer knows them, with its own smaller numbers, never with larger ones. */
function forPeer(options: Options, { label, rows, sizes }: Peer): Options {
  const smaller = Object.entries(sizes).map(([size, most]) => [
    size,
    Math.min(options.sizes[size as keyof Peer['sizes']], most),
  ]);
  return {
    ...options,
    target: undefined,
    label,
    only: rows.filter((id) => options.only?.includes(id) ?? true),
    nodeEnv: {},
    sizes: { ...options.sizes, ...Object.fromEntries(smaller) },
  };
}

async function run(options: Options, corpus: Corpus, peer?: Peer): Promise<Report> {
  const folder = makeFolder(options.temp);
  let node: BootedNode | undefined;
  const cleanUp = async (): Promise<void> => {
    await node?.stop();
    removeFolder(folder);
  };
  return withCleanUp(cleanUp, async () => {
    say('measuring the yardsticks');
    const yardsticks = await measureYardsticks(corpus, folder, options.sizes.yardstickSeconds);
    if (options.target === undefined) {
      say(`booting ${options.label} on an empty folder`);
      node = await (peer === undefined ? startNode(folder, options.nodeEnv) : peer.boot(folder, say));
      await node.ready();
    }
    const bench: Bench = {
      url: options.target ?? node!.url,
      node,
      folder,
      nodeEnv: options.nodeEnv,
      corpus,
      sizes: options.sizes,
      seed: options.seed,
      sign: await openSigner(),
      stored: 0,
      imported: 0,
      say,
    };
    const rows = await measureRows(bench, options.only, yardsticks);
    return toReport(options, bench, yardsticks, rows);
  });
}

/** Ingest, one in flight and the fill all take from the corpus, one after the other. */
function corpusSize(sizes: Sizes): number {
  const written = (sizes.ingestEvents + sizes.singleEvents) * sizes.repeat;
  return Math.max(sizes.storedEvents, written + 1);
}

async function measureRows(
  bench: Bench,
  only: readonly string[] | undefined,
  yardsticks: Yardsticks,
): Promise<RowReport[]> {
  const reports: RowReport[] = [];
  for (const row of ROWS.filter((each) => only?.includes(each.id) ?? true)) {
    if (row.afterNode) await bench.node?.stop();
    reports.push(await measureRow(row, bench, yardsticks));
  }
  return reports;
}

/** A row that breaks is a failed row; the others are still measured. */
async function measureRow(row: Row, bench: Bench, yardsticks: Yardsticks): Promise<RowReport> {
  const findings = new Findings();
  const samples: Sample[] = [];
  let skipped: string | undefined;
  try {
    if (row.needsStored) await fill(bench, findings);
    const repeats = row.once ? 1 : bench.sizes.repeat;
    for (let repeat = 0; repeat < repeats; repeat++) {
      say(`${row.id} ${repeat + 1}/${repeats}`);
      const measure = (): Promise<Sample> => row.measure(bench, findings, repeat);
      samples.push(row.once ? await measure() : await withLoadCores(measure));
    }
  } catch (error) {
    if (error instanceof Skip) skipped = error.message;
    else findings.fail((error as Error).message);
  }
  const summary = summarize(samples);
  const ratio = row.ratio?.(summary, yardsticks);
  return {
    id: row.id,
    title: row.title,
    headline: row.headline,
    unit: row.unit,
    summary,
    samples,
    ...(ratio === undefined ? {} : { ratio }),
    notes: [...findings.notes],
    failures: findings.failures,
    failed: findings.failed,
    ...(skipped === undefined ? {} : { skipped }),
  };
}

/** Adds what the load generator itself took, since it shares the cores with the relay. */
async function withLoadCores(measure: () => Promise<Sample>): Promise<Sample> {
  const startMs = performance.now();
  const before = process.cpuUsage();
  const sample = await measure();
  const used = process.cpuUsage(before);
  const elapsedMs = performance.now() - startMs;
  return { ...sample, loadCores: (used.user + used.system) / 1000 / elapsedMs };
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
