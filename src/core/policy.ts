/**
 * The cheap checks at the door, read from top to bottom: each policy refuses or says nothing.
 * All of them come before the signature, which is dearer. Whether there is room is asked after them (core/capacity.ts): a
 * repeat needs none. The rules of moderation come after the signature: patterns can be the dearest step of all.
 */
import { type Access, type AccessRules, refuseEventAccess } from './access.js';
import type { Blocks } from './blocks.js';
import { classify, KIND_VANISH } from './classify.js';
import { firstTagValue, isHex64, type NostrEvent, powBits } from './event.js';
import { isExpired } from './expiration.js';
import { isMembershipRequest, refuseMembership } from './joining.js';
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
const GIFT_WRAP_KINDS: ReadonlySet<number> = new Set([1_059, 21_059]);
const REPOST_KINDS: ReadonlySet<number> = new Set([6, 16]);
const KIND_CONTACTS = 3;

const refuseCredential: Policy = ({ event }) =>
  CREDENTIAL_KINDS.has(event.kind)
    ? refusal('invalid', `kind ${event.kind} is a credential and is never published`)
    : undefined;

const refuseAccessControl: Policy = ({ event }) =>
  P2P_ONLY_KINDS.has(event.kind) ? refusal('restricted', 'access control p2p-only') : undefined;

/** Contact lists and other lists grow with those whom somebody follows; each has one current version. */
function bytesMax(kind: number, settings: Settings): number {
  const isList =
    kind === KIND_CONTACTS || (kind >= 10_000 && kind < 20_000) || (kind >= 30_000 && kind < 40_000);
  const { 'limits.eventBytesMax': ofAny, 'limits.listBytesMax': ofList } = settings;
  return isList ? Math.max(ofAny, ofList) : ofAny;
}

const refuseSize: Policy = ({ event, bytes, settings }) => {
  const max = bytesMax(event.kind, settings);
  if (bytes > max) return refusal('invalid', `event is larger than ${max} bytes`);
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

const refuseMissingD: Policy = ({ event, settings }) => {
  const { 'events.missingD': wanted, 'topic.mode': mode } = settings;
  if (wanted === 'empty' || (wanted === 'auto' && mode !== 'required')) return undefined;
  return classify(event.kind) === 'addressable' && firstTagValue(event, 'd') === undefined
    ? refusal('invalid', 'missing d')
    : undefined;
};

/** NIP-59: one that names nobody can be read by nobody. */
const refuseUnaddressed: Policy = ({ event }) =>
  GIFT_WRAP_KINDS.has(event.kind) && !event.tags.some(([name, value]) => name === 'p' && isHex64(value))
    ? refusal('invalid', `a gift wrap (kind ${event.kind}) names its recipient in a p tag`)
    : undefined;

/** NIP-70: what only its author may publish is not carried here inside of another's event either. */
const refuseProtectedRepost: Policy = ({ event }) =>
  REPOST_KINDS.has(event.kind) && embedsProtected(event.content)
    ? refusal('blocked', 'a repost that embeds a protected event (NIP-70)')
    : undefined;

function embedsProtected(content: string): boolean {
  if (!content.trimStart().startsWith('{')) return false;
  try {
    const { tags } = JSON.parse(content) as { tags?: unknown };
    return Array.isArray(tags) && tags.some((tag) => Array.isArray(tag) && tag[0] === '-');
  } catch {
    return false;
  }
}

const refuseMembershipRequest: Policy = ({ event, nowSeconds, sender }) =>
  sender === undefined && isMembershipRequest(event.kind)
    ? refusal('invalid', `kind ${event.kind} is a request to a relay and is not kept`)
    : refuseMembership(event, nowSeconds);

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
  if (bits === 0) return undefined;
  const work = workOf(event);
  return work >= bits ? undefined : refusal('pow', `${work} bits of work, ${bits} are needed`);
};

/** NIP-13: who committed to less and was lucky has not done more. */
function workOf({ id, tags }: NostrEvent): number {
  const committed = tags.find(([name]) => name === 'nonce')?.[2];
  const bits = powBits(id);
  return committed !== undefined && /^\d{1,3}$/.test(committed) ? Math.min(bits, Number(committed)) : bits;
}

const refuseTopic: Policy = ({ event, settings, topics }) => refuseEventTopic(event, settings, topics);

export const policies: readonly Policy[] = [
  refuseCredential,
  refuseAccessControl,
  refuseMembershipRequest,
  refuseSender,
  refuseBlockedAuthor,
  refuseSize,
  refuseTime,
  refuseExpired,
  refuseMissingD,
  refuseUnaddressed,
  refuseProtectedRepost,
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
