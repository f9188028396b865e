/**
 * Waits until every consumer of a node is up to date, and until the node is quiet. It runs after a row that
 * writes, so that the work does not slow down the next row or the other node of a comparison. Each wait has a
 * time-out.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type DiskUse, diskUse, rowsBehind, withDatabase } from './database.js';
import type { Bench } from './measure.js';
import { treeCpuSeconds } from './node.js';

const LOOK_MS = 250;
const UP_TO_DATE_MS_MAX = 15 * 60_000;
const SAY_EVERY_MS = 15_000;
const QUIET_WINDOW_MS = 2_000;
const QUIET_MS_MAX = 60_000;
const SHORT_LOG_MEGABYTES = 80;
const SHORT_LOG_LOOK_MS = 2_000;
const SHORT_LOG_MS_MAX = 2 * 60_000;
/** The share of one core over a window: an idle node of any commit is below it, a busy one is not. */
const QUIET_SHARE = 0.15;

type Booted = Pick<Bench, 'node' | 'folder' | 'nodeEnv'>;

interface Patience {
  readonly withinMs?: number;
  /** Reports the progress. */
  readonly say?: (text: string) => void;
}

/** Resolves with the seconds it took; immediately for a relay that the bench did not boot. */
export async function untilUpToDate(
  bench: Booted,
  { withinMs = UP_TO_DATE_MS_MAX, say = () => {} }: Patience = {},
): Promise<number> {
  if (bench.node === undefined) return 0;
  const startMs = performance.now();
  let saidMs = startMs;
  return withDatabase(bench, async (client) => {
    for (let behind = await rowsBehind(client); behind > 0; behind = await rowsBehind(client)) {
      const nowMs = performance.now();
      if (nowMs - startMs > withinMs) throw new Error(`the consumers are still ${behind} rows behind`);
      if (nowMs - saidMs > SAY_EVERY_MS) {
        say(`waiting for the consumers: ${behind.toLocaleString('en')} rows behind`);
        saidMs = nowMs;
      }
      await sleep(LOOK_MS);
    }
    return (performance.now() - startMs) / 1_000;
  });
}

/**
 * Waits until node and database are nearly idle for two seconds; false if that does not happen within a
 * minute.
 */
export async function untilQuiet(bench: Booted): Promise<boolean> {
  const pid = bench.node?.pid;
  if (pid === undefined || treeCpuSeconds(pid) === undefined) return true;
  const endMs = performance.now() + QUIET_MS_MAX;
  while (performance.now() < endMs) {
    if ((await cpuShare(pid, QUIET_WINDOW_MS)) < QUIET_SHARE) return true;
  }
  return false;
}

/**
 * Waits until the node has removed the write-ahead log of the load, as it does when it is calm, and returns
 * the use of the disk then; after two minutes at the latest.
 */
export async function untilLogIsShort(bench: Booted): Promise<DiskUse | undefined> {
  const endMs = performance.now() + SHORT_LOG_MS_MAX;
  let use = await diskUse(bench);
  while (use !== undefined && use.wal > SHORT_LOG_MEGABYTES && performance.now() < endMs) {
    await sleep(SHORT_LOG_LOOK_MS);
    use = await diskUse(bench);
  }
  return use;
}

/** Cores that node and database use during the given time. */
export async function cpuShare(pid: number, forMs: number): Promise<number> {
  const [before, startMs] = [treeCpuSeconds(pid)!, performance.now()];
  await sleep(forMs);
  return ((treeCpuSeconds(pid)! - before) * 1_000) / (performance.now() - startMs);
}
