/**
 * The session of a base backup: PostgreSQL ends the backup if it is closed. A temporary replication slot
 * keeps the log that is written meanwhile.
 */
import { randomBytes } from 'node:crypto';
import type { Client } from 'pg';

export interface BackupStart {
  /** The segment of the log from which a recovery begins. */
  readonly segment: string;
  readonly server: string;
  readonly segmentBytes: number;
}

export interface BackupEnd {
  readonly segment: string;
  /** The content of the file `backup_label`, without which a copy of the database is damaged. */
  readonly label: string;
}

/** Begins with a checkpoint. */
export async function startBackup(client: Client): Promise<BackupStart> {
  const slot = `minato_backup_${randomBytes(6).toString('hex')}`;
  await client.query('SELECT pg_create_physical_replication_slot($1, true, true)', [slot]);
  const { rows } = await client.query<BackupStart>(
    `SELECT pg_walfile_name(pg_backup_start($1, true)) AS segment,
       current_setting('server_version') AS server,
       pg_size_bytes(current_setting('wal_segment_size'))::int AS "segmentBytes"`,
    ['minato'],
  );
  return rows[0]!;
}

/** The log up to its end is in `pg_wal` until the session is closed. */
export async function stopBackup(client: Client): Promise<BackupEnd> {
  const { rows } = await client.query<BackupEnd>(
    'SELECT pg_walfile_name(lsn) AS segment, labelfile AS label FROM pg_backup_stop(false)',
  );
  return rows[0]!;
}

/** The time of the last transaction that a recovery has applied, in milliseconds. */
export async function readRecoveredUntil(client: Client): Promise<number | undefined> {
  const { rows } = await client.query<{ at: number | null }>(
    'SELECT (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000)::float8 AS at',
  );
  return rows[0]?.at ?? undefined;
}

export interface ArchiverState {
  readonly isOn: boolean;
  readonly archived: number;
  readonly failed: number;
  /** The last attempt failed. */
  readonly isFailing: boolean;
  readonly lastArchivedAt: number | null;
}

/** Of the archive of the log; only a superuser of the server reads it. */
export async function readArchiver(client: Pick<Client, 'query'>): Promise<ArchiverState> {
  const { rows } = await client.query<ArchiverState>(
    `SELECT current_setting('archive_mode') <> 'off' AS "isOn", archived_count::float8 AS archived,
       failed_count::float8 AS failed,
       COALESCE(last_failed_time > COALESCE(last_archived_time, '-infinity'), false) AS "isFailing",
       (extract(epoch FROM last_archived_time) * 1000)::float8 AS "lastArchivedAt"
     FROM pg_stat_archiver`,
  );
  return rows[0]!;
}
