/** How the consumers stand, for the metrics: read from the database now and then, whoever works on them. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Communities } from '../communities.js';
import type { Log } from '../log.js';
import type { Metrics } from '../metrics.js';
import type { Database } from '../postgres/database.js';
import { type ConsumerState, readConsumers } from '../store/consumer-admin.js';
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
  const stopping = new AbortController();
  const { signal } = stopping;
  const run = async (): Promise<void> => {
    if (options.consumers.length === 0) return;
    while (!signal.aborted) {
      await report(options).catch((error: unknown) => {
        options.log.debug({ error: String(error) }, 'the consumers could not be looked at');
      });
      await delay(REPORT_MS, undefined, { signal }).catch(() => undefined);
    }
  };
  const running = run();
  return () => {
    stopping.abort();
    return running;
  };
}

export async function report({
  consumers,
  database,
  communities,
  metrics,
  now,
}: ReportOptions): Promise<void> {
  const ours = new Set(consumers.map(({ name }) => name));
  const boundSeconds = strictestBound(communities);
  for (const state of await readConsumers(database.ownPool, now())) {
    const { consumer, lagRows, lagSeconds, deadLetters, rebuild } = state;
    if (!ours.has(consumer)) continue;
    metrics.consumerLagRows.set({ consumer }, lagRows);
    metrics.consumerLagSeconds.set({ consumer }, lagSeconds);
    metrics.consumerLetters.set({ consumer }, deadLetters);
    metrics.consumerLagging.set({ consumer }, isLagging(state, boundSeconds) ? 1 : 0);
    metrics.consumerRebuilding.set({ consumer }, rebuild === undefined ? 0 : 1);
  }
}

/** Paused, failing, behind what the outbox holds, or behind for longer than any community allows. */
function isLagging(
  { pausedAt, failingSince, behind, lagSeconds }: ConsumerState,
  boundSeconds: number,
): boolean {
  return pausedAt !== null || failingSince !== null || behind || lagSeconds > boundSeconds;
}

function strictestBound(communities: Communities): number {
  const bounds = communities.all().map(({ settings }) => settings['capacity.lagSecondsMax']);
  return Math.min(...bounds.filter((seconds) => seconds > 0), Number.POSITIVE_INFINITY);
}
