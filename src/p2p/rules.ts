/**
 * What is gossiped: which topics a node joins, which events it sends into them, and which it takes from them.
 * Pure. Only public topics take part, and an event that is also in a private topic does not.
 */
import { bytesToHex } from '@noble/hashes/utils.js';
import type { Settings } from '../communities/rules-settings.js';
import { KIND_DELETION, KIND_VANISH } from '../events/rules/classify.js';
import { isProtected, type NostrEvent } from '../events/rules/event.js';
import { isAmong, KIND_REMOTE_SIGNING } from '../events/rules/kinds.js';
import { isTimeless } from '../events/rules/lateness.js';
import { CREDENTIAL_KINDS, GIFT_WRAP_KINDS, P2P_ONLY_KINDS } from '../events/rules/policy.js';
import { type Refusal, refusal } from '../events/rules/reply.js';
import type { TopicRule } from '../events/rules/retention.js';
import { vanishScope } from '../events/rules/vanish.js';
import { isMembershipKind } from '../members/rules-joining.js';
import { allTopics, impliedTopics, type TopicSettings } from '../topics/rules.js';
import { gossipTopic } from '../topics/rules-id.js';

export interface GossipRules {
  readonly id: number;
  readonly settings: TopicSettings & Pick<Settings, 'p2p.gossip' | 'auth.privateKinds'>;
  readonly topics: ReadonlyMap<string, TopicRule>;
}

/** A topic of a community, under its gossip topic. */
export interface JoinedTopic {
  readonly community: number;
  readonly topic: string;
}

export const keyOf = ({ community, topic }: JoinedTopic): string => `${community}/${topic}`;

/** By gossip topic in hex. */
export type JoinedTopics = ReadonlyMap<string, readonly JoinedTopic[]>;

export function gossipHex(topic: string, { settings }: Pick<GossipRules, 'settings'>): string {
  return bytesToHex(gossipTopic(topic, settings['topic.namespace']));
}

const isGossipedTopic = (rule: TopicRule | undefined) => rule?.enabled === true && rule.public;

/**
 * The gossip topics to join: public, carried topics, the ones with the highest priority first, and one
 * community after another, so that a community with many topics leaves places for the others.
 */
export function topicsToJoin(
  communities: readonly GossipRules[],
  topicsMax: number,
): Map<string, JoinedTopic[]> {
  const queues = communities.map((community) => {
    const wanted = community.settings['p2p.gossip']
      ? [...community.topics].filter(([, rule]) => isGossipedTopic(rule))
      : [];
    wanted.sort(([a, one], [b, other]) => other.priority - one.priority || (a < b ? -1 : 1));
    return { community, topics: wanted.map(([topic]) => topic) };
  });
  const joined = new Map<string, JoinedTopic[]>();
  const longest = Math.max(0, ...queues.map(({ topics }) => topics.length));
  for (let place = 0; place < longest; place += 1) {
    for (const { community, topics } of queues) {
      const topic = topics[place];
      if (topic === undefined) continue;
      const hex = gossipHex(topic, community);
      const known = joined.get(hex);
      if (known !== undefined) known.push({ community: community.id, topic });
      else if (joined.size < topicsMax) joined.set(hex, [{ community: community.id, topic }]);
    }
  }
  return joined;
}

/** How many gossip topics would be joined without the cap. */
export function countTopics(communities: readonly GossipRules[]): number {
  return topicsToJoin(communities, Number.POSITIVE_INFINITY).size;
}

const NEVER = refusal('restricted', 'events of this kind are not exchanged between nodes');
const MISMATCH = refusal('invalid', 'topic mismatch');

/** Refuses what no node may send: credentials, access control, private messages, protected events. */
export function refuseKind(event: NostrEvent, { settings }: GossipRules): Refusal | undefined {
  const { kind } = event;
  const isNever =
    CREDENTIAL_KINDS.has(kind) ||
    P2P_ONLY_KINDS.has(kind) ||
    GIFT_WRAP_KINDS.has(kind) ||
    kind === KIND_REMOTE_SIGNING ||
    isMembershipKind(kind) ||
    isAmong(kind, settings['auth.privateKinds']) ||
    isProtected(event);
  if (isNever) return NEVER;
  return kind === KIND_VANISH && !vanishesEverywhere(event)
    ? refusal('restricted', 'a request to vanish travels only with ALL_RELAYS')
    : undefined;
}

export function vanishesEverywhere(event: NostrEvent): boolean {
  return event.kind === KIND_VANISH && vanishScope(event, []) === 'everywhere';
}

function namesPrivate(topics: readonly string[], { topics: known }: GossipRules): boolean {
  return topics.some((topic) => known.get(topic)?.enabled === true && !isGossipedTopic(known.get(topic)));
}

// ── Out ────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The gossip topics into which a stored event is sent, in hex. `bound`: topics that it is bound to, such as
 * those of the targets of a deletion.
 */
export function topicsToSend(
  event: NostrEvent,
  bound: readonly string[],
  community: GossipRules,
  joined: JoinedTopics,
): string[] {
  if (!community.settings['p2p.gossip'] || refuseKind(event, community) !== undefined) return [];
  if (event.kind === KIND_VANISH) return [...joined.keys()];
  const topics = allTopics(event, bound);
  if (namesPrivate(topics, community)) return [];
  const isJoined = (hex: string) => joined.get(hex)?.some((one) => one.community === community.id) === true;
  const sent = topics.filter((topic) => isGossipedTopic(community.topics.get(topic)));
  return [...new Set(sent.map((topic) => gossipHex(topic, community)).filter(isJoined))];
}

/** The topics of an ephemeral event, which is not stored and so has no bound topics. */
export function boundOfEphemeral(event: NostrEvent, { settings, topics }: GossipRules): readonly string[] {
  return impliedTopics(event, settings, topics);
}

// ── In ─────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Refuses an event that came through a gossip topic, before admission. A deletion and a request to vanish
 * need no topic. `maxDelaySeconds` of the topic counts for gossip also where older events may be posted or
 * synchronised.
 */
export function refuseGossip(
  event: NostrEvent,
  through: { readonly hex: string; readonly topic: string },
  community: GossipRules,
  nowSeconds: number,
): Refusal | undefined {
  const refused = refuseKind(event, community);
  if (refused !== undefined) return refused;
  const topics = allTopics(event, impliedTopics(event, community.settings, community.topics));
  if (namesPrivate(topics, community)) return refusal('restricted', 'the event is in a private topic here');
  if (event.kind === KIND_DELETION || event.kind === KIND_VANISH) return undefined;
  if (!topics.some((topic) => gossipHex(topic, community) === through.hex)) return MISMATCH;
  const seconds = community.topics.get(through.topic)?.policy.maxDelaySeconds;
  if (seconds === undefined || isTimeless(event.kind) || event.created_at >= nowSeconds - seconds)
    return undefined;
  return refusal('invalid', `created too long ago for topic ${through.topic}, at most ${seconds} s`);
}
