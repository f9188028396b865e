/**
 * Restores events that a moderator removed. The old row is deleted and the event is decided again as if it
 * had just arrived, in the same transaction of the lane. So every rule applies again: an event that its
 * author has deleted in the meantime, or that a newer version has superseded, stays out (I4, I5, I6).
 */
import type { ClientBase } from 'pg';
import { hexArray, int2Array, int4Array, int8Array } from '../../postgres/binary.js';
import { UNBOUND } from '../../topics/rules.js';
import { KIND_DELETION, KIND_VANISH } from '../rules/classify.js';
import type { NostrEvent } from '../rules/event.js';
import type { PlacedEvent, RowRef, Submission } from '../rules/facts.js';
import { HIDDEN_CODES } from '../rules/hidden.js';
import type { EventRef } from '../store.js';
import { dedupeOf, eventAt } from './places.js';

export interface RemovedEvent {
  readonly submission: Submission;
  readonly row: RowRef;
}

const IS_REMOVED = `coalesce(e.hidden, 0) = ${HIDDEN_CODES.removed}`;

/** Locks the rows, so that a concurrent purge of the same rows waits. */
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

/** Deletes the old rows, so that the events can be stored again. */
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

/** Served events by id that a moderator may remove: not requests to delete or to vanish. */
export async function selectRemovable(client: ClientBase, refs: readonly EventRef[]): Promise<PlacedEvent[]> {
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
