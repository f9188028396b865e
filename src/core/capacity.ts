/**
 * What happens when a community or a topic nears its soft limit, in steps:
 *
 *   0 fine → 1 no backfill → 2 only topics of higher priority → 3 the oldest regular events are purged
 *
 * A step is entered at one mark and left at a lower one, so that it does not flicker. Step 2 of a community gives way to step 3
 * after an hour: nobody is refused for ever while there is something old to purge. A topic with limits of its own goes from
 * step 1 to step 3: inside one topic no post has a lower priority. It takes posts all the time, unless it holds only what is
 * never purged. When consumers of the outbox are far behind, the first two steps give them time to catch up.
 */
import { classify, KIND_DELETION, KIND_VANISH } from './classify.js';
import type { NostrEvent } from './event.js';
import { type Refusal, refusal } from './reply.js';
import type { IngestPolicy, TopicSubscription } from './retention.js';
import type { Settings } from './settings.js';
import { topicsOf } from './topic.js';

export type Step = 0 | 1 | 2 | 3;

export interface Size {
  readonly events: number;
  readonly bytes: number;
}

/** 0 means no limit. */
export interface Limits {
  readonly maxEvents: number;
  readonly maxBytes: number;
}

/** Why a step is in force: space is short, or a reader of the outbox is far behind. */
export type Cause = 'space' | 'lag';
/** Purging would not help those who are behind. */
export type LagStep = Exclude<Step, 3>;

/** The steps that a community and its topics are in; a topic that is fine is not listed. */
export interface Capacity {
  readonly step: Step;
  readonly topics: ReadonlyMap<string, Step>;
  /** Topics over their limit that hold only what is never purged: current versions and requests (I11). */
  readonly full: ReadonlySet<string>;
  readonly lag: LagStep;
}
export const AT_EASE: Capacity = { step: 0, topics: new Map(), full: new Set(), lag: 0 };

export function highestStep({ step, topics, lag }: Capacity): Step {
  return Math.max(step, lag, ...topics.values()) as Step;
}

/** Each step against short space that is in force, without saying whose it is. */
export function* scopeSteps({
  step,
  topics,
}: Capacity): Generator<{ readonly scope: 'whole' | 'topic'; readonly step: Step }> {
  if (step > 0) yield { scope: 'whole', step };
  for (const ofTopic of topics.values()) yield { scope: 'topic', step: ofTopic };
}

/** In percent of the nearest limit: a step begins at `from` and ends below `until`. Purging goes down to where it ends. */
export const MARKS: Record<Exclude<Step, 0>, { readonly from: number; readonly until: number }> = {
  1: { from: 90, until: 85 },
  2: { from: 95, until: 90 },
  3: { from: 100, until: 90 },
};
const PURGED_BELOW_PERCENT = MARKS[3].until;
/** How long a community refuses posts of low priority before it makes room by purging. */
export const LOW_PRIORITY_MS_MAX = 3_600_000;

/** What a step does, for the operator. */
export const STEP_WORDS: Record<Step, string> = {
  0: 'all is taken in',
  1: 'backfill is refused',
  2: 'posts of low priority are refused',
  3: 'the oldest regular events are purged',
};

/** The same of a topic by its own limits. It has no step 2. */
export const TOPIC_STEP_WORDS: Record<Step, string> = {
  ...STEP_WORDS,
  2: STEP_WORDS[1],
  3: 'its oldest events are purged, and it goes on taking posts',
};

/** What is said of a topic that is full of what is never purged. */
export const FULL_WORDS = 'it takes no posts, and its remaining events are never purged';

export function communityLimits(
  settings: Pick<Settings, 'capacity.maxEvents' | 'capacity.maxBytes'>,
): Limits {
  return { maxEvents: settings['capacity.maxEvents'], maxBytes: settings['capacity.maxBytes'] };
}

export function topicLimits({ maxEvents = 0, maxBytes = 0 }: IngestPolicy): Limits {
  return { maxEvents, maxBytes };
}

export function hasLimit({ maxEvents, maxBytes }: Limits): boolean {
  return maxEvents > 0 || maxBytes > 0;
}

/** How full it is, in percent of the limit that is nearest; 0 without limits. */
export function fullness({ events, bytes }: Size, { maxEvents, maxBytes }: Limits): number {
  return Math.max(
    maxEvents === 0 ? 0 : (events * 100) / maxEvents,
    maxBytes === 0 ? 0 : (bytes * 100) / maxBytes,
  );
}

/** The step of a topic by its own limits, which knows no step 2. */
export function topicStepAt(percent: number, before: Step): Step {
  const step = stepAt(percent, before === 2 ? 1 : before);
  return step === 2 ? 1 : step;
}

/** A community that has been in step 2 for its longest time makes room. */
export function escalated(step: Step, sinceMs: number, nowMs: number): Step {
  return step === 2 && nowMs - sinceMs >= LOW_PRIORITY_MS_MAX ? 3 : step;
}

/** The step of a community now, from the step before. */
export function stepAt(percent: number, before: Step): Step {
  let step: Step = before;
  while (step > 0 && percent < MARKS[step as Exclude<Step, 0>].until) step = (step - 1) as Step;
  while (step < 3 && percent >= MARKS[(step + 1) as Exclude<Step, 0>].from) step = (step + 1) as Step;
  return step;
}

/** In percent of capacity.lagSecondsMax. */
const LAG_MARKS: Record<Exclude<LagStep, 0>, { readonly from: number; readonly until: number }> = {
  1: { from: 100, until: 50 },
  2: { from: 200, until: 100 },
};

/** The step by how long the outbox has been waiting for its slowest reader; without a bound there is none. */
export function lagStepAt(lagSeconds: number, lagSecondsMax: number, before: LagStep): LagStep {
  if (lagSecondsMax === 0) return 0;
  const percent = (lagSeconds * 100) / lagSecondsMax;
  let step: LagStep = before;
  while (step > 0 && percent < LAG_MARKS[step as 1 | 2].until) step = (step - 1) as LagStep;
  while (step < 2 && percent >= LAG_MARKS[(step + 1) as 1 | 2].from) step = (step + 1) as LagStep;
  return step;
}

/** How much has to go until the purge has reached its end. */
export function excess(size: Size, { maxEvents, maxBytes }: Limits): Size {
  return { events: over(size.events, maxEvents), bytes: over(size.bytes, maxBytes) };
}

function over(held: number, max: number): number {
  if (max === 0) return 0;
  // A limit of one keeps one: what has just been taken is not purged at once.
  const fits = Math.max(1, Math.ceil((max * PURGED_BELOW_PERCENT) / 100) - 1);
  return Math.max(0, held - fits);
}

export interface SpaceArrival {
  readonly event: NostrEvent;
  readonly settings: Pick<Settings, 'capacity.backfillSeconds'>;
  readonly nowSeconds: number;
  readonly capacity: Capacity;
  readonly topics: ReadonlyMap<string, TopicSubscription>;
}

/**
 * What the steps refuse. Requests to delete or to vanish always pass: they free space and are a right. So do ephemeral
 * events, which take none. A replaceable event has one place for each author and kind, so from step 2 on it still passes.
 */
export function refuseForSpace(arrival: SpaceArrival): Refusal | undefined {
  const { event, capacity } = arrival;
  if (capacity.step === 0 && capacity.lag === 0 && capacity.topics.size === 0) return undefined;
  const eventClass = classify(event.kind);
  if (event.kind === KIND_DELETION || event.kind === KIND_VANISH || eventClass === 'ephemeral')
    return undefined;
  const names = topicsOf(event);
  const topicSteps = names.map((topic) => capacity.topics.get(topic) ?? 0);
  const space = Math.max(capacity.step, ...topicSteps);
  if (Math.max(space, capacity.lag) >= 1 && isBackfill(arrival)) {
    const seconds = arrival.settings['capacity.backfillSeconds'];
    return refuseFor(space >= 1, `events older than ${seconds} seconds are not taken now`);
  }
  if (eventClass === 'replaceable') return undefined;
  if (names.some((topic) => capacity.full.has(topic)))
    return refuseFor(true, 'this topic takes no posts now');
  const isLow = () => !names.some((topic) => (arrival.topics.get(topic)?.priority ?? 0) > 0);
  if (Math.max(capacity.step, capacity.lag) >= 2 && isLow())
    return refuseFor(capacity.step >= 2, 'only topics of higher priority take posts now');
  return undefined;
}

function refuseFor(space: boolean, what: string): Refusal {
  return refusal('restricted', `${space ? 'space is short' : 'the node is catching up'}: ${what}`);
}

function isBackfill({ event, settings, nowSeconds }: SpaceArrival): boolean {
  return event.created_at < nowSeconds - settings['capacity.backfillSeconds'];
}
