/**
 * What operators, moderation, trust and gossip read of events beside what is served: ids that are known,
 * stored events in any state, tombstones, profiles. It is part of the contract of the event store
 * (events/store.ts); `events/postgres/read/stored-events.ts` and `events/dynamodb/stored/stored-events.ts`
 * implement it.
 *
 * `db` is a session of the control plane. Events in PostgreSQL are read in it, so also in its transaction.
 * Another store has its own sessions, and reads strongly consistent.
 */
import type { Pool } from 'pg';
import type { Denial } from '../api/rules-errors.js';
import type { Db } from '../postgres/values.js';
import type { NostrEvent } from './rules/event.js';
import type { RowRef } from './rules/facts.js';
import type { Hidden } from './rules/hidden.js';
import type { PolicyChange, PolicyPreview } from './rules/policy-preview.js';
import type { Retention } from './rules/retention.js';
import type { EventRef, NewestPlace, Position, Query } from './store.js';

export interface StoredEvents {
  /** The tables of events are in the database of the control plane, so that its SQL may join them. */
  readonly inDatabase: boolean;
  /** What is known about ids, by `factKey`. No entry for an id that never arrived or was forgotten. */
  known(db: Db, refs: readonly EventRef[]): Promise<ReadonlyMap<string, KnownId>>;
  /** Stored events in any state, by `factKey`. */
  byIds(db: Db, refs: readonly EventRef[]): Promise<ReadonlyMap<string, StoredRow>>;
  /** The ids of those that their owners have asked to delete, also while something else hides them. */
  deletedAmong(db: Db, community: number, events: readonly NostrEvent[]): Promise<ReadonlySet<string>>;
  /** A page of served events, newest first. It includes events that have expired or are past their days. */
  served(db: Db, page: ServedOf): Promise<ServedPage>;
  /** All that is known about one id, for its timeline. */
  life(db: Db, ref: EventRef): Promise<EventLife>;
  /** Places of the newest events that match, after a place. */
  find(db: Db, query: Query & { readonly after?: Later | undefined }): Promise<ListedPlace[]>;
  /** Places of stored events in any state, newest first. */
  placesOfIds(db: Db, community: number, ids: readonly string[]): Promise<ListedPlace[]>;
  /** Places of hidden events, newest first. It looks at a bounded number of them for one page (I14). */
  placesOfHidden(db: Db, asked: HiddenOf): Promise<HiddenPlaces>;
  /** What is stored at places, in their order, without what was purged meanwhile. */
  rows(db: Db, community: number, places: readonly ListedPlace[]): Promise<StoredRow[]>;
  /** The served profiles (kind 0) of keys, by key. */
  profiles(db: Db, of: ProfilesOf): Promise<ReadonlyMap<string, string>>;
  /** The ids of known events by their author and the begin of the id; undefined where one is unknown. */
  wholeIds(db: Db, community: number, begun: readonly BegunId[]): Promise<(string | undefined)[]>;
  /** How busy each of these topics is, also those without posts. */
  topicActivity(db: Db, of: ActivityOf): Promise<ReadonlyMap<string, TopicActivity>>;
  /** What a changed policy of a topic would purge. It changes nothing, and is bounded. */
  previewPolicy(pool: Pool, change: PolicyChange & { readonly community: number }): Promise<PreviewedPolicy>;
  /** Requests to vanish that were stored after a position, up to another one. Some may come again. */
  vanishRequests(db: Db, after: Position, upTo: Position): Promise<VanishRequest[]>;
  /** Deletes the content of events that were removed before a time. Returns their number. */
  purgeRemoved(db: Db, purge: PurgeOfRemoved): Promise<number>;
  /** The tables of events, where they are not in the database. */
  tables(): Promise<readonly EventTable[]>;
}

export interface KnownId {
  readonly author: string;
  /** Why it is not served. */
  readonly hidden: Hidden | undefined;
  /** Only the id is left. */
  readonly isPurged: boolean;
}

export interface StoredRow {
  readonly id: string;
  readonly pubkey: string;
  readonly kind: number;
  /** Seconds. */
  readonly createdAt: number;
  readonly expiresAt: number | null;
  /** Milliseconds. */
  readonly ingestedAt: number;
  readonly hiddenAt: number | null;
  readonly hidden: Hidden | undefined;
  /** A mark hides it that has not reached its row yet. */
  readonly isVanished: boolean;
  readonly bound: readonly string[];
  readonly payload: string;
}

// ── Pages ──────────────────────────────────────────────────────────────────────────────────────────────────

export interface ServedOf {
  readonly community: number;
  readonly authors?: readonly string[] | undefined;
  /** Seconds, inclusive. */
  readonly since?: number | undefined;
  /** Milliseconds: events that arrived later are left out. */
  readonly arrivedUntil?: number | undefined;
  readonly after: NewestPlace;
  readonly limit: number;
}

export interface ServedEvent extends NewestPlace {
  readonly payload: string;
  readonly bound: readonly string[];
}

export interface ServedPage {
  readonly rows: readonly ServedEvent[];
  /** Where the next page begins; undefined at the end. A page may have fewer rows than its limit. */
  readonly next: NewestPlace | undefined;
}

/** The place of an event in a list, which is in the order of `at`, the newest first, then of the id. */
export interface ListedPlace extends RowRef {
  readonly at: number;
  readonly id: string;
  readonly bytes: number;
}

export interface Later {
  readonly created_at: number;
  readonly id: string;
}

/** Why they are hidden, where an index lists them without an author. */
export type ListedHidden = Extract<Hidden, 'deleted' | 'removed'>;

export interface HiddenOf {
  readonly community: number;
  /** By the time of the event, of this author; or by when they were hidden, for this reason. */
  readonly by:
    | { readonly author: string; readonly hidden?: ListedHidden }
    | { readonly hidden: ListedHidden };
  readonly kinds?: readonly number[] | undefined;
  /** Seconds, of the event; inclusive. */
  readonly since?: number | undefined;
  readonly until?: number | undefined;
  /** Tags that the event has. */
  readonly tags: readonly (readonly [name: string, value: string])[];
  readonly after: Pick<ListedPlace, 'at' | 'id'> | undefined;
  readonly limit: number;
}

export interface HiddenPlaces {
  readonly places: readonly ListedPlace[];
  /** Where the next page begins; undefined after the last row. */
  readonly next: Pick<ListedPlace, 'at' | 'id'> | undefined;
}

/** Hidden events that are looked at for one page. */
export const HIDDEN_ROWS_MAX = 1_000;

// ── One event ──────────────────────────────────────────────────────────────────────────────────────────────

/** Times are milliseconds, but for those of Nostr events, which are seconds. */
export interface StoredLife {
  readonly event: NostrEvent;
  readonly expiresAt: number | null;
  readonly hiddenAt: number | null;
}

export interface KnownLife {
  readonly author: string;
  readonly firstSeenAt: number;
  readonly lastSeenAt: number | null;
  readonly seenCount: number;
  readonly hidden: Hidden | undefined;
  readonly goneAt: number | null;
  /** How it came; undefined where that is no longer known. */
  readonly cameBy: 'post' | 'gossip' | 'sync' | undefined;
  /** Undefined once it is purged. */
  readonly stored: StoredLife | undefined;
}

export interface KnownTombstone {
  /** Who made the request. */
  readonly author: string;
  readonly isAddress: boolean;
  readonly requestedAt: number;
  readonly appliedAt: number | null;
  readonly deletionEvent: string;
}

export interface EventLife {
  readonly known: KnownLife | undefined;
  /** Without a stored event, also those of keys that may not own the event. */
  readonly tombstones: readonly KnownTombstone[];
  /** The newest version that was seen of its address. */
  readonly head: { readonly id: string; readonly created_at: number } | undefined;
  /** The latest request to vanish of one of its owners. */
  readonly vanish: { readonly until: number; readonly request: string | null } | undefined;
}

export const TOMBSTONES_MAX = 50;

// ── Others ─────────────────────────────────────────────────────────────────────────────────────────────────

export interface ProfilesOf {
  readonly community: number;
  readonly pubkeys: readonly string[];
  /** Milliseconds. */
  readonly now: number;
}

export interface BegunId {
  readonly author: string;
  /** The first 16 digits. */
  readonly begin: string;
  /** Milliseconds: its `created_at`, or its arrival if that was earlier. */
  readonly at: number;
}

export interface ActivityOf {
  readonly community: number;
  readonly topics: readonly string[];
  readonly rules: Retention;
  /** Milliseconds. */
  readonly now: number;
}

/** Notes, threads, comments and articles. */
export const POST_KINDS: ReadonlySet<number> = new Set([1, 11, 1111, 30_023]);
export const POSTS_COUNTED_MAX = 500;
export const WEEK_DAYS = 7;

export interface TopicActivity {
  /** Up to `POSTS_COUNTED_MAX`. */
  readonly postsDay: number;
  readonly postsWeek: number;
  /** `created_at` of the newest post, in seconds. */
  readonly lastPostAt: number | null;
}

export interface BoundedPreview extends PolicyPreview {
  /** False: the topic has more events than were looked at, so each count is "at least". */
  readonly complete: boolean;
}
export type PreviewedPolicy = BoundedPreview | Denial;

export interface VanishRequest {
  readonly seq: Position;
  readonly community: number;
  readonly payload: string;
}

export interface PurgeOfRemoved {
  readonly community: number;
  /** Milliseconds. */
  readonly removedBefore: number;
  readonly now: number;
  readonly limit: number;
}

export interface EventTable {
  readonly name: string;
  readonly holds: 'events' | 'index' | 'state';
  /** As the store reports it, some hours old. */
  readonly rows: number;
  readonly tableBytes: number;
  readonly indexBytes: number;
}
