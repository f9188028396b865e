/**
 * Sets the metrics of the consumers. It reads their state from the database every few seconds, also for
 * consumers that run on another instance.
 */
import type { Communities } from '../../communities/communities.js';
import { startPolling } from '../../limits/poll-loop.js';
import type { Log } from '../../node/log.js';
import type { Metrics } from '../../node/metrics.js';
import type { Database } from '../../postgres/database.js';
import { type ConsumerState, readConsumers } from './admin.sql.js';
import type { Consumer } from './consumer.js';

const REPORT_MS = 5_000;

export interface ReportOptions {
  readonly consumers: readonly Consumer[];
  readonly database: Database;
  readonly communities: Communities;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
}

export function startReport(options: ReportOptions): () => Promise<void> {
  if (options.consumers.length === 0) return async () => undefined;
  const refresh = () =>
    report(options).catch((error: unknown) => {
      options.log.debug({ error: String(error) }, 'the state of the consumers could not be read');
    });
  return startPolling(REPORT_MS, refresh, { atOnce: true });
}

export async function report({
  consumers,
  database,
  communities,
  metrics,
  now,
}: ReportOptions): Promise<void> {
  const ours = new Set(consumers.map(({ name }) => name));
  const limitSeconds = lowestLimit(communities);
  for (const state of await readConsumers(database.ownPool, now())) {
    const { consumer, lagRows, lagSeconds, deadLetters, rebuild } = state;
    if (!ours.has(consumer)) continue;
    metrics.consumerLagRows.set({ consumer }, lagRows);
    metrics.consumerLagSeconds.set({ consumer }, lagSeconds);
    metrics.consumerLetters.set({ consumer }, deadLetters);
    metrics.consumerLagging.set({ consumer }, isLagging(state, limitSeconds) ? 1 : 0);
    metrics.consumerRebuilding.set({ consumer }, rebuild === undefined ? 0 : 1);
  }
}

/** Paused, failing, behind the oldest row of the outbox, or later than the strictest community allows. */
function isLagging(
  { pausedAt, failingSince, behind, lagSeconds }: ConsumerState,
  limitSeconds: number,
): boolean {
  return pausedAt !== null || failingSince !== null || behind || lagSeconds > limitSeconds;
}

function lowestLimit(communities: Communities): number {
  const limits = communities.all().map(({ settings }) => settings['capacity.lagSecondsMax']);
  return Math.min(...limits.filter((seconds) => seconds > 0), Number.POSITIVE_INFINITY);
}
