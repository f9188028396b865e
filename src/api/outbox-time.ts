/** What time has hidden is not sent either, though its `delete` comes with the next sweep (I7, I8). */
import type { Community } from '../communities.js';
import type { NostrEvent } from '../core/event.js';
import { isExpired } from '../core/expiration.js';
import { ages, eventSince } from '../core/retention.js';
import type { Change } from '../store/changes.js';

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

/** Days are those of the topics that it names; only regular events have them. */
function isAged({ kind, topics, bound, ingestedAt }: Change, community: Community, now: number): boolean {
  if (!ages(kind)) return false;
  const named = topics.filter((topic) => !bound.includes(topic));
  return ingestedAt < eventSince(community, named, now);
}
