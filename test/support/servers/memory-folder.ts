/**
 * The temporary files of a run, in memory where there is enough of it: databases are made, written and
 * dropped all the time, and a disk costs them CPU time too. Otherwise, or if TMPDIR is set, they are where
 * they always were.
 */
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, readdir, rm, statfs, writeFile } from 'node:fs/promises';
import { freemem } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const MEMORY = '/dev/shm';
const NAME = /^minato-(\d+)-/;
/** A run needs less than two; some tests compare the free space of two moments. */
const SPACE_BYTES_MIN = 8 * 2 ** 30;
/** What the folder uses is not there for the servers, the browser and the tests. */
const MEMORY_BYTES_MIN = 10 * 2 ** 30;

/** Makes it the folder of `tmpdir()`, for this process and those that it starts. Returns how to end that. */
export async function useMemoryFolder(): Promise<() => Promise<void>> {
  if (process.env.TMPDIR !== undefined || !(await hasSpace())) return async () => undefined;
  await removeLeftovers();
  const folder = await mkdtemp(join(MEMORY, `minato-${process.pid}-`));
  const remove = () => rm(folder, { recursive: true, force: true });
  if (!(await canExecute(folder))) {
    await remove();
    return async () => undefined;
  }
  // As the system's folder: some tests start processes of other users.
  await chmod(folder, 0o1777);
  process.env.TMPDIR = folder;
  return remove;
}

async function hasSpace(): Promise<boolean> {
  const space = await statfs(MEMORY).catch(() => undefined);
  // 0 or undefined: no limit.
  const memory = Math.min(freemem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
  return space !== undefined && space.bavail * space.bsize >= SPACE_BYTES_MIN && memory >= MEMORY_BYTES_MIN;
}

/** Some systems forbid it in this folder, and some tests install programs. */
async function canExecute(folder: string): Promise<boolean> {
  const path = join(folder, 'program');
  await writeFile(path, '#!/bin/sh\n', { mode: 0o700 });
  return promisify(execFile)(path).then(
    () => true,
    () => false,
  );
}

/** Of runs that were killed: they would keep the memory. */
async function removeLeftovers(): Promise<void> {
  for (const name of await readdir(MEMORY)) {
    const [, pid] = NAME.exec(name) ?? [];
    if (pid === undefined || isRunning(Number(pid))) continue;
    await rm(join(MEMORY, name), { recursive: true, force: true }).catch(() => undefined);
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
