/**
 * The rules of topics, which are `t` tags, in the modes `required`, `default` and `open`: which topics an
 * event or a filter must name, and to which topics an event is bound without naming them.
 */

import type { Settings } from '../communities/rules-settings.js';
import { KIND_DELETION } from '../events/rules/classify.js';
import type { NostrEvent } from '../events/rules/event.js';
import type { Filter } from '../events/rules/filter.js';
import { isAmong, KIND_REMOTE_SIGNING } from '../events/rules/kinds.js';
import { type Refusal, refusal } from '../events/rules/reply.js';
import type { TopicRule } from '../events/rules/retention.js';
import { isMembershipKind } from '../members/rules-joining.js';
import { globalTopic } from './rules-id.js';

export const TOPIC_LENGTH_MAX = 256;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const CONTROL = /[\u0000-\u001f\u007f]/;

export type TopicSettings = Pick<Settings, 'topic.mode' | 'topic.namespace' | 'topic.freeKinds'>;
/** The topics that a community knows. Only the enabled ones are carried. */
export type KnownTopics = ReadonlyMap<string, Pick<TopicRule, 'enabled' | 'blocked' | 'public'>>;

export function isTopic(value: string | undefined): value is string {
  return value !== undefined && value !== '' && value.length <= TOPIC_LENGTH_MAX && !CONTROL.test(value);
}

/** The topics that an event names: the well-formed values of its `t` tags, without duplicates. */
export function topicsOf(event: NostrEvent): string[] {
  const topics = new Set<string>();
  for (const tag of event.tags) if (tag[0] === 't' && isTopic(tag[1])) topics.add(tag[1]);
  return [...topics];
}

/** Whether events of this kind need no topic (profiles, contacts, requests, relay lists, gift wraps …). */
export function needsNoTopic(kind: number, settings: Pick<Settings, 'topic.freeKinds'>): boolean {
  return isMembershipKind(kind) || kind === KIND_REMOTE_SIGNING || isAmong(kind, settings['topic.freeKinds']);
}

// ── Bound topics: in the index and in the outbox, not in the event ─────────────────────────────────────────

/** Shared by nearly all events, so that it costs no allocation. */
export const UNBOUND: readonly string[] = [];
/** Limit of bound topics per event, however many topics its targets have. */
export const BOUND_MAX = 100;

/**
 * Whether a value of `t` is an id of the namespace or a topic of the community. Any other value is a plain
 * hashtag.
 */
function isTopicHere(value: string, namespace: string, known: ReadonlyMap<string, unknown>): boolean {
  return value.startsWith(`${namespace}:`) || known.has(value);
}

/**
 * In the `default` mode, an event that needs a topic and names none (hashtags aside) belongs to the global
 * topic.
 */
export function impliedTopics(
  event: NostrEvent,
  settings: TopicSettings,
  known: ReadonlyMap<string, unknown>,
): readonly string[] {
  if (settings['topic.mode'] !== 'default' || needsNoTopic(event.kind, settings)) return UNBOUND;
  const namespace = settings['topic.namespace'];
  const namesOne = topicsOf(event).some((topic) => isTopicHere(topic, namespace, known));
  return namesOne ? UNBOUND : [globalTopic(namespace)];
}

/** The topics that the event does not name itself, without duplicates. */
export function bindTopics(event: NostrEvent, topics: Iterable<string>): readonly string[] {
  const own = new Set(topicsOf(event));
  const bound = new Set<string>();
  for (const topic of topics) {
    if (bound.size === BOUND_MAX) break;
    if (!own.has(topic)) bound.add(topic);
  }
  return bound.size === 0 ? UNBOUND : [...bound];
}

/** The topics that it names, and those that it is bound to. */
export function allTopics(event: NostrEvent, bound: readonly string[]): string[] {
  const own = topicsOf(event);
  return bound.length === 0 ? own : [...own, ...bound];
}

/** The event for matching filters. Never served. */
export interface MatchedEvent extends NostrEvent {
  readonly bound?: readonly string[];
  /** Topics that it names and whose retention has ended for it: filters do not find it by them. */
  readonly past?: readonly string[];
}

/** Not by a spread, as in `seenBy`: each subscription reads it. */
export function asMatched(event: NostrEvent, bound: readonly string[]): MatchedEvent {
  return bound.length === 0 ? event : Object.assign({}, event, { bound });
}

/**
 * A bound topic matches like a `t` tag, with one exception. A deletion request matches by the topics of its
 * targets only if the filter names its kind. Otherwise a client that queries a topic would get a deletion
 * request that does not carry that topic.
 */
export function findsBound({ kinds }: Pick<Filter, 'kinds'>, kind: number): boolean {
  return kind !== KIND_DELETION || kinds !== undefined;
}

// ── Before an event is stored or a filter runs ─────────────────────────────────────────────────────────────

const NOT_ENABLED = 'topic not enabled';
const BLOCKED = refusal('restricted', 'topic blocked by the operator');

const isBlocked = (topics: Iterable<string>, known: KnownTopics): boolean => {
  for (const topic of topics) if (known.get(topic)?.blocked) return true;
  return false;
};

const isCarried = (topics: Iterable<string>, known: KnownTopics): boolean => {
  for (const topic of topics) if (known.get(topic)?.enabled) return true;
  return false;
};

/** A topic that anybody may use, preferably the global one. */
function exampleTopic(settings: TopicSettings, known: KnownTopics): string | undefined {
  const usable = (topic: string) => known.get(topic)?.enabled === true && known.get(topic)?.public === true;
  const global = globalTopic(settings['topic.namespace']);
  return usable(global) ? global : [...known.keys()].find(usable);
}

/** What to add to an event, for authors of clients that do not know topics. */
function advisedTag(settings: TopicSettings, known: KnownTopics): string {
  const topic = exampleTopic(settings, known);
  return topic === undefined
    ? 'add a t tag with a topic of this relay'
    : `add ${JSON.stringify(['t', topic])}`;
}

function advisedFilter(settings: TopicSettings, known: KnownTopics): string {
  const topic = exampleTopic(settings, known);
  const example = topic === undefined ? '' : `, for example ${JSON.stringify({ kinds: [1], '#t': [topic] })}`;
  return `every filter needs #t on this relay${example}`;
}

/** Refusals of hashtags include advice: the client may not know that this relay needs topics. */
function notEnabled(
  topics: Iterable<string>,
  { 'topic.namespace': namespace }: TopicSettings,
  advice: () => string,
): Refusal {
  for (const topic of topics)
    if (topic.startsWith(`${namespace}:`)) return refusal('restricted', NOT_ENABLED);
  return refusal('restricted', `${NOT_ENABLED}: ${advice()}`);
}

/** Refuses an event unless at least one of its topics is carried. */
export function refuseEventTopic(
  event: NostrEvent,
  settings: TopicSettings,
  known: KnownTopics,
): Refusal | undefined {
  const topics = allTopics(event, impliedTopics(event, settings, known));
  if (isBlocked(topics, known)) return BLOCKED;
  if (settings['topic.mode'] === 'open' || needsNoTopic(event.kind, settings)) return undefined;
  if (topics.length === 0) return refusal('invalid', `missing topic: ${advisedTag(settings, known)}`);
  if (isCarried(topics, known)) return undefined;
  return notEnabled(topics, settings, () => advisedTag(settings, known));
}

/**
 * A filter with topics needs one that is carried; `#t: []` matches nothing and passes. In the `default` mode
 * a hashtag is a tag like any other. In the `required` mode a filter without `#t` passes only when none of
 * its kinds needs a topic.
 */
export function refuseFilterTopic(
  filter: Filter,
  settings: TopicSettings,
  known: KnownTopics,
): Refusal | undefined {
  const { 'topic.mode': mode, 'topic.namespace': namespace } = settings;
  const named = filter.tags.find((tag) => tag.name === 't')?.values;
  if (named !== undefined && isBlocked(named, known)) return BLOCKED;
  if (mode === 'open') return undefined;
  if (named !== undefined) {
    if (named.size === 0 || isCarried(named, known)) return undefined;
    if (mode === 'default' && [...named].some((topic) => !isTopicHere(topic, namespace, known)))
      return undefined;
    return notEnabled(named, settings, () => advisedFilter(settings, known));
  }
  if (mode === 'default') return undefined;
  const { kinds } = filter;
  if (kinds !== undefined && kinds.size > 0 && [...kinds].every((kind) => needsNoTopic(kind, settings))) {
    return undefined;
  }
  return refusal('invalid', `missing topic: ${advisedFilter(settings, known)}`);
}
