/**
 * What one transaction has to write: for a batch of events (batch.ts), for rows that a job hides, for marks.
 * Pure. I8: each change of the effective view has its outbox row here, and the store writes all of it in one
 * transaction.
 */
import type { Reported } from '../../reports/rules.js';
import { allTopics } from '../../topics/rules.js';
import type { AppliedTombstone } from './batch/applied-tombstones.js';
import type { CountedEvent, HeldEvent } from './batch/judged.js';
import { addressOf, type Version } from './classify.js';
import type { Decision } from './decide.js';
import type { DeletionTarget } from './deletion.js';
import type { NostrEvent } from './event.js';
import type { PlacedEvent, RowRef, Submission } from './facts.js';
import { type Announced, type Hidden, OUTBOX_REASONS } from './hidden.js';
import { Keep } from './keep.js';

export interface NewRow extends RowRef {
  readonly submission: Submission;
  /** Topics that it is bound to in addition to those it names. */
  readonly bound: readonly string[];
  /** Why it is not served, when a later event of the same batch has hidden it. */
  readonly hidden: Hidden | undefined;
  /** Its content is not written at all. */
  readonly purge: boolean;
}

export interface NewHead extends Version {
  readonly topics: readonly string[];
  readonly community: number;
  readonly address: string;
  readonly kind: number;
  readonly pubkey: string;
}

export interface HiddenRow {
  readonly community: number;
  readonly id: string;
  readonly row: RowRef;
  readonly hidden: Hidden;
  /** Its content is deleted in the same transaction. */
  readonly purge: boolean;
  /** With `purge`: its id is forgotten in the same transaction. The event, so that it is read only once. */
  readonly forgotten?: PlacedEvent;
  /** Row and tags are deleted already, the row in the same transaction. Somebody else deletes the id. */
  readonly taken?: boolean;
}

export interface Tombstone {
  readonly community: number;
  readonly target: DeletionTarget;
  readonly author: string;
  readonly deletionId: string;
  readonly requestedAt: number;
  /** It has hidden something at once. */
  readonly applied: boolean;
  /** A job deletes the remaining superseded versions of the address. */
  readonly historyLeft: boolean;
}

/** The targets that an author's request named, deleted or not: they count for the day. */
export interface QuotaUse {
  readonly community: number;
  readonly author: string;
  readonly targets: number;
}

export interface VanishMark {
  readonly community: number;
  readonly pubkey: string;
  readonly until: number;
  /** Undefined when the node itself marks a member who is being erased. */
  readonly requestId: string | undefined;
}

/** One target of a stored event of kind 1984. */
export interface ReportedTarget extends Reported {
  readonly community: number;
  readonly reporter: string;
  readonly eventId: string;
  readonly comment: string;
  /** Milliseconds; a time in the future is replaced by now. */
  readonly createdAt: number;
}

export type OutboxReason = (typeof OUTBOX_REASONS)[Announced];

export interface OutboxRow {
  readonly seq: number;
  readonly community: number;
  readonly op: 'upsert' | 'delete';
  readonly reason: OutboxReason | undefined;
  /** Without its tags where they are not known: for a superseded version. */
  readonly event: Version & Pick<NostrEvent, 'pubkey' | 'kind'> & Partial<Pick<NostrEvent, 'tags'>>;
  readonly topics: readonly string[];
  readonly effectiveKey: string | undefined;
  readonly ingestedAt: number;
}

export interface BatchWrites {
  readonly decisions: readonly Decision[];
  /** For events refused as erased: up to which time, in seconds. */
  readonly erasedUntil?: ReadonlyMap<Submission, number>;
  readonly rows: readonly NewRow[];
  /**
   * Events that a rule holds out of view. They are not among the rows, so that nothing that delivers or
   * counts rows sees them (I16).
   */
  readonly held: readonly HeldEvent[];
  /** Events that count for the rates of rules. */
  readonly counted: readonly CountedEvent[];
  /** Rows already stored that are no longer served. */
  readonly hidden: readonly HiddenRow[];
  readonly heads: readonly NewHead[];
  readonly tombstones: readonly Tombstone[];
  readonly appliedTombstones: readonly AppliedTombstone[];
  readonly quotaUses: readonly QuotaUse[];
  readonly vanishMarks: readonly VanishMark[];
  readonly reports: readonly ReportedTarget[];
  readonly outbox: readonly OutboxRow[];
  readonly broadcasts: readonly Submission[];
  readonly lastSeq: number;
}

const NOTHING: Omit<BatchWrites, 'lastSeq'> = {
  decisions: [],
  rows: [],
  held: [],
  counted: [],
  hidden: [],
  heads: [],
  tombstones: [],
  appliedTombstones: [],
  quotaUses: [],
  vanishMarks: [],
  reports: [],
  outbox: [],
  broadcasts: [],
};

/**
 * Rows that time or the operator hides, each announced with its reason. A superseded version is not announced
 * again: that happened when it was superseded.
 */
export function hidingWrites(
  rows: readonly PlacedEvent[],
  hidden: Announced,
  purge: boolean,
  lastSeq: number,
  now: number,
  forget: boolean | 'taken' = false,
): BatchWrites {
  const served = rows.filter(({ row }) => row.keep !== Keep.history);
  const outbox = served.map(
    ({ community, event, bound }, place): OutboxRow => ({
      seq: lastSeq + 1 + place,
      community,
      op: 'delete',
      reason: OUTBOX_REASONS[hidden],
      event,
      topics: allTopics(event, bound),
      effectiveKey: addressOf(event),
      ingestedAt: now,
    }),
  );
  return {
    ...NOTHING,
    hidden: rows.map((placed) => {
      const { community, event, row } = placed;
      const taken = forget === 'taken';
      return { community, id: event.id, row, hidden, purge, ...(forget && { forgotten: placed, taken }) };
    }),
    outbox,
    lastSeq: lastSeq + served.length,
  };
}

/**
 * Only marks: reads hide what they cover. A mark takes a position without an outbox row, so that every
 * instance clears its memory.
 */
export function markWrites(vanishMarks: readonly VanishMark[], lastSeq: number): BatchWrites {
  return { ...NOTHING, vanishMarks, lastSeq: lastSeq + (vanishMarks.length > 0 ? 1 : 0) };
}
