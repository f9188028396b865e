/**
 * The events of changes, for consumers and followers, from DynamoDB. The log in PostgreSQL says what changed;
 * what an event is now is read from its item, strongly consistent. An event that is no longer served is left
 * out, and its delete is in the log already or follows. So a rebuild that reads the walk and then the log
 * from its pin has every change (I9).
 */
import {
  type Change,
  type ChangedEvents,
  eventsAsUpserts,
  type ViewOf,
  type ViewPage,
  withEvents,
} from '../../outbox/changes.sql.js';
import { END, type Placed } from './keys.js';
import type { DynamodbStore } from './store.js';

type Walks = Pick<DynamodbStore, 'walk'>;

export function changedEventsOf(
  store: Walks & Pick<DynamodbStore, 'byIds'>,
  communities: () => readonly number[],
): ChangedEvents {
  const withPayloads = async (changes: readonly Change[]): Promise<Change[]> => {
    const upserts = changes.filter(({ op }) => op === 'upsert');
    return upserts.length === 0 ? [...changes] : withEvents(changes, await store.byIds(upserts));
  };
  return {
    withPayloads: (_db, changes) => withPayloads(changes),
    at: async (_db, change) => {
      const [found] = await withPayloads([{ ...change, op: 'upsert', reason: undefined }]);
      return found?.payload === undefined ? [] : [found];
    },
    view: (_db, of) =>
      of.community === undefined ? viewAll(store, communities(), of) : viewOne(store, of.community, of),
  };
}

// ── Of one community ───────────────────────────────────────────────────────────────────────────────────────

/** Seconds up to the year 6325. With the digits of the id a number stays below 2^53. */
const TIMES = 2 ** 37;
const DIGITS = 4;
const PREFIXES = 16 ** DIGITS;

/** Rises from the newest to the oldest event; 0 is before all. */
function numberOf({ createdAt, id }: Placed): number {
  const time = TIMES - 1 - Math.min(createdAt, TIMES - 1);
  return time * PREFIXES + Number.parseInt(id.slice(0, DIGITS), 16) + 1;
}

/** Follows everything with this number. */
function placeAfter(number: number): Placed | undefined {
  if (number <= 0) return undefined;
  const time = Math.floor((number - 1) / PREFIXES);
  const prefix = ((number - 1) % PREFIXES).toString(16).padStart(DIGITS, '0');
  return { createdAt: TIMES - 1 - time, id: `${prefix}${END}` };
}

/** A follower names its place by a number. Events with the same number are in one page. */
async function viewOne(store: Walks, community: number, of: ViewOf): Promise<ViewPage> {
  const { after, upTo: pinned, limit } = of;
  const { events, next } = await store.walk({
    community,
    after: placeAfter(after),
    limit,
    together: (one, other) => numberOf(one) === numberOf(other),
  });
  const changes = eventsAsUpserts(
    events.map((event) => ({ ...event, seq: Math.min(pinned, Math.max(0, event.seq)) })),
  );
  const isDone = next === undefined;
  return { changes, upTo: isDone ? Math.max(after, pinned) : numberOf(next), isDone };
}

// ── Of all communities ─────────────────────────────────────────────────────────────────────────────────────

/**
 * One community after another. The place names the community and the last event; the offset counts the
 * events. A community that is made meanwhile has only events that follow the pin.
 */
async function viewAll(store: Walks, communities: readonly number[], of: ViewOf): Promise<ViewPage> {
  const { after, place = '0', upTo: pinned, limit } = of;
  const [from, createdAt, id] = place.split('/');
  const community = communities.filter((one) => one >= Number(from)).sort((a, b) => a - b)[0];
  if (community === undefined) return { changes: [], upTo: after + 1, isDone: true };
  const isBegun = community === Number(from) && id !== undefined;
  const start = isBegun ? { createdAt: Number(createdAt), id } : undefined;
  const { events, next } = await store.walk({ community, after: start, limit });
  // A position names a dead letter: where the log has none up to the pin, the id gives one before all others.
  const placed = events.map((event) => {
    const own = -1 - Number.parseInt(event.id.slice(0, 12), 16);
    return { ...event, seq: event.seq > pinned ? own : event.seq };
  });
  return {
    changes: eventsAsUpserts(placed),
    upTo: after + events.length + 1,
    place: next === undefined ? `${community + 1}` : `${community}/${next.createdAt}/${next.id}`,
    isDone: false,
  };
}
