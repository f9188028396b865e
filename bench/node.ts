/**
 * Boots the node on an empty folder with the default settings, and stops it. Also reads the memory and the
 * CPU time of the node and of the PostgreSQL that it started.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

/** This tree's own node. */
export const PROGRAM = fileURLToPath(new URL('../bin/minato.js', import.meta.url));
const READY_MS_MAX = 120_000;
const READY_POLL_MS = 100;
const STOP_MS_MAX = 60_000;
const COMMAND_MS_MAX = 30 * 60_000;
const LOG_TAIL_CHARS = 8_000;
/**
 * Settings in the environment of the bench must not reach the node, least of all the URL of a real database.
 */
const FOREIGN_SETTING = /^(MINATO_|DATABASE_URL$|REDIS_URL$|DYNAMODB_|AWS_|PG[A-Z]+$)/;

export interface BootedNode {
  readonly url: string;
  readonly pid: number;
  /** Resolves when the node answers. The error holds the end of the node's log. */
  ready(): Promise<void>;
  stop(): Promise<void>;
  hasEnded(): boolean;
}

/** A folder for one run's data. Other users can enter it, because PostgreSQL does not run as root. */
export function makeFolder(temp: string): string {
  const folder = mkdtempSync(join(temp, 'minato-bench-'));
  chmodSync(folder, 0o755);
  return folder;
}

export function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}

const atWork = new Set<() => Promise<void>>();

/** Cleans up once, after the work or when the run is interrupted, so that no server and no data is left. */
export async function withCleanUp<T>(cleanUp: () => Promise<void>, work: () => Promise<T>): Promise<T> {
  let done: Promise<void> | undefined;
  const once = (): Promise<void> => {
    done ??= cleanUp();
    return done;
  };
  atWork.add(once);
  try {
    return await work();
  } finally {
    await once();
    atWork.delete(once);
  }
}

let ending = false;
/** A signal has come: what fails from now on fails because of the clean-up. */
export const isEnding = (): boolean => ending;

/** Cleans up in reverse order: a server before its folder. */
export function cleanUpOnSignal(say: (text: string) => void): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, async () => {
      ending = true;
      say(`${signal}: cleaning up`);
      for (const cleanUp of [...atWork].reverse()) await cleanUp().catch(() => undefined);
      process.exit(130);
    });
  }
}

export function nodeEnvironment(
  dataDir: string,
  port: number,
  extra: Readonly<Record<string, string>>,
): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(([key]) => !FOREIGN_SETTING.test(key));
  return {
    ...Object.fromEntries(own),
    MINATO_PORT: String(port),
    MINATO_DATA_DIR: dataDir,
    MINATO_TOPIC_MODE: 'open',
    MINATO_LOG_LEVEL: 'warn',
    ...extra,
  };
}

/** Only starts the process, so that the caller can stop it while it boots. */
export async function startNode(
  folder: string,
  extra: Readonly<Record<string, string>>,
  program = PROGRAM,
  profileFolder?: string,
  serveArgs: readonly string[] = [],
): Promise<BootedNode> {
  const port = await freePort();
  const log = join(folder, 'node.log');
  const descriptor = openSync(log, 'a');
  const profiling = profileFolder === undefined ? [] : profileInto(profileFolder);
  const child = spawn(process.execPath, [...profiling, program, 'serve', ...serveArgs], {
    env: nodeEnvironment(join(folder, 'data'), port, extra),
    stdio: ['ignore', descriptor, descriptor],
  });
  closeSync(descriptor);
  return {
    url: `ws://127.0.0.1:${port}`,
    pid: child.pid!,
    ready: () =>
      untilReady(child, port).catch((error: Error) => {
        throw new Error(`the node did not start: ${error.message}\n${tail(log)}`);
      }),
    stop: () => stopProcess(child),
    hasEnded: () => hasEnded(child),
  };
}

/** The folder is writable for everybody, because a node started by root changes to another user. */
function profileInto(folder: string): string[] {
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o777);
  return ['--cpu-prof', '--cpu-prof-dir', resolve(folder)];
}

/** Runs one of the node's commands to its end. Returns the exit code and the output. */
export function runCommand(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  program = PROGRAM,
): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, [program, ...args], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: COMMAND_MS_MAX,
  });
  let output = '';
  const keep = (chunk: Buffer): void => {
    output = (output + chunk.toString()).slice(-LOG_TAIL_CHARS);
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, output }));
  });
}

async function untilReady(child: ChildProcess, port: number): Promise<void> {
  const deadlineMs = performance.now() + READY_MS_MAX;
  while (performance.now() < deadlineMs) {
    if (hasEnded(child)) throw new Error(`it ended with ${child.exitCode ?? child.signalCode}`);
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
    if (ready?.status === 200) return;
    await sleep(READY_POLL_MS);
  }
  throw new Error(`GET /readyz did not answer 200 within ${READY_MS_MAX / 1000} s`);
}

/** A forked server sends its port in its first message. */
export function portOf(server: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('message', (port) => resolve(port as number));
    server.once('error', reject);
    server.once('exit', (code) => reject(new Error(`${server.spawnargs.at(2)} ended with ${code}`)));
  });
}

export async function stopProcess(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await Promise.race([ended, sleep(STOP_MS_MAX, undefined, { ref: false })]);
  if (!hasEnded(child)) child.kill('SIGKILL');
}

export function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

/** The main process of the PostgreSQL of a data folder: the first line of its pid file. */
export function postmasterOf(dataDir: string): number {
  return Number(readFileSync(join(dataDir, 'postgres/postmaster.pid'), 'utf8').split('\n')[0]);
}

function tail(file: string): string {
  return existsSync(file) ? readFileSync(file, 'utf8').slice(-LOG_TAIL_CHARS) : '';
}

/** The resident memory of one process, in MB (10^6 bytes). */
export function residentMegabytes(pid: number): number {
  const kibibytes = Number(execFileSync('ps', ['-o', 'rss=', '-p', String(pid)]).toString());
  return (kibibytes * 1024) / 1e6;
}

export interface Memory {
  readonly node: number;
  readonly database: number;
}

/**
 * Memory of a process and of the PostgreSQL that it started, in MB. A shared page is divided among the
 * processes (PSS). Undefined where the system does not report it.
 */
export function memoryOf(pid: number): Memory | undefined {
  if (!existsSync('/proc/self/smaps_rollup')) return undefined;
  const servers = descendants(pid).filter((child) => readProc(child, 'comm').trim() === 'postgres');
  const database = servers.reduce((sum, server) => sum + proportionalMegabytes(server), 0);
  return { node: proportionalMegabytes(pid), database };
}

function proportionalMegabytes(pid: number): number {
  const kibibytes = Number(/^Pss:\s+(\d+)/m.exec(readProc(pid, 'smaps_rollup'))?.[1] ?? 0);
  return (kibibytes * 1024) / 1e6;
}

export interface CpuSeconds {
  readonly node: number;
  readonly database: number;
}

/**
 * CPU seconds that a process and its descendants have used, including ended ones. Undefined without /proc.
 */
export function treeCpuSeconds(pid: number): number | undefined {
  const used = cpuSecondsOf(pid);
  return used && used.node + used.database;
}

/** The same for the process itself and for its descendants, which are the database. */
export function cpuSecondsOf(pid: number): CpuSeconds | undefined {
  if (!existsSync('/proc/self/stat')) return undefined;
  const database = descendants(pid).reduce((sum, child) => sum + usedSeconds(child), 0);
  return { node: usedSeconds(pid), database };
}

/** Its own time, user and system, and that of its ended children. */
function usedSeconds(pid: number): number {
  const ticks = statFields(pid)
    .slice(11, 15)
    .reduce((sum, field) => sum + Number(field), 0);
  return ticks / TICKS_PER_SECOND;
}
/** USER_HZ: 100 on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

export interface ProcessUse {
  readonly pid: number;
  readonly isNode: boolean;
  readonly cpuSeconds: number;
  readonly megabytes: number;
}

/** A process and its descendants, the oldest first, with their CPU seconds and their memory (PSS). */
export function processesOf(pid: number): ProcessUse[] {
  return [pid, ...descendants(pid).sort((a, b) => a - b)].map((each) => ({
    pid: each,
    isNode: readProc(each, 'comm').trim() !== 'postgres',
    cpuSeconds: usedSeconds(each),
    megabytes: proportionalMegabytes(each),
  }));
}

function descendants(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const entry of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    const parent = Number(statFields(Number(entry))[1]);
    children.set(parent, [...(children.get(parent) ?? []), Number(entry)]);
  }
  const found: number[] = [];
  const walk = (parent: number): void => {
    for (const child of children.get(parent) ?? []) {
      found.push(child);
      walk(child);
    }
  };
  walk(pid);
  return found;
}

/**
 * Fields of /proc/PID/stat after the command's name, which may hold spaces: state, parent, … utime, stime.
 */
function statFields(pid: number): string[] {
  const stat = readProc(pid, 'stat');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** Empty when the process has just ended. */
function readProc(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8');
  } catch {
    return '';
  }
}
