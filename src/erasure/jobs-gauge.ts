/**
 * Metrics: how many erasures are in each stage, and the states of the followers that they wait for. Read from
 * the database at intervals, whichever instance carries them out.
 */
import type { Pool } from 'pg';
import { startPolling } from '../limits/poll-loop.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { countFollowers } from '../outbox/followers.sql.js';
import { countByStage } from './erasures.sql.js';
import { SHOWN_STAGES } from './rules.js';

const REFRESH_MS = 10_000;

export interface ErasureGaugeOptions {
  readonly pool: Pool;
  readonly metrics: Metrics;
  readonly log: Log;
}

export function startErasureGauge(options: ErasureGaugeOptions): () => Promise<void> {
  const refresh = () =>
    refreshErasures(options).catch((error: unknown) => {
      options.log.debug({ error: String(error) }, 'the erasures could not be counted');
    });
  return startPolling(REFRESH_MS, refresh, { atOnce: true });
}

/** Empty stages are set to 0 as well, so that an alert ends. */
export async function refreshErasures({
  pool,
  metrics,
}: Pick<ErasureGaugeOptions, 'pool' | 'metrics'>): Promise<void> {
  const counts = new Map((await countByStage(pool)).map(({ stage, count }) => [stage, count]));
  for (const [state, count] of Object.entries(await countFollowers(pool)))
    metrics.followers.set({ state }, count);
  for (const stage of SHOWN_STAGES) metrics.erasures.set({ stage }, counts.get(stage) ?? 0);
}
