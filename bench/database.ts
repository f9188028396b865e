/**
 * Reads the database of a node that the bench has booted: the backlog of its consumers, and the use of the
 * disk. It uses table names only and imports nothing from the node's source, so that it works with the
 * database of any commit.
 */
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import type { Bench } from './measure.js';

const NAME = 'minato';
const CONNECT_MS_MAX = 10_000;
const QUERY_MS_MAX = 60_000;
/** SQLSTATE of a missing table or column, as in another commit. */
const UNKNOWN = new Set(['42P01', '42703']);

export type Booted = Pick<Bench, 'node' | 'folder' | 'nodeEnv'>;

export async function withDatabase<T>(bench: Booted, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    ...connectionOf(bench),
    // bigint values are read as numbers: none is above 2^53.
    types: { getTypeParser: (oid, format) => (oid === 20 ? Number : pg.types.getTypeParser(oid, format)) },
    connectionTimeoutMillis: CONNECT_MS_MAX,
    query_timeout: QUERY_MS_MAX,
  });
  // A server that ends says so to idle clients, too; the next query fails with it.
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/**
 * The pid file of the embedded server says where it listens: line 4 is the port, line 5 the folder of the
 * socket.
 */
export function connectionOf({ folder, nodeEnv }: Booted): pg.ClientConfig {
  if (nodeEnv.DATABASE_URL !== undefined) return { connectionString: nodeEnv.DATABASE_URL };
  const [, , , port, host] = readFileSync(join(folder, 'data/postgres/postmaster.pid'), 'utf8').split('\n');
  return { host: host!, port: Number(port), user: NAME, database: NAME };
}

/**
 * The largest backlog of a consumer, in rows of the outbox. A rebuild is behind until it has ended: after an
 * import without a running node each consumer has one, while its own offset is that of the last row. Paused
 * consumers do not count. 0 for a commit without consumers.
 */
export async function rowsBehind(client: pg.Client): Promise<number> {
  const query = `SELECT coalesce(max(CASE
      WHEN r.consumer IS NULL THEN s.last_seq - o.last_seq
      ELSE greatest(1, s.last_seq - coalesce(r.last_seq, r.scanned_seq, 0)) END), 0) AS behind
    FROM consumer_offsets o CROSS JOIN lane_state s LEFT JOIN consumer_rebuilds r USING (consumer)
    WHERE o.paused_at IS NULL`;
  try {
    const { rows } = await client.query<{ behind: number }>(query);
    return Math.max(0, rows[0]!.behind);
  } catch (error) {
    if (UNKNOWN.has((error as pg.DatabaseError).code ?? '')) return 0;
    throw error;
  }
}

export const DISK_PARTS = [
  'events',
  'tags',
  'indexes',
  'dedupe',
  'outbox',
  'search',
  'trust',
  'wal',
  'other',
] as const;
export type DiskPart = (typeof DISK_PARTS)[number];
/** In MB (10^6 bytes). */
export type DiskUse = Readonly<Record<DiskPart | 'total', number>>;

interface Relation {
  readonly name: string;
  readonly heap: number;
  readonly indexes: number;
}

/**
 * Each table counts for its purpose. The indexes of events and tags are counted separately, because they take
 * most of the space. Everything without a rule is `other`: moderation, jobs, the catalogs, PostgreSQL's own
 * files.
 */
const RULES: readonly (readonly [DiskPart, RegExp])[] = [
  ['tags', /^event_tags/],
  ['dedupe', /^event_dedupe/],
  ['outbox', /^(events_outbox|outbox_)/],
  ['search', /^(post_search|search_)/],
  ['trust', /^(trust_|contacts|contact_)/],
  ['events', /^events?(_|$)/],
];

export function partOf(table: string): DiskPart {
  return RULES.find(([, pattern]) => pattern.test(table))?.[0] ?? 'other';
}

/** The size of the data folder on the disk now, without a checkpoint or vacuum before. */
export async function diskUse(bench: Booted): Promise<DiskUse | undefined> {
  if (bench.node === undefined || bench.nodeEnv.DATABASE_URL !== undefined) return undefined;
  const relations = await withDatabase(bench, readRelations);
  const data = join(bench.folder, 'data');
  const use = Object.fromEntries(DISK_PARTS.map((part) => [part, 0])) as Record<DiskPart, number>;
  for (const { name, heap, indexes } of relations) {
    const part = partOf(name);
    const apart = part === 'events' || part === 'tags';
    use[part] += heap + (apart ? 0 : indexes);
    if (apart) use.indexes += indexes;
  }
  use.wal = bytesUnder(join(data, 'postgres/pg_wal'));
  const total = bytesUnder(data);
  const named = DISK_PARTS.reduce((sum, part) => sum + use[part], 0);
  use.other += Math.max(0, total - named);
  const megabytes = Object.entries({ ...use, total }).map(([part, bytes]) => [part, bytes / 1e6]);
  return Object.fromEntries(megabytes) as DiskUse;
}

async function readRelations(client: pg.Client): Promise<Relation[]> {
  const { rows } = await client.query<Relation>(
    `SELECT c.relname AS name, pg_table_size(c.oid) AS heap, pg_indexes_size(c.oid) AS indexes
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')`,
  );
  return rows;
}

/** Allocated bytes, as `du` counts them. A file deleted meanwhile counts as 0. */
function bytesUnder(folder: string): number {
  let bytes = 0;
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    try {
      bytes += entry.isDirectory() ? bytesUnder(path) : lstatSync(path).blocks * BLOCK_BYTES;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
  return bytes;
}
const BLOCK_BYTES = 512;
