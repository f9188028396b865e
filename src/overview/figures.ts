/** Reads the counters of this process for the history and for live figures. */
import type { Counter, Gauge } from 'prom-client';
import type { Metrics } from '../node/metrics.js';
import { OUTCOMES } from './rules.js';

/** Since the process started, except the gauges. */
export interface Counted {
  /** In the order of OUTCOMES. */
  readonly outcomes: readonly number[];
  readonly okTimes: readonly number[];
  readonly connections: number;
  readonly laneDepth: number;
}

async function currentOf(gauge: Gauge): Promise<number> {
  return (await gauge.get()).values[0]?.value ?? 0;
}

async function valuesBy(
  metric: Counter<string> | Gauge<string>,
  label: string,
): Promise<Map<string, number>> {
  return new Map((await metric.get()).values.map(({ labels, value }) => [String(labels[label]), value]));
}

export async function readCounted(metrics: Metrics): Promise<Counted> {
  const outcomes = await valuesBy(metrics.events, 'outcome');
  return {
    outcomes: OUTCOMES.map((outcome) => outcomes.get(outcome) ?? 0),
    okTimes: metrics.figures.okTimes(),
    connections: await currentOf(metrics.sockets),
    laneDepth: await currentOf(metrics.laneDepth),
  };
}

/** As the worker of this process knows them; empty without one. */
export async function readLags(metrics: Metrics): Promise<Record<string, number>> {
  return Object.fromEntries(await valuesBy(metrics.consumerLagSeconds, 'consumer'));
}

/** What was counted since `before`. */
export const since = (now: readonly number[], before: readonly number[]): number[] =>
  now.map((value, at) => value - (before[at] ?? 0));
