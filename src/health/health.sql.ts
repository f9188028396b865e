/**
 * The queries of the checks. They only read, and each is bounded. They need no schema unless their
 * comment says so.
 */
import type { Db } from '../postgres/values.js';

export interface ServerHealth {
  readonly version: string;
  readonly versionNumber: number;
  readonly fsync: boolean;
  readonly fullPageWrites: boolean;
  readonly synchronousCommit: string;
  readonly checksums: boolean;
  readonly connections: number;
  readonly connectionsMax: number;
  readonly databaseBytes: number;
  /** Milliseconds. The only query for the clock of the database: doctor compares it with ours. */
  readonly clock: number;
}

export async function readServerHealth(client: Db): Promise<ServerHealth> {
  const { rows } = await client.query<ServerHealth>(`
    SELECT current_setting('server_version') AS version,
      current_setting('server_version_num')::int AS "versionNumber",
      current_setting('fsync')::boolean AS fsync,
      current_setting('full_page_writes')::boolean AS "fullPageWrites",
      current_setting('synchronous_commit') AS "synchronousCommit",
      current_setting('data_checksums')::boolean AS checksums,
      (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
      current_setting('max_connections')::int AS "connectionsMax",
      pg_database_size(current_database()) AS "databaseBytes",
      floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock`);
  return rows[0]!;
}

export interface HeldByCommunity {
  readonly slug: string;
  readonly events: number;
  readonly bytes: number;
}

/** Needs the schema. */
export async function readHeld(client: Db): Promise<HeldByCommunity[]> {
  const { rows } = await client.query<HeldByCommunity>(
    `SELECT c.slug, coalesce(t.events, 0) AS events, coalesce(t.bytes, 0) AS bytes
     FROM communities c LEFT JOIN community_totals t ON t.community = c.id ORDER BY c.id LIMIT 100`,
  );
  return rows;
}
