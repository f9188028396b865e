/**
 * The cheap checks on arrival, in the order of the list: each policy refuses the event or returns nothing.
 * All of them run before the signature check, which costs more. The space check (events/rules/capacity.ts)
 * follows them, because a duplicate needs no space. Checks that read the content (`refuseContent`) and
 * moderation rules run after the signature check: they cost most, and the node reads no content that nobody
 * has signed (I18).
 */

import type { Blocks } from '../../blocks/rules.js';
import type { Settings } from '../../communities/rules-settings.js';
import { isMembershipRequest, refuseMembership } from '../../members/rules-joining.js';
import type { Stepwise, Texts } from '../../moderation/rules-texts.js';
import { type KnownTopics, refuseEventTopic } from '../../topics/rules.js';
import { type Access, type AccessRules, refuseEventAccess } from './access.js';
import { classify, KIND_VANISH } from './classify.js';
import { parseEmbedded } from './embedded-json.js';
import { firstTagValue, isHex64, type NostrEvent, powBits } from './event.js';
import { isExpired } from './expiration.js';
import { type Refusal, refusal } from './reply.js';

export interface Arrival {
  readonly event: NostrEvent;
  /** UTF-8 bytes of the event as JSON. */
  readonly bytes: number;
  readonly settings: Settings;
  /** The community's topics; those that are enabled are carried. */
  readonly topics: KnownTopics;
  readonly nowSeconds: number;
  /**
   * The sender and the access rules; undefined when the operator imports the event, who may import
   * everything.
   */
  readonly sender?: { readonly access: Access; readonly rules: AccessRules };
  /** What is blocked; undefined when the operator imports the event. */
  readonly blocks?: Pick<Blocks, 'authors' | 'words'>;
}

type Policy = (arrival: Arrival) => Refusal | undefined;

/** AUTH, NIP-98 and Blossom authorizations are credentials: publishing one would reveal it. */
export const CREDENTIAL_KINDS: ReadonlySet<number> = new Set([22_242, 27_235, 24_242]);
/** Access control: exchanged between members only. */
export const P2P_ONLY_KINDS: ReadonlySet<number> = new Set([39_020, 39_021, 39_022]);
export const GIFT_WRAP_KINDS: ReadonlySet<number> = new Set([1_059, 21_059]);
const REPOST_KINDS: ReadonlySet<number> = new Set([6, 16]);
const KIND_CONTACTS = 3;

const refuseCredential: Policy = ({ event }) =>
  CREDENTIAL_KINDS.has(event.kind)
    ? refusal('invalid', `kind ${event.kind} is a credential and is never published`)
    : undefined;

const refuseAccessControl: Policy = ({ event }) =>
  P2P_ONLY_KINDS.has(event.kind) ? refusal('restricted', 'access control p2p-only') : undefined;

/** Contact lists and other lists grow with the number of followed accounts. Each has one current version. */
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
  // The tags are never larger than the whole event, so they are measured only where the limits can differ.
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

/** NIP-59: nobody can read a gift wrap without a recipient. */
const refuseUnaddressed: Policy = ({ event }) =>
  GIFT_WRAP_KINDS.has(event.kind) && !event.tags.some(([name, value]) => name === 'p' && isHex64(value))
    ? refusal('invalid', `a gift wrap (kind ${event.kind}) names its recipient in a p tag`)
    : undefined;

const refuseMembershipRequest: Policy = ({ event, nowSeconds, sender }) =>
  sender === undefined && isMembershipRequest(event.kind)
    ? refusal('invalid', `kind ${event.kind} is a request to a relay and is not kept`)
    : refuseMembership(event, nowSeconds);

const refuseSender: Policy = ({ event, sender }) =>
  sender === undefined ? undefined : refuseEventAccess(event, sender.access, sender.rules);

/** A blocked author may still ask to vanish: that request is never served. */
const refuseBlockedAuthor: Policy = ({ event, blocks }) =>
  blocks?.authors.has(event.pubkey) && event.kind !== KIND_VANISH
    ? refusal('blocked', 'this author is blocked')
    : undefined;

const refusePow: Policy = ({ event, settings }) => {
  const bits = settings['limits.powBitsMin'];
  if (bits === 0) return undefined;
  const work = workOf(event);
  return work >= bits ? undefined : refusal('pow', `${work} bits of work, ${bits} are needed`);
};

/** NIP-13: an author who committed to fewer bits than the id has did only the committed work. */
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
  refusePow,
  refuseTopic,
];

export function refuseArrival(arrival: Arrival): Refusal | undefined {
  for (const policy of policies) {
    const refused = policy(arrival);
    if (refused !== undefined) return refused;
  }
  return undefined;
}

// ── After the signature ────────────────────────────────────────────────────────────────────────────────────

type Content = Pick<Arrival, 'event' | 'blocks'> & { readonly texts: Texts };

/** Checks the content, in steps where it is long. */
export function* refuseContent(content: Content): Stepwise<Refusal | undefined> {
  return refuseProtectedRepost(content) ?? (yield* refuseBlockedWords(content));
}

/** NIP-70: only its author may publish a protected event, so it is refused inside another event too. */
function refuseProtectedRepost({ event }: Content): Refusal | undefined {
  if (!REPOST_KINDS.has(event.kind) || !event.content.trimStart().startsWith('{')) return undefined;
  const embedded = parseEmbedded(event.content);
  if (embedded === 'no JSON') return undefined;
  if (embedded === 'too deep') return refusal('invalid', 'a repost whose content is nested too deep');
  const { tags } = embedded.json as { readonly tags?: unknown };
  return Array.isArray(tags) && tags.some((tag) => Array.isArray(tag) && tag[0] === '-')
    ? refusal('blocked', 'a repost that embeds a protected event (NIP-70)')
    : undefined;
}

function* refuseBlockedWords({ event, blocks, texts }: Content): Stepwise<Refusal | undefined> {
  if (blocks === undefined || blocks.words.isEmpty || event.kind === KIND_VANISH) return undefined;
  if (yield* texts.have(blocks.words))
    return refusal('blocked', 'the content has a word that is blocked here');
  // A word may be in the part that is not read.
  return texts.extent.isCut
    ? refusal(
        'blocked',
        'the text is longer than what is compared with the blocked words here; post it in parts',
      )
    : undefined;
}
