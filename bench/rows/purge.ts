/**
 * The end of a month, by the node's own jobs on a separate store, after the node has stopped. The sweep hides
 * every expired event, batch by batch through the lane, and then the empty partition of the month is dropped.
 * A month of a hundredth of the size is measured first. The test sets the clock, so the months do not depend
 * on the day of the run.
 */
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { watchCommunities } from '../../src/communities/communities.js';
import { settingsFrom } from '../../src/communities/rules-settings.js';
import { Certificates } from '../../src/erasure/certificates/sign.js';
import type { Erasing } from '../../src/erasure/stores/registry.js';
import { dropMonths, retain } from '../../src/events/jobs/retain.js';
import { SWEEP_ROWS_MAX } from '../../src/events/postgres/keeping.js';
import { ensurePartitions } from '../../src/events/postgres/partitions.js';
import { startPostgresStore } from '../../src/events/postgres/store.js';
import type { EventStore } from '../../src/events/store.js';
import { BOUNDS, type Job, type JobContext } from '../../src/jobs/job.js';
import { runJob } from '../../src/jobs/run.js';
import { NodeKeys } from '../../src/keys/keys.js';
import { SubjectKey } from '../../src/keys/subject-key.js';
import { createMetrics } from '../../src/node/metrics.js';
import { type Bench, type Findings, latency, type Row, type Sample, Skip } from '../measure.js';
import { formatNumber } from '../report.js';
import { fillBySql, lackOfSpace, type SqlStore, withStore } from '../sql-store.js';

const MONTH = Date.UTC(2026, 5, 1);
const MONTH_SUFFIX = '2026_06';
const NOW = Date.UTC(2026, 6, 20);
const SMALLER = 100;

export const sweep: Row = {
  id: 'sweep',
  title: 'retention sweep, one batch',
  fromSource: true,
  headline: 'p50Ms',
  unit: 'ms',
  once: true,
  afterNode: true,
  measure: async (bench, findings) => {
    const { sweep: sample } = await measured(bench, findings);
    findings.note(`${formatNumber(sample.perSecond!)} events/s; at most ${SWEEP_ROWS_MAX} events in a batch`);
    return sample;
  },
};

export const purge: Row = {
  id: 'purge',
  title: 'drop of a month',
  fromSource: true,
  headline: 'dropMs',
  unit: 'ms',
  once: true,
  afterNode: true,
  ratio: ({ dropMs, smallDropMs }) =>
    dropMs && smallDropMs && { value: dropMs.median / smallDropMs.median, to: '× a 100th of it' },
  measure: async (bench, findings) => {
    findings.note(`${formatNumber(bench.sizes.purgeEvents)} events, filled by SQL, swept before`);
    return (await measured(bench, findings)).drop;
  },
};

interface Months {
  readonly sweep: Sample;
  readonly drop: Sample;
}

/** Both rows share the same two months, which take minutes to fill and sweep. */
let months: Promise<Months> | undefined;

function measured(bench: Bench, findings: Findings): Promise<Months> {
  months ??= measureMonths(bench, findings);
  return months;
}

async function measureMonths(bench: Bench, findings: Findings): Promise<Months> {
  if (bench.node === undefined) throw new Skip('only for a node that the bench booted');
  const events = bench.sizes.purgeEvents;
  const lack = await lackOfSpace(bench.folder, events);
  if (lack !== undefined) throw new Skip(lack);
  const small = await endMonth(events / SMALLER, bench, findings);
  const large = await endMonth(events, bench, findings);
  return { sweep: large.sweep, drop: { dropMs: large.dropMs, smallDropMs: small.dropMs } };
}

/** Measures a month in a separate store, from the first event to the drop. */
function endMonth(events: number, { folder, say }: Bench, findings: Findings): Promise<MonthFigures> {
  const dataDir = join(folder, `month-of-${events}`);
  return withStore(
    dataDir,
    () => NOW,
    async (store) => {
      await makeMonth(store);
      await fillBySql(store, { count: events, ingestedAt: MONTH, say });
      say(`sweeping ${events.toLocaleString('en')} events`);
      return withJobs(store, async (context, batches) => {
        const swept = await sweepMonth(context, batches, events, findings);
        return { sweep: swept, dropMs: await timeDrop(store, context, findings) };
      });
    },
  );
}

interface MonthFigures {
  readonly sweep: Sample;
  readonly dropMs: number;
}

async function sweepMonth(
  context: JobContext,
  batches: readonly SweptBatch[],
  events: number,
  findings: Findings,
): Promise<Sample> {
  const startMs = performance.now();
  const swept = await runAll(retain, context);
  const seconds = (performance.now() - startMs) / 1000;
  if (swept !== events) findings.fail(`${swept} events were swept of ${events}`);
  const largest = Math.max(...batches.map((batch) => batch.events));
  if (largest > SWEEP_ROWS_MAX) findings.fail(`a batch had ${largest} events, at most ${SWEEP_ROWS_MAX}`);
  const tookMs = batches.map((batch) => batch.ms);
  return { ...latency(tookMs), slowestMs: Math.max(...tookMs), perSecond: swept / seconds };
}

/** The later months exist already, so only this month is created here and dropped later. */
async function makeMonth({ database }: SqlStore): Promise<void> {
  const client = await database.connect();
  await ensurePartitions(client, MONTH);
  await client.end();
}

interface SweptBatch {
  readonly ms: number;
  readonly events: number;
}

/** The context that a node gives its jobs, with a store that measures the time of each batch. */
async function withJobs<T>(
  { database, tagHash, log, now }: SqlStore,
  work: (context: JobContext, batches: readonly SweptBatch[]) => Promise<T>,
): Promise<T> {
  const communities = await watchCommunities(database.ownPool, log);
  const settingsOf = () => settingsFrom(new Map());
  const store = startPostgresStore({ database, tagHash, metrics: createMetrics(), log, now, settingsOf });
  const batches: SweptBatch[] = [];
  const inTime = async <T>(work: Promise<T>, eventsOf: (done: T) => number): Promise<T> => {
    const startMs = performance.now();
    const done = await work;
    batches.push({ ms: performance.now() - startMs, events: eventsOf(done) });
    return done;
  };
  const timed: EventStore = {
    ...store,
    hide: (hiding) => inTime(store.hide(hiding), (events) => events),
    sweep: (step) => inTime(store.sweep(step), ({ hidden }) => hidden),
  };
  try {
    const { signal } = new AbortController();
    const folder = tmpdir();
    const keys = new NodeKeys({ folder, pool: database.pool, now });
    const erasing: Erasing = {
      pool: database.pool,
      store: timed,
      subjectKey: new SubjectKey({ folder }),
      keys,
      certificates: new Certificates({ pool: database.pool, keys, folder, version: '0.0.0' }),
      aheadSeconds: () => 0,
      others: () => [],
    };
    return await work({ database, store: timed, communities, erasing, now, signal, bounds: BOUNDS }, batches);
  } finally {
    await store.close();
    await communities.stop();
  }
}

/** Repeats the bounded run of the job until nothing is left to do. */
async function runAll(job: Job, context: JobContext): Promise<number> {
  let changed = 0;
  for (let runs = 0; runs < RUNS_MAX; runs++) {
    const result = await runJob(job, context);
    if (result === 'busy') throw new Error(`${job.name}: another job is running`);
    changed += result.changed;
    if (!result.more) return changed;
  }
  throw new Error(`${job.name} did not end within ${RUNS_MAX} runs`);
}
const RUNS_MAX = 10_000;

async function timeDrop(store: SqlStore, context: JobContext, findings: Findings): Promise<number> {
  await vacuum(store);
  const startMs = performance.now();
  await runAll(dropMonths, context);
  const elapsedMs = performance.now() - startMs;
  const left = await tablesOfMonth(store);
  if (left.length > 0) findings.fail(`not dropped: ${left.join(', ')}`);
  return elapsedMs;
}

/** Normally events expire over weeks and autovacuum keeps up; here a whole month is swept in minutes. */
async function vacuum({ database }: SqlStore): Promise<void> {
  const client = await database.connect();
  await client.query('VACUUM (ANALYZE) events, event_tags');
  await client.end();
}

async function tablesOfMonth({ database }: SqlStore): Promise<string[]> {
  const { rows } = await database.ownPool.query<{ relname: string }>(
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE $1",
    [`%${MONTH_SUFFIX}`],
  );
  return rows.map(({ relname }) => relname);
}
