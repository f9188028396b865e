/**
 * What a moderator removed, put back: its row goes, and the event comes again as if it had just arrived, in the same transaction of
 * the lane. So every rule holds for it once more: what its author deleted meanwhile, or what a newer version took the place of,
 * stays away (I4, I5, I6).
 */
import type { ClientBase } from 'pg';
import { KIND_DELETION, KIND_VANISH } from '../core/classify.js';
import type { NostrEvent } from '../core/event.js';
import { HIDDEN_CODES } from '../core/hidden.js';
import type { RowRef, StoredEvent, Submission } from '../core/plan.js';
import { UNBOUND } from '../core/topic.js';
import { hexArray, int2Array, int4Array, int8Array } from './binary.js';
import { dedupeOf, eventAt } from './query.js';

export interface EventRef {
  readonly community: number;
  readonly id: string;
}

export interface RemovedEvent {
  readonly submission: Submission;
  readonly row: RowRef;
}

const IS_REMOVED = `coalesce(e.hidden, 0) = ${HIDDEN_CODES.removed}`;

/** Locked, so that a purge of the same rows waits, or has been waited for. */
export async function readRemoved(
  client: ClientBase,
  refs: readonly EventRef[],
): Promise<Map<string, RemovedEvent>> {
  const { rows } = await client.query<{
    community: number;
    seq: number;
    ingested_at: number;
    keep: number;
    payload: string;
  }>({
    text: `SELECT e.community, e.seq, e.ingested_at, e.keep, e.payload
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
      ${dedupeOf('asked.community', 'asked.event_id')}
      JOIN events e ON e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq
      WHERE ${IS_REMOVED} FOR UPDATE OF e`,
    values: [int4Array(refs.map((ref) => ref.community)), hexArray(refs.map((ref) => ref.id))],
  });
  return new Map(
    rows.map(({ community, seq, ingested_at: ingestedAt, keep, payload }) => {
      const event = JSON.parse(payload) as NostrEvent;
      const removed = { submission: { community, event, payload }, row: { seq, ingestedAt, keep } };
      return [`${community}/${event.id}`, removed];
    }),
  );
}

/** Its place is free for the event to come again. */
export async function dropRemoved(client: ClientBase, removed: readonly RemovedEvent[]): Promise<void> {
  if (removed.length === 0) return;
  await client.query({
    text: `WITH gone AS (
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::int[], $5::bytea[])
          AS g (seq, ingested_at, keep, community, event_id)
      ), known AS (
        DELETE FROM event_dedupe d USING gone g WHERE d.community = g.community AND d.event_id = g.event_id
      )
      DELETE FROM events e USING gone g
      WHERE e.keep = g.keep AND e.ingested_at = g.ingested_at AND e.seq = g.seq AND ${IS_REMOVED}`,
    values: [
      int8Array(removed.map(({ row }) => row.seq)),
      int8Array(removed.map(({ row }) => row.ingestedAt)),
      int2Array(removed.map(({ row }) => row.keep)),
      int4Array(removed.map(({ submission }) => submission.community)),
      hexArray(removed.map(({ submission }) => submission.event.id)),
    ],
  });
}

/** Served events by id, to be taken out of the view; deletion requests and requests to vanish are nobody's to remove. */
export async function selectRemovable(
  client: ClientBase,
  refs: readonly EventRef[],
): Promise<(StoredEvent & { readonly community: number })[]> {
  const { rows } = await client.query<{
    community: number;
    seq: number;
    ingested_at: number;
    keep: number;
    payload: string;
    bound: string[] | null;
  }>({
    text: `SELECT e.community, e.seq, e.ingested_at, e.keep, e.payload, e.bound
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
      ${dedupeOf('asked.community', 'asked.event_id')} ${eventAt('d')}
      WHERE e.hidden IS NULL AND e.kind NOT IN (${KIND_DELETION}, ${KIND_VANISH})`,
    values: [int4Array(refs.map((ref) => ref.community)), hexArray(refs.map((ref) => ref.id))],
  });
  return rows.map(({ community, seq, ingested_at: ingestedAt, keep, payload, bound }) => ({
    community,
    row: { seq, ingestedAt, keep },
    event: JSON.parse(payload) as NostrEvent,
    bound: bound ?? UNBOUND,
  }));
}
