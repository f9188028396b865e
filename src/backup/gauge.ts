/**
 * Metrics of the backups in MINATO_BACKUP_DIR: whether the log is archived, and how old the newest backup is.
 */
import type { Pool } from 'pg';
import { startPolling } from '../limits/poll-loop.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { listBases } from './base.js';
import { readArchiver } from './base-backup.sql.js';

const REFRESH_MS = 30_000;

export interface BackupGaugeOptions {
  readonly pool: Pool;
  readonly folder: string;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
}

export function startBackupGauge(options: BackupGaugeOptions): () => Promise<void> {
  const refresh = () =>
    refreshBackups(options).catch((error: unknown) => {
      options.log.debug({ error: String(error) }, 'the state of the backups could not be read');
    });
  return startPolling(REFRESH_MS, refresh, { atOnce: true });
}

export async function refreshBackups({
  pool,
  folder,
  metrics,
  now,
}: Omit<BackupGaugeOptions, 'log'>): Promise<void> {
  const { isOn, isFailing } = await readArchiver(pool);
  metrics.archiveFailing.set(isFailing || !isOn ? 1 : 0);
  const newest = (await listBases(folder)).at(-1);
  metrics.backupAge.set(newest === undefined ? Number.POSITIVE_INFINITY : (now() - madeAt(newest)) / 1_000);
}

/** When a base backup was begun, from its name. */
export function madeAt(name: string): number {
  const [, date, time] = /^base-(\d{8})T(\d{6})Z/.exec(name) ?? [];
  const parts = (text = '') => text.match(/\d\d/g) ?? [];
  const [century, year, month, day] = parts(date);
  return Date.parse(`${century}${year}-${month}-${day}T${parts(time).join(':')}Z`);
}
