/** Runs the real program as a separate process. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import { fileURLToPath } from 'node:url';
import { ledger } from './secrets/ledger.js';
import { keepNodeKeys } from './secrets/node-keys.js';
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
  const environment = environmentOf(env);
  keepSecrets(environment);
  const { child, ended } = startProgram(args, environment, stdin);
  // Line by line, because it may be killed and left alone.
  for (const stream of [child.stdout!, child.stderr!]) noteLines(stream, args);
  return { child, ended: ended.finally(() => keepNodeKeys(environment.MINATO_DATA_DIR!)) };
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

/** The secrets in the environment of a command. */
function keepSecrets(env: Record<string, string>): void {
  const {
    DATABASE_URL: url,
    MINATO_METRICS_TOKEN: token,
    MINATO_BACKUP_PASSPHRASE_FILE: passphraseFile,
  } = env;
  if (url !== undefined && URL.canParse(url)) ledger.keep('password', new URL(url).password);
  if (token !== undefined) ledger.keep('metrics token', token);
  if (passphraseFile && existsSync(passphraseFile))
    ledger.keep('passphrase', readFileSync(passphraseFile, 'utf8').trim());
}

/** What a command has printed. That of a running node is its log. */
function noteOutput([name, second, ...more]: readonly string[], text: string): void {
  const isLink = name === 'operators' && second === 'link';
  const [, code] = (isLink ? LINK_CODE.exec(text) : undefined) ?? [];
  if (code !== undefined) ledger.keep('sign-in link', code);
  const isNode = name === 'serve' || second === '--serve' || more.includes('--serve');
  ledger.note(isNode ? 'log' : 'command', text, code === undefined ? [] : [code]);
}

function noteLines(stream: Readable, args: readonly string[]): void {
  let rest = '';
  const decoder = new StringDecoder('utf8');
  stream.on('data', (chunk: Buffer) => {
    const text = rest + decoder.write(chunk);
    const end = text.lastIndexOf('\n') + 1;
    rest = text.slice(end);
    if (end > 0) noteOutput(args, text.slice(0, end));
  });
  stream.on('end', () => noteOutput(args, rest));
}

/** The output of a command, and the secrets in its environment. */
async function noted(
  args: readonly string[],
  env: Record<string, string>,
  ended: Promise<Ended>,
): Promise<Ended> {
  keepSecrets(env);
  const { stdout, stderr } = await ended;
  noteOutput(args, stdout);
  noteOutput(args, stderr);
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
