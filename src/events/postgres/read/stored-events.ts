/** What operators, moderation, trust and gossip read of events in PostgreSQL (events/stored-events.ts). */
import { hexArray, int4Array, int8Array } from '../../../postgres/binary.js';
import { named } from '../../../postgres/named.js';
import { bytes, type Db } from '../../../postgres/values.js';
import { UNBOUND } from '../../../topics/rules.js';
import { addressOf, KIND_VANISH } from '../../rules/classify.js';
import { ownersOf } from '../../rules/deletion.js';
import type { NostrEvent } from '../../rules/event.js';
import { factKey } from '../../rules/facts.js';
import { HIDDEN_CODES, hiddenOf } from '../../rules/hidden.js';
import type { EventRef, Position } from '../../store.js';
import type {
  BegunId,
  KnownId,
  ProfilesOf,
  ServedEvent,
  ServedOf,
  ServedPage,
  StoredEvents,
  VanishRequest,
} from '../../stored-events.js';
import { addressHash } from '../history.js';
import { dedupeOf } from '../places.js';
import { previewPolicy } from '../policy-preview.js';
import { purgeRemoved } from '../sweeps.js';
import type { TagHash } from '../tag-hash.js';
import { readEventLife } from './event-life.js';
import { findEvents } from './find.js';
import { NOT_VANISHED } from './hidden-at-read.js';
import { joinProfile } from './profiles.js';
import { placesOfHidden, placesOfIds, readStored, readStoredById } from './stored.js';
import { readTopicActivity } from './topic-activity.js';

export function storedInPostgres(tagHash: TagHash): StoredEvents {
  return {
    inDatabase: true,
    known: readKnownIds,
    byIds: readStoredById,
    deletedAmong: readDeletedAmong,
    served: readServed,
    life: readEventLife,
    find: async (db, query) => {
      const rows = await findEvents({ pool: db, tagHash }, query);
      return rows.map((row) => ({ ...row, at: row.createdAt }));
    },
    placesOfIds,
    placesOfHidden,
    rows: (db, _community, places) => readStored(db, places),
    profiles: readProfiles,
    wholeIds: readWholeIds,
    topicActivity: (db, of) => readTopicActivity(db, tagHash, of),
    previewPolicy: (pool, change) => previewPolicy(pool, change, tagHash),
    vanishRequests: readVanishRequests,
    purgeRemoved: (db, { community, removedBefore, now, limit }) =>
      purgeRemoved(db, community, removedBefore, now, limit),
    tables: async () => [],
  };
}

async function readKnownIds(db: Db, refs: readonly EventRef[]): Promise<Map<string, KnownId>> {
  if (refs.length === 0) return new Map();
  const { rows } = await db.query<EventRef & { author: string; hidden: number | null; isPurged: boolean }>({
    name: 'known-ids',
    text: `SELECT d.community, encode(d.event_id, 'hex') AS id, encode(d.author, 'hex') AS author, d.hidden,
        d.gone_at IS NOT NULL AS "isPurged"
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
      ${dedupeOf('asked.community', 'asked.event_id')}`,
    values: [int4Array(refs.map(({ community }) => community)), hexArray(refs.map(({ id }) => id))],
  });
  return new Map(
    rows.map(({ community, id, author, hidden, isPurged }) => [
      factKey(community, id),
      { author, hidden: hidden === null ? undefined : hiddenOf(hidden), isPurged },
    ]),
  );
}

/** What would delete an event: each owner of its id, and its author for its address. */
function deletionsOf(event: NostrEvent) {
  const { id, pubkey, created_at: since } = event;
  const byId = ownersOf(event).map((author) => ({ id, target: id, author, since: 0 }));
  const address = addressOf(event);
  if (address === undefined) return byId;
  return [...byId, { id, target: addressHash(address), author: pubkey, since }];
}

/** A removed row keeps its mark when its author deletes it; only the tombstone shows the deletion. */
async function readDeletedAmong(
  db: Db,
  community: number,
  events: readonly NostrEvent[],
): Promise<Set<string>> {
  const asked = events.flatMap(deletionsOf);
  const { rows } = await db.query<{ id: string }>(
    `SELECT DISTINCT encode(asked.id, 'hex') AS id
     FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[]) AS asked (id, target, author, since)
     JOIN deletion_tombstones t ON t.community = $1 AND t.target = asked.target AND t.author = asked.author
       AND t.requested_at >= asked.since`,
    [
      community,
      hexArray(asked.map(({ id }) => id)),
      hexArray(asked.map(({ target }) => target)),
      hexArray(asked.map(({ author }) => author)),
      int8Array(asked.map(({ since }) => since)),
    ],
  );
  return new Set(rows.map(({ id }) => id));
}

/** The index on authors serves a query for few authors. */
async function readServed(
  db: Db,
  { community, authors, since = 0, arrivedUntil = Number.MAX_SAFE_INTEGER, after, limit }: ServedOf,
): Promise<ServedPage> {
  const ofAuthors = authors === undefined ? '' : 'AND e.pubkey = ANY ($7::bytea[])';
  const { rows } = await db.query<Omit<ServedEvent, 'bound'> & { bound: string[] | null }>({
    text: `SELECT e.created_at AS "createdAt", encode(e.id, 'hex') AS id, e.payload, e.bound FROM events e
      WHERE e.community = $1 AND e.hidden IS NULL AND e.created_at <= $2 AND (e.created_at < $2 OR e.id > $3)
        AND e.created_at >= $4 AND e.ingested_at <= $5 AND ${NOT_VANISHED} ${ofAuthors}
      ORDER BY e.created_at DESC, e.id LIMIT $6`,
    values: [
      community,
      after.createdAt,
      bytes(after.id),
      since,
      arrivedUntil,
      limit,
      ...(authors === undefined ? [] : [hexArray(authors)]),
    ],
  });
  return {
    rows: rows.map((row) => ({ ...row, bound: row.bound ?? UNBOUND })),
    next: rows.length < limit ? undefined : rows.at(-1),
  };
}

async function readProfiles(
  db: Db,
  { community, pubkeys, now }: ProfilesOf,
): Promise<ReadonlyMap<string, string>> {
  const { rows } = await db.query<{ pubkey: string; payload: string | null }>(
    named(
      `SELECT encode(m.pubkey, 'hex') AS pubkey, profile.payload
       FROM (SELECT DISTINCT :community AS community, key AS pubkey FROM unnest(:keys) AS key) m
       ${joinProfile(':now / 1000')}`,
      {
        community: ['int', community],
        keys: ['bytea[]', pubkeys.map((key) => bytes(key))],
        now: ['bigint', now],
      },
    ),
  );
  return new Map(rows.flatMap(({ pubkey, payload }) => (payload === null ? [] : [[pubkey, payload]])));
}

async function readWholeIds(
  db: Db,
  community: number,
  begun: readonly BegunId[],
): Promise<(string | undefined)[]> {
  if (begun.length === 0) return [];
  const { rows } = await db.query<{ id: string | null }>(
    `SELECT encode((SELECT d.event_id FROM event_dedupe d
       WHERE d.community = $1 AND d.author = asked.author AND d.event_id >= asked.first
         AND d.event_id <= asked.first || decode(repeat('ff', 24), 'hex') LIMIT 1), 'hex') AS id
     FROM unnest($2::bytea[], $3::bytea[]) WITH ORDINALITY AS asked (author, first, place)
     ORDER BY asked.place`,
    [community, hexArray(begun.map(({ author }) => author)), hexArray(begun.map(({ begin }) => begin))],
  );
  return rows.map(({ id }) => id ?? undefined);
}

/** A request to vanish has an offset and no row in the outbox, because it is never served. */
async function readVanishRequests(db: Db, after: Position, upTo: Position): Promise<VanishRequest[]> {
  const { rows } = await db.query<VanishRequest>(
    `SELECT seq, community, payload FROM events
     WHERE seq > $1 AND seq <= $2 AND kind = ${KIND_VANISH} AND hidden = ${HIDDEN_CODES.withheld}
     ORDER BY seq`,
    [after, upTo],
  );
  return rows;
}
