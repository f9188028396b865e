import type { Matches } from '../../src/relay/subscription-index.js';

/** The subscriptions that an event matches. */
export function subscribersOf<S>(matches: Matches<S>): S[] {
  return [...matches].filter((each) => each !== undefined);
}
