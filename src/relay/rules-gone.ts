/**
 * Could a client hold an event, by its outline in the outbox? Pure. A deletion is announced with GONE to
 * those who could. What an outline cannot say is decided so that no deletion is missed and nothing is
 * revealed:
 *
 * - A tag condition on an event whose tags are not known counts as met: the client may get a GONE for an
 *   event that it does not hold, which it was allowed to see.
 * - Of a private kind, only its author and the keys in its `p` tags learn anything. If the tags are not
 *   known, only its author does.
 */
import { type Access, readsOneOf } from '../events/rules/access.js';
import type { Filter, TagCondition } from '../events/rules/filter.js';
import type { EventOutline } from '../events/rules/hidden.js';
import { isWithin, type KindEntry, type KindRange, kindRanges } from '../events/rules/kinds.js';
import { isTopic } from '../topics/rules.js';

/** Who asks, and how the tags of outlines are written. */
export interface GoneReader {
  readonly privateKinds: readonly KindRange[];
  readonly pubkeys: ReadonlySet<string>;
  /** The keys of its `p` tags. */
  readonly recipientKeys: readonly string[];
  readonly tagKey: (letter: string, value: string) => string;
}

export function goneReader(
  { consented }: Access,
  privateKinds: readonly KindEntry[],
  tagKey: GoneReader['tagKey'],
): GoneReader {
  const recipientKeys = [...consented].map((pubkey) => tagKey('p', pubkey));
  return { privateKinds: kindRanges(privateKinds), pubkeys: consented, recipientKeys, tagKey };
}

/** Of an event that is hidden: may this client have received it by this filter? */
export function couldHold(filter: Filter, outline: EventOutline, reader: GoneReader): boolean {
  return matchOutline(filter, outline, reader) && isForReader(outline, reader);
}

/** Of an event that is served: is it worth reading? A match is decided on the event itself. */
export function matchOutline(filter: Filter, outline: EventOutline, reader: GoneReader): boolean {
  const { id, author, kind, createdAt, topics } = outline;
  if (filter.since !== undefined && createdAt < filter.since) return false;
  if (filter.until !== undefined && createdAt > filter.until) return false;
  if (filter.kinds !== undefined && !filter.kinds.has(kind)) return false;
  if (filter.authors !== undefined && !filter.authors.has(author)) return false;
  if (filter.ids !== undefined && !filter.ids.has(id)) return false;
  if (!filter.tags.every((condition) => mayMeet(condition, outline, reader))) return false;
  return filter.view?.topics === undefined || readsOneOf(filter.view.topics, topics);
}

function isForReader({ author, kind, tags }: EventOutline, reader: GoneReader): boolean {
  if (!isWithin(kind, reader.privateKinds) || reader.pubkeys.has(author)) return true;
  return tags !== undefined && reader.recipientKeys.some((key) => tags.has(key));
}

function mayMeet(condition: TagCondition, { topics, tags }: EventOutline, reader: GoneReader): boolean {
  const { name, values } = condition;
  // Topics are known of every event; other values of `t`, such as very long ones, are not among them.
  if (name === 't' && topics.some((topic) => values.has(topic))) return true;
  if (tags !== undefined) return meets(keysOf(condition, reader), tags);
  return name !== 't' || !hasOnlyTopics(condition);
}

function meets(wanted: ReadonlySet<string>, tags: ReadonlySet<string>): boolean {
  for (const key of tags) if (wanted.has(key)) return true;
  return false;
}

/** The values of a condition are hashed once, when they are first needed. */
const hashed = new WeakMap<TagCondition, ReadonlySet<string>>();

function keysOf(condition: TagCondition, { tagKey }: GoneReader): ReadonlySet<string> {
  let keys = hashed.get(condition);
  if (keys === undefined) {
    keys = new Set([...condition.values].map((value) => tagKey(condition.name, value)));
    hashed.set(condition, keys);
  }
  return keys;
}

const topicsOnly = new WeakMap<TagCondition, boolean>();

/** Every value that an event can have by this condition is among its topics. */
export function hasOnlyTopics(condition: TagCondition): boolean {
  let known = topicsOnly.get(condition);
  if (known === undefined) {
    known = condition.name === 't' && [...condition.values].every(isTopic);
    topicsOnly.set(condition, known);
  }
  return known;
}
