/**
 * Who may read and post what. Pure. Private kinds are shown only to their author and recipients, in every
 * mode. Where clients must authenticate, they need a key that has agreed to the current policies. They also
 * need the right to every carried topic that an event or a filter names: a subscription, or the topic is
 * public. COUNT uses the same view as REQ, so it reveals nothing more.
 */
import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex } from '@noble/hashes/utils.js';
import type { Settings } from '../../communities/rules-settings.js';
import type { RefusedAs } from '../../members/rules.js';
import { KIND_INVITE, KIND_JOIN, KIND_LEAVE } from '../../members/rules-joining.js';
import { allTopics, impliedTopics, type MatchedEvent, needsNoTopic } from '../../topics/rules.js';
import { isProtectedKind } from './deletion.js';
import { isProtected, type NostrEvent } from './event.js';
import type { Filter } from './filter.js';
import {
  isAmong,
  isWithin,
  KIND_REMOTE_SIGNING,
  type KindEntry,
  type KindRange,
  kindRanges,
} from './kinds.js';
import { type Refusal, refusal } from './reply.js';
import type { TopicRule } from './retention.js';

/** The rules of a community that decide about access. */
export interface AccessRules {
  readonly settings: Settings;
  readonly topics: ReadonlyMap<string, TopicRule>;
  /** Keys that neither post nor read as members, and why. */
  readonly refused: ReadonlyMap<string, RefusedAs>;
}

/** One client at one moment. */
export interface Access {
  /** The keys that it has proved to hold. */
  readonly pubkeys: ReadonlySet<string>;
  /** The client must authenticate and needs rights. */
  readonly enforced: boolean;
  /**
   * Keys of the client that have agreed to the current policies; where authentication is not required, all
   * its keys. A refused key is never among them. Only these keys give rights.
   */
  readonly consented: ReadonlySet<string>;
  /** The topics that these keys have subscribed to. */
  readonly subscribed: ReadonlySet<string>;
}

export function isSameAccess(one: Access, other: Access): boolean {
  return (
    one.enforced === other.enforced &&
    isSameSet(one.pubkeys, other.pubkeys) &&
    isSameSet(one.consented, other.consented) &&
    isSameSet(one.subscribed, other.subscribed)
  );
}

export function isSameSet(one: ReadonlySet<string>, other: ReadonlySet<string>): boolean {
  if (one === other) return true;
  if (one.size !== other.size) return false;
  for (const value of one) if (!other.has(value)) return false;
  return true;
}

const NONE: ReadonlySet<string> = new Set();
export const ANONYMOUS: Access = {
  pubkeys: NONE,
  enforced: false,
  consented: NONE,
  subscribed: NONE,
};

const AUTHENTICATE = refusal('auth-required', 'this relay requires authentication (NIP-42)');
const AGREE = refusal('restricted', 'consent required');

const ACCOUNT: Record<RefusedAs, Refusal> = {
  disabled: refusal('restricted', 'this account is disabled'),
  deleted: refusal('restricted', 'this account has been deleted'),
  erasing: refusal(
    'restricted',
    'this key is being erased here; nothing of it is taken in until that is done',
  ),
};

/** The reply for a refused key. */
export function refuseKey(pubkey: string, { refused }: Pick<AccessRules, 'refused'>): Refusal | undefined {
  const why = refused.get(pubkey);
  return why && ACCOUNT[why];
}

function refuseClient({ enforced, pubkeys, consented }: Access, rules: AccessRules): Refusal | undefined {
  if (!enforced || consented.size > 0) return undefined;
  const [first] = pubkeys;
  if (first === undefined) return AUTHENTICATE;
  const isMember = [...pubkeys].some((pubkey) => !rules.refused.has(pubkey));
  return isMember ? AGREE : refuseKey(first, rules);
}

function mayUse(topic: string, access: Access, { topics }: AccessRules): boolean {
  const rules = topics.get(topic);
  return rules === undefined || !rules.enabled || rules.public || access.subscribed.has(topic);
}

/** Refuses the first topic that is carried here and that this client may not use. */
function refuseTopics(topics: Iterable<string>, access: Access, rules: AccessRules): Refusal | undefined {
  for (const topic of topics) {
    if (!mayUse(topic, access, rules))
      return refusal('restricted', `the topic ${topic.slice(0, 100)} needs a subscription`);
  }
  return undefined;
}

export function refuseEventAccess(
  event: NostrEvent,
  access: Access,
  rules: AccessRules,
): Refusal | undefined {
  const refused = refuseClient(access, rules);
  // A member who has not agreed to new terms, or has no account any more, may still delete their own events,
  // vanish and leave.
  const isWithdrawal = isProtectedKind(event.kind) || event.kind === KIND_LEAVE;
  const isAllowed =
    (isWithdrawal && refused !== AUTHENTICATE) || (event.kind === KIND_REMOTE_SIGNING && refused === AGREE);
  if (refused !== undefined && !isAllowed) return refused;
  const account = refuseKey(event.pubkey, rules);
  if (account !== undefined && (!isWithdrawal || account === ACCOUNT.erasing)) return account;
  // NIP-70: only its author may publish a protected event. A request to leave must come from its author too:
  // a replay must not end a membership that began later. A request to join is never stored, and clients send
  // it before they authenticate.
  const isOwn = event.kind !== KIND_JOIN && (isProtected(event) || event.kind === KIND_LEAVE);
  const isAuthor = (isWithdrawal ? access.pubkeys : access.consented).has(event.pubkey);
  if (isOwn && !isAuthor) {
    if (access.pubkeys.has(event.pubkey)) return AGREE;
    return refusal('auth-required', 'a protected event (NIP-70) is taken from its author only');
  }
  if (!access.enforced || isWithdrawal) return undefined;
  return refuseTopics(allTopics(event, impliedTopics(event, rules.settings, rules.topics)), access, rules);
}

const PRIVATE = refusal('auth-required', 'these kinds are served to their authenticated parties only');

/**
 * Refuses when none of the filters can match anything without authentication. Otherwise each filter finds
 * what this client may see.
 */
export function refusePrivate(
  filters: readonly Filter[],
  access: Access,
  { settings }: AccessRules,
): Refusal | undefined {
  if (access.pubkeys.size > 0) return undefined;
  const kinds = settings['auth.privateKinds'];
  return filters.every((filter) => asksOnlyPrivate(filter, kinds)) ? PRIVATE : undefined;
}

/** Would the client see more of the kinds that it names if it authenticated? */
export function wouldShowMore(
  filters: readonly Filter[],
  access: Access,
  { settings }: AccessRules,
): boolean {
  if (access.pubkeys.size > 0) return false;
  const needsKey = (kind: number) => isForKeys(kind, settings['auth.privateKinds']);
  return filters.some(({ kinds }) => kinds !== undefined && [...kinds].some(needsKey));
}

export function refuseFilterAccess(filter: Filter, access: Access, rules: AccessRules): Refusal | undefined {
  const refusedClient = refuseClient(access, rules);
  if (refusedClient !== undefined && !(refusedClient === AGREE && asksOnlySigning(filter)))
    return refusedClient;
  if (!access.enforced) return undefined;
  for (const { name, values } of filter.tags) {
    const refused = name === 't' ? refuseTopics(values, access, rules) : undefined;
    if (refused !== undefined) return refused;
  }
  return undefined;
}

function asksOnlySigning({ kinds }: Filter): boolean {
  return kinds !== undefined && kinds.size > 0 && [...kinds].every((kind) => kind === KIND_REMOTE_SIGNING);
}

function asksOnlyPrivate({ kinds }: Filter, privateKinds: readonly KindEntry[]): boolean {
  return kinds !== undefined && kinds.size > 0 && [...kinds].every((kind) => isForKeys(kind, privateKinds));
}

/** Events of this kind are served to authenticated clients only. */
function isForKeys(kind: number, privateKinds: readonly KindEntry[]): boolean {
  return kind === KIND_INVITE || isAmong(kind, privateKinds);
}

export interface Parties {
  readonly ranges: readonly KindRange[];
  readonly pubkeys: ReadonlySet<string>;
}

/** Which matches of a filter a client may see. It is part of the filter, so that every matcher applies it. */
export interface View {
  /** Views with equal keys show the same events. */
  readonly key: string;
  /** Kinds that only these parties see; undefined where the filter already guarantees it. */
  readonly parties: Parties | undefined;
  /** An event in topics is visible when the client may read at least one of them. */
  readonly topics: TopicView | undefined;
  /** In a search by words: the kinds that may be found. */
  readonly kinds: readonly KindRange[] | undefined;
}

/** One object for all filters of a client. What is the same for all clients of a community is stored once. */
export interface TopicView {
  readonly key: string;
  readonly carried: CarriedTopics;
  readonly subscribed: ReadonlySet<string>;
}

/** The topics of a community, as far as access needs them. */
export interface CarriedTopics {
  readonly key: string;
  /** Values of `t` with this prefix are topics. */
  readonly prefix: string;
  /** Other values that the operator has declared as topics. */
  readonly plain: ReadonlySet<string>;
  /** All topics, enabled or not. */
  readonly known: ReadonlySet<string>;
  readonly enabled: ReadonlySet<string>;
  readonly public: ReadonlySet<string>;
}

function isTopicIn({ prefix, plain }: CarriedTopics, value: string): boolean {
  return value.startsWith(prefix) || plain.has(value);
}

/**
 * The filter with the client's view, if one is needed. Not by a spread, which gives each filter a hidden
 * class of its own in Node.js 20: docs/decisions/0019-fewer-bytes.md.
 */
export function seenBy(filter: Filter, access: Access, rules: AccessRules): Filter {
  if (filter.search !== undefined)
    return Object.assign({}, filter, { view: searchView(filter, access, rules) });
  const parties = partiesOf(filter, access, rules.settings['auth.privateKinds']);
  const topics = asksOnlyAllowed(filter, access, rules) ? undefined : topicsSeen(filter, access, rules);
  if (parties === undefined && topics === undefined) return filter;
  const ofParties = parties === undefined ? null : [parties.ranges, [...parties.pubkeys].sort()];
  const key = JSON.stringify([ofParties, topics?.key]);
  return Object.assign({}, filter, { view: { key, parties, topics, kinds: undefined } });
}

function partiesOf(
  filter: Filter,
  { consented: pubkeys }: Access,
  kinds: readonly KindEntry[],
): View['parties'] {
  const mayMatch = filter.kinds === undefined || [...filter.kinds].some((kind) => isAmong(kind, kinds));
  if (kinds.length === 0 || !mayMatch) return undefined;
  const isOwn = (keys: ReadonlySet<string> | undefined) =>
    keys !== undefined && [...keys].every((pubkey) => pubkeys.has(pubkey));
  const toOwn = filter.tags.some(({ name, values }) => name === 'p' && isOwn(values));
  return isOwn(filter.authors) || toOwn ? undefined : { ranges: kindRanges(kinds), pubkeys };
}

/**
 * Undefined where the client may read every topic. Where authentication is not required, a client may read
 * every carried topic. Events of other topics are hidden, just as new ones are refused (topics/rules.ts),
 * whether the filter names topics or not. Kinds that need no topic are found without one.
 */
function topicsSeen({ tags, kinds }: Filter, access: Access, rules: AccessRules): TopicView | undefined {
  if (access.enforced) return topicViewOf(access, rules);
  if (rules.settings['topic.mode'] === 'open') return undefined;
  const carried = carriedTopics(rules);
  const named = tags.find(({ name }) => name === 't')?.values;
  const isFree = (kind: number) => needsNoTopic(kind, rules.settings);
  if (named === undefined && kinds !== undefined && [...kinds].every(isFree)) return undefined;
  const mayMeetOthers =
    carried.known.size > carried.enabled.size ||
    [...(named ?? [])].some((topic) => isTopicIn(carried, topic) && !carried.enabled.has(topic));
  return mayMeetOthers ? { key: carried.key, carried, subscribed: carried.enabled } : undefined;
}

/** Every match of such a filter is in a topic that the client may read. */
function asksOnlyAllowed({ tags }: Filter, access: Access, rules: AccessRules): boolean {
  const isAllowed = (topic: string) =>
    rules.topics.get(topic)?.enabled === true && (!access.enforced || mayUse(topic, access, rules));
  return tags.some(({ name, values }) => name === 't' && [...values].every(isAllowed));
}

/**
 * The access of a client is one object as long as it does not change, and so are the rules of a community. So
 * both serve as cache keys.
 */
const views = new WeakMap<Access, TopicView>();
const carriedIn = new WeakMap<AccessRules, CarriedTopics>();

function topicViewOf(access: Access, rules: AccessRules): TopicView {
  const carried = carriedTopics(rules);
  const known = views.get(access);
  if (known?.carried === carried) return known;
  const own = [...access.subscribed].sort();
  const view = { key: hashOf([carried.key, ...own]), carried, subscribed: access.subscribed };
  views.set(access, view);
  return view;
}

function carriedTopics(rules: AccessRules): CarriedTopics {
  const known = carriedIn.get(rules);
  if (known !== undefined) return known;
  const prefix = `${rules.settings['topic.namespace']}:`;
  const topics = [...rules.topics.keys()].sort();
  const plain = topics.filter((topic) => !topic.startsWith(prefix));
  const enabled = topics.filter((topic) => rules.topics.get(topic)?.enabled);
  const open = enabled.filter((topic) => rules.topics.get(topic)?.public);
  const carried = {
    key: hashOf([prefix, ...plain, '', ...enabled, '', ...open]),
    prefix,
    plain: new Set(plain),
    known: new Set(topics),
    enabled: new Set(enabled),
    public: new Set(open),
  };
  carriedIn.set(rules, carried);
  return carried;
}

/** Topics are not empty and hold no control characters, so newlines keep them apart. */
function hashOf(parts: readonly string[]): string {
  return bytesToHex(sha256(new TextEncoder().encode(parts.join('\n'))));
}

/** The topics whose events the client sees. */
export function allowedTopics({ carried, subscribed }: TopicView): string[] {
  return [...carried.public, ...[...subscribed].filter((topic) => carried.enabled.has(topic))];
}

/** Can the view hide an event of this kind at all? */
export function isGuarded({ parties, topics, kinds }: View, kind: number): boolean {
  return (
    kinds !== undefined || topics !== undefined || (parties !== undefined && isWithin(kind, parties.ranges))
  );
}

export function sees({ parties, topics, kinds }: View, event: MatchedEvent): boolean {
  if (kinds !== undefined && !isWithin(event.kind, kinds)) return false;
  if (parties !== undefined && isWithin(event.kind, parties.ranges) && !isParty(event, parties.pubkeys))
    return false;
  return topics === undefined || isAllowed(event, topics);
}

function isParty({ pubkey, tags }: NostrEvent, pubkeys: ReadonlySet<string>): boolean {
  if (pubkeys.size === 0) return false;
  return pubkeys.has(pubkey) || tags.some(([name, value]) => name === 'p' && pubkeys.has(value ?? ''));
}

function isAllowed({ tags, bound = [] }: MatchedEvent, view: TopicView): boolean {
  const named = tags.flatMap(([name, value]) => (name === 't' && value !== undefined ? [value] : []));
  return readsOneOf(view, [...named, ...bound]);
}

/** May the client read what has these values of `t`? It needs one topic of them, if there is any. */
export function readsOneOf(view: TopicView, values: readonly string[]): boolean {
  const reads = values.map((topic) => readsTopic(view, topic)).filter((may) => may !== undefined);
  return reads.length === 0 || reads.includes(true);
}

/** May the client read what belongs to this topic? Undefined for a value that is no topic here. */
export function readsTopic({ carried, subscribed }: TopicView, value: string): boolean | undefined {
  if (!isTopicIn(carried, value)) return undefined;
  return carried.public.has(value) || (subscribed.has(value) && carried.enabled.has(value));
}

// ── Search, and what is public ─────────────────────────────────────────────────────────────────────────────

/** Kinds of text, none of them private. */
export function isSearchable({ kind }: NostrEvent, { settings }: AccessRules): boolean {
  return isAmong(kind, settings['search.kinds']) && !isAmong(kind, settings['auth.privateKinds']);
}

/**
 * The view of a search: of the searchable kinds, everything that a REQ would show this client. The topic view
 * applies even where the filter names only allowed topics, because the same view decides which references
 * raise a score, and references need not match the filter.
 */
function searchView(filter: Filter, access: Access, rules: AccessRules): View {
  const { 'search.kinds': kinds, 'auth.privateKinds': hidden } = rules.settings;
  const topics = topicsSeen(filter, access, rules);
  const key = JSON.stringify(['search', kinds, hidden, topics?.key]);
  return { key, parties: nobody(hidden), topics, kinds: kindRanges(kinds) };
}

/** The view of a moderator's search: everything of the searchable kinds, in every topic. */
export function moderatorsView({ settings }: AccessRules): View {
  const { 'search.kinds': kinds, 'auth.privateKinds': hidden } = settings;
  const key = JSON.stringify(['moderator', kinds, hidden]);
  return { key, parties: nobody(hidden), topics: undefined, kinds: kindRanges(kinds) };
}

function nobody(kinds: readonly KindEntry[]): View['parties'] {
  return kinds.length === 0 ? undefined : { ranges: kindRanges(kinds), pubkeys: NONE };
}

const publicViews = new WeakMap<AccessRules, View>();

/**
 * What anyone may see, of any kind: nothing private, and only events in no topic or in a public one. Where
 * authentication is not required, everybody may read every topic.
 */
export function publicView(rules: AccessRules): View {
  let view = publicViews.get(rules);
  if (view === undefined) {
    const { 'auth.privateKinds': hidden, 'auth.mode': mode } = rules.settings;
    const topics = mode === 'off' ? undefined : topicViewOf({ ...ANONYMOUS, enforced: true }, rules);
    const key = JSON.stringify(['public', hidden, topics?.key]);
    view = { key, parties: nobody(hidden), topics, kinds: undefined };
    publicViews.set(rules, view);
  }
  return view;
}

/** The rules for one reader: the topics that they subscribe to count as public. */
export function rulesFor<R extends AccessRules>(rules: R, subscribed: ReadonlySet<string>): R {
  if (subscribed.size === 0) return rules;
  const opened = [...rules.topics].map(([topic, known]): [string, TopicRule] => [
    topic,
    subscribed.has(topic) ? { ...known, public: true } : known,
  ]);
  return { ...rules, topics: new Map(opened) };
}

/** The topics that decide what anyone may read; null where anyone may read all of them. */
export interface PublicTopics {
  readonly prefix: string;
  readonly plain: readonly string[];
  readonly public: readonly string[];
}

export function publicTopicsOf(rules: AccessRules): PublicTopics | null {
  const carried = publicView(rules).topics?.carried;
  if (carried === undefined) return null;
  return { prefix: carried.prefix, plain: [...carried.plain].sort(), public: [...carried.public].sort() };
}
