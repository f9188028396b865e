/**
 * How many erasures stand where, and how the followers that they wait for stand, for the metrics: read from
 * the database now and then, whoever carries them out.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import { SHOWN_STAGES } from '../core/erasure.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import { countByStage } from '../store/erasures.js';
import { countFollowers } from '../store/followers.js';

const REFRESH_MS = 10_000;

export interface ErasureGaugeOptions {
  readonly pool: Pool;
  readonly metrics: Metrics;
  readonly log: Log;
}

export function startErasureGauge(options: ErasureGaugeOptions): () => Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  const run = async (): Promise<void> => {
    while (!signal.aborted) {
      await refreshErasures(options).catch((error: unknown) => {
        options.log.debug({ error: String(error) }, 'the erasures could not be looked at');
      });
      await delay(REFRESH_MS, undefined, { signal }).catch(() => undefined);
    }
  };
  const running = run();
  return () => {
    stopping.abort();
    return running;
  };
}

/** A stage in which there is none is told as well: an alert must not hang on to the last number. */
export async function refreshErasures({
  pool,
  metrics,
}: Pick<ErasureGaugeOptions, 'pool' | 'metrics'>): Promise<void> {
  const counts = new Map((await countByStage(pool)).map(({ stage, count }) => [stage, count]));
  for (const [state, count] of Object.entries(await countFollowers(pool)))
    metrics.followers.set({ state }, count);
  for (const stage of SHOWN_STAGES) metrics.erasures.set({ stage }, counts.get(stage) ?? 0);
}
