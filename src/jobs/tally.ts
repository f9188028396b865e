/** What a dry run found, summed by class and within it by topic. */
import { classify, type EventClass } from '../core/classify.js';
import type { NostrEvent } from '../core/event.js';
import { topicsOf } from '../core/topic.js';
import type { KindCount } from '../store/sweeps.js';
import type { DryRunCount } from './job.js';

/** Names of topics are anybody's choice; those past the bound are left out. */
const TOPICS_MAX = 1_000;

interface Sum {
  rows: number;
  looked: number;
  readonly topics: Map<string, number>;
}

export class Tally {
  private readonly sums = new Map<EventClass, Sum>();

  /** Rows of one kind that were counted, with the topics of those that were looked at. */
  add({ kind, rows, looked, topics }: KindCount): void {
    const sum = this.sums.get(classify(kind)) ?? { rows: 0, looked: 0, topics: new Map<string, number>() };
    this.sums.set(classify(kind), sum);
    sum.rows += rows;
    sum.looked += looked;
    for (const [topic, events] of topics) {
      const before = sum.topics.get(topic);
      if (before !== undefined || sum.topics.size < TOPICS_MAX) sum.topics.set(topic, (before ?? 0) + events);
    }
  }

  addEvent(event: NostrEvent): void {
    const topics = new Map(topicsOf(event).map((topic) => [topic, 1]));
    this.add({ kind: event.kind, rows: 1, looked: 1, topics });
  }

  /** Each class with its topics, the fullest first. */
  counts(reason: string): DryRunCount[] {
    return [...this.sums]
      .filter(([, { rows }]) => rows > 0)
      .map(([name, { rows, looked, topics }]) => ({
        reason,
        class: name,
        rows,
        ...(looked < rows ? { topicsFromRows: looked } : {}),
        topics: [...topics]
          .map(([topic, events]) => ({ topic, rows: events }))
          .sort((a, b) => b.rows - a.rows || (a.topic < b.topic ? -1 : 1)),
      }));
  }
}

export function tallied(reason: string, counts: readonly KindCount[]): DryRunCount[] {
  const tally = new Tally();
  for (const count of counts) tally.add(count);
  return tally.counts(reason);
}
