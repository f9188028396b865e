/**
 * An event that time has hidden is not sent, although its `delete` comes only with the next sweep (I7, I8).
 */
import type { Community } from '../communities/communities.js';
import type { NostrEvent } from '../events/rules/event.js';
import { isExpired } from '../events/rules/expiration.js';
import { ages, eventSince } from '../events/rules/retention.js';
import type { Change } from './changes.sql.js';

/** The event of a change, as JSON, while it is effective. */
export function eventIn(change: Change, community: Community | undefined, now: number): string | undefined {
  const { payload } = change;
  if (payload === undefined || community === undefined) return undefined;
  if (
    payload.includes('["expiration",') &&
    isExpired(JSON.parse(payload) as NostrEvent, Math.floor(now / 1_000))
  )
    return undefined;
  return isAged(change, community, now) ? undefined : payload;
}

/** Only regular events have a retention: that of the topics they name. */
function isAged({ kind, topics, bound, ingestedAt }: Change, community: Community, now: number): boolean {
  if (!ages(kind)) return false;
  const named = topics.filter((topic) => !bound.includes(topic));
  return ingestedAt < eventSince(community, named, now);
}
