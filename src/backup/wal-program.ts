/**
 * The program that PostgreSQL starts for one file of its log (`archive_command`, `restore_command`). It loads
 * nothing but the files of a backup, because it starts for every 16 MB.
 *
 *   wal-program.js archive FOLDER NAME PATH    the file is in the folder, durable, when this ends with 0
 *   wal-program.js fetch FOLDER NAME PATH      1: not there; 200: there and damaged, and the recovery stops
 */
import { createReadStream } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { KEYS_VARIABLE, readBackupFile, SEALED, writeBackupFile } from './files.js';
import { isLogFile } from './rules-wal.js';
import type { FolderKey } from './sealing.js';

const ENDINGS = ['.gz', `.gz${SEALED}`];
const NOT_THERE = 1;
/** A share that hangs: PostgreSQL tries again. */
const MS_MAX = 10 * 60_000;
/** Above 125: PostgreSQL takes it for a failure and not for the end of the log. */
const BROKEN = 200;

function keysOf(text: string | undefined): FolderKey[] {
  return (text ?? '').split(',').flatMap((pair) => {
    const [salt, key] = pair.split(':').map((hex) => Buffer.from(hex, 'hex'));
    return salt && key ? [{ salt, key }] : [];
  });
}

const keys = keysOf(process.env[KEYS_VARIABLE]);
const keyFor = (salt: Buffer) => keys.find((key) => key.salt.equals(salt));

async function stored(folder: string, name: string): Promise<string | undefined> {
  for (const path of ENDINGS.map((ending) => join(folder, name + ending))) {
    const file = await open(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    await file?.close();
    if (file !== undefined) return path;
  }
  return undefined;
}

/** PostgreSQL repeats a file if it was killed before it noted the success: then the content is the same. */
async function archive(folder: string, name: string, path: string): Promise<number> {
  const before = await stored(folder, name);
  if (before === undefined) {
    const [key] = keys;
    await writeBackupFile(join(folder, name + ENDINGS[key ? 1 : 0]!), createReadStream(path), key);
    return 0;
  }
  if (await isSame(readBackupFile(before, keyFor), createReadStream(path))) return 0;
  throw new Error(
    `${before} is there with another content: two databases use one folder. ` +
      'Give the restored one a MINATO_BACKUP_DIR of its own',
  );
}

async function isSame(one: AsyncIterable<Buffer>, other: AsyncIterable<Buffer>): Promise<boolean> {
  const all = async (input: AsyncIterable<Buffer>) => {
    const parts: Buffer[] = [];
    for await (const part of input) parts.push(part);
    return Buffer.concat(parts);
  };
  return (await all(one)).equals(await all(other));
}

async function fetchFile(folder: string, name: string, path: string): Promise<number> {
  const from = await stored(folder, name);
  if (from === undefined) return NOT_THERE;
  const file = await open(path, 'w', 0o600);
  try {
    for await (const part of readBackupFile(from, keyFor)) await file.writeFile(part);
    await file.sync();
    return 0;
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

async function main([work, folder, name, path]: readonly string[]): Promise<number> {
  if (!folder || !name || !path || !isLogFile(name)) throw new Error('FOLDER, NAME and PATH are needed');
  if (work === 'archive') return archive(folder, name, path);
  if (work === 'fetch') return fetchFile(folder, name, path);
  throw new Error(`unknown: ${work}`);
}

setTimeout(() => process.exit(BROKEN), MS_MAX).unref();
main(process.argv.slice(2)).then(
  (code) => {
    process.exitCode = code;
  },
  (error: Error) => {
    process.stderr.write(`minato: ${error.message}\n`);
    process.exitCode = BROKEN;
  },
);
