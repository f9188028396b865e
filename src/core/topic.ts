/** Topics are carried in `t` tags. This file holds the rule of the `required` mode. */
import type { NostrEvent } from './event.js';
import type { Filter } from './filter.js';
import { type Refusal, refusal } from './reply.js';
import type { Settings } from './settings.js';

export const TOPIC_LENGTH_MAX = 256;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const CONTROL = /[\u0000-\u001f\u007f]/;

export function isTopic(value: string | undefined): value is string {
  return value !== undefined && value !== '' && value.length <= TOPIC_LENGTH_MAX && !CONTROL.test(value);
}

/** The topics that an event is bound to: the well-formed values of its `t` tags, each once. */
export function topicsOf(event: NostrEvent): string[] {
  const topics = new Set<string>();
  for (const tag of event.tags) if (tag[0] === 't' && isTopic(tag[1])) topics.add(tag[1]);
  return [...topics];
}

/** Is this one of the kinds that need no topic (profiles, contacts, requests, relay lists, gift wraps …)? */
export function needsNoTopic(kind: number, settings: Settings): boolean {
  return settings['topic.freeKinds'].some((entry) => {
    if (typeof entry === 'number') return entry === kind;
    const [from, to] = entry.split('-').map(Number) as [number, number];
    return kind >= from && kind <= to;
  });
}

export function refuseEventTopic(event: NostrEvent, settings: Settings): Refusal | undefined {
  if (settings['topic.mode'] === 'open' || needsNoTopic(event.kind, settings)) return undefined;
  return topicsOf(event).length === 0 ? refusal('invalid', 'missing topic') : undefined;
}

/** A filter without `#t` passes only when every kind it names needs no topic. */
export function refuseFilterTopic(filter: Filter, settings: Settings): Refusal | undefined {
  if (settings['topic.mode'] === 'open' || filter.tags.some((tag) => tag.name === 't')) return undefined;
  const { kinds } = filter;
  if (kinds !== undefined && kinds.size > 0 && [...kinds].every((kind) => needsNoTopic(kind, settings))) {
    return undefined;
  }
  return refusal('invalid', 'missing topic: every filter needs #t on this relay');
}
