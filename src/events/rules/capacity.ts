/**
 * What happens when a community or a topic nears its soft limit, in steps:
 *
 *   0 fine → 1 no backfill → 2 only topics of higher priority → 3 the oldest regular events are purged
 *
 * A step begins at one mark and ends at a lower one, so that it does not flicker. After an hour in step 2 a
 * community goes to step 3: nobody is refused for ever while there are old events to purge. A topic with
 * limits of its own goes from step 1 to step 3, because all posts of one topic have the same priority. It
 * accepts posts all the time, unless it holds only events that are never purged. When consumers of the outbox
 * are far behind, the first two steps give them time to catch up. Pure.
 */

import type { Settings } from '../../communities/rules-settings.js';
import { type DiskLevel, refuseForDisk } from '../../node/rules-disk.js';
import { topicsOf } from '../../topics/rules.js';
import { classify, KIND_DELETION, KIND_VANISH } from './classify.js';
import type { NostrEvent } from './event.js';
import { type Refusal, refusal } from './reply.js';
import type { IngestPolicy, TopicRule } from './retention.js';

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
/** Purging would not help a reader that is behind. */
export type LagStep = Exclude<Step, 3>;

/** The steps that a community and its topics are in; a topic that is fine is not listed. */
export interface Capacity {
  readonly step: Step;
  readonly topics: ReadonlyMap<string, Step>;
  /** Topics over their limit whose events, besides requests, are current versions: never purged (I11). */
  readonly full: ReadonlySet<string>;
  readonly lag: LagStep;
}
export const AT_EASE: Capacity = { step: 0, topics: new Map(), full: new Set(), lag: 0 };

export function highestStep({ step, topics, lag }: Capacity): Step {
  return Math.max(step, lag, ...topics.values()) as Step;
}

/** Each step in force because space is short, without the name of its topic. */
export function* scopeSteps({
  step,
  topics,
}: Capacity): Generator<{ readonly scope: 'whole' | 'topic'; readonly step: Step }> {
  if (step > 0) yield { scope: 'whole', step };
  for (const ofTopic of topics.values()) yield { scope: 'topic', step: ofTopic };
}

/**
 * In percent of the nearest limit. A step begins at `from` and ends below `until`. A purge ends below
 * `until`.
 */
export const MARKS: Record<Exclude<Step, 0>, { readonly from: number; readonly until: number }> = {
  1: { from: 90, until: 85 },
  2: { from: 95, until: 90 },
  3: { from: 100, until: 90 },
};
const PURGED_BELOW_PERCENT = MARKS[3].until;
/** How long a community refuses posts of low priority before it makes room by purging. */
export const LOW_PRIORITY_MS_MAX = 3_600_000;

/** What a step does, in words for the operator. */
export const STEP_WORDS: Record<Step, string> = {
  0: 'all is taken in',
  1: 'backfill is refused',
  2: 'posts of low priority are refused',
  3: 'the oldest regular events are purged',
};

/** The same for a topic with its own limits, which has no step 2. */
export const TOPIC_STEP_WORDS: Record<Step, string> = {
  ...STEP_WORDS,
  2: STEP_WORDS[1],
  3: 'its oldest events are purged, and it goes on taking posts',
};

/** For a topic that holds only events which are never purged. */
export const FULL_WORDS = 'it takes no posts, and its remaining events are never purged';

/**
 * Whether the limits count an event. Deletion requests are kept for ever and never refused for space: if they
 * counted, they would leave less and less room for posts, and everybody may send them.
 */
export const isCounted = ({ kind }: Pick<NostrEvent, 'kind'>): boolean => kind !== KIND_DELETION;

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

/** How full it is, in percent of the nearest limit; 0 without limits. */
export function fullness({ events, bytes }: Size, { maxEvents, maxBytes }: Limits): number {
  return Math.max(
    maxEvents === 0 ? 0 : (events * 100) / maxEvents,
    maxBytes === 0 ? 0 : (bytes * 100) / maxBytes,
  );
}

/** The step of a topic by its own limits. There is no step 2. */
export function topicStepAt(percent: number, before: Step): Step {
  const step = stepAt(percent, before === 2 ? 1 : before);
  return step === 2 ? 1 : step;
}

/** A community that has been in step 2 for the longest allowed time goes to step 3. */
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

/**
 * The step by the age of the oldest outbox row that the slowest reader has not read. 0 where no maximum is
 * set.
 */
export function lagStepAt(lagSeconds: number, lagSecondsMax: number, before: LagStep): LagStep {
  if (lagSecondsMax === 0) return 0;
  const percent = (lagSeconds * 100) / lagSecondsMax;
  let step: LagStep = before;
  while (step > 0 && percent < LAG_MARKS[step as 1 | 2].until) step = (step - 1) as LagStep;
  while (step < 2 && percent >= LAG_MARKS[(step + 1) as 1 | 2].from) step = (step + 1) as LagStep;
  return step;
}

/** How much to purge until the purge ends. */
export function excess(size: Size, { maxEvents, maxBytes }: Limits): Size {
  return { events: over(size.events, maxEvents), bytes: over(size.bytes, maxBytes) };
}

function over(held: number, max: number): number {
  if (max === 0) return 0;
  // A limit of 1 keeps one event: an event that was just accepted is not purged at once.
  const fits = Math.max(1, Math.ceil((max * PURGED_BELOW_PERCENT) / 100) - 1);
  return Math.max(0, held - fits);
}

export interface SpaceArrival {
  readonly event: NostrEvent;
  readonly settings: Pick<Settings, 'capacity.backfillSeconds'>;
  readonly nowSeconds: number;
  readonly capacity: Capacity;
  readonly topics: ReadonlyMap<string, TopicRule>;
  /** The level that applies to this community; 0 by default. */
  readonly diskLevel?: DiskLevel;
}

/**
 * What the steps refuse. Requests to delete or to vanish always pass: they free space and are a right.
 * Ephemeral events pass, because they take no space. Replaceable events pass from step 2 on, because each
 * author and kind has one place.
 */
export function refuseForSpace(arrival: SpaceArrival): Refusal | undefined {
  const { event, capacity, diskLevel = 0 } = arrival;
  if (diskLevel > 0) {
    const isEphemeral = classify(event.kind) === 'ephemeral';
    const full = refuseForDisk(diskLevel, event, { isEphemeral, isBackfill: isBackfill(arrival) });
    if (full !== undefined) return full;
  }
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
