/** Reads the state of the write-ahead log. */
import type { ClientBase } from 'pg';

export interface LogState {
  /** The server is the embedded one, where this session may request a checkpoint. */
  readonly isOurs: boolean;
  /** Written since the last checkpoint began. */
  readonly bytes: number;
  /** When the newest change of events arrived; null if there is none. */
  readonly newestAt: number | null;
}

export async function readLog(client: ClientBase, clusterName: string): Promise<LogState> {
  const { rows } = await client.query<LogState>({
    name: 'write-ahead-log',
    text: `SELECT current_setting('cluster_name') = $1 AND current_setting('is_superuser') = 'on' AS "isOurs",
        pg_wal_lsn_diff(pg_current_wal_lsn(), c.redo_lsn)::float8 AS bytes,
        (SELECT ingested_at FROM events_outbox ORDER BY seq DESC LIMIT 1) AS "newestAt"
      FROM pg_control_checkpoint() c`,
    values: [clusterName],
  });
  return rows[0]!;
}
