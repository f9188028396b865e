/**
 * Reads and trims the outbox and the live bus. Rows are in commit order: a reader of `seq > last` never skips
 * one (I8).
 */
import type { ClientBase, Pool } from 'pg';
import { PARTITION_END } from '../events/postgres/partition-bound.js';
import type { CameBy } from '../events/rules/facts.js';
import { type AnchorRead, type Broadcast, type NamedChange, OutboxBehind } from '../events/store.js';

export { OutboxBehind };

export async function readHead(db: ClientBase | Pool): Promise<number> {
  const { rows } = await db.query<{ last_seq: number }>({
    name: 'head',
    text: 'SELECT last_seq FROM lane_state',
  });
  return rows[0]!.last_seq;
}

/** The first and the last offset of the outbox. */
export async function readReach(db: ClientBase | Pool): Promise<{ floor: number; head: number }> {
  const { rows } = await db.query<{ floor: number; head: number }>(
    'SELECT outbox_floor AS floor, last_seq AS head FROM lane_state',
  );
  return rows[0]!;
}

/** The last row up to an offset, whichever community it is of. */
export async function readAnchor(db: ClientBase | Pool, position: number): Promise<AnchorRead> {
  const { rows } = await db.query<[number, number, number | null, number | null]>({
    name: 'anchor',
    text: `SELECT s.outbox_floor, s.last_seq, o.seq, o.ingested_at
      FROM lane_state s LEFT JOIN LATERAL (SELECT seq, ingested_at FROM events_outbox
        WHERE seq <= $1 ORDER BY seq DESC LIMIT 1) o ON true`,
    values: [position],
    rowMode: 'array',
  });
  const [floor, head, seq, at] = rows[0]!;
  return { anchor: { seq: seq ?? Math.min(position, head), at: at ?? 0 }, floor, head };
}

type OutboxTuple = [
  floor: number,
  seq: number | null,
  community: number,
  op: 'upsert' | 'delete',
  id: string,
  ingestedAt: number,
  lastSeq: number,
  cameBy: CameBy | null,
  author?: string | null,
  kind?: number | null,
  createdAt?: number | null,
  topics?: string[] | null,
  tags?: string | null,
];

/** Only for deletes, and only while somebody wants them. */
const OUTLINE_COLUMNS = `,
        CASE o.op WHEN 'delete' THEN encode(o.author, 'hex') END, CASE o.op WHEN 'delete' THEN o.kind END,
        CASE o.op WHEN 'delete' THEN o.created_at END, CASE o.op WHEN 'delete' THEN o.topics END,
        CASE o.op WHEN 'delete' THEN array_to_string(o.tags, ',') END`;

export function tagSet(tags: string | null | undefined): ReadonlySet<string> | undefined {
  if (tags === null || tags === undefined) return undefined;
  return new Set(tags === '' ? [] : tags.split(','));
}

export interface OutboxPage {
  readonly entries: NamedChange[];
  /** The head in the same snapshot. An offset without a row is a request to vanish. */
  readonly lastSeq: number;
}

/**
 * The next rows after an offset. Throws OutboxBehind if some of them were trimmed. Rows and floor are of one
 * snapshot.
 */
export async function readOutbox(
  db: ClientBase | Pool,
  after: number,
  limit: number,
  withOutlines = false,
): Promise<OutboxPage> {
  const { rows } = await db.query<OutboxTuple>({
    name: withOutlines ? 'outbox-outlines' : 'outbox',
    text: `SELECT s.outbox_floor, o.seq, o.community, o.op, encode(o.event_id, 'hex'), o.ingested_at,
        s.last_seq, o.came_by${withOutlines ? OUTLINE_COLUMNS : ''}
      FROM lane_state s LEFT JOIN (SELECT * FROM events_outbox
        WHERE seq > $1 AND op <> 'scrubbed' ORDER BY seq LIMIT $2) o ON true
      ORDER BY o.seq`,
    values: [after, limit],
    rowMode: 'array',
  });
  const floor = rows[0]![0];
  if (after < floor - 1) throw new OutboxBehind(after, floor);
  const entries = rows.flatMap(
    ([
      ,
      seq,
      community,
      op,
      id,
      ingestedAt,
      ,
      cameBy,
      author,
      kind,
      createdAt,
      topics,
      tags,
    ]): NamedChange[] => {
      if (seq === null) return [];
      const named = { seq, community, op, id, ingestedAt, ...(cameBy === null ? {} : { cameBy }) };
      if (!withOutlines || op !== 'delete') return [named];
      const outline = {
        id,
        author: author!,
        kind: kind!,
        createdAt: createdAt!,
        topics: topics!,
        tags: tagSet(tags),
      };
      return [{ ...named, outline }];
    },
  );
  return { entries, lastSeq: rows[0]![6] };
}

const RANGE = 1_000_000;
/** Held by an instance while it creates a range. */
const RANGE_LOCK = 7_447_004;

interface OutboxRange {
  readonly name: string;
  readonly to: number;
  readonly detaching: boolean;
}

async function outboxRanges(client: ClientBase): Promise<OutboxRange[]> {
  const { rows } = await client.query<OutboxRange>(
    `SELECT c.relname AS name, ${PARTITION_END} AS to, i.inhdetachpending AS detaching
     FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'events_outbox'::regclass ORDER BY 2`,
  );
  return rows;
}

/** Creates the next range while the last one is still being filled. */
export async function ensureOutboxRange(client: ClientBase): Promise<void> {
  if ((await nextRange(client)) === undefined) return;
  await client.query('BEGIN');
  try {
    await client.query('SELECT pg_advisory_xact_lock($1)', [RANGE_LOCK]);
    // Another instance may have created it while this one waited for the lock.
    const from = await nextRange(client);
    if (from !== undefined) await attachRange(client, from);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK').catch(() => undefined);
    throw error;
  }
}

/** The start of the next range, if it is time to create it. */
async function nextRange(client: ClientBase): Promise<number | undefined> {
  const last = (await outboxRanges(client)).at(-1)!;
  return (await readHead(client)) + RANGE < last.to ? undefined : last.to;
}

/**
 * Creates a table and then attaches it. Creating it as a partition would wait for every reader, and block the
 * lane meanwhile.
 */
async function attachRange(client: ClientBase, from: number): Promise<void> {
  const name = `events_outbox_${from / RANGE}`;
  await client.query(`CREATE TABLE ${name} (LIKE events_outbox INCLUDING ALL)`);
  await client.query(
    `ALTER TABLE events_outbox ATTACH PARTITION ${name} FOR VALUES FROM (${from}) TO (${from + RANGE})`,
  );
}

/**
 * Drops the ranges with no row younger than the cutoff, also empty ones. It raises the floor first, so that
 * no reader skips rows silently. It detaches a range before it drops it, as for the months of events: that
 * waits for a slow reader without blocking the lane.
 */
export async function dropOutboxRanges(
  client: ClientBase,
  cutoff: number,
  dryRun: boolean,
): Promise<string[]> {
  const dropped: string[] = [];
  for (const { name, to, detaching } of await outboxRanges(client)) {
    // The range that is being filled, and the one after it, are kept.
    if ((await readHead(client)) < to - 1 || (await newestIn(client, name)) >= cutoff) break;
    dropped.push(name);
    if (dryRun) continue;
    await raiseFloor(client, to);
    const how = detaching ? 'FINALIZE' : 'CONCURRENTLY';
    await client.query(`ALTER TABLE events_outbox DETACH PARTITION ${name} ${how}`);
    await client.query(`DROP TABLE ${name}`);
  }
  return dropped;
}

/** The time of its newest row; 0 if it has none. */
const newestIn = (client: ClientBase, range: string) => writtenAt(client, `${range} ORDER BY seq DESC`);
const oldestIn = (client: ClientBase, range: string) => writtenAt(client, `${range} ORDER BY seq`);

async function writtenAt(client: ClientBase, rowsInOrder: string): Promise<number> {
  const { rows } = await client.query<{ ingested_at: number }>(
    `SELECT ingested_at FROM ${rowsInOrder} LIMIT 1`,
  );
  return rows[0]?.ingested_at ?? 0;
}

async function raiseFloor(client: ClientBase, floor: number): Promise<void> {
  await client.query('UPDATE lane_state SET outbox_floor = greatest(outbox_floor, $1)', [floor]);
}

/**
 * If a full range passes the cutoff within this time, from its first to its last row, it is dropped as a
 * whole and not row by row.
 */
const DROPPED_SOON_MS = 86_400_000;

/**
 * The offset from which rows are deleted: in the first range that is kept. Undefined if that is a full range
 * that will be dropped soon.
 */
async function trimsFrom(
  client: ClientBase,
  cutoff: number,
  dropped: readonly string[],
): Promise<number | undefined> {
  const ranges = await outboxRanges(client);
  const range = ranges.find(({ name }) => !dropped.includes(name));
  if (range === undefined) return undefined;
  const isFull = (await readHead(client)) >= range.to - 1;
  const isDroppedSoon =
    isFull &&
    (await oldestIn(client, range.name)) >= cutoff - DROPPED_SOON_MS &&
    (await newestIn(client, range.name)) < cutoff + DROPPED_SOON_MS;
  if (isDroppedSoon) return undefined;
  const before = ranges.filter(({ name }) => dropped.includes(name)).map(({ to }) => to);
  return Math.max((await readReach(client)).floor, ...before);
}

/**
 * Deletes a batch of the oldest rows, up to the first that is not older than the cutoff, after it has raised
 * the floor. So a small outbox, which would take years to fill a range, is trimmed in time too.
 */
export async function trimOutbox(client: ClientBase, cutoff: number, limit: number): Promise<number> {
  const from = await trimsFrom(client, cutoff, []);
  if (from === undefined) return 0;
  const { rows } = await client.query<{ seq: number; ingested_at: number }>(
    'SELECT seq, ingested_at FROM events_outbox WHERE seq >= $1 ORDER BY seq LIMIT $2',
    [from, limit],
  );
  const young = rows.findIndex(({ ingested_at }) => ingested_at >= cutoff);
  const last = rows[young === -1 ? rows.length - 1 : young - 1];
  if (last === undefined) return 0;
  await raiseFloor(client, last.seq + 1);
  const { rowCount } = await client.query('DELETE FROM events_outbox WHERE seq <= $1', [last.seq]);
  return rowCount ?? 0;
}

/** How many rows it would delete after these ranges were dropped. */
export async function countTrimmed(
  client: ClientBase,
  cutoff: number,
  dropped: readonly string[],
): Promise<number> {
  const from = await trimsFrom(client, cutoff, dropped);
  if (from === undefined) return 0;
  const { rows } = await client.query<{ count: number }>(
    `SELECT count(*) AS count FROM events_outbox WHERE seq >= $1 AND seq < coalesce(
       (SELECT min(seq) FROM events_outbox WHERE seq >= $1 AND ingested_at >= $2),
       ${Number.MAX_SAFE_INTEGER})`,
    [from, cutoff],
  );
  return rows[0]!.count;
}

export async function readBusHead(db: ClientBase | Pool): Promise<number> {
  const { rows } = await db.query<{ position: number }>(
    'SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS position FROM live_bus_position',
  );
  return rows[0]!.position;
}

export async function readBus(db: ClientBase | Pool, after: number, limit: number): Promise<Broadcast[]> {
  const { rows } = await db.query<Broadcast & { readonly cameBy: CameBy | null }>({
    name: 'bus',
    text: `SELECT position, community, payload, came_by AS "cameBy" FROM live_bus
      WHERE position > $1 ORDER BY position LIMIT $2`,
    values: [after, limit],
  });
  return rows.map((row) => ({ ...row, cameBy: row.cameBy ?? undefined }));
}

/** Deletes ephemeral events that every instance has delivered. */
export async function trimBus(db: ClientBase | Pool, sentBefore: number): Promise<void> {
  await db.query('DELETE FROM live_bus WHERE sent_at < $1', [sentBefore]);
}
