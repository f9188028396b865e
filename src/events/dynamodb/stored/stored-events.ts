/**
 * What operators, moderation, trust and gossip read of events in DynamoDB (events/stored-events.ts). Items
 * are read by id, strongly consistent, and lists along one partition of the index, a bounded number of
 * entries. Nothing is scanned.
 */
import { LRUCache } from 'lru-cache';
import { readAnchor } from '../../../outbox/outbox.sql.js';
import type { Db } from '../../../postgres/values.js';
import { covers } from '../../rules/deletion.js';
import type { NostrEvent } from '../../rules/event.js';
import { factKey } from '../../rules/facts.js';
import { DAY_MS } from '../../rules/retention.js';
import type { EventRef, NewestPlace, PendingMark, Position } from '../../store.js';
import type {
  BegunId,
  EventTable,
  KnownId,
  ProfilesOf,
  ServedOf,
  ServedPage,
  StoredEvents,
  StoredRow,
  VanishRequest,
} from '../../stored-events.js';
import { type Dynamodb, eachOf, keyText } from '../client.js';
import { tombstonesOf } from '../facts.js';
import { boundOf, type EventItem, eventOf, isServedItem } from '../items.js';
import { END, headKey, newestKey, partitions, placeOf, timeKey, timeOf } from '../keys.js';
import { byPlace, findEvents, isVanished, type Reading, served } from '../read/find.js';
import { PARTITIONS_MAX, Scan } from '../read/scans.js';
import { itemsByRef, page } from '../selections.js';
import { tableSizes } from '../tables.js';
import { type PurgeOptions, placesOf, placesOfHidden, purgeRemoved } from './hidden.js';
import { readLife } from './life.js';
import { previewTopic, topicActivity } from './topics.js';

export interface StoredOptions extends Reading, PurgeOptions {
  readonly communities: () => readonly number[];
}

export function storedInDynamodb(options: StoredOptions): StoredEvents {
  const { db } = options;
  const given = new LRUCache<string, Position>({ max: GIVEN_MAX });
  return {
    inDatabase: false,
    known: (_db, refs) => knownIds(db, refs),
    byIds: (_db, refs) => storedRows(options, refs),
    deletedAmong: (_db, community, events) => deletedAmong(db, community, events),
    served: (_db, asked) => servedPage(options, asked),
    life: (_db, ref) => readLife(db, ref),
    find: async (_db, { after, ...query }) => {
      const place = after && { createdAt: after.created_at, id: after.id };
      const rows = await findEvents(options, { ...query, after: place });
      return rows.map((row) => ({ ...row, at: row.createdAt }));
    },
    placesOfIds: async (_db, community, ids) => {
      const items = await itemsByRef(
        db,
        ids.map((id) => ({ community, id })),
      );
      const places = [...items.values()].flatMap((item) => placesOf(item, item.created_at));
      return places.sort((a, b) => byPlace({ ...a, createdAt: a.at }, { ...b, createdAt: b.at }));
    },
    placesOfHidden: (_db, asked) => placesOfHidden(db, asked),
    rows: async (_db, community, places) => {
      const rows = await storedRows(
        options,
        places.map(({ id }) => ({ community, id })),
      );
      return places.flatMap(({ id }) => rows.get(factKey(community, id)) ?? []);
    },
    profiles: (_db, of) => profiles(options, of),
    wholeIds: (_db, community, begun) => wholeIds(db, community, begun),
    topicActivity: (_db, of) => topicActivity(options, of),
    previewPolicy: (_pool, change) => previewTopic(options, change),
    vanishRequests: (control, after, upTo) => vanishRequests(options, control, given, after, upTo),
    purgeRemoved: (control, purge) => purgeRemoved(options, control, purge),
    tables: (): Promise<readonly EventTable[]> => tableSizes(db),
  };
}

// ── By id ──────────────────────────────────────────────────────────────────────────────────────────────────

async function knownIds(db: Dynamodb, refs: readonly EventRef[]): Promise<Map<string, KnownId>> {
  const items = await itemsByRef(db, refs);
  return new Map(
    [...items].map(([key, { pubkey: author, hidden_as: hidden, payload }]) => [
      key,
      { author, hidden, isPurged: payload === undefined },
    ]),
  );
}

async function storedRows(
  { db, marks }: Pick<Reading, 'db' | 'marks'>,
  refs: readonly EventRef[],
): Promise<Map<string, StoredRow>> {
  if (refs.length === 0) return new Map();
  const communities = [...new Set(refs.map(({ community }) => community))];
  const pending = await Promise.all(communities.map((community) => marks.of(community)));
  const hiding = new Map(communities.map((community, at) => [community, pending[at]!]));
  const rows = new Map<string, StoredRow>();
  for (const [key, item] of await itemsByRef(db, refs))
    if (item.payload !== undefined) rows.set(key, rowOf(item, hiding.get(item.community)!));
  return rows;
}

function rowOf(item: EventItem, pending: readonly PendingMark[]): StoredRow {
  return {
    id: item.event_id,
    pubkey: item.pubkey,
    kind: item.kind,
    createdAt: item.created_at,
    expiresAt: item.expires_at ?? null,
    ingestedAt: item.ingested_at,
    hiddenAt: item.hidden_at ?? null,
    hidden: item.hidden_as,
    isVanished: pending.length > 0 && pending.some((mark) => covers(mark, eventOf(item))),
    bound: boundOf(item),
    payload: item.payload!,
  };
}

async function deletedAmong(
  db: Dynamodb,
  community: number,
  events: readonly NostrEvent[],
): Promise<Set<string>> {
  const asked = events.flatMap((event) =>
    tombstonesOf({ community, event, payload: '' }).map(({ key, name }) => ({ event, key, name })),
  );
  const found = await db.read(asked.map(({ key }) => ({ table: 'state', key })));
  const isDeleted = ({ event, key, name }: (typeof asked)[number]): boolean => {
    const tombstone = found.get(keyText('state', key));
    if (tombstone === undefined) return false;
    return name === event.id || (tombstone.requested_at as number) >= event.created_at;
  };
  return new Set(asked.filter(isDeleted).map(({ event }) => event.id));
}

// ── Lists ──────────────────────────────────────────────────────────────────────────────────────────────────

/** Items that are read at once. */
const PORTION = 100;
/** Entries of one page that do not match; then it ends early. */
const PASSED_MAX = 5_000;

async function servedPage(
  { db, marks }: Pick<Reading, 'db' | 'marks'>,
  { community, authors, since, arrivedUntil = Number.MAX_SAFE_INTEGER, after, limit }: ServedOf,
): Promise<ServedPage> {
  const list =
    authors === undefined
      ? partitions.all(community)
      : authors.slice(0, PARTITIONS_MAX).flatMap((author) => partitions.author(community, author));
  const plan = { partitions: list.map((pk) => ({ pk, of: 'index' as const })), lags: false };
  const scan = new Scan(
    db,
    plan,
    { until: after.createdAt, ...(since === undefined ? {} : { since }) },
    limit,
    after,
  );
  const pending = await marks.of(community);
  const rows: ServedPage['rows'][number][] = [];
  let last: NewestPlace | undefined;
  for (let passed = 0; ; ) {
    const entries = await scan.next(Math.min(PORTION, limit));
    if (entries.length === 0) return { rows, next: undefined };
    for (const item of await served(
      db,
      community,
      entries.map(({ sk }) => placeOf(sk)),
    )) {
      if (item.ingested_at > arrivedUntil || isVanished(item, pending)) continue;
      const row = {
        createdAt: item.created_at,
        id: item.event_id,
        payload: item.payload,
        bound: boundOf(item),
      };
      rows.push(row);
      if (rows.length >= limit) return { rows, next: row };
    }
    last = placeOf(entries.at(-1)!.sk);
    passed += entries.length;
    if (passed >= PASSED_MAX) return { rows, next: last };
  }
}

/** The newest version of a profile is the head of its address. */
async function profiles(
  { db, marks }: Pick<Reading, 'db' | 'marks'>,
  { community, pubkeys, now }: ProfilesOf,
): Promise<Map<string, string>> {
  const keyOf = (pubkey: string) => headKey(community, `0:${pubkey}:`);
  const pending = await marks.of(community);
  const heads = await db.read(pubkeys.map((pubkey) => ({ table: 'state', key: keyOf(pubkey) })));
  const refs = [...heads.values()].map(({ id }) => ({ community, id: id as string }));
  const found = new Map<string, string>();
  for (const item of (await itemsByRef(db, refs)).values()) {
    const expires = item.expires_at ?? Number.POSITIVE_INFINITY;
    if (isServedItem(item) && expires > Math.floor(now / 1_000) && !isVanished(item, pending))
      found.set(item.pubkey, item.payload);
  }
  return found;
}

/** The clock of an author may be ahead by this: then the time of the arrival is known instead. */
const AHEAD_SECONDS = 900;
const BEGUN_ROWS = 200;
const BEGUN_AT_ONCE = 16;

/** Of served events, along the partition of their author. */
async function wholeIds(
  db: Dynamodb,
  community: number,
  begun: readonly BegunId[],
): Promise<(string | undefined)[]> {
  const found = new Map<BegunId, string>();
  await eachOf(begun, BEGUN_AT_ONCE, async (one) => {
    const { author, begin, at } = one;
    const second = Math.floor(at / 1_000);
    const [pk] = partitions.author(community, author);
    const isExact = at % 1_000 === 0;
    const range = isExact
      ? { from: newestKey(second, begin), to: newestKey(second, `${begin}${END}`) }
      : { from: newestKey(second + AHEAD_SECONDS, ''), to: newestKey(second, END) };
    const { entries } = await page(db, pk!, { ...range, limit: BEGUN_ROWS });
    const id = entries.map(({ sk }) => placeOf(sk).id).find((each) => each.startsWith(begin));
    if (id !== undefined) found.set(one, id);
  });
  return begun.map((one) => found.get(one));
}

// ── Requests to vanish ─────────────────────────────────────────────────────────────────────────────────────

/** The log follows the store by less than this, unless no worker has run. */
const BEHIND_MS_MAX = 10 * 60_000;
const REQUESTS_MAX = 1_000;
const GIVEN_MAX = 10_000;

/**
 * The log has a position for a request to vanish and does not name it. So these are the requests since the
 * change before the first position, without those that were given out up to that position. After a restart
 * some come again.
 */
async function vanishRequests(
  { db, communities, now }: Pick<StoredOptions, 'db' | 'communities' | 'now'>,
  control: Db,
  given: LRUCache<string, Position>,
  after: Position,
  upTo: Position,
): Promise<VanishRequest[]> {
  const { anchor } = await readAnchor(control, after);
  const since = Math.max(0, (anchor.at > 0 ? anchor.at : now() - DAY_MS) - BEHIND_MS_MAX);
  const requests: VanishRequest[] = [];
  for (const community of communities()) {
    const [pk] = partitions.vanish(community);
    const { entries } = await page(db, pk!, { from: timeKey(since, ''), to: END, limit: REQUESTS_MAX });
    const isDone = (id: string) => (given.get(factKey(community, id)) ?? Number.POSITIVE_INFINITY) <= after;
    const refs = entries.map(({ sk }) => ({ community, id: timeOf(sk).id })).filter(({ id }) => !isDone(id));
    for (const [key, { payload, hidden_as }] of await itemsByRef(db, refs)) {
      if (payload === undefined || hidden_as !== 'withheld') continue;
      given.set(key, upTo);
      requests.push({ seq: upTo, community, payload });
    }
  }
  return requests;
}
