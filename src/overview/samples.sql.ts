/**
 * The history of the node: a row for each minute, to which every instance adds its part with one statement, a
 * row for each hour, and the size of each community at each hour.
 */
import type { ClientBase } from 'pg';
import type { Db } from '../postgres/values.js';
import type { Point, Sample } from './rules.js';

export const STEP_SECONDS = { minute: 60, hour: 3_600 } as const;
export type SampleStep = keyof typeof STEP_SECONDS;

/** What one instance adds to a minute. */
export interface Part extends Omit<Sample, 'databaseBytes'> {
  /** Reads the size of the database in the same statement. */
  readonly measuresDatabase: boolean;
}

/** Every instance adds its counts, connections and queue. Lags are those of the worker, which knows all. */
export async function addPart(db: Db, part: Part): Promise<void> {
  await db.query({
    name: 'add-sample',
    text: `INSERT INTO node_samples AS s
        (step_seconds, at, connections, lane_depth, database_bytes, disk_free_bytes,
         outcomes, ok_times, lag_seconds)
      VALUES (${STEP_SECONDS.minute}, $1, $2, $3,
        CASE WHEN $4 THEN pg_database_size(current_database()) END, $5, $6::bigint[], $7::bigint[], $8::jsonb)
      ON CONFLICT (step_seconds, at) DO UPDATE SET connections = s.connections + excluded.connections,
        lane_depth = s.lane_depth + excluded.lane_depth,
        database_bytes = coalesce(excluded.database_bytes, s.database_bytes),
        disk_free_bytes = coalesce(excluded.disk_free_bytes, s.disk_free_bytes),
        outcomes = add_counts(s.outcomes, excluded.outcomes),
        ok_times = add_counts(s.ok_times, excluded.ok_times),
        lag_seconds = s.lag_seconds || excluded.lag_seconds`,
    values: [
      part.at,
      part.connections,
      part.laneDepth,
      part.measuresDatabase,
      part.diskFreeBytes,
      part.outcomes,
      part.okTimes,
      JSON.stringify(part.lagSeconds),
    ],
  });
}

const COLUMNS = `at, connections, lane_depth AS "laneDepth", database_bytes AS "databaseBytes",
  disk_free_bytes AS "diskFreeBytes", outcomes::float8[] AS outcomes, ok_times::float8[] AS "okTimes",
  lag_seconds AS "lagSeconds"`;

/** From `since` on and before `until`, oldest first. */
export async function readSamples(db: Db, step: SampleStep, since: number, until: number): Promise<Sample[]> {
  const { rows } = await db.query<Sample>(
    `SELECT ${COLUMNS} FROM node_samples WHERE step_seconds = $1 AND at >= $2 AND at < $3 ORDER BY at`,
    [STEP_SECONDS[step], since, until],
  );
  return rows;
}

/** The newest hour that has its row. */
export async function newestHour(db: Db): Promise<number | undefined> {
  const { rows } = await db.query<{ at: number | null }>(
    'SELECT max(at) AS at FROM node_samples WHERE step_seconds = $1',
    [STEP_SECONDS.hour],
  );
  return rows[0]?.at ?? undefined;
}

/** Those of steps that have no row yet; returns how many. */
export async function writeSamples(db: Db, step: SampleStep, samples: readonly Sample[]): Promise<number> {
  const { rowCount } = await db.query(
    `INSERT INTO node_samples (step_seconds, at, connections, lane_depth, database_bytes, disk_free_bytes,
       outcomes, ok_times, lag_seconds)
     SELECT $1, s.at, s.connections, s."laneDepth", s."databaseBytes", s."diskFreeBytes",
       s.outcomes, s."okTimes", s."lagSeconds"
     FROM jsonb_to_recordset($2::jsonb) AS s (at bigint, connections integer, "laneDepth" integer,
       "databaseBytes" bigint, "diskFreeBytes" bigint, outcomes bigint[], "okTimes" bigint[],
       "lagSeconds" jsonb)
     ON CONFLICT (step_seconds, at) DO NOTHING`,
    [STEP_SECONDS[step], JSON.stringify(samples)],
  );
  return rowCount ?? 0;
}

/** Notes what every community keeps, once for each hour. */
export async function noteSizes(db: Db, hour: number): Promise<number> {
  const { rowCount } = await db.query(
    `INSERT INTO community_sizes (community, at, events, bytes)
     SELECT t.community, $1, t.events, t.bytes
     FROM community_totals t JOIN communities c ON c.id = t.community
     ON CONFLICT (community, at) DO NOTHING`,
    [hour],
  );
  return rowCount ?? 0;
}

export interface SizeAt {
  readonly at: number;
  readonly events: number;
  readonly bytes: number;
}

export async function writeSizes(db: Db, community: number, sizes: readonly SizeAt[]): Promise<void> {
  await db.query(
    `INSERT INTO community_sizes (community, at, events, bytes)
     SELECT $1, s.at, s.events, s.bytes
     FROM jsonb_to_recordset($2::jsonb) AS s (at bigint, events bigint, bytes bigint)
     ON CONFLICT (community, at) DO NOTHING`,
    [community, JSON.stringify(sizes)],
  );
}

export async function readSizes(db: Db, community: number, since: number): Promise<SizeAt[]> {
  const { rows } = await db.query<SizeAt>(
    'SELECT at, events, bytes FROM community_sizes WHERE community = $1 AND at >= $2 ORDER BY at',
    [community, since],
  );
  return rows;
}

/** The size of the database by time, as far as it was measured. */
export async function readDatabaseSizes(db: Db, since: number): Promise<Point[]> {
  const { rows } = await db.query<Point>(
    `SELECT at, database_bytes AS value FROM node_samples
     WHERE step_seconds = $1 AND at >= $2 AND database_bytes IS NOT NULL ORDER BY at`,
    [STEP_SECONDS.hour, since],
  );
  return rows;
}

// ── Old rows ───────────────────────────────────────────────────────────────────────────────────────────────

export interface Kept {
  readonly minutesSince: number;
  readonly hoursSince: number;
}

const IS_OLD = `(step_seconds = ${STEP_SECONDS.minute} AND at < $1)
  OR (step_seconds = ${STEP_SECONDS.hour} AND at < $2)`;

export async function deleteOld(
  client: ClientBase,
  { minutesSince, hoursSince }: Kept,
  limit: number,
): Promise<number> {
  const samples = await client.query(
    `DELETE FROM node_samples WHERE (step_seconds, at) IN
       (SELECT step_seconds, at FROM node_samples WHERE ${IS_OLD} LIMIT $3)`,
    [minutesSince, hoursSince, limit],
  );
  const sizes = await client.query(
    `DELETE FROM community_sizes WHERE (community, at) IN
       (SELECT community, at FROM community_sizes WHERE at < $1 ORDER BY at LIMIT $2)`,
    [hoursSince, limit],
  );
  return (samples.rowCount ?? 0) + (sizes.rowCount ?? 0);
}

export async function countOld(client: ClientBase, { minutesSince, hoursSince }: Kept): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(
    `SELECT (SELECT count(*) FROM node_samples WHERE ${IS_OLD})
       + (SELECT count(*) FROM community_sizes WHERE at < $2) AS rows`,
    [minutesSince, hoursSince],
  );
  return rows[0]!.rows;
}
