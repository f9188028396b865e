/**
 * How late an event may arrive in a topic, by the operator's rules for the topic (`maxDelaySeconds`,
 * `allowBackfill`). Pure. The same rules apply to sockets and imports.
 */

import type { Settings } from '../../communities/rules-settings.js';
import { allTopics, impliedTopics, type TopicSettings } from '../../topics/rules.js';
import { classify, KIND_DELETION, KIND_VANISH } from './classify.js';
import { KIND_GIFT_WRAP } from './deletion.js';
import type { NostrEvent } from './event.js';
import { type Refusal, refusal } from './reply.js';
import type { IngestPolicy, TopicRule } from './retention.js';

export interface LateArrival {
  readonly event: NostrEvent;
  readonly settings: TopicSettings & Pick<Settings, 'capacity.backfillSeconds'>;
  readonly nowSeconds: number;
  readonly topics: ReadonlyMap<string, TopicRule>;
}

/** A topic accepts late events by default, unless it has a longest delay. */
export function takesLate({ allowBackfill, maxDelaySeconds }: IngestPolicy): boolean {
  return allowBackfill ?? maxDelaySeconds === undefined;
}

/**
 * One topic that refuses the event is enough: an event is in all of its topics or in none. Requests to delete
 * or to vanish always pass. Replaceable and addressable events pass: they describe the current state, however
 * long ago they were written. Gift wraps pass, because their time is moved back by up to two days (NIP-59).
 */
export function refuseLate({ event, settings, nowSeconds, topics }: LateArrival): Refusal | undefined {
  if (isTimeless(event.kind)) return undefined;
  for (const topic of allTopics(event, impliedTopics(event, settings, topics))) {
    const policy = topics.get(topic)?.policy;
    if (policy === undefined || takesLate(policy)) continue;
    const seconds = policy.maxDelaySeconds ?? settings['capacity.backfillSeconds'];
    if (event.created_at < nowSeconds - seconds)
      return refusal('invalid', `created too long ago for topic ${topic}, at most ${seconds} s`);
  }
  return undefined;
}

export function isTimeless(kind: number): boolean {
  if (kind === KIND_DELETION || kind === KIND_VANISH || kind === KIND_GIFT_WRAP) return true;
  const eventClass = classify(kind);
  return eventClass === 'replaceable' || eventClass === 'addressable';
}
