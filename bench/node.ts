/**
 * Boots the node on an empty folder, as a default install would run it, and stops it again. Also reads what its
 * processes cost: memory and CPU of the node, and of the PostgreSQL that it started.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('../bin/minato.js', import.meta.url));
const READY_MS_MAX = 120_000;
const READY_POLL_MS = 100;
const STOP_MS_MAX = 60_000;
const COMMAND_MS_MAX = 30 * 60_000;
const LOG_TAIL_CHARS = 8_000;
/** Settings of whoever runs the bench must not leak into the node, least of all an address of a real database. */
const FOREIGN_SETTING = /^(MINATO_|DATABASE_URL$|REDIS_URL$|DYNAMODB_|AWS_|PG[A-Z]+$)/;

export interface BootedNode {
  readonly url: string;
  readonly pid: number;
  /** Resolves when the node answers; explains with the end of its log why it does not. */
  ready(): Promise<void>;
  stop(): Promise<void>;
}

/** A folder for one run's data. Others may enter it, because PostgreSQL does not run as root. */
export function makeFolder(temp: string): string {
  const folder = mkdtempSync(join(temp, 'minato-bench-'));
  chmodSync(folder, 0o755);
  return folder;
}

export function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}

const atWork = new Set<() => Promise<void>>();

/** Cleans up once, after the work or when the run is interrupted: neither a server nor its data may be left behind. */
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

/** What was begun last is cleaned up first: a server before its folder. */
export function cleanUpOnSignal(say: (text: string) => void): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, async () => {
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

/** Only starts the process, so that whoever called can stop it also while it boots. */
export async function startNode(
  folder: string,
  extra: Readonly<Record<string, string>>,
): Promise<BootedNode> {
  const port = await freePort();
  const log = join(folder, 'node.log');
  const descriptor = openSync(log, 'a');
  const child = spawn(process.execPath, [PROGRAM, 'serve'], {
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
  };
}

/** Runs one of the node's commands to its end; the exit code and what it printed. */
export function runCommand(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, [PROGRAM, ...args], {
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

/** A forked server tells its port in its first message. */
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

function hasEnded(child: ChildProcess): boolean {
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

function tail(file: string): string {
  return existsSync(file) ? readFileSync(file, 'utf8').slice(-LOG_TAIL_CHARS) : '';
}

/** The resident memory of one process, in MB (10^6 bytes). */
export function residentMegabytes(pid: number): number {
  const kibibytes = Number(execFileSync('ps', ['-o', 'rss=', '-p', String(pid)]).toString());
  return (kibibytes * 1024) / 1e6;
}

/** Memory of the PostgreSQL that this process started, where Linux tells it with shared pages counted once. */
export function databaseMegabytes(pid: number): number | undefined {
  if (!existsSync('/proc/self/smaps_rollup')) return undefined;
  const servers = descendants(pid).filter((child) => readProc(child, 'comm').trim() === 'postgres');
  if (servers.length === 0) return undefined;
  const kibibytes = servers.map((server) =>
    Number(/^Pss:\s+(\d+)/m.exec(readProc(server, 'smaps_rollup'))?.[1] ?? 0),
  );
  return (kibibytes.reduce((sum, each) => sum + each, 0) * 1024) / 1e6;
}

/** CPU seconds that a process and its living descendants have used; undefined where there is no /proc. */
export function treeCpuSeconds(pid: number): number | undefined {
  if (!existsSync('/proc/self/stat')) return undefined;
  let ticks = 0;
  for (const each of [pid, ...descendants(pid)]) {
    const fields = statFields(each);
    ticks += Number(fields[11] ?? 0) + Number(fields[12] ?? 0);
  }
  return ticks / TICKS_PER_SECOND;
}
/** USER_HZ: 100 on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

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

/** Fields of /proc/PID/stat after the command's name, which may hold spaces: state, parent, … utime, stime. */
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
