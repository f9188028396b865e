/**
 * Who is served a stored event, and if not, why: the rules of access that decide about every filter, asked
 * for one event. Pure.
 */
import {
  type Access,
  type AccessRules,
  ANONYMOUS,
  refuseFilterAccess,
  seenBy,
  sees,
} from '../events/rules/access.js';
import type { MatchedEvent } from '../topics/rules.js';
import type { State } from './rules-finder.js';

/**
 * `member`: any member, without a subscription; `subscriber`: a member with a subscription to every topic of
 * the event. Both have agreed to the current policies.
 */
export const READERS = ['anonymous', 'member', 'subscriber', 'author', 'asked'] as const;
export type Reader = (typeof READERS)[number];

/** Beside the states of an event that is served to nobody. */
export const UNSEEN = [
  'auth-required',
  'consent-required',
  'account-refused',
  'private',
  'subscription-required',
  'topic-not-carried',
] as const;
export type Unseen = (typeof UNSEEN)[number] | Exclude<State, 'served'>;

/** Not a key, so it is no party of any event. */
const SOMEBODY = 'somebody';

export function accessAs(
  reader: 'anonymous' | 'member' | 'subscriber',
  topics: readonly string[],
  enforced: boolean,
): Access {
  if (reader === 'anonymous') return { ...ANONYMOUS, enforced };
  const pubkeys = new Set([SOMEBODY]);
  return { pubkeys, enforced, consented: pubkeys, subscribed: new Set(reader === 'member' ? [] : topics) };
}

/** Undefined: a REQ of this reader that matches the event gets it. */
export function unseenBy(
  event: MatchedEvent,
  topics: readonly string[],
  state: State,
  access: Access,
  rules: AccessRules,
): Unseen | undefined {
  if (state !== 'served') return state;
  const filter = { ids: new Set([event.id]), tags: [] };
  if (refuseFilterAccess(filter, access, rules) !== undefined) {
    if (access.pubkeys.size === 0) return 'auth-required';
    return [...access.pubkeys].some((key) => rules.refused.has(key)) ? 'account-refused' : 'consent-required';
  }
  const { view } = seenBy(filter, access, rules);
  if (view === undefined || sees(view, event)) return undefined;
  if (!sees({ ...view, topics: undefined }, event)) return 'private';
  const isCarried = topics.some((topic) => rules.topics.get(topic)?.enabled);
  return isCarried ? 'subscription-required' : 'topic-not-carried';
}
