/**
 * A store of many events that are not signed or sent: SQL makes its rows in the shape in which the lane
 * writes them (test/bench/sql-store.test.ts), a million in 157 s on two busy cores. Ids and signatures are
 * not real, so such a store is good for reading and purging, not for verifying. Event n of a store is always
 * the same except for its times:
 *
 *   authors   one in 10 by the busy author, one in 100 by an author of its own, the rest by 890 others
 *   topics    one in 5 in the hot topic, each of 10 cold topics in exactly 100 events over the whole time,
 *             and each event in one of 1,000 more
 *   and       3 `e`, 3 `p`, 1 `r`, about 200 bytes of content; 9 in 10 of kind 1, the rest of kind 7;
 *             1.0 kB as JSON
 */
import { createHash } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import type { Client } from 'pg';
import { LANE_LOCK } from '../src/events/postgres/lane/lock.js';
import type { TagHash } from '../src/events/postgres/tag-hash.js';
import { Keep } from '../src/events/rules/keep.js';
import { readConfig } from '../src/node/config.js';
import { createLog, type Log } from '../src/node/log.js';
import { prepareDatabase } from '../src/node/prepare.js';
import { ensureOutboxRange, readHead } from '../src/outbox/outbox.sql.js';
import type { Database } from '../src/postgres/database.js';
import { openPostgres } from '../src/postgres/open.js';
import { withCleanUp } from './node.js';

export interface SqlStore {
  readonly database: Database;
  readonly tagHash: TagHash;
  readonly log: Log;
  readonly now: () => number;
}

/** Starts a PostgreSQL on the folder as a node would, prepares it, and stops it in every case. */
export async function withStore<T>(
  dataDir: string,
  now: () => number,
  work: (store: SqlStore) => Promise<T>,
): Promise<T> {
  const log = createLog('warn', 'stderr');
  const opened = await openPostgres({ databaseUrl: undefined, dataDir, log, attach: false });
  return withCleanUp(opened.close, async () => {
    const { database } = opened;
    const config = readConfig({ MINATO_TOPIC_MODE: 'open' });
    const { tagHash } = await prepareDatabase(database, config, now, log);
    return work({ database, tagHash, log, now });
  });
}

/** Why this many events do not fit on the disk of this folder, or undefined when they do. */
export async function lackOfSpace(folder: string, events: number): Promise<string | undefined> {
  const { bavail, bsize } = await statfs(folder);
  const needed = events * BYTES_PER_EVENT + LOG_BYTES;
  if (bavail * bsize >= needed) return undefined;
  const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;
  return (
    `${events.toLocaleString('en')} events need ${gigabytes(needed)}, but only ` +
    `${gigabytes(bavail * bsize)} are free in ${folder}; choose another disk with --temp`
  );
}
/** Row, indexes, tags, dedupe and outbox, and a second version of the row while it is swept. */
const BYTES_PER_EVENT = 6_000;
/** The write-ahead log may grow to max_wal_size before it is recycled. */
const LOG_BYTES = 2.5e9;

const COMMUNITY = 1;
const CHUNK_EVENTS = 20_000;
const SPAN_SECONDS = 7 * 86_400;
export const COLD_TOPICS = 10;
export const COLD_TOPIC_EVENTS = 100;
export const AUTHORS = 1_000;
export const TOPICS = 1_000;
const NOTES = 5_000;
const LINKS = 10_000;

export const BUSY_AUTHOR = hex('busy author');
export const HOT_TOPIC = 'hot';
export const coldTopic = (number: number): string => `cold-${number}`;
/** The author of event n only, if n % 100 is 1. */
export const ownAuthor = (n: number): string => hex(`own/${n}`);
export const anyAuthor = (number: number): string => hex(`author/${number}`);
/**
 * Event n is by author `7 n % 1000`, unless it is by the busy author or by an author with one event. Those
 * author numbers have no events, the others have equally many.
 */
export const isAuthor = (number: number): boolean => number % 10 !== 0 && number % 100 !== 7;
export const anyTopic = (number: number): string => `topic-${number}`;
export const eventId = (n: number): string => hex(`event/${n}`);

export interface Filling {
  /** A multiple of 1,000, so that all cold topics have equally many events. */
  readonly count: number;
  readonly ingestedAt: number;
  /** Prints a line of progress. */
  say(text: string): void;
}

/** Fills an empty store in chunks. Each chunk is a transaction under the lane's lock, as a batch is. */
export async function fillBySql(
  { database, tagHash }: SqlStore,
  { count, ingestedAt, say }: Filling,
): Promise<void> {
  const client = await database.connect();
  try {
    await client.query('SET synchronous_commit = off');
    await makeTagTable(client, tagHash);
    for (let from = 0; from < count; from += CHUNK_EVENTS) {
      const to = Math.min(from + CHUNK_EVENTS, count);
      await ensureOutboxRange(client);
      await writeChunk(client, { from, to, count, ingestedAt });
      if (to % (CHUNK_EVENTS * 5) === 0)
        say(`fill: ${to.toLocaleString('en')} of ${count.toLocaleString('en')} events by SQL`);
    }
    // What autovacuum would have done while this many events arrive.
    await client.query('VACUUM (ANALYZE) events, event_tags, event_dedupe');
  } finally {
    await client.end();
  }
}

function hex(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Every tag of the events, by number: SQL cannot compute the hash. */
function allTags(): [letter: string, value: string][] {
  const some = (count: number, letter: string, value: (n: number) => string) =>
    Array.from({ length: count }, (_, n): [string, string] => [letter, value(n)]);
  return [
    ['t', HOT_TOPIC],
    ...some(COLD_TOPICS, 't', coldTopic),
    ...some(TOPICS, 't', anyTopic),
    ...some(AUTHORS, 'p', anyAuthor),
    ...some(NOTES, 'e', (n) => hex(`note/${n}`)),
    ...some(LINKS, 'r', (n) => `https://example.org/${n}`),
  ];
}
const FIRST_COLD = 1;
const FIRST_TOPIC = FIRST_COLD + COLD_TOPICS;
const FIRST_AUTHOR = FIRST_TOPIC + TOPICS;
const FIRST_NOTE = FIRST_AUTHOR + AUTHORS;
const FIRST_LINK = FIRST_NOTE + NOTES;

async function makeTagTable(client: Client, tagHash: TagHash): Promise<void> {
  const tags = allTags();
  await client.query(
    `CREATE TEMP TABLE made_tags AS SELECT (place - 1)::int AS place, json, hash, topic
     FROM unnest($1::text[], $2::bigint[], $3::text[]) WITH ORDINALITY AS t (json, hash, topic, place)`,
    [
      tags.map((tag) => JSON.stringify(tag)),
      tags.map(([letter, value]) => String(tagHash(COMMUNITY, letter, value))),
      tags.map(([letter, value]) => (letter === 't' ? value : null)),
    ],
  );
  await client.query('ANALYZE made_tags');
}

/** Three different values of a pool, so that an event has each tag once. */
const threeOf = (first: number, pool: number, step: number): string =>
  [0, Math.floor(pool / 3), Math.floor((2 * pool) / 3)]
    .map((shift) => `(${first} + (n * ${step} + ${shift}) % ${pool})`)
    .join(', ');

/**
 * $1, $2: from and to; $3: events of the whole store; $4: the last outbox offset before; $5: ingested_at; $6:
 * its second.
 */
const MADE_SQL = `
  CREATE TEMP TABLE made ON COMMIT DROP AS
  WITH numbered AS (
    SELECT n, CASE WHEN n % 10 = 9 THEN 7 ELSE 1 END AS kind,
      $6::bigint - ${SPAN_SECONDS} + n * ${SPAN_SECONDS}::bigint / $3::int AS created_at,
      encode(sha256(convert_to('event/' || n, 'UTF8')), 'hex') AS id,
      CASE WHEN n % 10 = 0 THEN '${BUSY_AUTHOR}'
        ELSE encode(sha256(convert_to(
          CASE WHEN n % 100 = 1 THEN 'own/' || n ELSE 'author/' || n * 7 % ${AUTHORS} END, 'UTF8')), 'hex')
        END AS pubkey
    FROM generate_series($1::int, $2::int - 1) AS n
  ), tagged AS (
    SELECT n, string_agg(t.json, ',' ORDER BY t.place) AS tags, array_agg(t.hash) AS hashes,
      array_agg(t.topic ORDER BY t.place) FILTER (WHERE t.topic IS NOT NULL) AS topics
    FROM numbered CROSS JOIN LATERAL unnest(ARRAY[
      CASE WHEN n % 5 = 0 THEN 0 END,
      CASE WHEN n % ($3 / ${COLD_TOPIC_EVENTS}) < ${COLD_TOPICS}
        THEN ${FIRST_COLD} + n % ($3 / ${COLD_TOPIC_EVENTS}) END,
      ${FIRST_TOPIC} + n * 3 % ${TOPICS},
      ${threeOf(FIRST_AUTHOR, AUTHORS, 7)},
      ${threeOf(FIRST_NOTE, NOTES, 13)},
      ${FIRST_LINK} + n % ${LINKS}]) AS picked (place)
    JOIN made_tags t ON t.place = picked.place GROUP BY n
  )
  SELECT $4::bigint + 1 + n - $1 AS seq, $5::bigint AS ingested_at, created_at, kind, hashes, topics,
    decode(id, 'hex') AS id, decode(pubkey, 'hex') AS pubkey,
    format('{"id":"%s","pubkey":"%s","created_at":%s,"kind":%s,"tags":[%s],"content":"%s","sig":"%s"}',
      id, pubkey, created_at, kind, tags,
      'event ' || n || repeat(' harbour tide lantern relay signal', 6), id || id) AS payload
  FROM numbered JOIN tagged USING (n)`;

/** The same rows that src/events/postgres/batch.ts writes for regular events that nobody has deleted. */
const WRITES = [
  `INSERT INTO event_dedupe (seq, ingested_at, first_seen_at, community, keep, event_id, author)
   SELECT seq, ingested_at, ingested_at, ${COMMUNITY}, ${Keep.days30}, id, pubkey FROM made`,
  `INSERT INTO events (seq, ingested_at, created_at, community, kind, keep, id, pubkey, payload)
   SELECT seq, ingested_at, created_at, ${COMMUNITY}, kind, ${Keep.days30}, id, pubkey, payload
   FROM made ORDER BY seq`,
  `INSERT INTO event_tags (tag, created_at, seq, ingested_at, community, keep)
   SELECT unnest(hashes), created_at, seq, ingested_at, ${COMMUNITY}, ${Keep.days30} FROM made`,
  `INSERT INTO events_outbox (seq, ingested_at, created_at, community, kind, op, event_id, author, topics)
   SELECT seq, ingested_at, created_at, ${COMMUNITY}, kind, 'upsert', id, pubkey, topics
   FROM made ORDER BY seq`,
  `INSERT INTO community_totals AS t (community, events, bytes)
   SELECT ${COMMUNITY}, count(*), sum(octet_length(payload)) FROM made
   ON CONFLICT (community) DO UPDATE
   SET events = t.events + excluded.events, bytes = t.bytes + excluded.bytes`,
  `INSERT INTO topic_totals AS t (community, topic, events, bytes)
   SELECT ${COMMUNITY}, topic, count(*), sum(octet_length(payload))
   FROM made, unnest(topics) AS topic GROUP BY topic
   ON CONFLICT (community, topic) DO UPDATE
   SET events = t.events + excluded.events, bytes = t.bytes + excluded.bytes`,
  'UPDATE lane_state SET last_seq = (SELECT max(seq) FROM made)',
];

async function writeChunk(
  client: Client,
  { from, to, count, ingestedAt }: { from: number; to: number; count: number; ingestedAt: number },
): Promise<void> {
  await client.query(`BEGIN; SELECT pg_advisory_xact_lock(${LANE_LOCK})`);
  try {
    const last = await readHead(client);
    const seconds = Math.floor(ingestedAt / 1000);
    await client.query(MADE_SQL, [from, to, count, last, ingestedAt, seconds]);
    for (const write of WRITES) await client.query(write);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}
