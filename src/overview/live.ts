/**
 * Current figures of this process. They are computed at most once in TICK_MS, whoever asks, and not at all
 * while nobody does.
 */
import type { Pool } from 'pg';
import type { Metrics } from '../node/metrics.js';
import { readConsumers } from '../outbox/consumers/admin.sql.js';
import { type Counted, readCounted, since } from './figures.js';
import { type EventOutcome, OUTCOMES, quantile } from './rules.js';

export const TICK_MS = 3_000;
/** After a longer pause the rates would be those of the pause. */
const PAUSE_MS_MAX = 4 * TICK_MS;

export interface LiveOptions {
  readonly pool: Pool;
  readonly metrics: Metrics;
  readonly now: () => number;
}

export interface LiveFigures {
  readonly at: number;
  /** Events per second by outcome; undefined until two readings exist. */
  readonly perSecond: Readonly<Record<EventOutcome, number>> | undefined;
  readonly connections: number;
  readonly laneDepth: number;
  /** Of the events since the last reading. */
  readonly okP50Ms: number | undefined;
  readonly okP99Ms: number | undefined;
  readonly lagSeconds: Readonly<Record<string, number>>;
}

interface Reading {
  readonly at: number;
  readonly counted: Counted;
}

export class Live {
  private before: Reading | undefined;
  private current: { readonly at: number; readonly figures: Promise<LiveFigures> } | undefined;

  constructor(private readonly options: LiveOptions) {}

  read(): Promise<LiveFigures> {
    const at = performance.now();
    if (this.current === undefined || at - this.current.at >= TICK_MS) {
      const figures = this.compute(at);
      // A failure is not kept: the next reader tries again.
      figures.catch(() => {
        this.current = undefined;
      });
      this.current = { at, figures };
    }
    return this.current.figures;
  }

  private async compute(at: number): Promise<LiveFigures> {
    const { pool, metrics, now } = this.options;
    const counted = await readCounted(metrics);
    const { before } = this;
    const seconds = before === undefined ? 0 : (at - before.at) / 1_000;
    const isFirst = before === undefined || seconds * 1_000 > PAUSE_MS_MAX;
    this.before = { at, counted };
    const consumers = await readConsumers(pool, now());
    const okTimes = isFirst ? [] : since(counted.okTimes, before.counted.okTimes);
    return {
      at: now(),
      perSecond: isFirst ? undefined : ratesOf(since(counted.outcomes, before.counted.outcomes), seconds),
      connections: counted.connections,
      laneDepth: counted.laneDepth,
      okP50Ms: quantile(okTimes, 0.5),
      okP99Ms: quantile(okTimes, 0.99),
      lagSeconds: Object.fromEntries(consumers.map(({ consumer, lagSeconds }) => [consumer, lagSeconds])),
    };
  }
}

function ratesOf(counts: readonly number[], seconds: number): Record<EventOutcome, number> {
  const rates = OUTCOMES.map((outcome, at) => [outcome, (counts[at] ?? 0) / seconds] as const);
  return Object.fromEntries(rates) as Record<EventOutcome, number>;
}
