/**
 * The files of a folder of backups: compressed, encrypted if there is a key, and complete or not there. A
 * file is written beside its place, synced and then renamed.
 *
 *   base-20261117T110305Z.tar.gz[.sealed]   the database at a time
 *   wal/000000010000000000000003.gz[.sealed]   its log since
 *   salt   from which a passphrase makes the key
 */
import { constants, createReadStream, createWriteStream } from 'node:fs';
import { link, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip, constants as zlib } from 'node:zlib';
import { Damaged, type FolderKey, HEADER_BYTES, newSalt, readHeader, Seal, Unseal } from './sealing.js';

export const SEALED = '.sealed';
/** For wal-program.ts: keys of folders as `salt:key` in hex, separated by commas; the first one encrypts. */
export const KEYS_VARIABLE = 'MINATO_WAL_KEYS';
const GZIP = Buffer.from([0x1f, 0x8b]);

/** The key for a file with this salt; undefined if there is no passphrase. */
export type KeyFor = (salt: Buffer) => Promise<FolderKey | undefined> | FolderKey | undefined;

/** Returns the size of the file. Where it fails, nothing is left. */
export async function writeBackupFile(
  path: string,
  content: AsyncIterable<Buffer>,
  key: FolderKey | undefined,
): Promise<number> {
  const part = `${path}.part`;
  // Of a process that was killed. No two write the same file at once.
  await rm(part, { force: true });
  try {
    await writeSealed(createWriteStream(part, { flags: 'wx', mode: 0o600, flush: true }), content, key);
    const { size } = await stat(part);
    await rename(part, path);
    await syncFolder(dirname(path));
    return size;
  } catch (error) {
    await rm(part, { force: true });
    throw withoutSpace(error, dirname(path));
  }
}

/** `flush` of the stream syncs the file before it is closed. */
export async function writeSealed(
  output: Writable,
  content: AsyncIterable<Buffer>,
  key: FolderKey | undefined,
): Promise<void> {
  const gzip = createGzip({ level: zlib.Z_BEST_SPEED });
  if (key === undefined) await pipeline(Readable.from(content), gzip, output);
  else await pipeline(Readable.from(content), gzip, new Seal(key), output);
}

/** A full disk in words. */
export function withoutSpace(error: unknown, folder: string): unknown {
  const code = (error as NodeJS.ErrnoException).code;
  if (code !== 'ENOSPC' && code !== 'EDQUOT') return error;
  return new Error(`there is no space left on the disk of ${folder}; the unfinished file was deleted`, {
    cause: error,
  });
}

/** The content of the file, decrypted and decompressed. A bad file fails while it is read. */
export async function* readBackupFile(path: string, keyFor: KeyFor): AsyncGenerator<Buffer> {
  const start = await startOf(path);
  const header = readHeader(start);
  if (header === undefined && !start.subarray(0, 2).equals(GZIP))
    throw new Damaged(`${path} is no backup of Minato`);
  const unseal = header && (await unsealFor(path, header, keyFor));
  const gunzip = createGunzip();
  const input = createReadStream(path, { start: unseal === undefined ? 0 : HEADER_BYTES });
  const reading = unseal === undefined ? pipeline(input, gunzip) : pipeline(input, unseal, gunzip);
  // Reported by the loop below.
  reading.catch(() => undefined);
  try {
    yield* gunzip as AsyncIterable<Buffer>;
    await reading;
  } catch (error) {
    throw error instanceof Damaged ? new Damaged(`${path}: ${error.message}`) : unzipError(path, error);
  } finally {
    input.destroy();
    gunzip.destroy();
  }
}

async function unsealFor(
  path: string,
  header: NonNullable<ReturnType<typeof readHeader>>,
  keyFor: KeyFor,
): Promise<Unseal> {
  const key = await keyFor(header.salt);
  if (key === undefined)
    throw new Error(
      `${path} is encrypted; set MINATO_BACKUP_PASSPHRASE_FILE to the file with its passphrase`,
    );
  return new Unseal(key, header, path);
}

function unzipError(path: string, error: unknown): unknown {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  return code.startsWith('Z_') ? new Damaged(`${path} is damaged or was cut off (${code})`) : error;
}

/** The salt of an encrypted file; undefined if it is not encrypted. */
export async function saltOf(path: string): Promise<Buffer | undefined> {
  return readHeader(await startOf(path))?.salt;
}

async function startOf(path: string): Promise<Buffer> {
  const file = await open(path, constants.O_RDONLY).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`${path} cannot be read (${error.code})`, { cause: error });
  });
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
    return buffer.subarray(0, bytesRead);
  } catch (error) {
    throw new Error(`${path} cannot be read (${(error as NodeJS.ErrnoException).code})`, { cause: error });
  } finally {
    await file.close();
  }
}

/** Made at the first use. Every encrypted file has it too, so that a lost one is no harm. */
export async function folderSalt(folder: string): Promise<Buffer> {
  const path = join(folder, 'salt');
  const draft = `${path}.${process.pid}`;
  const file = await open(draft, 'w', 0o600);
  try {
    await file.writeFile(`${newSalt().toString('hex')}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  try {
    await link(draft, path);
    await syncFolder(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await rm(draft, { force: true });
  }
  const text = (await readFile(path, 'utf8')).trim();
  if (!/^[0-9a-f]{32}$/.test(text)) throw new Error(`${path} is damaged: delete it, and a new one is made`);
  return Buffer.from(text, 'hex');
}

export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
