/**
 * How long a regular event is kept: by its topics, each with its own days or the community's default; the longest
 * of them decides. Days count from `ingested_at`. 0 means for ever.
 *
 * What was past its days stays hidden when the days are raised later (I8). So each rule has, beside its days, the time
 * `keptSince`: whatever came in before it was past its days when the rules were last changed.
 */
import { z } from 'zod';
import { classify, KIND_DELETION, KIND_VANISH } from './classify.js';
import type { NostrEvent } from './event.js';
import type { Settings } from './settings.js';
import { asMatched, type MatchedEvent, topicsOf } from './topic.js';

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

const { shape } = ingestPolicySchema;
/** As it is given: null takes a rule away, as if it had never been set. */
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

export interface TopicSubscription {
  /** Carried: pinned by the operator or in use, and not blocked. */
  readonly enabled: boolean;
  /** The operator does not allow it: what names it is refused, whatever else it names. */
  readonly blocked: boolean;
  /** Nobody needs a subscription to read it or to post there. */
  readonly public: boolean;
  readonly priority: number;
  readonly policy: IngestPolicy;
  /** Milliseconds; undefined while it is the community's. */
  readonly keptSince?: number | undefined;
}

/** A community's rules of retention. They never change in place. */
export interface Retention {
  readonly settings: Pick<Settings, 'retention.regularDays'>;
  readonly topics: ReadonlyMap<string, TopicSubscription>;
  /** Of the default; milliseconds. */
  readonly keptSince?: number | undefined;
}

export function topicDays({ settings, topics }: Retention, topic: string): number {
  return topics.get(topic)?.policy.retentionDays ?? settings['retention.regularDays'];
}

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

// ── Since when what came in is kept, at a given time ──────────────────────────────────────────────────────────────

/** For what names no topic. */
export function defaultSince({ settings, keptSince = 0 }: Retention, now: number): number {
  return Math.max(keptSince, cutoff(settings['retention.regularDays'], now));
}

/** For what is asked for by this topic. */
export function topicSince(retention: Retention, topic: string, now: number): number {
  const rule = retention.topics.get(topic);
  return rule === undefined ? defaultSince(retention, now) : ruleSince(retention, rule, now);
}

function ruleSince(retention: Retention, { policy, keptSince }: TopicSubscription, now: number): number {
  const { retentionDays } = policy;
  if (retentionDays !== undefined) return Math.max(keptSince ?? 0, cutoff(retentionDays, now));
  if (keptSince === undefined) return defaultSince(retention, now);
  return Math.max(keptSince, cutoff(retention.settings['retention.regularDays'], now));
}

/** For an event, by whatever it is asked for: as long as one of its topics keeps it. */
export function eventSince(retention: Retention, eventTopics: readonly string[], now: number): number {
  if (eventTopics.length === 0) return defaultSince(retention, now);
  return Math.min(...eventTopics.map((topic) => topicSince(retention, topic, now)));
}

/** Topics whose time differs from the default's, with their times. */
export function sincesOfTopics(retention: Retention, now: number): Map<string, number> {
  const byDefault = defaultSince(retention, now);
  const sinces = new Map<string, number>();
  for (const [topic, rule] of ownRules(retention)) {
    const since = ruleSince(retention, rule, now);
    if (since !== byDefault) sinces.set(topic, since);
  }
  return sinces;
}

/** Most topics follow the default. */
function ownRules(retention: Retention): readonly (readonly [string, TopicSubscription])[] {
  let rules = ownRulesOf.get(retention);
  if (rules === undefined) {
    rules = [...retention.topics].filter(
      ([, { policy, keptSince }]) => policy.retentionDays !== undefined || keptSince !== undefined,
    );
    ownRulesOf.set(retention, rules);
  }
  return rules;
}
const ownRulesOf = new WeakMap<Retention, readonly (readonly [string, TopicSubscription])[]>();

/** What came in since this is kept by every rule. */
export function surelySince(retention: Retention, now: number): number {
  return Math.max(defaultSince(retention, now), ...sincesOfTopics(retention, now).values());
}

/** Only regular events age; requests are kept, and versions have no days while they are current. */
export function ages(kind: number): boolean {
  return kind !== KIND_DELETION && kind !== KIND_VANISH && classify(kind) === 'regular';
}

/** An event as filters see it, without the topics that do not keep it any more; undefined when it is past its days. */
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

/** Superseded versions: what was superseded before this is not kept any more. */
export function historySince({ settings, historyKeptSince }: HistoryRetention, now: number): number {
  const days = settings['retention.historyDays'];
  if (days === 'forever') return historyKeptSince;
  return days === 0 ? Number.MAX_SAFE_INTEGER : Math.max(historyKeptSince, now - days * DAY_MS);
}
export interface HistoryRetention {
  readonly settings: Pick<Settings, 'retention.historyDays'>;
  readonly historyKeptSince: number;
}
