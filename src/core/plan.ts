/**
 * A batch of events becomes a plan: what each client is told, and every row that one transaction has to write.
 * Pure. The events are decided one after another, each seeing what the ones before it in the batch did,
 * so a batch gives the same view as the same events one by one.
 * I8: each change of the effective view has its outbox row here; the store writes the plan in one transaction.
 */
import { addressOf, type Version } from './classify.js';
import { type Decision, decide } from './decide.js';
import type { NostrEvent } from './event.js';
import { Keep, keepOf } from './keep.js';
import { topicsOf } from './topic.js';

/** An event on its way into the store: checked, verified, serialized once. */
export interface Submission {
  readonly community: number;
  readonly event: NostrEvent;
  readonly payload: string;
}

/** Where an event's row lies. `seq` is also the place of its `upsert` in the outbox. */
export interface RowRef {
  readonly seq: number;
  readonly ingestedAt: number;
  readonly keep: number;
}

export interface Head extends Version {
  readonly topics: readonly string[];
  /** The stored row of that version, when there is one. */
  readonly row: RowRef | undefined;
}

/** What the store knows about a batch, by `factKey(community, id or address)`. */
export interface BatchFacts {
  readonly lastSeq: number;
  readonly known: ReadonlySet<string>;
  readonly heads: ReadonlyMap<string, Head>;
}

export function factKey(community: number, idOrAddress: string): string {
  return `${community}/${idOrAddress}`;
}

export interface PlannedRow extends RowRef {
  readonly submission: Submission;
  /** False when a later event of the same batch superseded it. */
  readonly effective: boolean;
}

export interface PlannedHead extends Version {
  readonly topics: readonly string[];
  readonly community: number;
  readonly address: string;
  readonly kind: number;
  readonly pubkey: string;
}

export type OutboxReason = 'superseded';

export interface OutboxRow {
  readonly seq: number;
  readonly community: number;
  readonly op: 'upsert' | 'delete';
  readonly reason: OutboxReason | undefined;
  readonly event: Version & Pick<NostrEvent, 'pubkey' | 'kind'>;
  readonly topics: readonly string[];
  readonly effectiveKey: string | undefined;
  readonly ingestedAt: number;
}

export interface Plan {
  readonly decisions: readonly Decision[];
  readonly rows: readonly PlannedRow[];
  /** Rows already stored that are no longer effective. */
  readonly superseded: readonly { readonly community: number; readonly id: string; readonly row: RowRef }[];
  readonly heads: readonly PlannedHead[];
  readonly outbox: readonly OutboxRow[];
  readonly broadcasts: readonly Submission[];
  readonly lastSeq: number;
}

export function planBatch(submissions: readonly Submission[], facts: BatchFacts, ingestedAt: number): Plan {
  const known = new Set(facts.known);
  const heads = new Map(facts.heads);
  const rows = new Map<number, PlannedRow>();
  const changedHeads = new Map<string, PlannedHead>();
  const superseded: { community: number; id: string; row: RowRef }[] = [];
  const outbox: OutboxRow[] = [];
  const broadcasts: Submission[] = [];
  let lastSeq = facts.lastSeq;

  const announce = (row: Omit<OutboxRow, 'seq' | 'ingestedAt'>): number => {
    lastSeq += 1;
    outbox.push({ ...row, seq: lastSeq, ingestedAt });
    return lastSeq;
  };

  const supersede = (head: Head, address: string, successor: Submission): void => {
    if (head.row === undefined) return;
    const { community, event } = successor;
    const { id, created_at, topics } = head;
    const inBatch = rows.get(head.row.seq);
    if (inBatch === undefined) superseded.push({ community, id, row: head.row });
    else rows.set(inBatch.seq, { ...inBatch, keep: Keep.history, effective: false });
    const old = { id, created_at, pubkey: event.pubkey, kind: event.kind };
    announce({ community, op: 'delete', reason: 'superseded', event: old, topics, effectiveKey: address });
  };

  const store = (submission: Submission): void => {
    const { community, event } = submission;
    const address = addressOf(event);
    const headKey = address === undefined ? undefined : factKey(community, address);
    const head = headKey === undefined ? undefined : heads.get(headKey);
    if (head !== undefined && address !== undefined) supersede(head, address, submission);
    const topics = topicsOf(event);
    const seq = announce({
      community,
      op: 'upsert',
      reason: undefined,
      event,
      topics,
      effectiveKey: address,
    });
    const row = { seq, ingestedAt, keep: keepOf(event.kind), submission, effective: true };
    rows.set(seq, row);
    if (headKey !== undefined && address !== undefined) {
      const { id, created_at, kind, pubkey } = event;
      heads.set(headKey, { id, created_at, topics, row });
      changedHeads.set(headKey, { community, address, kind, pubkey, id, created_at, topics });
    }
  };

  const decisions = submissions.map((submission) => {
    const { community, event } = submission;
    const idKey = factKey(community, event.id);
    const address = addressOf(event);
    const head = address === undefined ? undefined : heads.get(factKey(community, address));
    const decision = decide(event, { known: known.has(idKey), head });
    if (decision === 'stored') store(submission);
    if (decision === 'broadcast') broadcasts.push(submission);
    if (decision === 'stored' || decision === 'broadcast') known.add(idKey);
    return decision;
  });

  return {
    decisions,
    rows: [...rows.values()],
    superseded,
    heads: [...changedHeads.values()],
    outbox,
    broadcasts,
    lastSeq,
  };
}
