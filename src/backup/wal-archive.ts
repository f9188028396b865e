/**
 * Lets the embedded PostgreSQL copy its log to the folder of backups, segment by segment, and fetch it from
 * there for a recovery. A database with both, a base backup and all the log since, can be restored to any
 * moment.
 */
import { mkdir, readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ServerExtras } from '../postgres/embedded-site.js';
import { folderSalt, KEYS_VARIABLE, SEALED, saltOf } from './files.js';
import { isLogFile } from './rules-wal.js';
import { type FolderKey, keyOf, readPassphrase } from './sealing.js';

const PROGRAM = fileURLToPath(new URL('./wal-program.js', import.meta.url));
/** A segment is also copied when this time has passed and something was written: what a lost disk loses. */
const ARCHIVE_SECONDS = 60;

export interface BackupPlace {
  readonly databaseUrl: string | undefined;
  readonly backupDir: string | undefined;
  readonly backupPassphraseFile: string | undefined;
}

export const walFolderOf = (folder: string) => join(folder, 'wal');

export async function folderKey(
  folder: string,
  passphraseFile: string | undefined,
): Promise<FolderKey | undefined> {
  if (passphraseFile === undefined) return undefined;
  return keyOf(await readPassphrase(passphraseFile), await folderSalt(folder));
}

/** Undefined: no folder of backups, or the server is the operator's own. */
export async function archiveExtras(place: BackupPlace): Promise<ServerExtras | undefined> {
  const { databaseUrl, backupDir, backupPassphraseFile } = place;
  if (databaseUrl !== undefined || backupDir === undefined) return undefined;
  const folder = resolve(backupDir);
  await mkdir(folder, { recursive: true, mode: 0o711 }).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`MINATO_BACKUP_DIR: ${folder} cannot be made (${error.code})`);
  });
  const key = await folderKey(folder, backupPassphraseFile);
  return {
    settings: {
      archive_mode: 'on',
      archive_command: `${commandOf('archive', walFolderOf(folder))} %f %p`,
      archive_timeout: `${ARCHIVE_SECONDS}s`,
    },
    env: envOf(key === undefined ? [] : [key]),
    folder: walFolderOf(folder),
    paths: [PROGRAM, process.execPath],
  };
}

/** Without a folder the log in the backup itself is all there is. */
export async function recoveryExtras(
  walFolder: string | undefined,
  options: { readonly passphrase: string | undefined; readonly until: number | undefined },
): Promise<ServerExtras> {
  const keys: FolderKey[] = [];
  if (walFolder !== undefined && options.passphrase !== undefined)
    for (const salt of await saltsIn(walFolder)) keys.push(await keyOf(options.passphrase, salt));
  return {
    settings: {
      restore_command: walFolder === undefined ? 'false' : `${commandOf('fetch', walFolder)} %f %p`,
      recovery_target_action: 'promote',
      // Nobody may connect before the target is reached.
      hot_standby: 'off',
      archive_mode: 'off',
      ...(options.until === undefined
        ? {}
        : { recovery_target_time: new Date(options.until).toISOString().replace('Z', '+00') }),
    },
    env: envOf(keys),
    paths: walFolder === undefined ? [] : [PROGRAM, process.execPath, walFolder],
    readyMsMax: RECOVERY_MS_MAX,
  };
}

/** Weeks of a busy log. Its progress is in the log of the command. */
const RECOVERY_MS_MAX = 24 * 3_600_000;

const envOf = (keys: readonly FolderKey[]): NodeJS.ProcessEnv =>
  keys.length === 0
    ? {}
    : {
        [KEYS_VARIABLE]: keys.map(({ salt, key }) => `${salt.toString('hex')}:${key.toString('hex')}`).join(),
      };

/** For a shell, within a setting of PostgreSQL, where a percent sign is doubled. */
function commandOf(work: 'archive' | 'fetch', folder: string): string {
  const quoted = [process.execPath, PROGRAM, work, folder].map(
    (word) => `'${word.replaceAll("'", `'\\''`).replaceAll('%', '%%')}'`,
  );
  return quoted.join(' ');
}

/** The names of the files of the log that are in the folder, without their endings. */
export async function archivedNames(walFolder: string): Promise<string[]> {
  const files = await readdir(walFolder).catch(() => []);
  return files.map((name) => name.replace(/\.gz(\.sealed)?$/, '')).filter(isLogFile);
}

/** Mostly one. It changes if the file with the salt was lost. */
async function saltsIn(walFolder: string): Promise<Buffer[]> {
  const salts = new Map<string, Buffer>();
  for (const name of await readdir(walFolder)) {
    if (!name.endsWith(SEALED)) continue;
    const salt = await saltOf(join(walFolder, name));
    if (salt !== undefined) salts.set(salt.toString('hex'), salt);
  }
  return [...salts.values()];
}
