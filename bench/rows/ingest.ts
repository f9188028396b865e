/**
 * Writing: many in flight, one in flight, and what the node weighs afterwards. Every OK is awaited and must be true; each
 * repeat sends events that the relay has never seen.
 */
import { type Published, publish, withConnections } from '../client.js';
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
import { databaseMegabytes, residentMegabytes, treeCpuSeconds } from '../node.js';

export const ingest: Row = {
  id: 'ingest',
  title: 'ingest, 8 connections × 100 in flight',
  headline: 'perSecond',
  unit: 'events/s',
  ratio: (summary, yardsticks) =>
    ratioTo('× verify/s', summary.perSecond?.median, yardsticks.verificationsPerSecond),
  async measure(bench, findings) {
    const { ingestEvents, ingestConnections, ingestInFlight } = bench.sizes;
    const cpuBefore = nodeCpuSeconds(bench);
    const published = await publishNext(bench, ingestEvents, ingestConnections, ingestInFlight);
    const cpuAfter = nodeCpuSeconds(bench);
    checkFresh(published, findings);
    const sample = { perSecond: ingestEvents / published.seconds, ...latency(published.latenciesMs) };
    if (cpuBefore === undefined || cpuAfter === undefined) return sample;
    return { ...sample, cpuMicrosPerEvent: ((cpuAfter - cpuBefore) / ingestEvents) * 1e6 };
  },
};

export const single: Row = {
  id: 'single',
  title: 'one event in flight',
  headline: 'p50Ms',
  unit: 'ms',
  ratio: (summary, yardsticks) => flushesIn(summary.p50Ms?.median, yardsticks.flushesPerSecond),
  async measure(bench, findings) {
    const published = await publishNext(bench, bench.sizes.singleEvents, 1, 1);
    checkFresh(published, findings);
    return { perSecond: bench.sizes.singleEvents / published.seconds, ...latency(published.latenciesMs) };
  },
};

export const memory: Row = {
  id: 'memory',
  title: 'memory of the node after a first ingest',
  headline: 'megabytes',
  unit: 'MB',
  once: true,
  async measure(bench, findings): Promise<Sample> {
    if (bench.node === undefined) throw new Skip('only for a node that the bench booted');
    const { ingestEvents, ingestConnections, ingestInFlight } = bench.sizes;
    checkAccepted(await publishNext(bench, ingestEvents, ingestConnections, ingestInFlight), findings);
    findings.note(`with ${bench.stored.toLocaleString('en')} events stored`);
    const megabytes = residentMegabytes(bench.node.pid);
    const database = databaseMegabytes(bench.node.pid);
    return database === undefined ? { megabytes } : { megabytes, databaseMegabytes: database };
  },
};

/** Brings the relay to `--stored` events, unmeasured. Here an event may be there already, from an earlier run. */
export async function fill(bench: Bench, findings: Findings): Promise<void> {
  while (bench.stored < bench.sizes.storedEvents) {
    const count = Math.min(FILL_EVENTS, bench.sizes.storedEvents - bench.stored);
    const published = await publishNext(bench, count, FILL_CONNECTIONS, FILL_IN_FLIGHT);
    checkAccepted(published, findings);
    bench.say(`fill: ${bench.stored.toLocaleString('en')} events stored`);
  }
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
  findings.fail(
    `${published.duplicates} events were there already: give the relay an empty store, or the bench another --seed`,
  );
}

function checkAccepted(published: Published, findings: Findings): void {
  for (const refused of published.refused) findings.fail(`refused: ${refused}`);
  for (const notice of published.notices) findings.note(notice);
  if (published.superseded > 0) findings.note('some replaceable events were overtaken by a newer version');
}

function nodeCpuSeconds(bench: Bench): number | undefined {
  return bench.node === undefined ? undefined : treeCpuSeconds(bench.node.pid);
}
