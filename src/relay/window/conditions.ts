/**
 * A filter as conditions on numbers: which keys an event of the window must have, so that none is parsed. The
 * twin of `matchFilter` (events/rules/filter.ts) and, for the days of retention, of `withinDays` and
 * `carries` (events/postgres/read/query.ts); a test holds them together.
 */
import { readsTopic, type TopicView, type View } from '../../events/rules/access.js';
import type { Filter, TagCondition } from '../../events/rules/filter.js';
import { isWithin } from '../../events/rules/kinds.js';
import {
  ages,
  defaultSince,
  eventSince,
  type Retention,
  surelySince,
  topicSince,
} from '../../events/rules/retention.js';
import { findsBound, isTopic } from '../../topics/rules.js';
import { KEY_OF, type Window } from './window.js';

export type Condition = (place: number) => boolean;

/** The keys of one field of a filter, those that some event has. */
export interface AskedKeys {
  readonly keys: readonly number[];
  /** What is left to check of the field where an event was found by one of these keys; mostly nothing. */
  readonly left?: Condition;
}

export interface Conditions {
  /** A way in for each field that has one. */
  readonly authors: AskedKeys | undefined;
  readonly authorKinds: AskedKeys | undefined;
  readonly kinds: AskedKeys | undefined;
  readonly tags: readonly AskedKeys[];
  /** Of the fields in the order author, kind, tags; undefined where a field is not asked for. */
  readonly isAuthor: Condition | undefined;
  readonly isKind: Condition | undefined;
  readonly hasTag: readonly Condition[];
  /** Time and view. */
  readonly isShown: Condition;
}

export interface At {
  readonly community: number;
  /** Milliseconds. */
  readonly now: number;
  readonly rules: Retention;
}

/** Up to here authors × kinds have a list each. */
const PAIRS_MAX = 1_000;

export function conditionsOf(window: Window, filter: Filter, at: At): Conditions {
  const { authors, kinds, tags } = filter;
  const authorKeys =
    authors && known([...authors].map((pubkey) => window.keys.author(at.community, pubkey).find()));
  const pairs = authorKeys === undefined || kinds === undefined || authorKeys.length * kinds.size > PAIRS_MAX;
  const conditions = tags.map((tag) => tagCondition(window, filter, tag, at));
  return {
    authors: authorKeys && { keys: authorKeys },
    authorKinds: pairs ? undefined : { keys: pairKeys(window, authorKeys, kinds, at.community) },
    kinds: kinds && {
      keys: known([...kinds].map((kind) => window.keys.kind(at.community, kind).find())),
    },
    tags: conditions.map(({ asked }) => asked),
    isAuthor: authorKeys && hasOne(new Set(authorKeys), (place) => window.key(place, KEY_OF.author)),
    isKind: kinds && ((place) => kinds.has(window.kind(place))),
    hasTag: conditions.map(({ isMet }) => isMet),
    isShown: shown(window, filter, at),
  };
}

const known = (keys: readonly number[]) => keys.filter((key) => key !== -1);

function pairKeys(
  window: Window,
  authors: readonly number[],
  kinds: ReadonlySet<number>,
  community: number,
): number[] {
  const keys: number[] = [];
  for (const author of authors)
    for (const kind of kinds) keys.push(window.keys.authorKind(community, author, kind).find());
  return known(keys);
}

function hasOne(keys: ReadonlySet<number>, keyOf: (place: number) => number): Condition {
  return (place) => keys.has(keyOf(place));
}

// ── Tags ───────────────────────────────────────────────────────────────────────────────────────────────────

interface Tagged {
  readonly asked: AskedKeys;
  readonly isMet: Condition;
}

function tagCondition(window: Window, filter: Filter, tag: TagCondition, at: At): Tagged {
  // Events hold no lone surrogates, and here they would look like another character.
  const values = [...tag.values].filter((value) => value.isWellFormed());
  if (tag.name === 't') return topicCondition(window, filter, values, at);
  const keys = known(values.map((value) => window.keys.tag(at.community, tag.name, value).find()));
  const set = new Set(keys);
  return { asked: { keys }, isMet: (place) => window.someTag(place, (key) => set.has(key)) };
}

/**
 * By a topic an event is found as long as that topic keeps it; by one that it is bound to, as long as the
 * default does.
 */
function topicCondition(window: Window, filter: Filter, topics: readonly string[], at: At): Tagged {
  const { community, rules, now } = at;
  const named = new Map<number, number>();
  const bound = new Map<number, number>();
  const byDefault = defaultSince(rules, now);
  for (const topic of topics) {
    const key = window.keys.tag(community, 't', topic).find();
    if (key !== -1) named.set(key, topicSince(rules, topic, now));
    const boundKey = window.keys.bound(community, topic).find();
    if (boundKey !== -1) bound.set(boundKey, byDefault);
  }
  // Of the event that is looked at: one function for all of them.
  let ingestedAt = 0;
  let isFound = true;
  const isMetBy = (key: number) => {
    const since = named.get(key) ?? (isFound ? bound.get(key) : undefined);
    return since !== undefined && ingestedAt >= since;
  };
  const isMet = (place: number) => {
    const kind = window.kind(place);
    ingestedAt = ages(kind) ? window.ingestedAt(place) : Number.POSITIVE_INFINITY;
    isFound = findsBound(filter, kind);
    return window.someTag(place, isMetBy);
  };
  // What every topic asked for keeps was found by one of them, unless it is bound to that and not found so.
  const surely = Math.max(byDefault, ...named.values());
  const left = (place: number) =>
    (window.ingestedAt(place) >= surely && findsBound(filter, window.kind(place))) || isMet(place);
  return { asked: { keys: [...named.keys(), ...bound.keys()], left }, isMet };
}

// ── Time and view ──────────────────────────────────────────────────────────────────────────────────────────

function shown(window: Window, filter: Filter, at: At): Condition {
  const nowSeconds = Math.floor(at.now / 1_000);
  const isKept = keptCondition(window, filter, at);
  const isSeen = filter.view === undefined ? undefined : seenCondition(window, filter.view, at.community);
  return (place) =>
    window.expiresAt(place) > nowSeconds &&
    isKept(place) &&
    !window.isVanished(place) &&
    (isSeen === undefined || isSeen(place));
}

/** Where a topic is asked for, its own days count, and are looked at there. */
function keptCondition(window: Window, { tags }: Filter, { rules, now }: At): Condition {
  if (tags.some(({ name }) => name === 't')) return () => true;
  const surely = surelySince(rules, now);
  return (place) => {
    const ingestedAt = window.ingestedAt(place);
    if (ingestedAt >= surely || !ages(window.kind(place))) return true;
    const topics: string[] = [];
    window.someTag(place, (key) => {
      if (window.keys.isTag(key, 't')) topics.push(window.keys.valueOf(key));
      return false;
    });
    return ingestedAt >= eventSince(rules, topics.filter(isTopic), now);
  };
}

function seenCondition(window: Window, { parties, topics, kinds }: View, community: number): Condition {
  const keysOf = (ask: (pubkey: string) => { find(): number }) =>
    new Set(known([...(parties?.pubkeys ?? [])].map((pubkey) => ask(pubkey).find())));
  const authors = keysOf((pubkey) => window.keys.author(community, pubkey));
  const recipients = keysOf((pubkey) => window.keys.tag(community, 'p', pubkey));
  const isParty = (place: number) =>
    authors.has(window.key(place, KEY_OF.author)) || window.someTag(place, (key) => recipients.has(key));
  const isOpen = topics === undefined ? undefined : openCondition(window, topics);
  return (place) => {
    const kind = window.kind(place);
    if (kinds !== undefined && !isWithin(kind, kinds)) return false;
    if (parties !== undefined && isWithin(kind, parties.ranges) && !isParty(place)) return false;
    return isOpen === undefined || isOpen(place);
  };
}

/** What belongs to topics is shown by one that may be read. */
function openCondition(window: Window, view: TopicView): Condition {
  // Numbers of keys mean the same as long as one question is answered.
  const reads = new Map<number, boolean | undefined>();
  const readsKey = (key: number): boolean | undefined => {
    if (!window.keys.isTag(key, 't') && !window.keys.isBound(key)) return undefined;
    if (!reads.has(key)) reads.set(key, readsTopic(view, window.keys.valueOf(key)));
    return reads.get(key);
  };
  return (place) => {
    let hasTopic = false;
    const isOpen = window.someTag(place, (key) => {
      const may = readsKey(key);
      hasTopic ||= may !== undefined;
      return may === true;
    });
    return isOpen || !hasTopic;
  };
}
