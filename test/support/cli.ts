/** Runs the real program as a separate process. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('../../bin/minato.js', import.meta.url));

export interface Ended {
  /** Null when a signal ended it. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunningCli {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
}

/** The default data folder: one for each database, outside of the checkout. */
function folderOf({ DATABASE_URL: url = 'none' }: Record<string, string>): string {
  return join(
    tmpdir(),
    `minato-cli-${createHash('sha256').update(`${process.pid} ${url}`).digest('hex').slice(0, 16)}`,
  );
}

/** Uses only the given environment, so that variables of the machine do not affect a test. */
export function startCli(
  args: readonly string[],
  env: Record<string, string>,
  stdin?: string | Buffer,
): RunningCli {
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    env: { PATH: process.env.PATH, MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: folderOf(env), ...env },
    stdio: [stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  });
  const collect = (stream: NodeJS.ReadableStream | null): Buffer[] => {
    const chunks: Buffer[] = [];
    stream?.on('data', (chunk: Buffer) => chunks.push(chunk));
    return chunks;
  };
  const stdout = collect(child.stdout);
  const stderr = collect(child.stderr);
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(stdin);
  const ended = once(child, 'close').then(([code]) => ({
    code: code as number | null,
    stdout: Buffer.concat(stdout).toString(),
    stderr: Buffer.concat(stderr).toString(),
  }));
  return { child, ended };
}

export function runCli(
  args: readonly string[],
  env: Record<string, string>,
  stdin?: string | Buffer,
): Promise<Ended> {
  return startCli(args, env, stdin).ended;
}

/** Polls until `look` returns a value. A condition that never comes true fails with its name. */
export async function eventually<T>(
  what: string,
  look: () => Promise<T | undefined> | T | undefined,
  timeoutMs = 100_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (Date.now() > deadline) throw new Error(`this did not happen in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
