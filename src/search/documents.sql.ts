/**
 * The search documents: the words of each event that can be found, one partition for each generation. Only
 * the outbox consumer writes them, in the transaction of its offset (I8). Applying the same changes again
 * changes nothing (I9).
 */
import { createHash } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { IS_LEFT } from '../events/postgres/dry-run.js';
import { HIDDEN_CODES } from '../events/rules/hidden.js';
import { hexArray, int4Array, int8Array, textArray } from '../postgres/binary.js';
import { bytes } from '../postgres/values.js';

type Db = ClientBase | Pool;

export interface Document {
  readonly community: number;
  readonly id: string;
  readonly author: string;
  readonly kind: number;
  readonly createdAt: number;
  readonly seq: number;
  readonly topics: readonly string[];
  /** The text of a tsvector. */
  readonly words: string;
}

export interface DocumentKey {
  readonly community: number;
  readonly id: string;
}

export interface DeletedDocument extends DocumentKey {
  /** When its event was deleted, in milliseconds. */
  readonly at: number;
}

/** The changes of one batch; an event is in only one of the lists. */
export interface DocumentChanges {
  readonly written: readonly Document[];
  /** Cannot be found any more, although the event is served. */
  readonly removed: readonly DocumentKey[];
  readonly deleted: readonly DeletedDocument[];
}

/**
 * A deleted document is kept as long as the row of its event, so that both are audited together. The document
 * of a superseded version is deleted at once: nobody searches the history.
 */
const WRITE_SQL = `
  WITH deleted AS (
    SELECT n.community, n.event_id, n.at, EXISTS (SELECT 1 FROM event_dedupe d
      WHERE d.community = n.community AND d.event_id = n.event_id AND d.gone_at IS NULL
        AND d.hidden IS DISTINCT FROM ${HIDDEN_CODES.superseded}) AS stays
    FROM unnest($11::int[], $12::bytea[], $13::bigint[]) AS n (community, event_id, at)
    WHERE EXISTS (SELECT 1 FROM post_search_documents d
      WHERE d.generation = $1 AND d.community = n.community AND d.event_id = n.event_id)
  ), marked AS (
    UPDATE post_search_documents d SET deleted_at = n.at FROM deleted n
    WHERE n.stays AND d.generation = $1 AND d.community = n.community AND d.event_id = n.event_id
      AND d.deleted_at IS NULL
  ), dropped AS (
    DELETE FROM post_search_documents d
    USING (SELECT community, event_id FROM deleted WHERE NOT stays
      UNION ALL SELECT * FROM unnest($9::int[], $10::bytea[])) AS n (community, event_id)
    WHERE d.generation = $1 AND d.community = n.community AND d.event_id = n.event_id
  )
  INSERT INTO post_search_documents AS d (generation, community, kind, created_at, seq, event_id, author,
    words, topics)
  SELECT $1, community, kind, created_at, seq, event_id, author, words::tsvector, topics::int[]
  FROM unnest($2::int[], $3::int[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[], $8::text[],
      $14::text[])
    AS n (community, kind, created_at, seq, event_id, author, words, topics)
  ON CONFLICT (generation, community, event_id) DO UPDATE
  SET seq = excluded.seq, words = excluded.words, topics = excluded.topics, deleted_at = NULL
  WHERE (d.seq, d.words, d.topics, d.deleted_at)
    IS DISTINCT FROM (excluded.seq, excluded.words, excluded.topics, NULL::bigint)`;

/** Topics in one document; for an event with more, its own row is checked. */
const TOPICS_MAX = 32;

/** Short hashes that are the same in every process. If two topics collide, the check of the event decides. */
export function topicMarks(topics: Iterable<string>): number[] {
  return [...topics].map((topic) => createHash('sha256').update(topic).digest().readInt32BE(0));
}

function marksText(topics: readonly string[]): string | undefined {
  const isNone = topics.length === 0 || topics.length > TOPICS_MAX;
  return isNone ? undefined : `{${topicMarks(topics).join(',')}}`;
}

export async function writeDocuments(
  tx: ClientBase,
  generation: number,
  { written, removed, deleted }: DocumentChanges,
): Promise<void> {
  if (written.length + removed.length + deleted.length === 0) return;
  await tx.query({
    name: 'search-documents',
    text: WRITE_SQL,
    values: [
      generation,
      int4Array(written.map((d) => d.community)),
      int4Array(written.map((d) => d.kind)),
      int8Array(written.map((d) => d.createdAt)),
      int8Array(written.map((d) => d.seq)),
      hexArray(written.map((d) => d.id)),
      hexArray(written.map((d) => d.author)),
      textArray(written.map((d) => d.words)),
      int4Array(removed.map((d) => d.community)),
      hexArray(removed.map((d) => d.id)),
      int4Array(deleted.map((d) => d.community)),
      hexArray(deleted.map((d) => d.id)),
      int8Array(deleted.map((d) => d.at)),
      textArray(written.map((d) => marksText(d.topics))),
    ],
  });
}

// ── Generations ────────────────────────────────────────────────────────────────────────────────────────────

const partitionOf = (generation: number) => `post_search_documents_${Math.trunc(generation)}`;

/** Makes an empty partition. It is created first and then attached, so that it does not wait for searches. */
export async function makeGeneration(tx: ClientBase, generation: number): Promise<void> {
  const name = partitionOf(generation);
  const state = await partitionState(tx, name);
  if (state === 'attached') {
    await tx.query(`TRUNCATE ${name}`);
    return;
  }
  if (state === 'detaching')
    await tx.query(`ALTER TABLE post_search_documents DETACH PARTITION ${name} FINALIZE`);
  await tx.query(`DROP TABLE IF EXISTS ${name}`);
  await tx.query(`CREATE TABLE ${name} (LIKE post_search_documents INCLUDING ALL)`);
  await tx.query('SELECT seed_search_statistics($1::text::regclass, $2)', [name, generation]);
  await tx.query(
    `ALTER TABLE post_search_documents ATTACH PARTITION ${name} FOR VALUES IN (${Math.trunc(generation)})`,
  );
}

/**
 * Detaches the partition first, so that searches are not blocked. A partition that does not exist is no
 * error. The session has a lock time-out: if the lock is not available, the next attempt drops the partition.
 */
export async function dropGeneration(client: ClientBase, generation: number): Promise<void> {
  const name = partitionOf(generation);
  const state = await partitionState(client, name);
  if (state !== undefined) {
    const how = state === 'detaching' ? 'FINALIZE' : 'CONCURRENTLY';
    await client.query(`ALTER TABLE post_search_documents DETACH PARTITION ${name} ${how}`);
  }
  await client.query(`DROP TABLE IF EXISTS ${name}`);
  await client.query('DELETE FROM search_rules WHERE generation = $1', [generation]);
}

async function partitionState(
  client: ClientBase,
  name: string,
): Promise<'attached' | 'detaching' | undefined> {
  const { rows } = await client.query<{ detaching: boolean }>(
    `SELECT i.inhdetachpending AS detaching FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'post_search_documents'::regclass AND c.relname = $1`,
    [name],
  );
  if (rows[0] === undefined) return undefined;
  return rows[0].detaching ? 'detaching' : 'attached';
}

// ── Rules ──────────────────────────────────────────────────────────────────────────────────────────────────

/** The rules by which the documents of a community were made. */
export interface SearchRules {
  /** The version of the rules for splitting words. */
  readonly words: number;
  readonly kinds: readonly (number | string)[];
  readonly privateKinds: readonly (number | string)[];
  /** The reason why some documents were made by other rules than the rest. */
  readonly mixed?: string;
}

/** The rules of all communities by default. */
export async function readRules(
  db: Db,
  generation: number,
  communities?: readonly number[],
): Promise<Map<number, SearchRules>> {
  const { rows } = await db.query<{ community: number; rules: SearchRules }>(
    `SELECT community, rules FROM search_rules
     WHERE generation = $1 AND ($2::int[] IS NULL OR community = ANY ($2))`,
    [generation, communities === undefined ? null : int4Array(communities)],
  );
  return new Map(rows.map(({ community, rules }) => [community, rules]));
}

/** Keeps the first reason. */
export async function markMixed(db: Db, generation: number, community: number, why: string): Promise<void> {
  await db.query(
    `UPDATE search_rules SET rules = jsonb_build_object('mixed', $3::text) || rules
     WHERE generation = $1 AND community = $2 AND NOT rules ? 'mixed'`,
    [generation, community, why],
  );
}

export async function saveRules(
  db: Db,
  generation: number,
  rules: ReadonlyMap<number, SearchRules>,
): Promise<void> {
  await db.query(
    `INSERT INTO search_rules (generation, community, rules)
     SELECT $1, community, rules::jsonb FROM unnest($2::int[], $3::text[]) AS n (community, rules)
     ON CONFLICT (generation, community) DO UPDATE SET rules = excluded.rules`,
    [
      generation,
      int4Array([...rules.keys()]),
      textArray([...rules.values()].map((each) => JSON.stringify(each))),
    ],
  );
}

/** Whether one of these is an open community of this node. */
export async function hasCommunity(db: Db, ids: readonly number[]): Promise<boolean> {
  const { rowCount } = await db.query(
    'SELECT 1 FROM communities WHERE id = ANY ($1) AND closed_at IS NULL LIMIT 1',
    [int4Array(ids)],
  );
  return rowCount === 1;
}

/**
 * Whether the index has read past an event of this community that is served. Where events are not in the
 * database, the log of their changes tells.
 */
export async function hasReadEvents(db: Db, community: number, inDatabase: boolean): Promise<boolean> {
  const read = inDatabase
    ? 'events e JOIN consumer_offsets o ON e.hidden IS NULL'
    : "events_outbox e JOIN consumer_offsets o ON e.op = 'upsert' AND e.ingested_at >= 0";
  const { rowCount } = await db.query(
    `SELECT 1 FROM ${read} WHERE o.consumer = 'search' AND e.community = $1 AND e.seq <= o.last_seq LIMIT 1`,
    [community],
  );
  return rowCount === 1;
}

// ── Purging and erasing ────────────────────────────────────────────────────────────────────────────────────

export interface DeletedDocuments {
  readonly community: number;
  /** Only documents that were deleted before this, in milliseconds: the rows of later ones still exist. */
  readonly deletedBefore: number;
  /** The position where the last batch ended; documents before it that still exist must stay. */
  readonly after?: DeletedPosition | undefined;
}

export interface DeletedPosition {
  readonly deletedAt: number;
  readonly id: string;
}

export interface PurgedDocuments {
  readonly purged: number;
  /** Where to continue; undefined at the end. */
  readonly next: DeletedPosition | undefined;
}

/** Looks at the next `rows` deleted documents, the oldest first, and deletes those whose event was purged. */
export async function purgeDocuments(
  client: ClientBase,
  { community, deletedBefore, after }: DeletedDocuments,
  rows: number,
): Promise<PurgedDocuments> {
  const { rows: looked } = await client.query<{ deletedAt: number; id: string; purged: boolean }>(
    `WITH looked AS (
       SELECT generation, event_id, deleted_at FROM post_search_documents
       WHERE deleted_at IS NOT NULL AND deleted_at < $2 AND community = $1 AND deleted_at >= $3
         AND (deleted_at, event_id) > ($3::bigint, $4::bytea)
       ORDER BY deleted_at, event_id LIMIT $5
     ), purged AS (
       DELETE FROM post_search_documents d USING looked l
       WHERE d.generation = l.generation AND d.community = $1 AND d.event_id = l.event_id AND NOT EXISTS (
         SELECT 1 FROM event_dedupe k
         WHERE k.community = $1 AND k.event_id = l.event_id AND k.gone_at IS NULL)
       RETURNING d.generation, d.event_id
     )
     SELECT l.deleted_at AS "deletedAt", encode(l.event_id, 'hex') AS id, p.event_id IS NOT NULL AS purged
     FROM looked l LEFT JOIN purged p USING (generation, event_id) ORDER BY l.deleted_at, l.event_id`,
    [community, deletedBefore, after?.deletedAt ?? 0, bytes(after?.id ?? ''), rows],
  );
  const last = looked.at(-1);
  const purged = looked.filter((document) => document.purged).length;
  const next =
    looked.length < rows || last === undefined ? undefined : { deletedAt: last.deletedAt, id: last.id };
  return { purged, next };
}

/** Whether the index that is read now has a document of this event. */
export async function isIndexed(db: Db, { community, id }: DocumentKey): Promise<boolean> {
  const { rowCount } = await db.query(
    `SELECT 1 FROM consumer_offsets o JOIN post_search_documents d ON d.generation = o.generation
     WHERE o.consumer = 'search' AND d.community = $1 AND d.event_id = $2 AND d.deleted_at IS NULL`,
    [community, bytes(id)],
  );
  return rowCount === 1;
}

/** For a dry run: how many documents a purge would delete after the purges before it (IS_LEFT). */
export async function countDeletedDocuments(
  client: ClientBase,
  community: number,
  deletedBefore: number,
): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `SELECT count(*) AS count FROM post_search_documents d
     WHERE deleted_at IS NOT NULL AND deleted_at < $2 AND community = $1 AND NOT EXISTS (
       SELECT 1 FROM event_dedupe e
       WHERE e.community = $1 AND e.event_id = d.event_id AND e.gone_at IS NULL AND ${IS_LEFT})`,
    [community, deletedBefore],
  );
  return rows[0]!.count;
}
