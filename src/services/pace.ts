/**
 * How long a consumer rests after a batch. It shares the process and the machine with clients who wait for their answers: while there is
 * much to do for them it works a small part of the time, and with three consumers that read along the lane keeps its speed (measured in
 * docs/performance.md). The longer it is behind, the less it rests: what came in has to be taken in sooner or later (I14).
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';

/** In times of the work before it. */
const REST_MAX = 20;
/** From here on behind it does not rest any more. */
const PATIENCE_MS = 60_000;
const STEP_MS = 10;
/** Part of the time that the event loop has work; below this nobody is waiting. */
const CALM = 0.3;

export interface Worked {
  readonly tookMs: number;
  /** How long what it reads next has been waiting. */
  readonly behindMs: number;
}

/** Ends early when it is calm, or when that is enough. */
export async function restAfter({ tookMs, behindMs }: Worked, enough: () => boolean): Promise<void> {
  const most = restMax(tookMs, behindMs);
  for (let rested = 0; rested < most && !enough(); rested += STEP_MS) {
    const before = performance.eventLoopUtilization();
    await delay(STEP_MS);
    if (performance.eventLoopUtilization(before).utilization < CALM) return;
  }
}

export function restMax(tookMs: number, behindMs: number): number {
  const impatience = Math.min(1, Math.max(0, behindMs / PATIENCE_MS));
  return tookMs * REST_MAX * (1 - impatience);
}
