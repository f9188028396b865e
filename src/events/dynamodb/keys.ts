/**
 * The keys of all items in DynamoDB (docs/dynamodb.md). Every key begins with the community (I13). Texts of
 * any length, such as `d` or a tag value, are in a key as a hash; the exact value is checked on the event.
 */
import { createHash } from 'node:crypto';
import type { Item } from './client.js';

/** Without the prefix. `Events` and its indexes have the names of the system that these tables come from. */
export const TABLE_NAMES = { events: 'Events', index: 'EventIndex', state: 'EventState' } as const;
export type Table = keyof typeof TABLE_NAMES;
export const GSI_PK_KIND = 'GSI-PkKind';
export const GSI_PK_KIND_D = 'GSI-PkKindD';
/** State items by the public key that they are about, for erasures and exports. */
export const GSI_OWNER = 'GSI-Owner';

/** The key of an item that is alone in its partition. */
export const ALONE = '-';

export interface TableKey extends Item {
  readonly pk: string;
  readonly sk: string;
}

/**
 * Writers of one partition share its throughput (1,000 units a second on AWS). So the indexes that every post
 * is in have several partitions each, by a hash of the event. A reader asks all of them and merges. These
 * numbers are part of the key design: another number needs the index to be written again.
 */
export const SHARDS = { all: 8, kind: 4, topic: 4, ingested: 4, expires: 4, people: 4 } as const;

/** Ids are hashes, so their first digits are spread evenly. */
export function shardOf(id: string, shards: number): number {
  return Number.parseInt(id.slice(0, 8), 16) % shards;
}

const DIGITS = 16;
const padded = (number: number) => String(number).padStart(DIGITS, '0');
const clamped = (number: number) => Math.min(Math.max(Math.trunc(number), 0), Number.MAX_SAFE_INTEGER);

/** Sorts newest first, and by id within a second: the order of every answer (NIP-01). */
export function newestKey(createdAt: number, id: string): string {
  return `${padded(Number.MAX_SAFE_INTEGER - clamped(createdAt))}${id}`;
}

/** Sorts oldest first. */
export function timeKey(time: number, id: string): string {
  return `${padded(clamped(time))}${id}`;
}

export interface Placed {
  readonly createdAt: number;
  readonly id: string;
}

export function placeOf(key: string): Placed {
  return { createdAt: Number.MAX_SAFE_INTEGER - Number(key.slice(0, DIGITS)), id: key.slice(DIGITS) };
}

export function timeOf(key: string): { readonly time: number; readonly id: string } {
  return { time: Number(key.slice(0, DIGITS)), id: key.slice(DIGITS) };
}

/** Follows all keys of its time: `~` sorts after every hex digit. */
export const END = '~';

// ── Events ─────────────────────────────────────────────────────────────────────────────────────────────────

/** The hash key of `Events`; the event ids of two communities are two items. */
export const eventKey = (community: number, id: string): { readonly id: string } => ({
  id: `${community}/${id}`,
});

/** The values of the hash keys of the two indexes of `Events`. */
export const pkKind = (community: number, pubkey: string, kind: number) => `${community}/${pubkey}/${kind}`;
export const pkKindD = (community: number, address: string) => `${community}/${hashOf(address)}`;

export function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

// ── Index ──────────────────────────────────────────────────────────────────────────────────────────────────

const shards = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, shard) => `${prefix}/${shard}`);

/** Each list has the partitions of one index value: the shards that a reader merges. */
export const partitions = {
  all: (community: number) => shards(`${community}/all`, SHARDS.all),
  kind: (community: number, kind: number) => shards(`${community}/kind/${kind}`, SHARDS.kind),
  author: (community: number, pubkey: string) => [`${community}/author/${pubkey}`],
  /** Ids that are known and not served, by their author; with their content also by recipient. */
  hidden: (community: number, pubkey: string) => [`${community}/hidden/${pubkey}`],
  tag: (community: number, letter: string, value: string) =>
    shards(`${community}/tag/${letter}/${hashOf(value)}`, letter === 't' ? SHARDS.topic : 1),
  /** Regular events by the time when they came in. */
  ingested: (community: number) => shards(`${community}/ingested`, SHARDS.ingested),
  /** Deletion requests by the time when they came in. */
  requests: (community: number) => [`${community}/requests`],
  expires: (community: number) => shards(`${community}/expires`, SHARDS.expires),
  /** Superseded versions by the time when they were superseded. */
  history: (community: number) => [`${community}/history`],
  /** Removed events by the time when they were removed. */
  removed: (community: number) => [`${community}/removed`],
  /** Requests to vanish by the time when they came in. */
  vanish: (community: number) => [`${community}/vanish`],
  /** The public keys of all authors. */
  people: (community: number) => shards(`${community}/people`, SHARDS.people),
};

/** The partition of this list that an event is in. */
export const partitionOf = (list: readonly string[], id: string) => list[shardOf(id, list.length)]!;

// ── State ──────────────────────────────────────────────────────────────────────────────────────────────────

const alone = (pk: string): TableKey => ({ pk, sk: ALONE });

export const headKey = (community: number, address: string) => alone(`${community}/head/${hashOf(address)}`);
/** By target and author of the request: another author's request never blocks anything (I5). */
export const idTombstoneKey = (community: number, id: string, author: string): TableKey => ({
  pk: `${community}/tombstone/${id}`,
  sk: author,
});
export const addressTombstoneKey = (community: number, address: string, author: string): TableKey => ({
  pk: `${community}/tombstone/a/${hashOf(address)}`,
  sk: author,
});
export const markKey = (community: number, pubkey: string) => alone(`${community}/mark/${pubkey}`);
/** Marks that hide at read, until their events are erased; each read asks for them. */
export const pendingMarks = (community: number) => `${community}/marks`;
export const quotaKey = (community: number, author: string, day: number): TableKey => ({
  pk: `${community}/quota/${author}`,
  sk: padded(day),
});
/** What deletions have left to a job. */
export const removals = (community: number) => `${community}/removals`;
export const seenKey = (community: number, id: string) => alone(`${community}/seen/${id}`);
export const broadcastKey = (community: number, id: string) => alone(`${community}/broadcast/${id}`);
/** The value of the hash key of GSI_OWNER. */
export const ownerOf = (community: number, pubkey: string) => `${community}/${pubkey}`;
