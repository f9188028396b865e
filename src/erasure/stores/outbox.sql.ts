/** The outbox in an erasure: who has read the deletes, and the rows that name the subject. */
import type { Client } from 'pg';
import { isLabelOfErased } from '../../labels/tables.sql.js';
import { bytes } from '../../postgres/values.js';

export interface BehindConsumer {
  readonly consumer: string;
  /** The offset of its live generation, and of the one that is being rebuilt. */
  readonly reached: readonly number[];
}

/** Consumers that have not reached this offset yet, including a generation that is being rebuilt. */
export async function consumersBehind(client: Client, seq: number): Promise<BehindConsumer[]> {
  const { rows } = await client.query<{ consumer: string; live: number; rebuilt: number }>({
    name: 'consumers-behind',
    text: `SELECT o.consumer, o.last_seq AS live, coalesce(r.last_seq, r.scanned_seq, 0) AS rebuilt
      FROM consumer_offsets o LEFT JOIN consumer_rebuilds r USING (consumer)
      WHERE r.reason IS DISTINCT FROM '${MISSED}' AND (o.last_seq < $1
        OR (r.started_at IS NOT NULL AND coalesce(r.last_seq, r.pinned_seq, 0) < $1)) ORDER BY 1`,
    values: [seq],
  });
  return rows.map(({ consumer, live, rebuilt }) => ({ consumer, reached: [live, rebuilt] }));
}

const MISSED = 'rows were scrubbed after an erasure before it had read them';

/** A consumer that has read nothing for so long gets an error and rebuilds when it comes back. */
export async function leaveBehind(client: Client, consumers: readonly string[], now: number): Promise<void> {
  await client.query(
    `INSERT INTO consumer_rebuilds (consumer, generation, reason, requested_at, updated_at)
     SELECT consumer, generation + 1, $2, $3, $3 FROM consumer_offsets WHERE consumer = ANY ($1)
     ON CONFLICT (consumer) DO UPDATE SET reason = excluded.reason, started_at = NULL, pinned_seq = NULL,
       scanned_seq = 0, scanned_place = NULL, last_seq = NULL`,
    [consumers, MISSED, now],
  );
}

/** The highest offset of the outbox that names the subject, or undefined when none does. */
export async function lastOutboxSeq(
  client: Client,
  community: number,
  author: { readonly pubkey: string; readonly until: number } | undefined,
): Promise<number | undefined> {
  const { rows } = await client.query<{ seq: number | null }>({
    text: `SELECT max(seq) AS seq FROM events_outbox
      WHERE community = $1 AND op <> 'scrubbed' ${ofOutbox(author)}`,
    values: outboxValues(community, author),
  });
  return rows[0]!.seq ?? undefined;
}

type OutboxAuthor = { readonly pubkey: string; readonly until: number } | undefined;
/**
 * Rows of their events, and of events that the node has signed about them or about an event of theirs. The
 * authors are one list, so that the index by author finds all of them. With OR the planner reads every row
 * of the community (docs/performance.md).
 */
const ofOutbox = (author: OutboxAuthor) =>
  author === undefined
    ? ''
    : `AND ingested_at >= 0 AND created_at <= $3
        AND author = ANY (ARRAY(SELECT $2::bytea
          UNION SELECT k.pubkey FROM node_keys k WHERE k.community = $1))
        AND (author = $2 OR strpos(effective_key, $4) > 0 OR ${isLabelOfErased('events_outbox')})`;
const outboxValues = (community: number, author: OutboxAuthor): unknown[] =>
  author === undefined ? [community] : [community, bytes(author.pubkey), author.until, author.pubkey];

/**
 * Of each run of offsets the last one stays, and names nobody: whoever comes to it later learns that
 * something was erased here, and no more. The others are deleted.
 */
export async function scrubOutbox(
  client: Client,
  community: number,
  author: OutboxAuthor,
  limit: number,
): Promise<number> {
  const { rows } = await client.query<{ rows: number }>({
    text: `WITH found AS MATERIALIZED (
        SELECT seq, lead(seq) OVER (ORDER BY seq) IS DISTINCT FROM seq + 1 AS is_last
        FROM (SELECT seq FROM events_outbox
          WHERE community = $1 AND op <> 'scrubbed' ${ofOutbox(author)} LIMIT ${limit}) f
      ), deleted AS (
        DELETE FROM events_outbox o WHERE o.seq = ANY (ARRAY(SELECT seq FROM found WHERE NOT is_last))
      ), scrubbed AS (
        UPDATE events_outbox o SET op = 'scrubbed', reason = NULL, event_id = '', author = '', topics = '{}',
          effective_key = NULL, tags = NULL
        WHERE o.seq = ANY (ARRAY(SELECT seq FROM found WHERE is_last))
      )
      SELECT count(*) AS rows FROM found`,
    values: outboxValues(community, author),
  });
  return rows[0]!.rows;
}

export async function countOutbox(client: Client, community: number, author: OutboxAuthor): Promise<number> {
  const { rows } = await client.query<{ count: number }>(countedOutbox(community, author));
  return rows[0]!.count;
}

export const countedOutbox = (community: number, author: OutboxAuthor) => ({
  text: `SELECT count(*) AS count FROM events_outbox
    WHERE community = $1 AND op <> 'scrubbed' ${ofOutbox(author)}`,
  values: outboxValues(community, author),
});
