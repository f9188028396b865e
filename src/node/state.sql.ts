/** Values that are fixed for the whole node at its first boot, and cursors of sweeps. */
import { randomBytes } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import type { EventStoreName } from './config.js';

/** Writes the value if there is none yet, and returns the stored one. */
async function fixOnce(db: ClientBase | Pool, key: string, value: string): Promise<string> {
  await db.query('INSERT INTO node_state (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING', [
    key,
    value,
  ]);
  const { rows } = await db.query<{ value: string }>('SELECT value FROM node_state WHERE key = $1', [key]);
  return rows[0]!.value;
}

/** The network id names the network in every topic id, so it cannot change later. */
export async function fixNetworkId(
  db: ClientBase | Pool,
  wanted: string | undefined,
  first: string,
): Promise<string> {
  const fixed = await fixOnce(db, 'network_id', wanted ?? first);
  if (wanted !== undefined && wanted !== fixed) {
    throw new Error(
      `MINATO_NETWORK_ID is "${wanted}", but this node was first started with "${fixed}" and every topic ` +
        'id contains it. Set it back, or start with an empty database.',
    );
  }
  return fixed;
}

/** The row with the place of the events, once it was not PostgreSQL. */
const EVENT_STORE = 'event_store';

/** Without a row, events are in PostgreSQL if there ever were any; undefined where there never were. */
export async function readEventStore(db: ClientBase | Pool): Promise<EventStoreName | undefined> {
  const { rows } = await db.query<{ store: EventStoreName | null }>(
    `SELECT coalesce((SELECT value FROM node_state WHERE key = $1),
       (SELECT 'postgres' FROM lane_state WHERE last_seq > 0)) AS store`,
    [EVENT_STORE],
  );
  return rows[0]?.store ?? undefined;
}

export async function writeEventStore(db: ClientBase | Pool, store: EventStoreName): Promise<void> {
  await writeState(db, EVENT_STORE, store);
}

/** A node that looks for its events in another store would serve nothing, and store new ones there. */
export async function fixEventStore(db: ClientBase | Pool, wanted: EventStoreName): Promise<void> {
  const fixed = await readEventStore(db);
  if (fixed !== undefined && fixed !== wanted)
    throw new Error(
      `MINATO_EVENT_STORE is ${wanted}, but the events of this node are in ${fixed}. ` +
        `Set it to ${fixed}, or move them: minato events copy --to ${wanted}`,
    );
  if (fixed === undefined && wanted !== 'postgres') await writeEventStore(db, wanted);
}

export async function fixTagHashSeed(db: ClientBase | Pool): Promise<bigint> {
  return BigInt(await fixOnce(db, 'tag_hash_seed', randomBytes(8).readBigUInt64BE().toString()));
}

/** The row with the fingerprint of the erasure key (src/keys/subject-key.ts), once there is such a key. */
export const SUBJECT_FINGERPRINT = 'subject_key_print';

export function readSubjectFingerprint(db: ClientBase | Pool): Promise<string | undefined> {
  return readState(db, SUBJECT_FINGERPRINT);
}

export function fixSubjectFingerprint(db: ClientBase | Pool, fingerprint: string): Promise<string> {
  return fixOnce(db, SUBJECT_FINGERPRINT, fingerprint);
}

/** Signs the node's own tokens and challenges, on every instance. */
export function fixTokenSecret(db: ClientBase | Pool): Promise<string> {
  return fixOnce(db, 'token_secret', randomBytes(32).toString('hex'));
}

/** Signs links to downloads: only instances of this node can make a valid one. */
export async function fixDownloadSecret(db: ClientBase | Pool): Promise<string> {
  return fixOnce(db, 'download_secret', randomBytes(32).toString('hex'));
}

/** Seals the cursors of searches: any instance can serve the next page. */
export function fixCursorSecret(db: ClientBase | Pool): Promise<string> {
  return fixOnce(db, 'cursor_secret', randomBytes(32).toString('hex'));
}

export async function readState(db: ClientBase | Pool, key: string): Promise<string | undefined> {
  const { rows } = await db.query<{ value: string }>('SELECT value FROM node_state WHERE key = $1', [key]);
  return rows[0]?.value;
}

export async function writeState(db: ClientBase | Pool, key: string, value: string): Promise<void> {
  await db.query(
    `INSERT INTO node_state (key, value) VALUES ($1, $2)
     ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
    [key, value],
  );
}

/** The position of a sweep; 0 at its beginning. */
export async function readCursor(db: ClientBase | Pool, key: string): Promise<number> {
  return Number(await fixOnce(db, key, '0'));
}

export async function writeCursor(db: ClientBase | Pool, key: string, value: number): Promise<void> {
  await db.query('UPDATE node_state SET value = $2 WHERE key = $1', [key, String(value)]);
}
