/**
 * What becomes of one event, given what the store knows about it. Pure and total: no clock, no I/O, no randomness.
 * I3: a known id changes nothing. I4: the winner of a key does not depend on the order of arrival.
 * I5, I6: what its owner deleted, and what is gone, does not come back.
 */
import { addressOf, classify, type EventClass, isNewer, KIND_VANISH, type Version } from './classify.js';
import { isProtectedKind, isWithinWindow } from './deletion.js';
import type { NostrEvent } from './event.js';
import { isExpired } from './expiration.js';
import type { Hidden } from './hidden.js';
import type { Blocked, Outcome } from './reply.js';

export interface Facts {
  /** This id was accepted before, and is still served; or why it is not. */
  readonly known: 'served' | Hidden | undefined;
  /** The high-water mark of the event's key: the newest version ever seen under it. */
  readonly head: Version | undefined;
  /** One of its owners asked to delete this id. */
  readonly idDeleted: boolean;
  /** The time of the latest request to delete its address, by its author. */
  readonly addressDeletedAt: number | undefined;
  /** Up to when its author, or a recipient of this gift wrap, asked to vanish. */
  readonly vanishedUntil: number | undefined;
  /** Up to when its author, or a recipient of this gift wrap, was erased; the greatest number while that is under way, and of the banned. */
  readonly erasedUntil: number | undefined;
}

export type Decision = Outcome | Blocked;

/** Why an event cannot be taken at all, or what it is to its key. */
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

/** Every class in every situation. A regular or ephemeral event has no key, so it is never an older version. */
const TABLE: Record<EventClass, Record<Situation, Decision>> = {
  regular: { ...REFUSED, known: 'duplicate', older: 'stored', new: 'stored' },
  replaceable: { ...REFUSED, known: 'duplicate', older: 'older', new: 'stored' },
  addressable: { ...REFUSED, known: 'duplicate', older: 'older', new: 'stored' },
  ephemeral: { ...REFUSED, known: 'duplicate', older: 'broadcast', new: 'broadcast' },
};

/** What a known id that is no longer served is told when it comes again. A superseded version is simply known. */
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

function situationOf(event: NostrEvent, facts: Facts, nowSeconds: number): Situation {
  if (isExpired(event, nowSeconds)) return 'expired';
  if (facts.erasedUntil === Number.MAX_SAFE_INTEGER) return 'erased';
  if (isVanished(event, facts)) return 'vanished';
  if (isErased(event, facts)) return 'erased';
  if (isDeleted(event, facts)) return 'deleted';
  if (facts.known !== undefined) return facts.known === 'served' ? 'known' : KNOWN[facts.known];
  if (facts.head === undefined || addressOf(event) === undefined) return 'new';
  return isNewer(facts.head, event) ? 'older' : 'new';
}

/** Everything up to the mark, whatever it is; only a request to vanish that is here stays known. */
function isErased(event: NostrEvent, { erasedUntil, known }: Facts): boolean {
  return erasedUntil !== undefined && event.created_at <= erasedUntil && known !== 'withheld';
}

/** Everything up to the mark, deletion requests too; only the request to vanish itself stays. */
function isVanished(event: NostrEvent, { vanishedUntil }: Facts): boolean {
  return event.kind !== KIND_VANISH && vanishedUntil !== undefined && event.created_at <= vanishedUntil;
}

function isDeleted(event: NostrEvent, { idDeleted, addressDeletedAt }: Facts): boolean {
  if (isProtectedKind(event.kind)) return false;
  return idDeleted || (addressDeletedAt !== undefined && isWithinWindow(event.created_at, addressDeletedAt));
}
