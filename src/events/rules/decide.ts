/**
 * Decides about one event, given what the store knows about it. Pure and total: no clock, no I/O, no
 * randomness. I3: a known id changes nothing. I4: the winner of a key does not depend on the order of
 * arrival. I5, I6: an event that its owner deleted, or that was expired, purged, erased or vanished, does not
 * come back.
 */
import { addressOf, classify, type EventClass, isNewer, KIND_VANISH, type Version } from './classify.js';
import { isProtectedKind, isWithinWindow } from './deletion.js';
import type { NostrEvent } from './event.js';
import { isExpired } from './expiration.js';
import type { Hidden } from './hidden.js';
import type { Blocked, Outcome } from './reply.js';

export interface Facts {
  /** Set when this id was accepted before: it is still served, or the reason why not. */
  readonly known: 'served' | Hidden | undefined;
  /** The high-water mark of the event's key: the newest version ever seen under it. */
  readonly head: Version | undefined;
  /** One of its owners asked to delete this id. */
  readonly idDeleted: boolean;
  /** The time of the latest request to delete its address, by its author. */
  readonly addressDeletedAt: number | undefined;
  /** Its author, or a recipient of this gift wrap, asked to vanish up to this time. */
  readonly vanishedUntil: number | undefined;
  /**
   * Its author, or a recipient of this gift wrap, is erased up to this time. The greatest number while the
   * erasure runs, and for banned members.
   */
  readonly erasedUntil: number | undefined;
}

export type Decision = Outcome | Blocked;

/** Why an event is refused, or how it relates to its key. */
type Situation = keyof typeof REFUSED | 'known' | 'older' | 'new';

const REFUSED = {
  expired: 'expired',
  vanished: 'vanished',
  deleted: 'deleted',
  gone: 'gone',
  crowdedOut: 'crowdedOut',
  removed: 'removed',
  erased: 'erased',
} as const;

/**
 * Every class in every situation. A regular or ephemeral event has no key, so it is never an older version.
 */
const TABLE: Record<EventClass, Record<Situation, Decision>> = {
  regular: { ...REFUSED, known: 'duplicate', older: 'stored', new: 'stored' },
  replaceable: { ...REFUSED, known: 'duplicate', older: 'older', new: 'stored' },
  addressable: { ...REFUSED, known: 'duplicate', older: 'older', new: 'stored' },
  ephemeral: { ...REFUSED, known: 'duplicate', older: 'broadcast', new: 'broadcast' },
};

/**
 * The situation of a known id that is no longer served. A repeat of a superseded version is an ordinary
 * duplicate.
 */
const KNOWN: Record<Hidden, Situation> = {
  superseded: 'known',
  deleted: 'deleted',
  expired: 'expired',
  retention: 'gone',
  capacity: 'crowdedOut',
  vanished: 'vanished',
  withheld: 'known',
  removed: 'removed',
  erased: 'erased',
};

export function decide(event: NostrEvent, facts: Facts, nowSeconds: number): Decision {
  return TABLE[classify(event.kind)][situationOf(event, facts, nowSeconds)];
}

/** The decision about a known id whose event is not at hand. No class treats a known id differently. */
export function decideKnown(known: 'served' | Hidden): Decision {
  return TABLE.regular[situationOfKnown(known)];
}

const situationOfKnown = (known: 'served' | Hidden): Situation =>
  known === 'served' ? 'known' : KNOWN[known];

function situationOf(event: NostrEvent, facts: Facts, nowSeconds: number): Situation {
  if (isExpired(event, nowSeconds)) return 'expired';
  if (facts.erasedUntil === Number.MAX_SAFE_INTEGER) return 'erased';
  if (isVanished(event, facts)) return 'vanished';
  if (isErased(event, facts)) return 'erased';
  if (isDeleted(event, facts)) return 'deleted';
  if (facts.known !== undefined) return situationOfKnown(facts.known);
  if (facts.head === undefined || addressOf(event) === undefined) return 'new';
  return isNewer(facts.head, event) ? 'older' : 'new';
}

/** Everything up to the mark, of every kind. Only a stored request to vanish stays known. */
function isErased(event: NostrEvent, { erasedUntil, known }: Facts): boolean {
  return erasedUntil !== undefined && event.created_at <= erasedUntil && known !== 'withheld';
}

/** Everything up to the mark, deletion requests too. Only the request to vanish itself stays. */
function isVanished(event: NostrEvent, { vanishedUntil }: Facts): boolean {
  return event.kind !== KIND_VANISH && vanishedUntil !== undefined && event.created_at <= vanishedUntil;
}

function isDeleted(event: NostrEvent, { idDeleted, addressDeletedAt }: Facts): boolean {
  if (isProtectedKind(event.kind)) return false;
  return idDeleted || (addressDeletedAt !== undefined && isWithinWindow(event.created_at, addressDeletedAt));
}
