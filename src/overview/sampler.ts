/**
 * Writes what this instance did in the past minute, with one statement a minute. Nothing is done per event:
 * it reads the counters of the metrics. If the database does not answer, the counts are added to the next
 * minute.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { type Counted, readCounted, readLags, since } from './figures.js';
import { MINUTE_MS } from './rules.js';
import { addPart } from './samples.sql.js';

/** The size of the database is read by the worker in every tenth minute: it looks at each file. */
const DATABASE_MS = 10 * MINUTE_MS;

export interface SamplerOptions {
  readonly pool: Pool;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  /** This process has the role worker: it knows the lag of every consumer, and the size of the database. */
  readonly isWorker: boolean;
  /** Of the disk of the embedded PostgreSQL; undefined if it is unknown. */
  readonly diskFreeBytes: () => number | undefined;
}

export class Sampler {
  private before: Counted | undefined;
  private measuredAt = 0;

  constructor(private readonly options: SamplerOptions) {}

  /** Writes what was counted since the last call, as part of the minute that ended last. */
  async take(): Promise<void> {
    const { pool, metrics, now, isWorker, diskFreeBytes } = this.options;
    const at = Math.floor(now() / MINUTE_MS) * MINUTE_MS - MINUTE_MS;
    const counted = await readCounted(metrics);
    const measuresDatabase = isWorker && at - this.measuredAt >= DATABASE_MS;
    await addPart(pool, {
      at,
      outcomes: since(counted.outcomes, this.before?.outcomes ?? []),
      okTimes: since(counted.okTimes, this.before?.okTimes ?? []),
      connections: counted.connections,
      laneDepth: metrics.figures.takeDeepest(counted.laneDepth),
      lagSeconds: isWorker ? await readLags(metrics) : {},
      diskFreeBytes: diskFreeBytes() ?? null,
      measuresDatabase,
    });
    this.before = counted;
    if (measuresDatabase) this.measuredAt = at;
  }
}

/** Takes a sample right after each full minute. */
export function startSampler(options: SamplerOptions): () => Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  const sampler = new Sampler(options);
  const loop = async (): Promise<void> => {
    for (;;) {
      const untilNext = MINUTE_MS - (options.now() % MINUTE_MS);
      await delay(untilNext, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      await sampler.take().catch((error: unknown) => {
        options.log.debug({ error: String(error) }, 'the figures of this minute could not be written');
      });
    }
  };
  const running = loop();
  return () => {
    stopping.abort();
    return running;
  };
}
