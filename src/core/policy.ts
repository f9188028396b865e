/**
 * The cheap checks at the door, read from top to bottom: each policy refuses or says nothing.
 * All of them come before the signature, which is dearer. Whether there is room is asked after them (core/capacity.ts): a
 * repeat needs none. The rules of moderation come after the signature: patterns can be the dearest step of all.
 */
import { type Access, type AccessRules, refuseEventAccess } from './access.js';
import type { Blocks } from './blocks.js';
import { classify, KIND_VANISH } from './classify.js';
import { firstTagValue, type NostrEvent, powBits } from './event.js';
import { isExpired } from './expiration.js';
import { isAmong } from './kinds.js';
import { type Refusal, refusal } from './reply.js';
import type { Settings } from './settings.js';
import { textsIn } from './text.js';
import { type KnownTopics, refuseEventTopic } from './topic.js';

export interface Arrival {
  readonly event: NostrEvent;
  /** UTF-8 bytes of the event as JSON. */
  readonly bytes: number;
  readonly settings: Settings;
  /** The community's topics; those that are enabled are carried. */
  readonly topics: KnownTopics;
  readonly nowSeconds: number;
  /** Who sends it, and by which rules; nobody when the operator brings it, who may bring everything. */
  readonly sender?: { readonly access: Access; readonly rules: AccessRules };
  /** What is kept out; nothing when the operator brings it. */
  readonly blocks?: Pick<Blocks, 'authors' | 'words'>;
}

type Policy = (arrival: Arrival) => Refusal | undefined;

/** AUTH, NIP-98 and Blossom authorizations are credentials: publishing one would give it away. */
const CREDENTIAL_KINDS: ReadonlySet<number> = new Set([22_242, 27_235, 24_242]);
/** Access control: exchanged between members only. */
const P2P_ONLY_KINDS: ReadonlySet<number> = new Set([39_020, 39_021, 39_022]);

const refuseCredential: Policy = ({ event }) =>
  CREDENTIAL_KINDS.has(event.kind)
    ? refusal('invalid', `kind ${event.kind} is a credential and is never published`)
    : undefined;

const refuseAccessControl: Policy = ({ event }) =>
  P2P_ONLY_KINDS.has(event.kind) ? refusal('restricted', 'access control p2p-only') : undefined;

const refuseSize: Policy = ({ event, bytes, settings }) => {
  if (bytes > settings['limits.eventBytesMax']) {
    return refusal('invalid', `event is larger than ${settings['limits.eventBytesMax']} bytes`);
  }
  if (event.tags.length > settings['limits.tagsMax']) {
    return refusal('invalid', `event has more than ${settings['limits.tagsMax']} tags`);
  }
  // The whole event bounds its tags, so they are measured only where the two limits can differ.
  const tagBytesMax = settings['limits.tagBytesMax'];
  if (bytes > tagBytesMax && Buffer.byteLength(JSON.stringify(event.tags)) > tagBytesMax) {
    return refusal('invalid', `tags are larger than ${tagBytesMax} bytes`);
  }
  return undefined;
};

const refuseTime: Policy = ({ event, settings, nowSeconds }) => {
  const ahead = settings['limits.createdAheadSecondsMax'];
  if (event.created_at > nowSeconds + ahead) {
    return refusal('invalid', `created_at is more than ${ahead} seconds in the future`);
  }
  const behind = settings['limits.createdBehindSecondsMax'];
  if (behind > 0 && event.created_at < nowSeconds - behind) {
    return refusal('invalid', `created_at is more than ${behind} seconds in the past`);
  }
  return undefined;
};

const refuseExpired: Policy = ({ event, nowSeconds }) =>
  isExpired(event, nowSeconds) ? refusal('invalid', 'expired') : undefined;

const refuseMissingD: Policy = ({ event }) =>
  classify(event.kind) === 'addressable' && firstTagValue(event, 'd') === undefined
    ? refusal('invalid', 'missing d')
    : undefined;

const refuseSender: Policy = ({ event, sender }) =>
  sender === undefined ? undefined : refuseEventAccess(event, sender.access, sender.rules);

/** One who is not welcome may still ask to vanish: that request is never served. */
const refuseBlockedAuthor: Policy = ({ event, blocks }) =>
  blocks?.authors.has(event.pubkey) && event.kind !== KIND_VANISH
    ? refusal('blocked', 'this author is blocked')
    : undefined;

/** What is encrypted holds no words, only letters that may look like some. */
const refuseBlockedWords: Policy = ({ event, settings, blocks }) => {
  if (blocks === undefined || event.kind === KIND_VANISH) return undefined;
  if (isAmong(event.kind, settings['auth.privateKinds'])) return undefined;
  return textsIn(event.content).some((text) => blocks.words.matches(text))
    ? refusal('blocked', 'the content has a word that is blocked here')
    : undefined;
};

const refusePow: Policy = ({ event, settings }) => {
  const bits = settings['limits.powBitsMin'];
  if (bits === 0 || powBits(event.id) >= bits) return undefined;
  return refusal('pow', `${powBits(event.id)} bits of work, ${bits} are needed`);
};

const refuseTopic: Policy = ({ event, settings, topics }) => refuseEventTopic(event, settings, topics);

export const policies: readonly Policy[] = [
  refuseCredential,
  refuseAccessControl,
  refuseSender,
  refuseBlockedAuthor,
  refuseSize,
  refuseTime,
  refuseExpired,
  refuseMissingD,
  refusePow,
  refuseTopic,
  refuseBlockedWords,
];

export function refuseArrival(arrival: Arrival): Refusal | undefined {
  for (const policy of policies) {
    const refused = policy(arrival);
    if (refused !== undefined) return refused;
  }
  return undefined;
}
