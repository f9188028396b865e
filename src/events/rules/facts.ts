/**
 * The input of a batch decision: an event on its way into the store, the place of a stored one, and what the
 * store knows about a batch before it is decided. Pure.
 */
import type { TopicSettings } from '../../topics/rules.js';
import type { Superseded } from './batch/history.js';
import type { ArrivalFacts, Judgement } from './batch/judged.js';
import type { Version } from './classify.js';
import type { NostrEvent } from './event.js';
import type { Hidden } from './hidden.js';
import type { Retention } from './retention.js';

/**
 * The gossip topic through which another node sent an event, in hex, or a sync with another node. Such an
 * event is not gossiped as if it had been posted here.
 */
export type CameBy = string;
export const CAME_BY_SYNC: CameBy = 'sync';

/** An event on its way into the store: checked, verified, serialized once. */
export interface Submission {
  readonly community: number;
  readonly event: NostrEvent;
  readonly payload: string;
  /** For a request to vanish (NIP-62): the communities in which it holds. */
  readonly vanishIn?: readonly number[];
  /** How it came here, if it was not posted here. */
  readonly cameBy?: CameBy | undefined;
  /** By the moderation rules, before the lane; undefined where it was not judged yet. */
  readonly judgement?: Judgement;
}

/** The place of an event's row. `seq` is also the position of its `upsert` in the outbox. */
export interface RowRef {
  readonly seq: number;
  readonly ingestedAt: number;
  readonly keep: number;
}

export interface StoredEvent {
  readonly row: RowRef;
  readonly event: NostrEvent;
  /** Topics that it is bound to in addition to those it names. */
  readonly bound: readonly string[];
}

/** A stored event and its community. */
export interface PlacedEvent extends StoredEvent {
  readonly community: number;
  /** The event as it is stored, where it was read. */
  readonly payload?: string;
}

export interface Head extends Version {
  readonly topics: readonly string[];
  /** The row of that version while it is served. */
  readonly row: RowRef | undefined;
}

/** What the store knows about a batch, by `factKey(community, id, address or pubkey)`. */
export interface BatchFacts {
  readonly lastSeq: number;
  /** The version of the moderation rules in force. */
  readonly rulesVersion?: number;
  /** Undefined where no event of the batch matches a rule. */
  readonly arrival?: ArrivalFacts | undefined;
  readonly known: ReadonlyMap<string, 'served' | Hidden>;
  readonly heads: ReadonlyMap<string, Head>;
  /** Served events that deletion requests of the batch name by id. */
  readonly targets: ReadonlyMap<string, StoredEvent>;
  /** Superseded versions that the deletion requests name, by id or address. */
  readonly superseded?: readonly Superseded[];
  /** There are more versions of the named addresses than one batch can hold. */
  readonly historyLeft?: boolean;
  /** By `tombstoneKey`: the time of the latest request. */
  readonly tombstones: ReadonlyMap<string, number>;
  /** A pubkey asked to vanish up to this time. */
  readonly vanished: ReadonlyMap<string, number>;
  /** A pubkey was erased up to this time; an empty pubkey stands for the whole community. */
  readonly erased?: ReadonlyMap<string, number>;
  /** How many more targets an author may name today. */
  readonly deletionsLeft: ReadonlyMap<string, number>;
  /** Communities whose deletions are physical at once (`deletion.mode`). */
  readonly purgesDeleted: ReadonlySet<number>;
  /** Communities that keep no superseded versions (`retention.historyDays` is 0). */
  readonly keepsNoHistory?: ReadonlySet<number>;
  /** How long each community keeps its topics. */
  readonly retention?: ReadonlyMap<number, Retention>;
  /** The topic settings of each community. */
  readonly topicSettings?: ReadonlyMap<number, TopicSettings>;
}

export function factKey(community: number, what: string): string {
  return `${community}/${what}`;
}

/** Keyed by the author of the request: another author's request never blocks anything (I5). */
export function tombstoneKey(community: number, idOrAddress: string, author: string): string {
  return `${community}/${author}/${idOrAddress}`;
}
