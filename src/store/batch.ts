/**
 * The lane's two steps inside its transaction: read what a batch needs to know, write what was planned.
 * Set-based: a batch of any size is a handful of statements. The caller holds the lane's lock (I3, I4, I8).
 */
import { createHash } from 'node:crypto';
import type { ClientBase } from 'pg';
import { addressOf, classify } from '../core/classify.js';
import type { NostrEvent } from '../core/event.js';
import { Keep } from '../core/keep.js';
import { type BatchFacts, factKey, type Head, type Plan, type Submission } from '../core/plan.js';
import { hexArray, int2Array, int4Array, int8Array, textArray } from './binary.js';
import { dedupeOf } from './query.js';
import { indexedTags, type TagHash } from './tag-hash.js';

/** Wakes the outbox readers of every instance; only a hint, polling is the truth. */
export const OUTBOX_CHANNEL = 'minato_outbox';
/** The payload of a NOTIFY whose batch put ephemeral events on the live bus. */
export const BUS_NOTICE = 'bus';
/** `events.hidden` of a superseded version. */
const HIDDEN_SUPERSEDED = 1;

const KNOWN_SQL = `
  SELECT s.last_seq, d.community, encode(d.event_id, 'hex') AS id
  FROM lane_state s
  LEFT JOIN (
    SELECT d.community, d.event_id
    FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
    ${dedupeOf('asked.community', 'asked.event_id')}
  ) d ON true`;

/** Heads are looked up one by one, fenced like the dedupe rows, so that a small table is never read as a whole. */
const HEADS_SQL = `
  SELECT asked.place::int, h.created_at, encode(h.event_id, 'hex') AS id, h.topics, d.seq, d.ingested_at, d.keep
  FROM unnest($1::int[], $2::bytea[]) WITH ORDINALITY AS asked (community, address_hash, place)
  CROSS JOIN LATERAL (SELECT * FROM event_heads at
    WHERE at.community = asked.community AND at.address_hash = asked.address_hash OFFSET 0) h
  LEFT JOIN event_dedupe d ON d.community = h.community AND d.event_id = h.event_id`;

export async function readFacts(client: ClientBase, submissions: readonly Submission[]): Promise<BatchFacts> {
  const { rows } = await client.query<{ last_seq: number; community: number | null; id: string }>({
    name: 'facts-known',
    text: KNOWN_SQL,
    values: [int4Array(submissions.map((s) => s.community)), hexArray(submissions.map((s) => s.event.id))],
  });
  const known = new Set<string>();
  for (const row of rows) if (row.community !== null) known.add(factKey(row.community, row.id));
  for (const key of await readBroadcast(client, submissions)) known.add(key);
  return { lastSeq: rows[0]!.last_seq, known, heads: await readHeads(client, submissions) };
}

/** Ephemeral events that are on the live bus already, perhaps through another instance: announced once (I3). */
async function readBroadcast(client: ClientBase, submissions: readonly Submission[]): Promise<string[]> {
  const ephemeral = submissions.filter(({ event }) => classify(event.kind) === 'ephemeral');
  if (ephemeral.length === 0) return [];
  const { rows } = await client.query<{ community: number; id: string }>({
    name: 'facts-broadcast',
    text: `SELECT b.community, encode(b.event_id, 'hex') AS id
      FROM unnest($1::int[], $2::bytea[]) AS asked (community, event_id)
      JOIN live_bus b USING (community, event_id)`,
    values: [int4Array(ephemeral.map((s) => s.community)), hexArray(ephemeral.map((s) => s.event.id))],
  });
  return rows.map((row) => factKey(row.community, row.id));
}

async function readHeads(client: ClientBase, submissions: readonly Submission[]): Promise<Map<string, Head>> {
  const heads = new Map<string, Head>();
  const asked = new Map<string, { community: number; address: string }>();
  for (const { community, event } of submissions) {
    const address = addressOf(event);
    if (address !== undefined) asked.set(factKey(community, address), { community, address });
  }
  if (asked.size === 0) return heads;
  const keys = [...asked.keys()];
  const wanted = [...asked.values()];
  const { rows } = await client.query<HeadRow>({
    name: 'facts-heads',
    text: HEADS_SQL,
    values: [int4Array(wanted.map((w) => w.community)), hexArray(wanted.map((w) => addressHash(w.address)))],
  });
  for (const { place, id, created_at, topics, seq, ingested_at, keep } of rows) {
    const row = seq === null ? undefined : { seq, ingestedAt: ingested_at, keep };
    heads.set(keys[place - 1]!, { id, created_at, topics, row });
  }
  return heads;
}

interface HeadRow {
  place: number;
  id: string;
  created_at: number;
  topics: string[];
  seq: number | null;
  ingested_at: number;
  keep: number;
}

function addressHash(address: string): string {
  return createHash('sha256').update(address).digest('hex');
}

export async function writePlan(
  client: ClientBase,
  plan: Plan,
  now: number,
  tagHash: TagHash,
): Promise<void> {
  if (plan.superseded.length > 0) await moveSuperseded(client, plan, tagHash);
  if (plan.heads.length > 0) await writeHeads(client, plan);
  if (plan.broadcasts.length > 0) await writeBroadcasts(client, plan, now);
  if (plan.outbox.length > 0) await writeRows(client, plan, now, tagHash);
  else if (plan.broadcasts.length > 0)
    await client.query('SELECT pg_notify($1, $2)', [OUTBOX_CHANNEL, BUS_NOTICE]);
}

/** The old version stays as history, out of every index, in the bucket that is dropped first. */
const SUPERSEDE_SQL = `
  WITH gone AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::int[], $5::bytea[])
      AS g (seq, ingested_at, keep, community, event_id)
  ), relocated AS (
    UPDATE event_dedupe d SET keep = ${Keep.history} FROM gone g
    WHERE d.community = g.community AND d.event_id = g.event_id
  )
  UPDATE events e SET keep = ${Keep.history}, hidden = ${HIDDEN_SUPERSEDED} FROM gone g
  WHERE e.keep = g.keep AND e.ingested_at = g.ingested_at AND e.seq = g.seq
  RETURNING g.seq, g.ingested_at, g.keep, e.community, e.payload`;

async function moveSuperseded(client: ClientBase, { superseded }: Plan, tagHash: TagHash): Promise<void> {
  // Not prepared, and so planned for the tables as they are now: the target of an UPDATE cannot be fenced.
  const { rows } = await client.query<TaggedRow>({
    text: SUPERSEDE_SQL,
    values: [
      int8Array(superseded.map((s) => s.row.seq)),
      int8Array(superseded.map((s) => s.row.ingestedAt)),
      int2Array(superseded.map((s) => s.row.keep)),
      int4Array(superseded.map((s) => s.community)),
      hexArray(superseded.map((s) => s.id)),
    ],
  });
  await removeTags(client, rows, tagHash);
  await lowerTotals(client, rows);
}

async function lowerTotals(client: ClientBase, rows: readonly TaggedRow[]): Promise<void> {
  await client.query({
    name: 'lower-totals',
    text: `UPDATE community_totals t SET events = t.events - g.events, bytes = t.bytes - g.bytes
      FROM (SELECT community, count(*) AS events, sum(bytes) AS bytes
        FROM unnest($1::int[], $2::bigint[]) AS u (community, bytes) GROUP BY community) g
      WHERE t.community = g.community`,
    values: [
      int4Array(rows.map((row) => row.community)),
      int8Array(rows.map((row) => Buffer.byteLength(row.payload))),
    ],
  });
}

interface TaggedRow {
  seq: number;
  ingested_at: number;
  keep: number;
  community: number;
  payload: string;
}

/** Tag rows have no index by event: their keys are computed again from the event, which is what put them there. */
const UNTAG_SQL = `
  DELETE FROM event_tags t
  USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[])
    AS g (tag, created_at, seq, ingested_at, keep)
  WHERE t.tag = g.tag AND t.created_at = g.created_at AND t.seq = g.seq
    AND t.ingested_at = g.ingested_at AND t.keep = g.keep`;

async function removeTags(client: ClientBase, rows: readonly TaggedRow[], tagHash: TagHash): Promise<void> {
  const tags = rows.flatMap((row) => {
    const event = JSON.parse(row.payload) as NostrEvent;
    return indexedTags(event).map(([letter, value]) => ({
      ...row,
      tag: tagHash(row.community, letter, value),
      createdAt: event.created_at,
    }));
  });
  if (tags.length === 0) return;
  await client.query({
    text: UNTAG_SQL,
    values: [
      int8Array(tags.map((t) => t.tag)),
      int8Array(tags.map((t) => t.createdAt)),
      int8Array(tags.map((t) => t.seq)),
      int8Array(tags.map((t) => t.ingested_at)),
      int2Array(tags.map((t) => t.keep)),
    ],
  });
}

const HEADS_WRITE_SQL = `
  INSERT INTO event_heads (community, kind, created_at, address_hash, pubkey, event_id, topics)
  SELECT community, kind, created_at, address_hash, pubkey, event_id, string_to_array(topics, E'\\n')
  FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[], $7::text[])
    AS h (community, kind, created_at, address_hash, pubkey, event_id, topics)
  ON CONFLICT (community, address_hash) DO UPDATE
  SET created_at = excluded.created_at, event_id = excluded.event_id, topics = excluded.topics`;

async function writeHeads(client: ClientBase, { heads }: Plan): Promise<void> {
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

const BROADCAST_SQL = `
  INSERT INTO live_bus (sent_at, community, event_id, payload)
  SELECT $1::bigint, community, event_id, payload
  FROM unnest($2::int[], $3::bytea[], $4::text[]) WITH ORDINALITY AS b (community, event_id, payload, place)
  ORDER BY place`;

async function writeBroadcasts(client: ClientBase, { broadcasts }: Plan, now: number): Promise<void> {
  await client.query({
    name: 'broadcast',
    text: BROADCAST_SQL,
    values: [
      now,
      int4Array(broadcasts.map((b) => b.community)),
      hexArray(broadcasts.map((b) => b.event.id)),
      textArray(broadcasts.map((b) => b.payload)),
    ],
  });
}

/** Rows, tags, dedupe, outbox, totals, the last number and the one NOTIFY of the batch: one statement. */
const ROWS_SQL = `
  WITH rows AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::smallint[], $6::smallint[],
      $7::bytea[], $8::bytea[], $9::text[])
      AS r (seq, created_at, community, kind, keep, hidden, id, pubkey, payload)
  ), deduped AS (
    INSERT INTO event_dedupe (seq, ingested_at, first_seen_at, community, keep, event_id, author)
    SELECT seq, $10::bigint, $10::bigint, community, keep, id, pubkey FROM rows
  ), stored AS (
    INSERT INTO events (seq, ingested_at, created_at, community, kind, keep, hidden, id, pubkey, payload)
    SELECT seq, $10::bigint, created_at, community, kind, keep, nullif(hidden, 0), id, pubkey, payload FROM rows
  ), tagged AS (
    INSERT INTO event_tags (tag, created_at, seq, ingested_at, community, keep)
    SELECT * FROM (
      SELECT unnest($11::bigint[]) AS tag, unnest($12::bigint[]) AS created_at, unnest($13::bigint[]) AS seq,
        $10::bigint, unnest($14::int[]) AS community, unnest($15::smallint[]) AS keep) t
  ), announced AS (
    INSERT INTO events_outbox
      (seq, ingested_at, created_at, community, kind, op, reason, event_id, author, topics, effective_key)
    SELECT seq, $10::bigint, created_at, community, kind, CASE WHEN reason IS NULL THEN 'upsert' ELSE 'delete' END,
      reason, event_id, author, string_to_array(topics, E'\\n'), effective_key
    FROM unnest($16::bigint[], $17::bigint[], $18::int[], $19::int[], $20::text[], $21::bytea[], $22::bytea[],
      $23::text[], $24::text[])
      AS o (seq, created_at, community, kind, reason, event_id, author, topics, effective_key)
  ), totalled AS (
    INSERT INTO community_totals AS t (community, events, bytes)
    SELECT community, count(*), sum(octet_length(payload)) FROM rows WHERE hidden = 0 GROUP BY community
    ON CONFLICT (community) DO UPDATE SET events = t.events + excluded.events, bytes = t.bytes + excluded.bytes
  ), numbered AS (
    UPDATE lane_state SET last_seq = $25::bigint
  )
  SELECT pg_notify('${OUTBOX_CHANNEL}', $26)`;

async function writeRows(client: ClientBase, plan: Plan, now: number, tagHash: TagHash): Promise<void> {
  const { rows, outbox } = plan;
  const tags = tagRows(plan, tagHash);
  await client.query({
    name: 'rows',
    text: ROWS_SQL,
    values: [
      int8Array(rows.map((r) => r.seq)),
      int8Array(rows.map((r) => r.submission.event.created_at)),
      int4Array(rows.map((r) => r.submission.community)),
      int4Array(rows.map((r) => r.submission.event.kind)),
      int2Array(rows.map((r) => r.keep)),
      int2Array(rows.map((r) => (r.effective ? 0 : HIDDEN_SUPERSEDED))),
      hexArray(rows.map((r) => r.submission.event.id)),
      hexArray(rows.map((r) => r.submission.event.pubkey)),
      textArray(rows.map((r) => r.submission.payload)),
      now,
      int8Array(tags.tag),
      int8Array(tags.createdAt),
      int8Array(tags.seq),
      int4Array(tags.community),
      int2Array(tags.keep),
      int8Array(outbox.map((o) => o.seq)),
      int8Array(outbox.map((o) => o.event.created_at)),
      int4Array(outbox.map((o) => o.community)),
      int4Array(outbox.map((o) => o.event.kind)),
      textArray(outbox.map((o) => o.reason)),
      hexArray(outbox.map((o) => o.event.id)),
      hexArray(outbox.map((o) => o.event.pubkey)),
      textArray(outbox.map((o) => o.topics.join('\n'))),
      textArray(outbox.map((o) => (o.effectiveKey === undefined ? undefined : printable(o.effectiveKey)))),
      plan.lastSeq,
      plan.broadcasts.length > 0 ? BUS_NOTICE : '',
    ],
  });
}

function tagRows({ rows }: Plan, tagHash: TagHash) {
  const tags = {
    tag: [] as bigint[],
    createdAt: [] as number[],
    seq: [] as number[],
    community: [] as number[],
    keep: [] as number[],
  };
  for (const { submission, seq, keep, effective } of rows) {
    if (!effective) continue;
    const { community, event } = submission;
    // Two tags of one event whose hashes fall together are one row, or a page would hold the event twice.
    for (const tag of new Set(
      indexedTags(event).map(([letter, value]) => tagHash(community, letter, value)),
    )) {
      tags.tag.push(tag);
      tags.createdAt.push(event.created_at);
      tags.seq.push(seq);
      tags.community.push(community);
      tags.keep.push(keep);
    }
  }
  return tags;
}

/** `d` may hold U+0000, which text cannot: control characters go in as JSON escapes, which keeps keys distinct. */
function printable(effectiveKey: string): string {
  return JSON.stringify(effectiveKey).slice(1, -1);
}
