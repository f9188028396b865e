/** The part of `minato doctor` about the backups of the embedded database. */
import { statfs } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Client } from 'pg';
import { listBases } from '../backup/base.js';
import { readArchiver } from '../backup/base-backup.sql.js';
import { madeAt } from '../backup/gauge.js';
import { type Finding, fail, ok, warn } from '../health/finding.js';
import type { Config } from '../node/config.js';
import { timeText } from './answers.js';

const OLD_MS = 8 * 86_400_000;
const FREE_SHARE_MIN = 0.05;

/** Nothing without MINATO_BACKUP_DIR: another program may make the backups. */
export async function* checkBackups(
  client: Client,
  { backupDir, databaseUrl }: Config,
  now: number,
): AsyncGenerator<Finding> {
  if (backupDir === undefined) return;
  if (databaseUrl !== undefined) {
    yield warn('MINATO_BACKUP_DIR has no effect with DATABASE_URL', 'Use the tools of your server.');
    return;
  }
  const { isOn, isFailing, lastArchivedAt } = await readArchiver(client);
  if (!isOn) yield warn('the log is not archived', 'Restart the node with MINATO_BACKUP_DIR.');
  else if (isFailing)
    yield fail(
      `the log is not archived: PostgreSQL cannot write to ${backupDir}`,
      'Read the log of the node; until then the log is kept on its own disk, which fills.',
    );
  else {
    const last = lastArchivedAt === null ? 'nothing yet' : `last at ${timeText(lastArchivedAt)}`;
    yield ok(`the log is archived to ${backupDir}, ${last}`);
  }
  yield* checkNewest(backupDir, now);
}

async function* checkNewest(backupDir: string, now: number): AsyncGenerator<Finding> {
  const newest = (await listBases(resolve(backupDir))).at(-1);
  const advice = 'Run "minato backup --keep 7" every night.';
  if (newest === undefined) {
    yield warn(`there is no backup in ${backupDir}`, advice);
    return;
  }
  const age = now - madeAt(newest);
  if (age > OLD_MS) yield warn(`the newest backup is of ${timeText(now - age)}`, advice);
  else yield ok(`the newest backup is of ${timeText(now - age)}`);
  const { bavail, blocks } = await statfs(backupDir);
  if (bavail < blocks * FREE_SHARE_MIN)
    yield warn(`the disk of ${backupDir} is nearly full`, 'Keep fewer backups: minato backup --keep 3.');
}
