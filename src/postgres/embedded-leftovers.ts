/**
 * Stops a PostgreSQL server that an earlier run left on this data folder, and removes pid files that would
 * mislead PostgreSQL.
 */
import { readFile, realpath, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isAlive, readOptional } from './data-lock.js';
import { PORT, type ServerLog, type Site } from './embedded-site.js';
import { errorCode } from './rules-error-code.js';
import { runProgram } from './system-user.js';

const PS_MS_MAX = 10_000;
const FAST_STOP_MS_MAX = 60_000;
const IMMEDIATE_STOP_MS_MAX = 15_000; // PostgreSQL itself kills its last children after 5 s.

interface PostmasterFile {
  pid: number;
  port: number;
  socketDir: string;
  ready: boolean;
}

export async function readPostmasterFile(pgdata: string): Promise<PostmasterFile | undefined> {
  const content = await readOptional(join(pgdata, 'postmaster.pid'));
  if (content === undefined) return undefined;
  const [pid, , , port, socketDir = '', , , status = ''] = content.split('\n');
  return { pid: Number(pid), port: Number(port), socketDir, ready: status.trim() === 'ready' };
}

/**
 * Compares the working folder of the process and not its arguments: the data folder may have been moved
 * since.
 */
export async function isServerOf(pid: number, pgdata: string): Promise<boolean> {
  if (!(pid > 0) || !(await isAlive(pid))) return false;
  if (process.platform !== 'linux') return isServerByArguments(pid, await realpath(pgdata));
  try {
    const [program = ''] = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0');
    const [works, data] = await Promise.all([stat(`/proc/${pid}/cwd`), stat(pgdata)]);
    return basename(program) === 'postgres' && works.dev === data.dev && works.ino === data.ino;
  } catch {
    return false; // It has ended, or belongs to another user.
  }
}

async function isServerByArguments(pid: number, pgdata: string): Promise<boolean> {
  const args = ['-p', `${pid}`, '-o', 'command='];
  const { stdout } = await runProgram('ps', args, { msMax: PS_MS_MAX }).catch(() => ({ stdout: '' }));
  return stdout.includes('/postgres ') && stdout.includes(` -D ${pgdata} `);
}

/**
 * Stops the server that a killed node left, and removes pid files that would keep PostgreSQL from starting.
 */
export async function clearPredecessor(site: Site, log: ServerLog): Promise<void> {
  const pid = (await readPostmasterFile(site.pgdata))?.pid ?? 0;
  if (await isServerOf(pid, site.pgdata)) {
    log.warn(`A PostgreSQL of an earlier run (process ${pid}) is still running: stopping it`);
    await endServer(pid, log);
  }
  await removeMistakenPidFile(join(site.pgdata, 'postmaster.pid'), site.pgdata);
  await removeMistakenPidFile(join(site.connection.host, `.s.PGSQL.${PORT}.lock`), site.pgdata);
}

/**
 * PostgreSQL takes any live process with the pid of its file for a running server, even if the pid was
 * reused, and then refuses to start. The file of an unused pid is left to PostgreSQL: it also protects the
 * shared memory.
 */
async function removeMistakenPidFile(path: string, pgdata: string): Promise<void> {
  const pid = Number.parseInt((await readOptional(path)) ?? '', 10);
  if (pid > 0 && pidIsTaken(pid) && !(await isServerOf(pid, pgdata))) await rm(path, { force: true });
}

function pidIsTaken(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return errorCode(error) === 'EPERM';
  }
}

/** Fast (SIGINT: open transactions are rolled back), then immediate (SIGQUIT: recovery at the next start). */
export async function endServer(pid: number, log: ServerLog): Promise<void> {
  if (await signalAndWait(pid, 'SIGINT', FAST_STOP_MS_MAX)) return;
  log.warn(`PostgreSQL (process ${pid}) did not stop in ${FAST_STOP_MS_MAX / 1000} s: stopping it at once`);
  if (await signalAndWait(pid, 'SIGQUIT', IMMEDIATE_STOP_MS_MAX)) return;
  throw new Error(`PostgreSQL (process ${pid}) does not stop.`);
}

async function signalAndWait(pid: number, signal: NodeJS.Signals, waitMs: number): Promise<boolean> {
  const deadline = performance.now() + waitMs;
  if (pidIsTaken(pid)) process.kill(pid, signal);
  while (await isAlive(pid)) {
    if (performance.now() > deadline) return false;
    await delay(20);
  }
  return true;
}
