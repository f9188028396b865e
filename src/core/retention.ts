/**
 * How long a regular event is kept: by its topics, each with its own days or the community's default; the longest
 * of them decides. Days count from `ingested_at`. 0 means for ever.
 */
import { z } from 'zod';
import { type Keep, REGULAR_KEEPS, stepOf } from './keep.js';
import type { Settings } from './settings.js';

export const DAY_MS = 86_400_000;

export const RETENTION_DAYS_MAX = 36_500;
/** Of a topic, in both directions: what the column holds. */
export const PRIORITY_MAX = 32_767;

/** What the operator set for one topic; what is missing follows the community's settings. */
export const ingestPolicySchema = z.strictObject({
  retentionDays: z.number().int().min(0).max(RETENTION_DAYS_MAX).optional(),
  maxEvents: z.number().int().min(1).optional(),
  maxBytes: z.number().int().min(1).optional(),
  maxDelaySeconds: z.number().int().min(0).optional(),
  allowBackfill: z.boolean().optional(),
});
export type IngestPolicy = z.infer<typeof ingestPolicySchema>;

export interface TopicSubscription {
  /** Carried: pinned by the operator or in use, and not blocked. */
  readonly enabled: boolean;
  /** The operator does not allow it: what names it is refused, whatever else it names. */
  readonly blocked: boolean;
  /** Nobody needs a subscription to read it or to post there. */
  readonly public: boolean;
  readonly priority: number;
  readonly policy: IngestPolicy;
}

/** A community's rules of retention. */
export interface Retention {
  readonly settings: Pick<Settings, 'retention.regularDays'>;
  readonly topics: ReadonlyMap<string, TopicSubscription>;
}

export function topicDays({ settings, topics }: Retention, topic: string): number {
  return topics.get(topic)?.policy.retentionDays ?? settings['retention.regularDays'];
}

/** The shortest days of any rule; 0 when everything is kept for ever. A community's rules never change in place. */
export function shortestDays(retention: Retention): number {
  let days = shortest.get(retention);
  if (days === undefined) {
    const all = [retention.settings['retention.regularDays']];
    for (const topic of retention.topics.keys()) all.push(topicDays(retention, topic));
    days = Math.min(...all.map((candidate) => candidate || Number.POSITIVE_INFINITY));
    if (days === Number.POSITIVE_INFINITY) days = 0;
    shortest.set(retention, days);
  }
  return days;
}
const shortest = new WeakMap<Retention, number>();

/** The longest of its topics' days; without a topic the community's default. */
export function eventDays(retention: Retention, eventTopics: readonly string[]): number {
  if (eventTopics.length === 0) return retention.settings['retention.regularDays'];
  const days = eventTopics.map((topic) => topicDays(retention, topic));
  return days.includes(0) ? 0 : Math.max(...days);
}

/** What was ingested before this is past its days; nothing, for ever. */
export function cutoff(days: number, now: number): number {
  return days === 0 ? 0 : now - days * DAY_MS;
}

/** The longest days that any event in a bucket may have, by the rules as they are. */
export function bucketDays(retention: Retention): ReadonlyMap<Keep, number> {
  const known = longestDays.get(retention);
  if (known !== undefined) return known;
  const all = [retention.settings['retention.regularDays']];
  for (const topic of retention.topics.keys()) all.push(topicDays(retention, topic));
  const longest = new Map<Keep, number>();
  for (const keep of REGULAR_KEEPS) {
    const days = all.filter((candidate) => stepOf(candidate) === keep);
    if (days.length > 0) longest.set(keep, days.includes(0) ? 0 : Math.max(...days));
  }
  longestDays.set(retention, longest);
  return longest;
}
const longestDays = new WeakMap<Retention, ReadonlyMap<Keep, number>>();
