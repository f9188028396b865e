/**
 * The only file that knows the reply texts: what the client receives for an outcome (NIP-01). A refusal is a
 * value, not an exception (I2: a failure never becomes a success).
 */

/** The machine-readable prefixes of NIP-01, NIP-42, NIP-45 and NIP-77. */
export type Prefix =
  | 'duplicate'
  | 'pow'
  | 'blocked'
  | 'rate-limited'
  | 'invalid'
  | 'restricted'
  | 'mute'
  | 'error'
  | 'unsupported'
  | 'closed'
  | 'auth-required';

export interface Refusal {
  readonly refused: Prefix;
  readonly why: string;
}

export function refusal(refused: Prefix, why: string): Refusal {
  return { refused, why };
}

export function isRefusal(value: unknown): value is Refusal {
  return typeof value === 'object' && value !== null && 'refused' in value;
}

/** A bounded queue is full. */
export const BUSY = refusal('rate-limited', 'the relay is busy, try again in a moment');

/** The check of id and signature failed: the author did not write this. */
export const WRONG_ID = refusal('invalid', 'id is not the hash of the event');
export const WRONG_SIGNATURE = refusal('invalid', 'signature verification failed');

export function isForged(outcome: unknown): boolean {
  return outcome === WRONG_ID || outcome === WRONG_SIGNATURE;
}

/** In whole seconds, rounded up, so that no client retries too early. */
export function tooMany(what: string, retryAfterMs: number): Refusal {
  const seconds = Math.max(1, Math.ceil(retryAfterMs / 1_000));
  return refusal('rate-limited', `too many ${what}, try again in ${seconds} s`);
}

/** How an event was accepted. Each outcome has its text below; a missing one does not compile. */
export type Outcome = 'stored' | 'broadcast' | 'duplicate' | 'older';
/** The outcome of a request to join or to leave (NIP-43). */
export type MembershipOutcome = 'joined' | 'waiting' | 'member' | 'left' | 'stranger';
/** What an OK true can mean: an accepted event, a membership request, or an AUTH. */
export type Accepted = Outcome | MembershipOutcome | 'authenticated';
/** Why the lane refused an event. */
export type Blocked =
  | 'deleted'
  | 'expired'
  | 'gone'
  | 'crowdedOut'
  | 'vanished'
  | 'removed'
  | 'erased'
  | 'overQuota'
  | 'refused';

const ACCEPTED: Record<Accepted, string> = {
  authenticated: '',
  stored: '',
  broadcast: '',
  duplicate: 'duplicate: already have this event',
  older: 'duplicate: have a newer version',
  joined: 'info: welcome',
  waiting: 'info: the request waits for review',
  member: 'duplicate: you are a member already',
  left: 'info: you have left',
  stranger: 'duplicate: you are not a member',
};

export const REFUSED_BY_RULE = refusal('blocked', 'refused by a rule of this community');

const BLOCKED: Record<Blocked, Refusal> = {
  deleted: refusal('blocked', 'deleted by its author'),
  expired: refusal('invalid', 'expired'),
  gone: refusal('blocked', 'past retention'),
  crowdedOut: refusal('blocked', 'purged to make room'),
  vanished: refusal('blocked', 'its author asked to vanish'),
  removed: refusal('blocked', 'removed by a moderator'),
  erased: refusal('blocked', 'erased'),
  overQuota: refusal('rate-limited', 'too many deletions today'),
  refused: REFUSED_BY_RULE,
};

/**
 * `erasedUpTo`: events signed up to this time are refused as erased, as text for the client; null while no
 * event of this key is accepted.
 */
export function outcomeOf(decision: Outcome | Blocked, erasedUpTo?: string | null): Outcome | Refusal {
  if (decision === 'erased' && erasedUpTo !== undefined) return erased(erasedUpTo);
  return Object.hasOwn(BLOCKED, decision) ? BLOCKED[decision as Blocked] : (decision as Outcome);
}

/**
 * While an erasure runs, or after a ban, the reply says that nothing is accepted. Otherwise it says up to
 * which time events are refused.
 */
function erased(upTo: string | null): Refusal {
  const what =
    upTo === null ? 'nothing of this key is taken in now' : `what was signed up to ${upTo} is refused`;
  return refusal('blocked', `erased; ${what}`);
}

export function okFrame(eventId: string, outcome: Accepted | Refusal): string {
  return typeof outcome === 'string'
    ? JSON.stringify(['OK', eventId, true, ACCEPTED[outcome]])
    : JSON.stringify(['OK', eventId, false, words(outcome)]);
}

export function authFrame(challenge: string): string {
  return JSON.stringify(['AUTH', challenge]);
}

/** Whether all stored events that match were sent (NIP-67); undefined where nobody knows. */
export type Completeness = 'finish' | 'more' | undefined;

/**
 * The cursor, for a REQ that has one, comes after the hints of NIP-67. Without a cursor only `more` is sent:
 * nostr-fetch ignores an EOSE of three elements and waits for ever, and `finish` would be on nearly every
 * one.
 */
export function eoseFrame(subscriptionId: string, hint: Completeness, cursor?: string): string {
  if (cursor !== undefined)
    return JSON.stringify(['EOSE', subscriptionId, hint === undefined ? [] : [hint], cursor]);
  return JSON.stringify(hint === 'more' ? ['EOSE', subscriptionId, [hint]] : ['EOSE', subscriptionId]);
}

export function closedFrame(subscriptionId: string, why: Refusal): string {
  return JSON.stringify(['CLOSED', subscriptionId, words(why)]);
}

export function noticeFrame(why: Refusal): string {
  return JSON.stringify(['NOTICE', words(why)]);
}

/** Where NIP-77 is turned off. The texts are those of strfry with negentropy disabled: clients know them. */
export const NEGENTROPY_OFF = refusal('blocked', 'negentropy disabled');
export const NEGENTROPY_DISABLED = JSON.stringify(['NOTICE', 'ERROR: bad msg: negentropy disabled']);

export function negErrFrame(subscriptionId: string, why: Refusal): string {
  return JSON.stringify(['NEG-ERR', subscriptionId, words(why)]);
}

export function negMsgFrame(subscriptionId: string, hex: string): string {
  return JSON.stringify(['NEG-MSG', subscriptionId, hex]);
}

export function countFrame(subscriptionId: string, count: number, approximate: boolean): string {
  return JSON.stringify(['COUNT', subscriptionId, approximate ? { count, approximate: true } : { count }]);
}

/** An event frame is this head, the payload and the end, so that no JSON is built per reader. */
export function eventFrameHead(subscriptionId: string): string {
  return `["EVENT",${JSON.stringify(subscriptionId)},`;
}
export const EVENT_FRAME_END = ']';

/** The end of a frame of a subscription with a cursor, which has no characters to escape. */
export function cursorFrameEnd(cursor: string): string {
  return `,"${cursor}"]`;
}

/** The frame of a deletion is this head, the id as JSON, and the cursor. */
export function goneFrameHead(subscriptionId: string): string {
  return `["GONE",${JSON.stringify(subscriptionId)},`;
}

export function words({ refused, why }: Refusal): string {
  return `${refused}: ${why}`;
}
