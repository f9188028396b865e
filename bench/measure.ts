/** What a row is, what one repeat of it returns, and the statistics over repeats. */
import type { Corpus } from './corpus.js';
import type { BootedNode } from './node.js';
import type { Sizes } from './options.js';
import type { Sign } from './sign.js';
import type { Yardsticks } from './yardsticks.js';

/** Everything that one repeat of a row may measure. */
export interface Sample {
  readonly perSecond?: number;
  readonly rowsPerSecond?: number;
  readonly p50Ms?: number;
  readonly p95Ms?: number;
  readonly p99Ms?: number;
  readonly slowestMs?: number;
  /** The time to drop a month, and to drop one of a hundredth of its size in the same run. */
  readonly dropMs?: number;
  readonly smallDropMs?: number;
  /** Memory of the node and its database, shared pages counted once. */
  readonly megabytes?: number;
  readonly nodeMegabytes?: number;
  readonly databaseMegabytes?: number;
  /** CPU time of the node and its database, until the last OK. */
  readonly cpuMicrosPerEvent?: number;
  /** The same until every consumer is up to date and the node is quiet. */
  readonly cpuSettledMicrosPerEvent?: number;
  readonly cpuQuietMicrosPerEvent?: number;
  /** From the last OK until every consumer is up to date. */
  readonly settleSeconds?: number;
  /** CPU of the node and its database, in percent of one core. */
  readonly cpuPercent?: number;
  /** The size of the data folder on the disk. */
  readonly diskMegabytes?: number;
  /** Its parts, see database.ts. */
  readonly diskEvents?: number;
  readonly diskTags?: number;
  readonly diskIndexes?: number;
  readonly diskDedupe?: number;
  readonly diskOutbox?: number;
  readonly diskSearch?: number;
  readonly diskTrust?: number;
  readonly diskWal?: number;
  readonly diskOther?: number;
  /** Of each event or query, with `--store dynamodb`. */
  readonly readUnits?: number;
  readonly writeUnits?: number;
  /** How many cores the load generator used. */
  readonly loadCores?: number;
}
export type Metric = keyof Sample;

export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}
export type Summary = { readonly [M in Metric]?: Spread };

export interface Ratio {
  readonly value: number;
  readonly to: string;
}

/** What the rows share while a relay is measured. */
export interface Bench {
  url: string;
  /** Set only when the bench booted the relay. It has stopped when the rows with `afterNode` run. */
  node: BootedNode | undefined;
  /**
   * Stops the node and boots another on an empty folder. This, `rest` and `wake` do nothing to a `--target`.
   */
  bootFresh(): Promise<void>;
  /** Stops the node and keeps its data. */
  rest(): Promise<void>;
  /** Boots the node again on its data, if it has stopped, and waits until it is quiet. */
  wake(): Promise<void>;
  /** The node's program, for rows that run commands. */
  readonly program: string;
  /** False with `--consumers off`: search, moderation and trust are paused. */
  readonly consumersOn: boolean;
  /** Holds the node's data and other files of this run; removed at the end. */
  readonly folder: string;
  readonly nodeEnv: Readonly<Record<string, string>>;
  readonly corpus: Corpus;
  readonly sizes: Sizes;
  readonly seed: number;
  readonly sign: Sign;
  /** Corpus events [0, stored) were acknowledged by the relay. */
  stored: number;
  /** Corpus events [0, imported) are in the data folder of import and export. */
  imported: number;
  say(text: string): void;
}

/** Collects the failed checks of a row; a row with failures makes the bench exit non-zero. */
export class Findings {
  readonly failures: string[] = [];
  readonly notes = new Set<string>();
  #failed = 0;

  fail(text: string): void {
    this.#failed++;
    if (this.failures.length < FAILURES_SHOWN && !this.failures.includes(text)) this.failures.push(text);
  }

  note(text: string): void {
    this.notes.add(text);
  }

  get failed(): number {
    return this.#failed;
  }
}
const FAILURES_SHOWN = 5;

/** Thrown by a row that cannot be measured on this relay; the report shows why. */
export class Skip extends Error {}

export interface Row {
  readonly id: string;
  readonly title: string;
  readonly headline: Metric;
  readonly unit: string;
  /** Measured once, not `--repeat` times. */
  readonly once?: true;
  /** Belongs to the rows by which commits are compared: `--only main`. */
  readonly main?: true;
  /** Each repeat has a fresh node, booted on an empty folder. */
  readonly fresh?: true;
  /** The most repeats, because one takes long. */
  readonly repeatsMax?: number;
  /** Writes events: before the next row the bench waits until the consumers have read them. */
  readonly writes?: true;
  /** About how long one repeat takes, for the announced time. */
  seconds?(sizes: Sizes): number;
  /** Needs at least `--stored` events in the relay. */
  readonly needsStored?: true;
  /** Runs after the booted node has stopped, so that the node uses no CPU meanwhile. */
  readonly afterNode?: true;
  /** Imports the source of this tree, so it cannot measure the node of another commit. */
  readonly fromSource?: true;
  ratio?(summary: Summary, yardsticks: Yardsticks): Ratio | undefined;
  measure(bench: Bench, findings: Findings, repeat: number): Promise<Sample>;
}

export function summarize(samples: readonly Sample[]): Summary {
  const summary: { [M in Metric]?: Spread } = {};
  for (const metric of METRICS) {
    const values = samples.map((sample) => sample[metric]).filter((value) => value !== undefined);
    if (values.length > 0) summary[metric] = spread(values);
  }
  return summary;
}
export const METRICS: readonly Metric[] = [
  'perSecond',
  'rowsPerSecond',
  'p50Ms',
  'p95Ms',
  'p99Ms',
  'slowestMs',
  'dropMs',
  'smallDropMs',
  'megabytes',
  'nodeMegabytes',
  'databaseMegabytes',
  'cpuMicrosPerEvent',
  'cpuSettledMicrosPerEvent',
  'cpuQuietMicrosPerEvent',
  'settleSeconds',
  'cpuPercent',
  'readUnits',
  'writeUnits',
  'diskMegabytes',
  'diskEvents',
  'diskTags',
  'diskIndexes',
  'diskDedupe',
  'diskOutbox',
  'diskSearch',
  'diskTrust',
  'diskWal',
  'diskOther',
  'loadCores',
];

export function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  return { median: quantile(sorted, 0.5), min: sorted[0]!, max: sorted.at(-1)! };
}

export function latency(valuesMs: readonly number[]): { p50Ms: number; p95Ms: number; p99Ms: number } {
  const sorted = Float64Array.from(valuesMs).sort();
  return { p50Ms: quantile(sorted, 0.5), p95Ms: quantile(sorted, 0.95), p99Ms: quantile(sorted, 0.99) };
}

/** Nearest rank; NaN for an empty list, so that a row without answers cannot look fast. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}

export function ratioTo(
  to: string,
  value: number | undefined,
  yardstick: number | undefined,
): Ratio | undefined {
  return value === undefined || yardstick === undefined ? undefined : { value: value / yardstick, to };
}

/** How many flushes of the disk fit into this latency. A durable commit waits for at least one. */
export function flushesIn(p50Ms: number | undefined, flushesPerSecond: number): Ratio | undefined {
  return p50Ms === undefined ? undefined : { value: (p50Ms / 1000) * flushesPerSecond, to: 'fsyncs' };
}
