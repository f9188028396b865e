/**
 * How long a regular event is kept. Each of its topics has its own days or the community's default, and the
 * longest decides. Days count from `ingested_at`; 0 means for ever. Pure.
 *
 * An event that was past its days stays hidden when the days are raised later (I8). So each rule has, beside
 * its days, the time `keptSince`: whatever was ingested before it was past its days when the rules last
 * changed.
 */
import { z } from 'zod';
import type { Settings } from '../../communities/rules-settings.js';
import { asMatched, type MatchedEvent, topicsOf } from '../../topics/rules.js';
import { classify, KIND_DELETION, KIND_VANISH } from './classify.js';
import type { NostrEvent } from './event.js';

export const DAY_MS = 86_400_000;

export const RETENTION_DAYS_MAX = 36_500;
/** The priority of a topic, positive or negative: the range of the database column. */
export const PRIORITY_MAX = 32_767;

/** The operator's rules for one topic. A missing rule falls back to the community's settings. */
export const ingestPolicySchema = z.strictObject({
  retentionDays: z.number().int().min(0).max(RETENTION_DAYS_MAX).optional(),
  maxEvents: z.number().int().min(1).optional(),
  maxBytes: z.number().int().min(1).optional(),
  maxDelaySeconds: z.number().int().min(0).optional(),
  allowBackfill: z.boolean().optional(),
});
export type IngestPolicy = z.infer<typeof ingestPolicySchema>;

const { shape } = ingestPolicySchema;
/** The input of a change: null removes a rule, as if it had never been set. */
export const ingestPolicyInput = z
  .strictObject({
    retentionDays: shape.retentionDays.nullable(),
    maxEvents: shape.maxEvents.nullable(),
    maxBytes: shape.maxBytes.nullable(),
    maxDelaySeconds: shape.maxDelaySeconds.nullable(),
    allowBackfill: shape.allowBackfill.nullable(),
  })
  .transform(
    (given): IngestPolicy => Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null)),
  );

export interface TopicRule {
  /** The topic is carried: pinned by the operator or in use, and not blocked. */
  readonly enabled: boolean;
  /** The operator has blocked the topic: an event that names it is refused, whatever else it names. */
  readonly blocked: boolean;
  /** No subscription is needed to read it or to post in it. */
  readonly public: boolean;
  readonly priority: number;
  readonly policy: IngestPolicy;
  /** Milliseconds; undefined while the community's value applies. */
  readonly keptSince?: number | undefined;
}

/** The retention rules of a community. The object never changes in place. */
export interface Retention {
  readonly settings: Pick<Settings, 'retention.regularDays'>;
  readonly topics: ReadonlyMap<string, TopicRule>;
  /** For the default days; milliseconds. */
  readonly keptSince?: number | undefined;
}

export function topicDays({ settings, topics }: Retention, topic: string): number {
  return topics.get(topic)?.policy.retentionDays ?? settings['retention.regularDays'];
}

/** The longest days of its topics; without a topic, the community's default. */
export function eventDays(retention: Retention, eventTopics: readonly string[]): number {
  if (eventTopics.length === 0) return retention.settings['retention.regularDays'];
  const days = eventTopics.map((topic) => topicDays(retention, topic));
  return days.includes(0) ? 0 : Math.max(...days);
}

/** Events ingested before this time are past their days; 0 when they are kept for ever. */
export function cutoff(days: number, now: number): number {
  return days === 0 ? 0 : now - days * DAY_MS;
}

// ── Since when what came in is kept, at a given time ───────────────────────────────────────────────────────

/** For events that name no topic. */
export function defaultSince({ settings, keptSince = 0 }: Retention, now: number): number {
  return Math.max(keptSince, cutoff(settings['retention.regularDays'], now));
}

/** For queries by this topic. */
export function topicSince(retention: Retention, topic: string, now: number): number {
  const rule = retention.topics.get(topic);
  return rule === undefined ? defaultSince(retention, now) : ruleSince(retention, rule, now);
}

function ruleSince(retention: Retention, { policy, keptSince }: TopicRule, now: number): number {
  const { retentionDays } = policy;
  if (retentionDays !== undefined) return Math.max(keptSince ?? 0, cutoff(retentionDays, now));
  if (keptSince === undefined) return defaultSince(retention, now);
  return Math.max(keptSince, cutoff(retention.settings['retention.regularDays'], now));
}

/** For an event, whatever the query: it is kept as long as one of its topics keeps it. */
export function eventSince(retention: Retention, eventTopics: readonly string[], now: number): number {
  if (eventTopics.length === 0) return defaultSince(retention, now);
  return Math.min(...eventTopics.map((topic) => topicSince(retention, topic, now)));
}

/** Topics with a time that differs from the default's, with these times. */
export function sincesOfTopics(retention: Retention, now: number): Map<string, number> {
  const byDefault = defaultSince(retention, now);
  const sinces = new Map<string, number>();
  for (const [topic, rule] of ownRules(retention)) {
    const since = ruleSince(retention, rule, now);
    if (since !== byDefault) sinces.set(topic, since);
  }
  return sinces;
}

/** Topics with a rule of their own. Most topics use the default. */
function ownRules(retention: Retention): readonly (readonly [string, TopicRule])[] {
  let rules = ownRulesOf.get(retention);
  if (rules === undefined) {
    rules = [...retention.topics].filter(
      ([, { policy, keptSince }]) => policy.retentionDays !== undefined || keptSince !== undefined,
    );
    ownRulesOf.set(retention, rules);
  }
  return rules;
}
const ownRulesOf = new WeakMap<Retention, readonly (readonly [string, TopicRule])[]>();

/** Events ingested since this time are kept by every rule. */
export function surelySince(retention: Retention, now: number): number {
  return Math.max(defaultSince(retention, now), ...sincesOfTopics(retention, now).values());
}

/** Only regular events have days. Requests are kept, and current versions have no days. */
export function ages(kind: number): boolean {
  return kind !== KIND_DELETION && kind !== KIND_VANISH && classify(kind) === 'regular';
}

/**
 * The event as filters see it, without the topics that no longer keep it; undefined when it is past its days.
 */
export function asKept(
  retention: Retention,
  event: NostrEvent,
  { bound, ingestedAt }: { readonly bound: readonly string[]; readonly ingestedAt: number },
  now: number,
): MatchedEvent | undefined {
  const matched = asMatched(event, bound);
  if (!ages(event.kind) || ingestedAt >= surelySince(retention, now)) return matched;
  const topics = topicsOf(event);
  if (ingestedAt < eventSince(retention, topics, now)) return undefined;
  return { ...matched, past: topics.filter((topic) => ingestedAt < topicSince(retention, topic, now)) };
}

/** Versions superseded before this time are no longer kept. */
export function historySince({ settings, historyKeptSince }: HistoryRetention, now: number): number {
  const days = settings['retention.historyDays'];
  if (days === 'forever') return historyKeptSince;
  return days === 0 ? Number.MAX_SAFE_INTEGER : Math.max(historyKeptSince, now - days * DAY_MS);
}
export interface HistoryRetention {
  readonly settings: Pick<Settings, 'retention.historyDays'>;
  readonly historyKeptSince: number;
}
