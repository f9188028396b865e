/** Runs the real program as a separate process. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ledger } from './secrets/ledger.js';
import { canRunWarm, runWarm } from './warm-cli.js';

/** The longest pause between two looks. */
const PAUSE_MS_MAX = 40;
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

function environmentOf(env: Record<string, string>): Record<string, string> {
  const { PATH = '' } = process.env;
  return { PATH, MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: folderOf(env), ...env };
}

/** Uses only the given environment, so that variables of the machine do not affect a test. */
export function startCli(
  args: readonly string[],
  env: Record<string, string>,
  stdin?: string | Buffer,
): RunningCli {
  return startProgram(args, environmentOf(env), stdin);
}

function startProgram(
  args: readonly string[],
  env: Record<string, string>,
  stdin?: string | Buffer,
): RunningCli {
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    env,
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

/** A command that ends by itself. */
export function runCli(
  args: readonly string[],
  env: Record<string, string>,
  stdin?: string | Buffer,
): Promise<Ended> {
  return runProgram(args, environmentOf(env), stdin);
}

/** The address that `minato operators link` prints, with its code in the fragment. */
const LINK_CODE = /#[^\s#]*?([A-Za-z0-9_-]{43})\b/;

/** The output of a command, and the secrets in its environment. */
async function noted(
  args: readonly string[],
  env: Record<string, string>,
  ended: Promise<Ended>,
): Promise<Ended> {
  const {
    DATABASE_URL: url,
    MINATO_METRICS_TOKEN: token,
    MINATO_BACKUP_PASSPHRASE_FILE: passphraseFile,
  } = env;
  if (url !== undefined && URL.canParse(url)) ledger.keep('password', new URL(url).password);
  if (token !== undefined) ledger.keep('metrics token', token);
  if (passphraseFile) {
    const passphrase = await readFile(passphraseFile, 'utf8').catch(() => '');
    ledger.keep('passphrase', passphrase.trim());
  }
  const { stdout, stderr } = await ended;
  const isLink = args[0] === 'operators' && args[1] === 'link';
  const [, code] = (isLink ? LINK_CODE.exec(stdout) : undefined) ?? [];
  if (code !== undefined) ledger.keep('sign-in link', code);
  ledger.note('command', stdout, code === undefined ? [] : [code]);
  ledger.note('command', stderr);
  return ended;
}

/** With exactly this environment. It need not have a new process: warm-cli.ts says why. */
export function runProgram(
  args: readonly string[],
  env: Record<string, string>,
  stdin?: string | Buffer,
): Promise<Ended> {
  const ended = canRunWarm(args, env) ? runWarm(args, env, stdin) : startProgram(args, env, stdin).ended;
  return noted(args, env, ended);
}

/**
 * Polls until `look` returns a value. A condition that never comes true fails with its name. A wait becomes
 * longer by a fiftieth at most, and leaves two thirds of the time to the work that it waits for.
 */
export async function eventually<T>(
  what: string,
  look: () => Promise<T | undefined> | T | undefined,
  timeoutMs = 100_000,
): Promise<T> {
  const began = Date.now();
  for (;;) {
    const looked = Date.now();
    const found = await look();
    if (found !== undefined) return found;
    const now = Date.now();
    if (now - began > timeoutMs) throw new Error(`this did not happen in time: ${what}`);
    const pauseMs = Math.max(2, 2 * (now - looked), (now - began) / 50);
    await new Promise((resolve) => setTimeout(resolve, Math.min(pauseMs, PAUSE_MS_MAX)));
  }
}
