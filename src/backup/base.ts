/**
 * Makes a base backup of the embedded PostgreSQL while it serves: its files, copied between pg_backup_start
 * and pg_backup_stop, and the log that was written meanwhile. The archive is complete in itself. The keys of
 * the node and its certificates are not part of it: together with the database they would tell who was
 * erased.
 */
import type { Dirent } from 'node:fs';
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client } from 'pg';
import { type BackupEnd, type BackupStart, startBackup, stopBackup } from './base-backup.sql.js';
import { SEALED, syncFolder, writeBackupFile } from './files.js';
import { isSegment, missingSegment, olderSegments } from './rules-wal.js';
import type { FolderKey } from './sealing.js';
import { END, fileEntry, folderEntry, textEntry } from './tar.js';
import { walFolderOf } from './wal-archive.js';

export const MANIFEST = 'minato-backup.json';
/** The last entry: an archive without it is not complete. */
export const ENDING = 'minato-backup-end.json';
const FORMAT = 1;
const BASE = /^base-(\d{8}T\d{6}Z)\.tar\.gz(\.sealed)?$/;
const UNFINISHED_MS = 86_400_000;
const SEGMENT_BYTES = 16 * 1024 * 1024;

export interface Manifest {
  readonly format: number;
  readonly server: string;
  readonly program: string;
  readonly startedAt: number;
  /** The first segment of the log that a recovery needs. */
  readonly segment: string;
  /** Of all files, before compression. */
  readonly bytes: number;
}

export interface Ending {
  /** The earliest time to which the archive can be restored. */
  readonly endedAt: number;
  readonly segment: string;
}

/** Belong to the running server, or are made again at each start. */
const LEFT_OUT = new Set(['postmaster.pid', 'postmaster.opts', 'recovery.signal', 'standby.signal']);
const EMPTIED = new Set([
  'pg_wal',
  'pg_replslot',
  'pg_dynshmem',
  'pg_notify',
  'pg_serial',
  'pg_snapshots',
  'pg_stat_tmp',
  'pg_subtrans',
]);
const isTemporary = (name: string) => /^(pgsql_tmp|pg_internal\.init|backup_label|tablespace_map)/.test(name);
/** Copied last, as pg_basebackup does it. */
const CONTROL = 'global/pg_control';

export interface BaseOptions {
  readonly client: Client;
  readonly pgdata: string;
  readonly folder: string;
  readonly key: FolderKey | undefined;
  readonly program: string;
  readonly now: () => number;
  readonly signal: AbortSignal;
  readonly onProgress: (done: number, total: number) => void;
}

export interface MadeBase extends Manifest, Ending {
  readonly path: string;
  readonly archiveBytes: number;
}

export async function makeBase(options: BaseOptions): Promise<MadeBase> {
  const { client, pgdata, folder, now } = options;
  await deleteUnfinished(folder, now());
  const start = await startBackup(client);
  if (start.segmentBytes !== SEGMENT_BYTES)
    throw new Error(`the segments of the log have ${start.segmentBytes} bytes, not ${SEGMENT_BYTES}`);
  const names = await filesOf(pgdata);
  const manifest: Manifest = {
    format: FORMAT,
    server: start.server,
    program: options.program,
    startedAt: now(),
    segment: start.segment,
    bytes: names.reduce((sum, { bytes }) => sum + bytes, 0),
  };
  const name = `base-${new Date(manifest.startedAt).toISOString().replace(/[-:]|\.\d+/g, '')}.tar.gz`;
  const path = join(folder, options.key === undefined ? name : name + SEALED);
  let ending: Ending | undefined;
  const content = archiveOf(options, { manifest, start, names }, (end) => {
    ending = end;
  });
  const archiveBytes = await writeBackupFile(path, content, options.key);
  return { ...manifest, ...ending!, path, archiveBytes };
}

interface Listed {
  readonly name: string;
  readonly isFolder: boolean;
  readonly bytes: number;
}

async function filesOf(root: string, below = ''): Promise<Listed[]> {
  const found: Listed[] = [];
  for (const entry of await entriesOf(join(root, below))) {
    const name = below === '' ? entry.name : `${below}/${entry.name}`;
    if (isTemporary(entry.name) || LEFT_OUT.has(name)) continue;
    if (name.startsWith('pg_tblspc/'))
      throw new Error('a database with tablespaces cannot be saved by this command');
    if (entry.isDirectory() || EMPTIED.has(name)) {
      found.push({ name, isFolder: true, bytes: 0 });
      if (!EMPTIED.has(name)) found.push(...(await filesOf(root, name)));
    } else if (entry.isFile()) found.push({ name, isFolder: false, bytes: await sizeOf(join(root, name)) });
  }
  return found;
}

/** A folder or a file may be deleted at any moment: the log has its deletion. */
const entriesOf = (path: string): Promise<Dirent[]> =>
  readdir(path, { withFileTypes: true }).catch(absent(() => []));
const sizeOf = (path: string): Promise<number> =>
  stat(path).then(
    ({ size }) => size,
    absent(() => 0),
  );

function absent<T>(otherwise: () => T): (error: NodeJS.ErrnoException) => T {
  return (error) => {
    if (error.code === 'ENOENT') return otherwise();
    throw error;
  };
}

async function* archiveOf(
  { client, pgdata, now, signal, onProgress }: BaseOptions,
  { manifest, start, names }: { manifest: Manifest; start: BackupStart; names: readonly Listed[] },
  onEnd: (ending: Ending) => void,
): AsyncGenerator<Buffer> {
  yield textEntry(MANIFEST, JSON.stringify(manifest));
  const wal: Listed[] = ['archive_status', 'summaries'].map((name) => ({
    name: `pg_wal/${name}`,
    isFolder: true,
    bytes: 0,
  }));
  let done = 0;
  for (const { name, isFolder, bytes } of [...names, ...wal]) {
    signal.throwIfAborted();
    if (isFolder) yield folderEntry(name);
    else if (name !== CONTROL) yield* fileEntry(name, join(pgdata, name));
    done += bytes;
    onProgress(done, manifest.bytes);
  }
  yield* fileEntry(CONTROL, join(pgdata, CONTROL));
  const end = await stopBackup(client);
  yield textEntry('backup_label', end.label);
  yield* logOf(join(pgdata, 'pg_wal'), start, end);
  const ending: Ending = { endedAt: now(), segment: end.segment };
  yield textEntry(ENDING, JSON.stringify(ending));
  yield END;
  onEnd(ending);
}

async function* logOf(folder: string, start: BackupStart, end: BackupEnd): AsyncGenerator<Buffer> {
  const all = await readdir(folder);
  const names = all.filter((name) => isSegment(name) && name >= start.segment && name <= end.segment);
  const missing = names.includes(end.segment) ? missingSegment(names, start.segment) : end.segment;
  if (missing !== undefined) throw new Error(`PostgreSQL has deleted the segment ${missing} of its log`);
  const history = all.filter((name) => name.endsWith('.history'));
  for (const name of [...history, ...names.sort()]) yield* fileEntry(`pg_wal/${name}`, join(folder, name));
}

/** Files of backups that were killed. Another one may be running. */
async function deleteUnfinished(folder: string, now: number): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!/^base-.*\.part$/.test(name)) continue;
    const { mtimeMs } = await stat(join(folder, name));
    if (now - mtimeMs > UNFINISHED_MS) await rm(join(folder, name), { force: true });
  }
}

/** The base backups of a folder, oldest first. */
export async function listBases(folder: string): Promise<string[]> {
  return (await readdir(folder).catch(absent(() => [] as string[]))).filter((name) => BASE.test(name)).sort();
}

/**
 * Deletes all but the newest `keep` base backups, and the log that only the others need. `first` is the first
 * segment of the oldest one that stays.
 */
export async function deleteOlder(
  folder: string,
  keep: number,
  firstOf: (path: string) => Promise<string>,
): Promise<{ readonly bases: number; readonly segments: number }> {
  const bases = await listBases(folder);
  const old = bases.slice(0, Math.max(0, bases.length - keep));
  if (old.length === 0) return { bases: 0, segments: 0 };
  const first = await firstOf(join(folder, bases[old.length]!));
  for (const name of old) await rm(join(folder, name));
  const wal = await readdir(walFolderOf(folder)).catch(absent(() => [] as string[]));
  const segments = olderSegments(wal, first);
  for (const name of segments) await rm(join(walFolderOf(folder), name));
  await syncFolder(folder);
  return { bases: old.length, segments: segments.length };
}
