/**
 * What a changed policy of a topic would purge: first the events that are past the new days, then the oldest
 * ones until the topic fits under its new limits, as the jobs `retain` and `capacity` do. Pure.
 */
import { excess, fullness, type Limits, type Size, type Step, topicStepAt } from './capacity.js';
import { eventSince, type IngestPolicy, type Retention, type TopicRule, topicSince } from './retention.js';

export interface PolicyChange {
  readonly topic: string;
  readonly before: Retention;
  readonly after: Retention;
  readonly limits: Limits;
  /** The capacity step that the topic is in. */
  readonly step: Step;
  readonly size: Size;
  readonly now: number;
}

export interface PolicyPreview {
  /** Past the new days, and not past the current ones. */
  readonly retention: Size;
  /** Purged because the topic would be over its new limits. */
  readonly capacity: Size;
  /** Past the current days: they are purged soon in any case. */
  readonly due: Size;
  /** No longer found under this topic, but kept under another one. */
  readonly leaving: number;
}

/** A served regular event of the topic. */
export interface HeldEvent {
  readonly topics: readonly string[];
  readonly ingestedAt: number;
  readonly bytes: number;
}

/** The rules of a community with another policy of one topic. What is past its days now stays past (I8). */
export function withPolicy(before: Retention, topic: string, policy: IngestPolicy, now: number): Retention {
  const rule: TopicRule = before.topics.get(topic) ?? UNKNOWN;
  const changed = { ...rule, policy, keptSince: topicSince(before, topic, now) };
  return { ...before, topics: new Map([...before.topics, [topic, changed]]) };
}
const UNKNOWN: TopicRule = { enabled: false, blocked: false, public: false, priority: 0, policy: {} };

/** Sums what it is given, oldest events first. */
export class PolicySums {
  private readonly past = { events: 0, bytes: 0 };
  private readonly overdue = { events: 0, bytes: 0 };
  private leaving = 0;
  /** Sizes of the oldest events that stay, as many as the limits could ask for. */
  private readonly kept: number[] = [];
  private keptBytes = 0;
  private readonly most: Size;
  /** Events ingested from here on are kept by the new days. */
  readonly since: number;

  constructor(private readonly change: PolicyChange) {
    this.most = excess(change.size, change.limits);
    this.since = topicSince(change.after, change.topic, change.now);
  }

  /** False: an event that was ingested since then changes nothing any more. */
  wantsMore(): boolean {
    return this.kept.length < this.most.events || this.keptBytes < this.most.bytes;
  }

  add({ topics, ingestedAt, bytes }: HeldEvent): void {
    const { topic, before, after, now } = this.change;
    if (ingestedAt < eventSince(before, topics, now)) sum(this.overdue, bytes);
    else if (ingestedAt < eventSince(after, topics, now)) sum(this.past, bytes);
    else {
      if (ingestedAt < this.since && ingestedAt >= topicSince(before, topic, now)) this.leaving += 1;
      if (this.wantsMore()) this.keep(bytes);
    }
  }

  private keep(bytes: number): void {
    this.kept.push(bytes);
    this.keptBytes += bytes;
  }

  result(): PolicyPreview {
    const { past, overdue, leaving } = this;
    return { retention: { ...past }, due: { ...overdue }, leaving, capacity: this.overLimits() };
  }

  private overLimits(): Size {
    const { size, limits, step } = this.change;
    const left = {
      events: size.events - this.past.events - this.overdue.events,
      bytes: size.bytes - this.past.bytes - this.overdue.bytes,
    };
    const taken = { events: 0, bytes: 0 };
    if (topicStepAt(fullness(left, limits), step) < 3) return taken;
    const need = excess(left, limits);
    for (const bytes of this.kept) {
      if (taken.events >= need.events && taken.bytes >= need.bytes) break;
      sum(taken, bytes);
    }
    return taken;
  }
}

function sum(size: { events: number; bytes: number }, bytes: number): void {
  size.events += 1;
  size.bytes += bytes;
}
