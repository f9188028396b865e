/**
 * The history of the node as pure functions: samples and how they are merged into longer steps, times to OK
 * in buckets, and the forecast of when a limit is met.
 */

// ── Samples ────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The outcomes of events, as `minato_events_total` names them. Stored as places of an array: new ones are
 * added at the end.
 */
export const OUTCOMES = [
  'stored',
  'broadcast',
  'duplicate',
  'older',
  'pow',
  'blocked',
  'rate-limited',
  'invalid',
  'restricted',
  'mute',
  'error',
  'unsupported',
  'auth-required',
] as const;
export type EventOutcome = (typeof OUTCOMES)[number];

export interface Sample {
  /** The start of its step, in milliseconds. */
  readonly at: number;
  /** Events by outcome, in the order of OUTCOMES. */
  readonly outcomes: readonly number[];
  /** Events by their time to OK, in the buckets below. */
  readonly okTimes: readonly number[];
  /** Open websockets at the end; of several minutes their mean. */
  readonly connections: number;
  /** Most events that waited for the lane. */
  readonly laneDepth: number;
  /** The greatest lag of each consumer. */
  readonly lagSeconds: Readonly<Record<string, number>>;
  /** The newest; null if it was not measured. */
  readonly databaseBytes: number | null;
  readonly diskFreeBytes: number | null;
}

export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;
export const DAY_MS = 86_400_000;

export function addCounts(a: readonly number[], b: readonly number[]): number[] {
  return Array.from({ length: Math.max(a.length, b.length) }, (_, at) => (a[at] ?? 0) + (b[at] ?? 0));
}

/** Samples of one step, oldest first; at least one. */
export function mergeSamples(at: number, samples: readonly Sample[]): Sample {
  const newest = (read: (sample: Sample) => number | null) =>
    samples.reduce<number | null>((known, sample) => read(sample) ?? known, null);
  const lagSeconds: Record<string, number> = {};
  for (const { lagSeconds: lags } of samples)
    for (const [name, seconds] of Object.entries(lags))
      lagSeconds[name] = Math.max(seconds, lagSeconds[name] ?? 0);
  const connections = samples.reduce((sum, sample) => sum + sample.connections, 0) / samples.length;
  return {
    at,
    outcomes: samples.map(({ outcomes }) => outcomes).reduce(addCounts, []),
    okTimes: samples.map(({ okTimes }) => okTimes).reduce(addCounts, []),
    connections: Math.round(connections),
    laneDepth: Math.max(...samples.map(({ laneDepth }) => laneDepth)),
    lagSeconds,
    databaseBytes: newest(({ databaseBytes }) => databaseBytes),
    diskFreeBytes: newest(({ diskFreeBytes }) => diskFreeBytes),
  };
}

/** The same samples in longer steps, oldest first. */
export function inSteps(samples: readonly Sample[], stepMs: number): Sample[] {
  const steps = new Map<number, Sample[]>();
  for (const sample of samples) {
    const at = Math.floor(sample.at / stepMs) * stepMs;
    const step = steps.get(at);
    if (step === undefined) steps.set(at, [sample]);
    else step.push(sample);
  }
  return [...steps].map(([at, step]) => mergeSamples(at, step));
}

// ── Times to OK ────────────────────────────────────────────────────────────────────────────────────────────

/** Bucket n ends at SHORTEST_MS × √2ⁿ; the last one has everything above as well (a minute). */
const SHORTEST_MS = 0.25;
export const TIME_BUCKETS = 37;

export function bucketOf(ms: number): number {
  if (!(ms > SHORTEST_MS)) return 0;
  return Math.min(TIME_BUCKETS - 1, Math.ceil(2 * Math.log2(ms / SHORTEST_MS)));
}

/** Milliseconds, by interpolation within a bucket; undefined without any event. */
export function quantile(buckets: readonly number[], share: number): number | undefined {
  const all = buckets.reduce((sum, events) => sum + events, 0);
  if (all === 0) return undefined;
  let left = all * share;
  for (const [at, events] of buckets.entries()) {
    if (events > 0 && left <= events) return SHORTEST_MS * 2 ** ((at - 1 + left / events) / 2);
    left -= events;
  }
  return undefined;
}

// ── Forecast ───────────────────────────────────────────────────────────────────────────────────────────────

export interface Point {
  readonly at: number;
  readonly value: number;
}

export interface Forecast {
  /** The growth in a day; negative if it shrinks. */
  readonly perDay: number;
  /** When the limit is met; null if it is not within a year. */
  readonly fullAt: number | null;
}

/** Less history says nothing: a burst of an hour would be taken for the growth of every hour. */
const HISTORY_MS_MIN = 6 * HOUR_MS;
const POINTS_MIN = 6;
const HORIZON_MS = 365 * DAY_MS;

/**
 * Continues the line that fits the points best (least squares). `room` is what may still be added now;
 * undefined: too little history.
 */
export function forecast(points: readonly Point[], room: number, now: number): Forecast | undefined {
  const first = points[0];
  const last = points.at(-1);
  if (first === undefined || last === undefined) return undefined;
  if (points.length < POINTS_MIN || last.at - first.at < HISTORY_MS_MIN) return undefined;
  const days = points.map(({ at }) => (at - first.at) / DAY_MS);
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const meanDay = mean(days);
  const meanValue = mean(points.map(({ value }) => value));
  let together = 0;
  let spread = 0;
  for (const [at, day] of days.entries()) {
    together += (day - meanDay) * (points[at]!.value - meanValue);
    spread += (day - meanDay) ** 2;
  }
  const perDay = together / spread;
  if (room <= 0) return { perDay, fullAt: now };
  const fullAt = perDay > 0 ? now + (room / perDay) * DAY_MS : Number.POSITIVE_INFINITY;
  return { perDay, fullAt: fullAt - now > HORIZON_MS ? null : Math.round(fullAt) };
}
