/**
 * Membership by events (NIP-43): the kinds that are requests to the relay, and those that the relay makes.
 * Only the list of members is stored. Pure.
 */
import { firstTagValue, type NostrEvent } from '../events/rules/event.js';
import { type Refusal, refusal } from '../events/rules/reply.js';

export const KIND_MEMBERS = 13_534;
export const KIND_JOIN = 28_934;
export const KIND_INVITE = 28_935;
export const KIND_LEAVE = 28_936;

const REQUESTS: ReadonlySet<number> = new Set([KIND_JOIN, KIND_LEAVE]);
const FRESH_SECONDS = 600;
const CLAIM_LENGTH_MAX = 256;

/** A request to the relay itself: neither stored nor delivered. */
export function isMembershipRequest(kind: number): boolean {
  return REQUESTS.has(kind);
}

/** These kinds need no topic. */
export function isMembershipKind(kind: number): boolean {
  return kind === KIND_MEMBERS || kind === KIND_INVITE || isMembershipRequest(kind);
}

export function refuseMembership(event: NostrEvent, nowSeconds: number): Refusal | undefined {
  if (event.kind === KIND_INVITE) return refusal('invalid', `kind ${KIND_INVITE} is made by the relay`);
  if (!isMembershipRequest(event.kind)) return undefined;
  if (Math.abs(event.created_at - nowSeconds) > FRESH_SECONDS) {
    return refusal('invalid', `created_at is more than ${FRESH_SECONDS} seconds away from now`);
  }
  return event.kind === KIND_JOIN && claimOf(event) === undefined
    ? refusal('invalid', 'a request to join needs a claim tag with an invite code')
    : undefined;
}

export function claimOf(event: NostrEvent): string | undefined {
  const claim = firstTagValue(event, 'claim');
  return claim !== undefined && claim !== '' && claim.length <= CLAIM_LENGTH_MAX ? claim : undefined;
}

/** The published list. It is protected (NIP-70), so that other relays do not accept it from anybody else. */
export function membersTemplate(pubkeys: readonly string[], createdAt: number) {
  const tags = [['-'], ...pubkeys.map((pubkey) => ['member', pubkey])];
  return { kind: KIND_MEMBERS, created_at: createdAt, tags, content: '' };
}

export function membersIn(event: NostrEvent): string[] {
  return event.tags.flatMap(([name, value]) => (name === 'member' && value !== undefined ? [value] : []));
}
