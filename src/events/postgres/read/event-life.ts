/**
 * What the event store knows about one id, also when its row was purged or has never arrived: the dedupe row,
 * the row itself, tombstones, the newest version of its address, and requests to vanish.
 */
import { hexArray } from '../../../postgres/binary.js';
import { bytes, type Db } from '../../../postgres/values.js';
import { addressOf } from '../../rules/classify.js';
import { ownersOf } from '../../rules/deletion.js';
import type { NostrEvent } from '../../rules/event.js';
import { CAME_BY_SYNC } from '../../rules/facts.js';
import { hiddenOf } from '../../rules/hidden.js';
import type { EventRef } from '../../store.js';
import { type EventLife, type KnownLife, type KnownTombstone, TOMBSTONES_MAX } from '../../stored-events.js';
import { addressHash } from '../history.js';
import { dedupeOf, eventAt } from '../places.js';

export async function readEventLife(db: Db, ref: EventRef): Promise<EventLife> {
  const known = await readKnown(db, ref);
  const event = known?.stored?.event;
  const address = event && addressOf(event);
  const place = address === undefined ? undefined : addressHash(address);
  const owners = event === undefined ? known && [known.author] : ownersOf(event);
  return {
    known,
    tombstones: await readTombstones(db, ref, event, place),
    head: place === undefined ? undefined : await readHead(db, ref.community, place),
    vanish: owners === undefined ? undefined : await readVanish(db, ref.community, owners),
  };
}

interface KnownRow extends Omit<KnownLife, 'hidden' | 'stored' | 'cameBy'> {
  readonly hidden: number | null;
  readonly cameBy: KnownLife['cameBy'] | null;
}

async function readKnown(db: Db, { community, id }: EventRef): Promise<KnownLife | undefined> {
  const asked = '(SELECT $1::int AS community, $2::bytea AS event_id) asked';
  const dedupe = dedupeOf('asked.community', 'asked.event_id');
  const values = [community, bytes(id)];
  const { rows } = await db.query<KnownRow>(
    `SELECT encode(d.author, 'hex') AS author, d.first_seen_at AS "firstSeenAt",
       d.last_seen_at AS "lastSeenAt", d.seen_count AS "seenCount", d.hidden, d.gone_at AS "goneAt",
       (SELECT CASE coalesce(o.came_by, '') WHEN '' THEN 'post' WHEN $3 THEN 'sync' ELSE 'gossip' END
        FROM events_outbox o WHERE o.seq = d.seq) AS "cameBy"
     FROM ${asked} ${dedupe}`,
    [...values, CAME_BY_SYNC],
  );
  const [row] = rows;
  if (row === undefined) return undefined;
  const found = await db.query<{ payload: string; expiresAt: number | null; hiddenAt: number | null }>(
    `SELECT e.payload, e.expires_at AS "expiresAt", e.hidden_at AS "hiddenAt"
     FROM ${asked} ${dedupe} ${eventAt('d')}`,
    values,
  );
  const [stored] = found.rows;
  return {
    ...row,
    hidden: row.hidden === null ? undefined : hiddenOf(row.hidden),
    cameBy: row.cameBy ?? undefined,
    stored: stored && {
      event: JSON.parse(stored.payload) as NostrEvent,
      expiresAt: stored.expiresAt,
      hiddenAt: stored.hiddenAt,
    },
  };
}

/** Of a stored event only those that apply to it: another key's request has no effect (I5). */
async function readTombstones(
  db: Db,
  { community, id }: EventRef,
  event: NostrEvent | undefined,
  place: string | undefined,
): Promise<KnownTombstone[]> {
  const { rows } = await db.query<KnownTombstone>(
    `SELECT encode(author, 'hex') AS author, is_address AS "isAddress", requested_at AS "requestedAt",
       applied_at AS "appliedAt", encode(deletion_event, 'hex') AS "deletionEvent"
     FROM deletion_tombstones WHERE community = $1
       AND ((target = $2 AND ($3::bytea[] IS NULL OR author = ANY ($3)))
         OR (target = $4 AND author = $5 AND requested_at >= $6))
     ORDER BY requested_at, author LIMIT ${TOMBSTONES_MAX}`,
    [
      community,
      bytes(id),
      event === undefined ? null : hexArray(ownersOf(event)),
      place === undefined ? null : bytes(place),
      event === undefined ? null : bytes(event.pubkey),
      event?.created_at ?? null,
    ],
  );
  return rows;
}

async function readHead(db: Db, community: number, place: string): Promise<EventLife['head']> {
  const { rows } = await db.query<{ id: string; created_at: number }>(
    `SELECT encode(event_id, 'hex') AS id, created_at FROM event_heads
     WHERE community = $1 AND address_hash = $2`,
    [community, bytes(place)],
  );
  return rows[0];
}

async function readVanish(
  db: Db,
  community: number,
  owners: readonly string[],
): Promise<EventLife['vanish']> {
  const { rows } = await db.query<{ until: number; request: string | null }>(
    `SELECT until, encode(request, 'hex') AS request FROM vanish_marks
     WHERE community = $1 AND pubkey = ANY ($2::bytea[]) ORDER BY until DESC LIMIT 1`,
    [community, hexArray(owners)],
  );
  return rows[0];
}
