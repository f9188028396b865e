/**
 * Allows one node per data folder. The lock is a file that is created atomically (`link`). It names its
 * holder by pid and start time, so that a reused pid is not mistaken for the holder. Known limit: two
 * containers that share a folder do not see each other's processes.
 */
import { randomUUID } from 'node:crypto';
import { link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { giveToOwner } from './owned-file.js';
import { errorCode } from './rules-error-code.js';

export class DataFolderInUse extends Error {
  constructor(
    readonly pid: number,
    dataDir: string,
  ) {
    super(
      `The data folder ${dataDir} is in use by process ${pid}. ` +
        'Stop that process, or give this node another folder with MINATO_DATA_DIR.',
    );
    this.name = 'DataFolderInUse';
  }
}

export interface DataLock {
  release(): Promise<void>;
}

/** Throws DataFolderInUse when another live process, or this one, already holds the folder. */
export async function acquireDataLock(dataDir: string): Promise<DataLock> {
  // A folder of root may be entered but not listed by others: the database server runs as another user.
  await mkdir(dataDir, { recursive: true, mode: process.getuid?.() === 0 ? 0o711 : 0o700 });
  const path = lockPath(dataDir);
  const holder = await take(path);
  if (holder !== undefined) throw new DataFolderInUse(holder, dataDir);
  return releaseOnce(path);
}

/** The pid of the live process that holds the folder. */
export async function dataLockHolder(dataDir: string): Promise<number | undefined> {
  const content = await readOptional(lockPath(dataDir));
  return content === undefined ? undefined : liveHolder(content);
}

/** Whether the process exists. A zombie does not count. */
export async function isAlive(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (errorCode(error) !== 'EPERM') return false;
  }
  const state = (await processStat(pid))?.state;
  return state !== 'Z' && state !== 'X';
}

export async function readOptional(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

const TAKE_ATTEMPTS_MAX = 100;

const lockPath = (dataDir: string) => join(dataDir, 'minato.lock');

/** Takes the lock file, or returns the pid of the live process that has it. */
async function take(path: string): Promise<number | undefined> {
  const draft = `${path}.${randomUUID()}`;
  await writeFile(draft, await selfDescription(), { mode: 0o600, flag: 'wx' });
  // For a command of root beside a node of another user: that user must be able to read the file.
  await giveToOwner(dirname(path), draft);
  try {
    for (let attempt = 0; attempt < TAKE_ATTEMPTS_MAX; attempt++) {
      if (await linked(draft, path)) return undefined;
      const content = await readOptional(path);
      if (content === undefined) continue; // Released between the two calls.
      const holder = await liveHolder(content);
      if (holder !== undefined) return holder;
      const rival = await replaceStale(draft, path);
      if (rival !== 'no longer stale') return rival;
    }
    throw new Error(
      `The lock ${path} changed its holder ${TAKE_ATTEMPTS_MAX} times while this process waited for it.`,
    );
  } finally {
    await rm(draft, { force: true });
  }
}

/**
 * Replaces a stale lock under a second lock of the same kind, after it has read the file again. Otherwise a
 * slow process that still believes in the stale file would replace the new lock of a faster one. If the
 * second lock is stale too (its holder was killed here), the same rule applies to it, one level down.
 */
async function replaceStale(draft: string, path: string): Promise<number | undefined | 'no longer stale'> {
  const guard = `${path}.takeover`;
  const rival = await take(guard);
  if (rival !== undefined) return rival;
  try {
    const content = await readOptional(path);
    if (content === undefined || (await liveHolder(content)) !== undefined) return 'no longer stale';
    await rename(draft, path);
    return undefined;
  } finally {
    await rm(guard, { force: true });
  }
}

function releaseOnce(path: string): DataLock {
  let released = false;
  return {
    async release() {
      if (released) return;
      released = true;
      await rm(path, { force: true });
    },
  };
}

async function linked(draft: string, path: string): Promise<boolean> {
  try {
    await link(draft, path);
    return true;
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return false;
    throw error;
  }
}

async function selfDescription(): Promise<string> {
  return `${process.pid}\n${(await processStart(process.pid)) ?? ''}\n`;
}

/** A file that cannot be parsed was damaged by a power cut: its writer is dead. */
async function liveHolder(content: string): Promise<number | undefined> {
  const [pidText = '', start = ''] = content.split('\n');
  const pid = Number(pidText);
  if (!Number.isSafeInteger(pid) || pid <= 0 || !(await isAlive(pid))) return undefined;
  const startNow = await processStart(pid);
  const known = start !== '' && startNow !== undefined;
  return known && start !== startNow ? undefined : pid;
}

/**
 * The start time of the process in clock ticks since boot, with the id of the boot: in a container the node
 * is often pid 1 and starts at nearly the same tick of every boot. Undefined without /proc.
 */
async function processStart(pid: number): Promise<string | undefined> {
  const stat = await processStat(pid);
  const boot = await readOptional('/proc/sys/kernel/random/boot_id');
  return stat && `${stat.startTicks} ${boot?.trim() ?? ''}`;
}

async function processStat(pid: number): Promise<{ state: string; startTicks: string } | undefined> {
  const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  if (line === undefined) return undefined;
  // The second field is the name of the program in parentheses and may contain any characters. Field 3
  // follows the last ')'.
  const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
  return { state: fields[0] ?? '', startTicks: fields[22 - 3] ?? '' };
}
