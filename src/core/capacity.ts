/**
 * What happens when a community or a topic nears its soft limit, in steps:
 *
 *   0 fine → 1 no backfill → 2 only topics of higher priority → 3 the oldest regular events are purged
 *
 * A step is entered at one mark and left at a lower one, so that it does not flicker. A topic with limits of its own goes
 * through the same steps by itself; there step 2 stops the whole topic.
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

/** The steps that a community and its topics are in; a topic that is fine is not listed. */
export interface Capacity {
  readonly step: Step;
  readonly topics: ReadonlyMap<string, Step>;
}
export const AT_EASE: Capacity = { step: 0, topics: new Map() };

export function highestStep({ step, topics }: Capacity): Step {
  return Math.max(step, ...topics.values()) as Step;
}

/** In percent of the nearest limit: a step begins at `from` and ends below `until`. Purging goes down to where it ends. */
export const MARKS: Record<Exclude<Step, 0>, { readonly from: number; readonly until: number }> = {
  1: { from: 90, until: 85 },
  2: { from: 95, until: 90 },
  3: { from: 100, until: 90 },
};
const PURGED_BELOW_PERCENT = MARKS[3].until;

/** What a step does, for the operator. */
export const STEP_WORDS: Record<Step, string> = {
  0: 'all is taken in',
  1: 'backfill is refused',
  2: 'posts of low priority are refused',
  3: 'the oldest regular events are purged',
};

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

/** The step now, from the step before. */
export function stepAt(percent: number, before: Step): Step {
  let step: Step = before;
  while (step > 0 && percent < MARKS[step as Exclude<Step, 0>].until) step = (step - 1) as Step;
  while (step < 3 && percent >= MARKS[(step + 1) as Exclude<Step, 0>].from) step = (step + 1) as Step;
  return step;
}

/** How much has to go until the purge has reached its end. */
export function excess(size: Size, { maxEvents, maxBytes }: Limits): Size {
  return { events: over(size.events, maxEvents), bytes: over(size.bytes, maxBytes) };
}

function over(held: number, max: number): number {
  if (max === 0) return 0;
  const fits = Math.ceil((max * PURGED_BELOW_PERCENT) / 100) - 1;
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
  if (capacity.step === 0 && capacity.topics.size === 0) return undefined;
  const eventClass = classify(event.kind);
  if (event.kind === KIND_DELETION || event.kind === KIND_VANISH || eventClass === 'ephemeral')
    return undefined;
  const names = topicsOf(event);
  const topicSteps = names.map((topic) => capacity.topics.get(topic) ?? 0);
  if (Math.max(capacity.step, ...topicSteps) >= 1 && isBackfill(arrival)) {
    const seconds = arrival.settings['capacity.backfillSeconds'];
    return refusal('restricted', `space is short: events older than ${seconds} seconds are not taken now`);
  }
  if (eventClass === 'replaceable') return undefined;
  if (topicSteps.some((step) => step >= 2)) {
    return refusal('restricted', 'space is short: this topic takes no posts now');
  }
  if (capacity.step >= 2 && !names.some((topic) => (arrival.topics.get(topic)?.priority ?? 0) > 0)) {
    return refusal('restricted', 'space is short: only topics of higher priority take posts now');
  }
  return undefined;
}

function isBackfill({ event, settings, nowSeconds }: SpaceArrival): boolean {
  return event.created_at < nowSeconds - settings['capacity.backfillSeconds'];
}
