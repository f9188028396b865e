/**
 * Decides how long a consumer rests after a batch. It shares the process and the machine with clients who
 * wait for answers. At high load it works only a small part of the time, so that the lane keeps its speed
 * with three consumers (measured in docs/performance.md). The longer it lags, the less it rests, so that the
 * backlog stays bounded (I14).
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';

/** A multiple of the duration of the last batch. */
const REST_MAX = 20;
/** The same after deletes of an erasure, which waits until consumers have read them. */
const AWAITED_REST_MAX = 2;
/** With this lag it does not rest any more. */
const PATIENCE_MS = 60_000;
const STEP_MS = 10;
/** Utilisation of the event loop below which nobody waits. */
const CALM = 0.3;

export interface Worked {
  readonly tookMs: number;
  /** The age of the next change. */
  readonly behindMs: number;
  /** An erasure waits for this consumer. */
  readonly isAwaited?: boolean;
}

/** Ends early if the event loop is idle, or if `enough` returns true. */
export async function restAfter(worked: Worked, enough: () => boolean): Promise<void> {
  const most = restMax(worked);
  for (let rested = 0; rested < most && !enough(); rested += STEP_MS) {
    const before = performance.eventLoopUtilization();
    await delay(STEP_MS);
    if (performance.eventLoopUtilization(before).utilization < CALM) return;
  }
}

export function restMax({ tookMs, behindMs, isAwaited = false }: Worked): number {
  const impatience = Math.min(1, Math.max(0, behindMs / PATIENCE_MS));
  return tookMs * (isAwaited ? AWAITED_REST_MAX : REST_MAX) * (1 - impatience);
}
