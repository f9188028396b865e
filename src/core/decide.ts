/**
 * What becomes of one event, given what the store knows about it. Pure and total: no clock, no I/O, no randomness.
 * I3: a known id changes nothing. I4: the winner of a key does not depend on the order of arrival.
 */
import { addressOf, classify, type EventClass, isNewer, type Version } from './classify.js';
import type { NostrEvent } from './event.js';
import type { Outcome } from './reply.js';

export interface Facts {
  /** This id was accepted before. */
  readonly known: boolean;
  /** The high-water mark of the event's key: the newest version ever accepted under it. */
  readonly head: Version | undefined;
}

type Situation = 'known' | 'older' | 'new';
export type Decision = Outcome;

/** Every class in every situation. A regular or ephemeral event has no key, so it is never an older version. */
const TABLE: Record<EventClass, Record<Situation, Decision>> = {
  regular: { known: 'duplicate', older: 'stored', new: 'stored' },
  replaceable: { known: 'duplicate', older: 'older', new: 'stored' },
  addressable: { known: 'duplicate', older: 'older', new: 'stored' },
  ephemeral: { known: 'duplicate', older: 'broadcast', new: 'broadcast' },
};

export function decide(event: NostrEvent, facts: Facts): Decision {
  return TABLE[classify(event.kind)][situationOf(event, facts)];
}

function situationOf(event: NostrEvent, facts: Facts): Situation {
  if (facts.known) return 'known';
  if (facts.head === undefined || addressOf(event) === undefined) return 'new';
  return isNewer(facts.head, event) ? 'older' : 'new';
}
