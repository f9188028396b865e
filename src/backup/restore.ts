/**
 * Restores the embedded database from a base backup and the log after it, into a data folder without a
 * database. Everything happens in a folder beside its place, which is renamed when PostgreSQL has finished
 * its recovery: a failure or a kill leaves the data folder as it was.
 */
import { mkdir, open, readdir, rename, rm, statfs, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type pg from 'pg';
import { acquireDataLock } from '../postgres/data-lock.js';
import { type ServerLog, startEmbedded } from '../postgres/embedded.js';
import { endServer, isServerOf, readPostmasterFile } from '../postgres/embedded-leftovers.js';
import type { ServerExtras } from '../postgres/embedded-site.js';
import { giveToOwner } from '../postgres/owned-file.js';
import { Session } from '../postgres/session.js';
import { ENDING, type Ending, MANIFEST, type Manifest } from './base.js';
import { readRecoveredUntil } from './base-backup.sql.js';
import { type KeyFor, readBackupFile, syncFolder, withoutSpace } from './files.js';
import { missingSegment } from './rules-wal.js';
import { Damaged, type FolderKey, keyOf } from './sealing.js';
import { type Entry, readTar } from './tar.js';
import { archivedNames, recoveryExtras } from './wal-archive.js';

const WORK = 'restoring';
/** What is kept apart from a backup may be in the folder already. */
const KEPT_APART = new Set(['keys', 'certificates.jsonl', 'minato.lock']);
const QUERY_MS_MAX = 30_000;
/** The log ends before the target; all of it was applied. */
const LOG_ENDS_BEFORE_TARGET = 'F0000';

export interface RestoreOptions {
  readonly dataDir: string;
  readonly path: string;
  /** The archived log; undefined: only what is in the backup itself. */
  readonly walFolder: string | undefined;
  /** In milliseconds; undefined: all of the log. */
  readonly until: number | undefined;
  readonly passphrase: string | undefined;
  readonly user: string | undefined;
  readonly log: ServerLog;
  readonly signal: AbortSignal;
  readonly onProgress: (done: number, total: number) => void;
}

export interface Restored {
  readonly manifest: Manifest;
  /** The time of the last transaction that was applied from the log; undefined: none after the backup. */
  readonly lastAt: number | undefined;
}

/** A key is made once for each salt: scrypt takes half a second. */
export function keyReader(passphrase: string | undefined): KeyFor {
  const made = new Map<string, Promise<FolderKey>>();
  return (salt) => {
    if (passphrase === undefined) return undefined;
    const name = salt.toString('hex');
    if (!made.has(name)) made.set(name, keyOf(passphrase, salt));
    return made.get(name);
  };
}

/** Reads only the beginning of the file. */
export async function readManifest(path: string, keyFor: KeyFor): Promise<Manifest> {
  for await (const entry of readTar(readBackupFile(path, keyFor))) {
    if (entry.name !== MANIFEST) break;
    return manifestOf(path, await textOf(entry.content));
  }
  throw new Damaged(`${path} is no backup of Minato`);
}

export async function restoreBackup(options: RestoreOptions): Promise<Restored> {
  const { dataDir, path, walFolder } = options;
  await refuseFullFolder(dataDir);
  const manifest = await readManifest(path, keyReader(options.passphrase));
  await refuseGap(walFolder, manifest);
  const lock = await acquireDataLock(dataDir);
  const work = join(dataDir, WORK);
  try {
    await removeWork(work, options.log);
    await refuseFullDisk(dataDir, manifest);
    await mkdir(work, { mode: 0o711 });
    await giveToOwner(dataDir, work);
    const pgdata = join(work, 'postgres');
    refuseEarly(options.until, await unpack(options, pgdata, manifest));
    await writeFile(join(pgdata, 'recovery.signal'), '', { mode: 0o600 });
    const lastAt = await recover(options, work);
    await rename(pgdata, join(dataDir, 'postgres'));
    await syncFolder(dataDir);
    return { manifest, lastAt };
  } catch (error) {
    throw withoutSpace(error, dataDir);
  } finally {
    await removeWork(work, options.log);
    await lock.release();
  }
}

async function refuseFullFolder(dataDir: string): Promise<void> {
  const names = await readdir(dataDir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw new Error(`${dataDir} cannot be read (${error.code})`, { cause: error });
  });
  const others = names.filter((name) => name !== WORK && !KEPT_APART.has(name) && name !== 'socket');
  if (others.length > 0)
    throw new Error(
      `${dataDir} is not empty (it has ${others.slice(0, 3).join(', ')}), and nothing was done: ` +
        'a backup is restored into a new folder; set MINATO_DATA_DIR to it, or move the old one away. ' +
        'Only keys and certificates.jsonl may be there',
    );
}

/** A recovery would stop there, without an error, and lose what follows. */
async function refuseGap(walFolder: string | undefined, { segment }: Manifest): Promise<void> {
  if (walFolder === undefined) return;
  const names = await archivedNames(walFolder);
  const newer = names.filter((name) => name.slice(8) >= segment.slice(8));
  // The first segments are also in the backup itself.
  const missing = newer.length === 0 ? undefined : missingSegment(newer, newer.sort()[0]!.slice(0, 24));
  if (missing !== undefined)
    throw new Error(
      `the segment ${missing} of the log is missing in ${walFolder}, and nothing was done: copy it there, ` +
        'restore a newer backup, or use --no-wal to restore this one without the log after it',
    );
}

async function refuseFullDisk(dataDir: string, { bytes }: Manifest): Promise<void> {
  const { bavail, bsize } = await statfs(dataDir);
  if (bavail * bsize < bytes)
    throw new Error(
      `the backup needs ${mb(bytes)} on the disk of ${dataDir}, and ${mb(bavail * bsize)} are free; ` +
        'nothing was done',
    );
}

const mb = (bytes: number) => `${Math.ceil(bytes / 1e6)} MB`;

/** Of a restore that was killed; its server may still run. */
async function removeWork(work: string, log: ServerLog): Promise<void> {
  const pgdata = join(work, 'postgres');
  const pid = (await readPostmasterFile(pgdata))?.pid ?? 0;
  if (await isServerOf(pid, pgdata)) await endServer(pid, log);
  await rm(work, { recursive: true, force: true, maxRetries: 5 });
}

async function unpack(
  { path, passphrase, signal, onProgress }: RestoreOptions,
  pgdata: string,
  manifest: Manifest,
): Promise<Ending> {
  await mkdir(pgdata, { mode: 0o700 });
  let ending: Ending | undefined;
  let bytes = 0;
  for await (const entry of readTar(readBackupFile(path, keyReader(passphrase)))) {
    signal.throwIfAborted();
    if (entry.name === MANIFEST) await textOf(entry.content);
    else if (entry.name === ENDING) ending = JSON.parse(await textOf(entry.content)) as Ending;
    else await putEntry(pgdata, entry);
    bytes += entry.bytes;
    onProgress(bytes, manifest.bytes);
  }
  if (ending === undefined) throw new Damaged(`${path} is not complete`);
  return ending;
}

/** Before its end the copied files do not fit together. */
function refuseEarly(until: number | undefined, { endedAt }: Ending): void {
  if (until === undefined || until >= endedAt) return;
  throw new Error(
    `this backup can be restored to ${new Date(endedAt).toISOString()} and later; ` +
      'for an earlier time restore an older one. Nothing was done',
  );
}

async function putEntry(
  pgdata: string,
  { name, isFolder, content }: Entry & { content: AsyncIterable<Buffer> },
): Promise<void> {
  const path = join(pgdata, name);
  if (isFolder) {
    await mkdir(path, { recursive: true, mode: 0o700 });
    return;
  }
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await open(path, 'wx', 0o600);
  try {
    for await (const part of content) await file.writeFile(part);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** PostgreSQL applies its log and begins a new timeline. Then it is stopped. */
async function recover(options: RestoreOptions, work: string): Promise<number | undefined> {
  const { walFolder, passphrase, until } = options;
  const extras = await recoveryExtras(walFolder, { passphrase, until });
  try {
    return await startOnce(options, work, extras);
  } catch (error) {
    if (until === undefined || !endsBeforeTarget(error)) throw error;
    // Every transaction of the log is older than the target: all of it is what was asked for.
    return startOnce(options, work, await recoveryExtras(walFolder, { passphrase, until: undefined }));
  }
}

const endsBeforeTarget = (error: unknown) =>
  error instanceof Error && new RegExp(`^${LOG_ENDS_BEFORE_TARGET} FATAL`, 'm').test(error.message);

async function startOnce(
  { log, user, signal }: RestoreOptions,
  work: string,
  extras: ServerExtras,
): Promise<number | undefined> {
  const server = await startEmbedded(work, log, { user, signal, extras });
  const client: pg.Client = new Session({
    ...server.connection,
    ssl: false,
    query_timeout: QUERY_MS_MAX,
    connectionTimeoutMillis: QUERY_MS_MAX,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await readRecoveredUntil(client);
  } finally {
    await client.end().catch(() => undefined);
    await server.stop();
  }
}

async function textOf(content: AsyncIterable<Buffer>): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of content) parts.push(part);
  return Buffer.concat(parts).toString();
}

function manifestOf(path: string, text: string): Manifest {
  const manifest = JSON.parse(text) as Manifest;
  if (manifest.format !== 1)
    throw new Error(`${path} was made by a newer Minato (${manifest.program}): restore it with that version`);
  return manifest;
}
