/**
 * Topics are carried in `t` tags. This file holds the rules of the modes `required`, `default` and `open`: what an event and
 * a filter have to name, and what an event is bound to without naming it.
 */
import { KIND_DELETION } from './classify.js';
import type { NostrEvent } from './event.js';
import type { Filter } from './filter.js';
import { isMembershipKind } from './joining.js';
import { isAmong } from './kinds.js';
import { type Refusal, refusal } from './reply.js';
import type { TopicSubscription } from './retention.js';
import type { Settings } from './settings.js';
import { globalTopic } from './topic-id.js';

export const TOPIC_LENGTH_MAX = 256;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const CONTROL = /[\u0000-\u001f\u007f]/;

export type TopicSettings = Pick<Settings, 'topic.mode' | 'topic.namespace' | 'topic.freeKinds'>;
/** The topics that a community knows; those that are enabled are carried. */
export type KnownTopics = ReadonlyMap<string, Pick<TopicSubscription, 'enabled' | 'blocked' | 'public'>>;

export function isTopic(value: string | undefined): value is string {
  return value !== undefined && value !== '' && value.length <= TOPIC_LENGTH_MAX && !CONTROL.test(value);
}

/** The topics that an event names: the well-formed values of its `t` tags, each once. */
export function topicsOf(event: NostrEvent): string[] {
  const topics = new Set<string>();
  for (const tag of event.tags) if (tag[0] === 't' && isTopic(tag[1])) topics.add(tag[1]);
  return [...topics];
}

/** Is this one of the kinds that need no topic (profiles, contacts, requests, relay lists, gift wraps …)? */
export function needsNoTopic(kind: number, settings: Pick<Settings, 'topic.freeKinds'>): boolean {
  return isMembershipKind(kind) || isAmong(kind, settings['topic.freeKinds']);
}

// ── Bound topics: in the index and in the outbox, not in the event ────────────────────────────────────────────────

/** Nothing, for nearly every event; shared, so that it costs nothing. */
export const UNBOUND: readonly string[] = [];
/** Topics that one event is bound to at most, however many its targets have. */
export const BOUND_MAX = 100;

/** An id of the namespace, or a word that the community has made a topic. Any other value of `t` is a plain hashtag. */
function isTopicHere(value: string, namespace: string, known: ReadonlyMap<string, unknown>): boolean {
  return value.startsWith(`${namespace}:`) || known.has(value);
}

/** In the `default` mode an event that needs a topic and names none, hashtags aside, belongs to the global one. */
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

/** Those that the event does not name itself, each once. */
export function bindTopics(event: NostrEvent, topics: Iterable<string>): readonly string[] {
  const own = new Set(topicsOf(event));
  const bound = new Set<string>();
  for (const topic of topics) {
    if (bound.size === BOUND_MAX) break;
    if (!own.has(topic)) bound.add(topic);
  }
  return bound.size === 0 ? UNBOUND : [...bound];
}

/** Those that it names, and those that it is bound to. */
export function allTopics(event: NostrEvent, bound: readonly string[]): string[] {
  const own = topicsOf(event);
  return bound.length === 0 ? own : [...own, ...bound];
}

/** The event as filters see it. Never served. */
export interface MatchedEvent extends NostrEvent {
  readonly bound?: readonly string[];
  /** Topics that it names and whose days are over for it: it is not found by them. */
  readonly past?: readonly string[];
}

export function asMatched(event: NostrEvent, bound: readonly string[]): MatchedEvent {
  return bound.length === 0 ? event : { ...event, bound };
}

/**
 * A bound topic is like a `t` tag for a filter, with one exception: a deletion request is found by the topics of its targets
 * only where its kind is asked for, or whoever asks for a topic alone would get, in the place of what was deleted, an event
 * that does not carry it.
 */
export function findsBound({ kinds }: Pick<Filter, 'kinds'>, kind: number): boolean {
  return kind !== KIND_DELETION || kinds !== undefined;
}

// ── At the door ───────────────────────────────────────────────────────────────────────────────────────────────────

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

/** One that anybody may use: the global one, if it is such. */
function exampleTopic(settings: TopicSettings, known: KnownTopics): string | undefined {
  const usable = (topic: string) => known.get(topic)?.enabled === true && known.get(topic)?.public === true;
  const global = globalTopic(settings['topic.namespace']);
  return usable(global) ? global : [...known.keys()].find(usable);
}

/** What to add to an event, for whoever wrote a client that knows nothing of topics. */
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

/** Hashtags get advice with the refusal: whoever sends them may not know that this relay works by topic. */
function notEnabled(
  topics: Iterable<string>,
  { 'topic.namespace': namespace }: TopicSettings,
  advice: () => string,
): Refusal {
  for (const topic of topics)
    if (topic.startsWith(`${namespace}:`)) return refusal('restricted', NOT_ENABLED);
  return refusal('restricted', `${NOT_ENABLED}: ${advice()}`);
}

/** At least one of its topics is carried here. */
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
 * A filter that names topics needs one that is carried; `#t: []` matches nothing and passes. In the `default` mode a hashtag
 * is a tag like any other. A filter without `#t` passes in the `required` mode only when every kind it names needs no topic.
 */
export function refuseFilterTopic(
  filter: Filter,
  settings: TopicSettings,
  known: KnownTopics,
): Refusal | undefined {
  const { 'topic.mode': mode, 'topic.namespace': namespace } = settings;
  const asked = filter.tags.find((tag) => tag.name === 't')?.values;
  if (asked !== undefined && isBlocked(asked, known)) return BLOCKED;
  if (mode === 'open') return undefined;
  if (asked !== undefined) {
    if (asked.size === 0 || isCarried(asked, known)) return undefined;
    if (mode === 'default' && [...asked].some((topic) => !isTopicHere(topic, namespace, known)))
      return undefined;
    return notEnabled(asked, settings, () => advisedFilter(settings, known));
  }
  if (mode === 'default') return undefined;
  const { kinds } = filter;
  if (kinds !== undefined && kinds.size > 0 && [...kinds].every((kind) => needsNoTopic(kind, settings))) {
    return undefined;
  }
  return refusal('invalid', `missing topic: ${advisedFilter(settings, known)}`);
}
