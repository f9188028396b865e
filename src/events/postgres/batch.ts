/**
 * Writes the decision of a batch, inside the lane's transaction. A batch of any size takes a handful of
 * set-based statements. The caller holds the lane's lock (I3, I4, I8).
 */
import type { ClientBase } from 'pg';
import { hexArray, int2Array, int4Array, int8Array, textArray } from '../../postgres/binary.js';
import { withdrawDeleted, writeReports } from '../../reports/reports.sql.js';
import { allTopics } from '../../topics/rules.js';
import { addressOf, KIND_DELETION } from '../rules/classify.js';
import type { DeletionTarget } from '../rules/deletion.js';
import { expirationOf } from '../rules/expiration.js';
import { HIDDEN_CODES, OUTLINE_TAGS_MAX } from '../rules/hidden.js';
import type { BatchWrites, OutboxRow } from '../rules/writes.js';
import { raiseTopicTotals } from './capacity.js';
import { dayOf } from './facts.js';
import { hideRows } from './hide.js';
import { addressHash, leaveHistory } from './history.js';
import { type TagHash, tagKeys } from './tag-hash.js';

/** Wakes the outbox readers of every instance; only a hint, polling is the truth. */
export const OUTBOX_CHANNEL = 'minato_outbox';
/** The payload of the NOTIFY when its batch put ephemeral events on the live bus. */
export const BUS_NOTICE = 'bus';

export interface WriteOptions {
  readonly now: number;
  readonly tagHash: TagHash;
}

/**
 * The statements are pipelined: each is sent before the ones before it are answered. `onSent` is called after
 * the last one, so that COMMIT need not wait for the answers either. The statements that follow from hidden
 * rows are sent while the new rows are written.
 */
export async function writeBatch(
  client: ClientBase,
  writes: BatchWrites,
  options: WriteOptions,
  onSent: () => void = () => undefined,
): Promise<void> {
  const { now, tagHash } = options;
  const hiding = hideRows(client, writes.hidden, now, tagHash);
  const { heads, tombstones, appliedTombstones, quotaUses, vanishMarks, reports, broadcasts, rows, outbox } =
    writes;
  const served = rows.filter((row) => row.hidden === undefined);
  const sent: Promise<unknown>[] = [];
  if (heads.length > 0) sent.push(writeHeads(client, writes));
  if (tombstones.length > 0) sent.push(writeTombstones(client, writes, now));
  if (appliedTombstones.length > 0) sent.push(markApplied(client, writes, now));
  if (quotaUses.length > 0) sent.push(countTargets(client, writes, now));
  if (vanishMarks.length > 0) sent.push(writeVanishMarks(client, writes, tagHash));
  if (reports.length > 0) sent.push(writeReports(client, reports));
  if (broadcasts.length > 0) sent.push(writeBroadcasts(client, writes, now));
  const arrived = served.map(({ submission }) => submission);
  sent.push(raiseTopicTotals(client, arrived));
  if (rows.length > 0 || outbox.length > 0 || vanishMarks.length > 0)
    sent.push(writeRows(client, writes, options));
  else if (broadcasts.length > 0)
    sent.push(client.query('SELECT pg_notify($1, $2)', [OUTBOX_CHANNEL, BUS_NOTICE]));
  const all = Promise.all(sent);
  all.catch(() => undefined);
  const { answered } = await hiding;
  onSent();
  await Promise.all([all, answered]);
}

const HEADS_WRITE_SQL = `
  INSERT INTO event_heads (community, kind, created_at, address_hash, pubkey, event_id, topics)
  SELECT community, kind, created_at, address_hash, pubkey, event_id, string_to_array(topics, E'\\n')
  FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[], $7::text[])
    AS h (community, kind, created_at, address_hash, pubkey, event_id, topics)
  ON CONFLICT (community, address_hash) DO UPDATE
  SET created_at = excluded.created_at, event_id = excluded.event_id, topics = excluded.topics`;

async function writeHeads(client: ClientBase, { heads }: BatchWrites): Promise<void> {
  await client.query({
    name: 'heads',
    text: HEADS_WRITE_SQL,
    values: [
      int4Array(heads.map((h) => h.community)),
      int4Array(heads.map((h) => h.kind)),
      int8Array(heads.map((h) => h.created_at)),
      hexArray(heads.map((h) => addressHash(h.address))),
      hexArray(heads.map((h) => h.pubkey)),
      hexArray(heads.map((h) => h.id)),
      textArray(heads.map((h) => h.topics.join('\n'))),
    ],
  });
}

/**
 * An address tombstone keeps the latest request time. For an id tombstone a later request changes nothing.
 */
const TOMBSTONES_SQL = `
  INSERT INTO deletion_tombstones AS t
    (community, is_address, requested_at, applied_at, target, author, deletion_event)
  SELECT DISTINCT ON (community, target, author)
    community, is_address::boolean, requested_at, CASE WHEN applied = 1 THEN $8::bigint END,
    target, author, deletion_event
  FROM unnest($1::int[], $2::int[], $3::bigint[], $4::int[], $5::bytea[], $6::bytea[], $7::bytea[])
    AS n (community, is_address, requested_at, applied, target, author, deletion_event)
  ORDER BY community, target, author, requested_at DESC
  ON CONFLICT (community, target, author) DO UPDATE
  SET requested_at = greatest(t.requested_at, excluded.requested_at),
    applied_at = coalesce(t.applied_at, excluded.applied_at),
    deletion_event = CASE WHEN excluded.requested_at > t.requested_at
      THEN excluded.deletion_event ELSE t.deletion_event END`;

/** All three are sent at once: COMMIT is sent after them without waiting for an answer. */
async function writeTombstones(client: ClientBase, { tombstones }: BatchWrites, now: number): Promise<void> {
  const written = client.query({
    name: 'tombstones',
    text: TOMBSTONES_SQL,
    values: [
      int4Array(tombstones.map((t) => t.community)),
      int4Array(tombstones.map((t) => (t.target.type === 'address' ? 1 : 0))),
      int8Array(tombstones.map((t) => t.requestedAt)),
      int4Array(tombstones.map((t) => (t.applied ? 1 : 0))),
      hexArray(tombstones.map(({ target }) => targetHash(target))),
      hexArray(tombstones.map((t) => t.author)),
      hexArray(tombstones.map((t) => t.deletionId)),
      now,
    ],
  });
  await Promise.all([written, leaveHistory(client, tombstones), withdrawDeleted(client, tombstones)]);
}

/**
 * The time when a tombstone first refused a target that arrived after it. Sent after the tombstones of the
 * same batch.
 */
const APPLIED_SQL = `
  UPDATE deletion_tombstones t SET applied_at = $4
  FROM (SELECT DISTINCT * FROM unnest($1::int[], $2::bytea[], $3::bytea[]) AS a (community, target, author)) a
  WHERE t.community = a.community AND t.target = a.target AND t.author = a.author AND t.applied_at IS NULL`;

async function markApplied(
  client: ClientBase,
  { appliedTombstones }: BatchWrites,
  now: number,
): Promise<void> {
  await client.query({
    name: 'tombstones-applied',
    text: APPLIED_SQL,
    values: [
      int4Array(appliedTombstones.map((t) => t.community)),
      hexArray(appliedTombstones.map(({ target }) => targetHash(target))),
      hexArray(appliedTombstones.map((t) => t.author)),
      now,
    ],
  });
}

const targetHash = (target: DeletionTarget) =>
  target.type === 'id' ? target.id : addressHash(target.address);

async function countTargets(client: ClientBase, { quotaUses }: BatchWrites, now: number): Promise<void> {
  await client.query({
    name: 'deletion-quotas',
    text: `INSERT INTO deletion_quotas AS q (community, day, targets, author)
      SELECT community, $4::int, sum(targets), author
      FROM unnest($1::int[], $2::bytea[], $3::int[]) AS n (community, author, targets)
      GROUP BY community, author
      ON CONFLICT (community, author, day) DO UPDATE SET targets = q.targets + excluded.targets`,
    values: [
      int4Array(quotaUses.map((use) => use.community)),
      hexArray(quotaUses.map((use) => use.author)),
      int4Array(quotaUses.map((use) => use.targets)),
      dayOf(now),
    ],
  });
}

const VANISH_SQL = `
  INSERT INTO vanish_marks AS v (community, until, recipient_tag, pubkey, request)
  SELECT DISTINCT ON (community, pubkey) community, until, recipient_tag, pubkey, nullif(request, ''::bytea)
  FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[])
    AS n (community, until, recipient_tag, pubkey, request)
  ORDER BY community, pubkey, until DESC
  ON CONFLICT (community, pubkey) DO UPDATE
  SET until = excluded.until, request = excluded.request, erased_at = NULL
  WHERE excluded.until > v.until`;

export async function writeVanishMarks(
  client: Pick<ClientBase, 'query'>,
  { vanishMarks }: Pick<BatchWrites, 'vanishMarks'>,
  tagHash: TagHash,
): Promise<void> {
  await client.query({
    name: 'vanish',
    text: VANISH_SQL,
    values: [
      int4Array(vanishMarks.map((v) => v.community)),
      int8Array(vanishMarks.map((v) => v.until)),
      int8Array(vanishMarks.map((v) => tagHash(v.community, 'p', v.pubkey))),
      hexArray(vanishMarks.map((v) => v.pubkey)),
      hexArray(vanishMarks.map((v) => v.requestId ?? '')),
    ],
  });
}

const BROADCAST_SQL = `
  INSERT INTO live_bus (sent_at, community, event_id, payload, came_by)
  SELECT $1::bigint, community, event_id, payload, came_by
  FROM unnest($2::int[], $3::bytea[], $4::text[], $5::text[])
    WITH ORDINALITY AS b (community, event_id, payload, came_by, place)
  ORDER BY place`;

async function writeBroadcasts(client: ClientBase, { broadcasts }: BatchWrites, now: number): Promise<void> {
  await client.query({
    name: 'broadcast',
    text: BROADCAST_SQL,
    values: [
      now,
      int4Array(broadcasts.map((b) => b.community)),
      hexArray(broadcasts.map((b) => b.event.id)),
      textArray(broadcasts.map((b) => b.payload)),
      textArray(broadcasts.map((b) => b.cameBy)),
    ],
  });
}

/**
 * One statement writes rows, tags, dedupe rows, outbox rows, totals, the last offset and the one NOTIFY of
 * the batch. Every row that is not withheld has its `upsert` in the outbox under its own offset, so only
 * deletes are sent separately.
 */
const ROWS_SQL = `
  WITH rows AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $5::int[], $6::smallint[],
      $7::smallint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::text[], $12::text[], $13::text[],
      $14::int[], $15::int[], $16::text[], $31::text[])
      AS r (seq, created_at, expires_at, community, kind, keep, hidden, purge, id, pubkey, payload, topics,
        effective_key, tags_from, tags_to, bound, came_by)
  ), deduped AS (
    INSERT INTO event_dedupe
      (seq, ingested_at, first_seen_at, gone_at, community, keep, hidden, event_id, author)
    SELECT seq, $18::bigint, $18::bigint,
      CASE WHEN purge = 1 THEN $18::bigint END, community, keep, nullif(hidden, 0), id, pubkey FROM rows
  ), stored AS (
    INSERT INTO events
      (seq, ingested_at, created_at, community, kind, keep, hidden, hidden_at, expires_at,
       id, pubkey, payload, bound)
    SELECT seq, $18::bigint, created_at, community, kind, keep, nullif(hidden, 0),
      CASE WHEN hidden <> 0 THEN $18::bigint END, nullif(expires_at, 0), id, pubkey, payload,
      string_to_array(bound, E'\\n')
    FROM rows WHERE purge = 0
  ), tagged AS (
    INSERT INTO event_tags (tag, created_at, seq, ingested_at, community, keep)
    SELECT t.tag, r.created_at, r.seq, $18::bigint, r.community, r.keep
    FROM rows r CROSS JOIN LATERAL unnest(($17::bigint[])[r.tags_from:r.tags_to]) AS t (tag)
  ), announced AS (
    INSERT INTO events_outbox
      (seq, ingested_at, created_at, community, kind, op, reason, event_id, author, topics, effective_key,
       tags, came_by)
    SELECT seq, $18::bigint, created_at, community, kind, 'upsert', NULL, id, pubkey,
      string_to_array(topics, E'\\n'), effective_key, NULL, came_by
    FROM rows WHERE hidden <> ${HIDDEN_CODES.withheld}
    UNION ALL
    SELECT seq, $18::bigint, created_at, community, kind, 'delete', reason, event_id, author,
      string_to_array(topics, E'\\n'), effective_key, string_to_array(tags, ',')::bigint[], NULL
    FROM unnest($19::bigint[], $20::bigint[], $21::int[], $22::int[], $23::text[], $24::bytea[], $25::bytea[],
      $26::text[], $27::text[], $30::text[])
      AS o (seq, created_at, community, kind, reason, event_id, author, topics, effective_key, tags)
  ), totalled AS (
    INSERT INTO community_totals AS t (community, events, bytes, requests, request_bytes)
    SELECT community, count(*), sum(octet_length(payload)), count(*) FILTER (WHERE kind = ${KIND_DELETION}),
      coalesce(sum(octet_length(payload)) FILTER (WHERE kind = ${KIND_DELETION}), 0)
    FROM rows WHERE hidden = 0 GROUP BY community
    ON CONFLICT (community) DO UPDATE
    SET events = t.events + excluded.events, bytes = t.bytes + excluded.bytes,
      requests = t.requests + excluded.requests, request_bytes = t.request_bytes + excluded.request_bytes
  ), numbered AS (
    UPDATE lane_state SET last_seq = $28::bigint
  )
  SELECT pg_notify('${OUTBOX_CHANNEL}', $29)`;

async function writeRows(
  client: ClientBase,
  writes: BatchWrites,
  { now, tagHash }: WriteOptions,
): Promise<void> {
  const { rows } = writes;
  const events = rows.map(({ submission }) => submission.event);
  const deletes = writes.outbox.filter(({ op }) => op === 'delete');
  const tags = tagsOf(rows, tagHash);
  await client.query({
    name: 'rows',
    text: ROWS_SQL,
    values: [
      int8Array(rows.map((r) => r.seq)),
      int8Array(events.map((e) => e.created_at)),
      int8Array(events.map((e) => expirationOf(e) ?? 0)),
      int4Array(rows.map((r) => r.submission.community)),
      int4Array(events.map((e) => e.kind)),
      int2Array(rows.map((r) => r.keep)),
      int2Array(rows.map((r) => (r.hidden === undefined ? 0 : HIDDEN_CODES[r.hidden]))),
      int2Array(rows.map((r) => (r.purge ? 1 : 0))),
      hexArray(events.map((e) => e.id)),
      hexArray(events.map((e) => e.pubkey)),
      textArray(rows.map((r) => r.submission.payload)),
      textArray(rows.map((r) => allTopics(r.submission.event, r.bound).join('\n'))),
      textArray(events.map((e) => printable(addressOf(e)))),
      int4Array(tags.from),
      int4Array(tags.to),
      textArray(rows.map((r) => (r.bound.length === 0 ? undefined : r.bound.join('\n')))),
      int8Array(tags.keys),
      now,
      int8Array(deletes.map((o) => o.seq)),
      int8Array(deletes.map((o) => o.event.created_at)),
      int4Array(deletes.map((o) => o.community)),
      int4Array(deletes.map((o) => o.event.kind)),
      textArray(deletes.map((o) => o.reason)),
      hexArray(deletes.map((o) => o.event.id)),
      hexArray(deletes.map((o) => o.event.pubkey)),
      textArray(deletes.map((o) => o.topics.join('\n'))),
      textArray(deletes.map((o) => printable(o.effectiveKey))),
      writes.lastSeq,
      writes.broadcasts.length > 0 ? BUS_NOTICE : '',
      textArray(deletes.map((o) => outlineTags(o, tagHash))),
      textArray(rows.map((r) => r.submission.cameBy)),
    ],
  });
}

/** The tags of an event that is hidden, for those who may hold it. An empty list is known to be empty. */
function outlineTags({ community, event, topics }: OutboxRow, tagHash: TagHash): string | undefined {
  if (event.tags === undefined) return undefined;
  const keys = tagKeys(community, { tags: event.tags }, tagHash, topics);
  return keys.length > OUTLINE_TAGS_MAX ? undefined : keys.join(',');
}

/** The keys of all tags in one list, and the range of each row in it. A hidden row has no tags. */
function tagsOf(
  rows: BatchWrites['rows'],
  tagHash: TagHash,
): { keys: bigint[]; from: number[]; to: number[] } {
  const keys: bigint[] = [];
  const from: number[] = [];
  const to: number[] = [];
  for (const { submission, hidden, bound } of rows) {
    from.push(keys.length + 1);
    if (hidden === undefined) keys.push(...tagKeys(submission.community, submission.event, tagHash, bound));
    to.push(keys.length);
  }
  return { keys, from, to };
}

/**
 * `d` may hold U+0000, which PostgreSQL text cannot store. Control characters are written as JSON escapes, so
 * keys stay distinct.
 */
export function printable(effectiveKey: string | undefined): string | undefined {
  return effectiveKey === undefined ? undefined : JSON.stringify(effectiveKey).slice(1, -1);
}
