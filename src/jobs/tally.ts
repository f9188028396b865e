/** Sums the rows that a dry run has found, by class and topic. */

import type { KindCount } from '../events/postgres/sweeps.js';
import { classify, type EventClass } from '../events/rules/classify.js';
import type { NostrEvent } from '../events/rules/event.js';
import { topicsOf } from '../topics/rules.js';
import type { DryRunCount } from './job.js';

/** I14: clients choose the names of topics. Topics beyond this limit are left out. */
const TOPICS_MAX = 1_000;

interface Sum {
  rows: number;
  looked: number;
  readonly topics: Map<string, number>;
}

export class Tally {
  private readonly sums = new Map<EventClass, Sum>();

  /** Rows of one kind, with the topics of those that were read. */
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
