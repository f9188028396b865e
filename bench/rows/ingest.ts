/**
 * Writing: many events in flight on an empty store; all events that the queries need, with the consumers
 * running; and one event in flight. Every OK is awaited and must be true. Each repeat sends new events.
 */
import { type Published, publish, withConnections } from '../client.js';
import { DISK_PARTS, type DiskUse, diskUse } from '../database.js';
import {
  type Bench,
  type Findings,
  flushesIn,
  latency,
  type Row,
  ratioTo,
  type Sample,
  Skip,
} from '../measure.js';
import { memoryOf, treeCpuSeconds } from '../node.js';
import { untilLogIsShort, untilQuiet, untilUpToDate } from '../settle.js';

/** For the announced time only. */
const INGEST_PER_SECOND = 3_000;
const SETTLE_PER_SECOND = 2_500;
const BOOT_SECONDS = 12;

export const ingest: Row = {
  id: 'ingest',
  title: 'ingest, 8 connections × 100 in flight',
  headline: 'perSecond',
  unit: 'events/s',
  main: true,
  fresh: true,
  seconds: ({ ingestEvents }) => BOOT_SECONDS + ingestEvents / INGEST_PER_SECOND,
  ratio: (summary, yardsticks) =>
    ratioTo('× verify/s', summary.perSecond?.median, yardsticks.verificationsPerSecond),
  async measure(bench, findings) {
    const { sample } = await ingestNext(bench, findings, bench.sizes.ingestEvents);
    return sample;
  },
};

/**
 * Measured on a fresh node, from the first event until the last consumer is up to date. Afterwards the store
 * has the size that the queries need.
 */
export const ingestFull: Row = {
  id: 'ingest-full',
  title: 'ingest up to --stored, consumers reading along',
  headline: 'perSecond',
  unit: 'events/s',
  main: true,
  fresh: true,
  repeatsMax: 2,
  seconds: ({ storedEvents }) =>
    BOOT_SECONDS + storedEvents / INGEST_PER_SECOND + storedEvents / SETTLE_PER_SECOND,
  async measure(bench, findings) {
    const count = bench.sizes.storedEvents - bench.stored;
    if (count <= 0) throw new Skip('the relay holds --stored events already');
    const { sample, cpuBefore } = await ingestNext(bench, findings, count);
    findings.note(`${count.toLocaleString('en')} events, consumers ${bench.consumersOn ? 'on' : 'paused'}`);
    if (bench.node === undefined) return sample;
    const settleSeconds = await untilUpToDate(bench);
    const perEvent = (): number => ((nodeCpuSeconds(bench)! - cpuBefore!) / count) * 1e6;
    const settled = cpuBefore === undefined ? {} : { cpuSettledMicrosPerEvent: perEvent() };
    if (!(await untilQuiet(bench))) findings.note('the node did not become quiet within a minute');
    const quiet = cpuBefore === undefined ? {} : { cpuQuietMicrosPerEvent: perEvent() };
    const memory = memorySample(bench);
    const atOnce = await diskUse(bench);
    const room = { ...memory, ...diskSample(await untilLogIsShort(bench)) };
    if (atOnce !== undefined)
      findings.note(`right after the load: ${Math.round(atOnce.wal)} MB of write-ahead log`);
    return { ...sample, settleSeconds, ...settled, ...quiet, ...room };
  },
};

export const single: Row = {
  id: 'single',
  title: 'one event in flight',
  headline: 'p50Ms',
  unit: 'ms',
  main: true,
  needsStored: true,
  writes: true,
  seconds: ({ singleEvents }) => 2 + singleEvents / 250,
  ratio: (summary, yardsticks) => flushesIn(summary.p50Ms?.median, yardsticks.flushesPerSecond),
  async measure(bench, findings) {
    const published = await publishNext(bench, bench.sizes.singleEvents, 1, 1);
    checkFresh(published, findings);
    return { perSecond: bench.sizes.singleEvents / published.seconds, ...latency(published.latenciesMs) };
  },
};

async function ingestNext(
  bench: Bench,
  findings: Findings,
  count: number,
): Promise<{ sample: Sample; cpuBefore: number | undefined }> {
  const { ingestConnections, ingestInFlight } = bench.sizes;
  const cpuBefore = nodeCpuSeconds(bench);
  const published = await publishNext(bench, count, ingestConnections, ingestInFlight);
  const cpuAfter = nodeCpuSeconds(bench);
  checkFresh(published, findings);
  const sample = { perSecond: count / published.seconds, ...latency(published.latenciesMs) };
  if (cpuBefore === undefined || cpuAfter === undefined) return { sample, cpuBefore };
  return { sample: { ...sample, cpuMicrosPerEvent: ((cpuAfter - cpuBefore) / count) * 1e6 }, cpuBefore };
}

function memorySample(bench: Bench): Sample {
  const memory = memoryOf(bench.node!.pid);
  if (memory === undefined) return {};
  const { node, database } = memory;
  return { megabytes: node + database, nodeMegabytes: node, databaseMegabytes: database };
}

function diskSample(use: DiskUse | undefined): Sample {
  if (use === undefined) return {};
  const parts = DISK_PARTS.map((part) => [`disk${part[0]!.toUpperCase()}${part.slice(1)}`, use[part]]);
  return { diskMegabytes: use.total, ...(Object.fromEntries(parts) as Sample) };
}

/**
 * Fills the relay to `--stored` events, unmeasured, and waits until its consumers have read them. Here an
 * event may exist already, from an earlier run.
 */
export async function fill(bench: Bench, findings: Findings): Promise<void> {
  if (bench.stored >= bench.sizes.storedEvents) return;
  while (bench.stored < bench.sizes.storedEvents) {
    const count = Math.min(FILL_EVENTS, bench.sizes.storedEvents - bench.stored);
    const published = await publishNext(bench, count, FILL_CONNECTIONS, FILL_IN_FLIGHT);
    checkAccepted(published, findings);
    bench.say(`fill: ${bench.stored.toLocaleString('en')} events stored`);
  }
  await untilUpToDate(bench);
  await untilQuiet(bench);
}
const FILL_EVENTS = 10_000;
const FILL_CONNECTIONS = 8;
const FILL_IN_FLIGHT = 100;

async function publishNext(
  bench: Bench,
  count: number,
  connectionCount: number,
  inFlight: number,
): Promise<Published> {
  const events = bench.corpus.outgoing(bench.stored, bench.stored + count);
  if (events.length !== count) throw new Error('the corpus is too small for this run');
  const published = await withConnections(bench.url, connectionCount, (connections) =>
    publish(connections, events, inFlight),
  );
  bench.stored += count;
  return published;
}

function checkFresh(published: Published, findings: Findings): void {
  checkAccepted(published, findings);
  if (published.duplicates === 0) return;
  findings.fail(`${published.duplicates} events existed already: use an empty relay or another --seed`);
}

function checkAccepted(published: Published, findings: Findings): void {
  for (const refused of published.refused) findings.fail(`refused: ${refused}`);
  for (const notice of published.notices) findings.note(notice);
  if (published.superseded > 0) findings.note('some replaceable events were superseded by a newer version');
}

function nodeCpuSeconds(bench: Bench): number | undefined {
  return bench.node === undefined ? undefined : treeCpuSeconds(bench.node.pid);
}
