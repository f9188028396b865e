/**
 * What operators find in the event store: what they ask for, the state of a stored event, and whether its
 * content is shown. Pure.
 */
import type { NostrEvent } from '../events/rules/event.js';
import type { Hidden } from '../events/rules/hidden.js';
import { isAmong, type KindEntry } from '../events/rules/kinds.js';
import { asKept, type Retention } from '../events/rules/retention.js';

export const STATES = [
  'served',
  'superseded',
  'deleted',
  'expired',
  'retention',
  'capacity',
  'vanished',
  'withheld',
  'held',
  'removed',
  'erased',
] as const;
export type State = (typeof STATES)[number];

export interface StateFacts {
  readonly event: NostrEvent;
  readonly hidden: Hidden | undefined;
  readonly isVanished: boolean;
  /** Seconds. */
  readonly expiresAt: number | null;
  readonly ingestedAt: number;
  readonly bound: readonly string[];
  /** A case waits for a moderator. */
  readonly isHeld: boolean;
}

/** Time and marks hide at once; the row is marked soon after. */
export function stateOf(facts: StateFacts, rules: Retention, now: number): State {
  const { hidden, event, expiresAt } = facts;
  if (hidden === 'removed') return facts.isHeld ? 'held' : 'removed';
  if (hidden !== undefined) return hidden;
  if (facts.isVanished) return 'vanished';
  if (expiresAt !== null && expiresAt <= Math.floor(now / 1_000)) return 'expired';
  return asKept(rules, event, facts, now) === undefined ? 'retention' : 'served';
}

/** Why an operator does not see the content of an event. */
export const CONCEALED = ['private', 'deleted', 'expired', 'vanished', 'erased'] as const;
export type Concealed = (typeof CONCEALED)[number];

const BY_STATE: Readonly<Partial<Record<State, Concealed>>> = {
  deleted: 'deleted',
  expired: 'expired',
  vanished: 'vanished',
  withheld: 'vanished',
  erased: 'erased',
};

/**
 * Nobody sees what its author took back, or what was written to somebody only. A removed event may have been
 * deleted by its author as well.
 */
export function concealedAs(
  kind: number,
  state: State,
  isDeleted: boolean,
  privateKinds: readonly KindEntry[],
): Concealed | undefined {
  if (isAmong(kind, privateKinds)) return 'private';
  return isDeleted ? 'deleted' : BY_STATE[state];
}
