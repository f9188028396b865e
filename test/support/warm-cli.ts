/**
 * Most of the CPU time of a short command is spent on loading the program. So a test worker keeps one process
 * that has loaded it (warm-program.mjs), and runs one command after the other in it.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { Ended } from './cli.js';

const PROGRAM = fileURLToPath(new URL('warm-program.mjs', import.meta.url));

interface Warm {
  readonly child: ChildProcess;
  /** Resolves with its exit code when it has ended. */
  readonly closed: Promise<number | null>;
}
/** Some tests run two commands at the same time. */
const IDLE_MAX = 2;
const idle: Warm[] = [];

/** The others do not end by themselves, or need a process with flags of its own. */
export function canRunWarm(args: readonly string[], env: Record<string, string>): boolean {
  return args[0] !== 'serve' && !args.includes('--serve') && env.NODE_OPTIONS === undefined;
}

/** Commands at the same time have a process each. */
export async function runWarm(
  args: readonly string[],
  env: Record<string, string>,
  stdin?: string | Buffer,
): Promise<Ended> {
  const warm = idle.pop() ?? start();
  const { child, closed } = warm;
  const mark = `\n${randomUUID()}\n`;
  const stdout = collect(child.stdout!, mark, closed);
  const stderr = collect(child.stderr!, mark, closed);
  const answer = once(child, 'message').then(([{ code }]) => ({ code: code as number, isAlive: true }));
  const end = closed.then((code) => ({ code, isAlive: false }));
  child.send({ args, env, stdin, mark });
  const { code, isAlive } = await Promise.race([answer, end]);
  const ended = { code, stdout: await stdout, stderr: await stderr };
  if (isAlive && idle.length < IDLE_MAX) idle.push(warm);
  else if (child.connected) child.disconnect();
  return ended;
}

function start(): Warm {
  const child = fork(PROGRAM, [], {
    env: {},
    execArgv: [],
    serialization: 'advanced',
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  // It ends with this worker.
  child.unref();
  child.channel?.unref();
  return { child, closed: new Promise((resolve) => child.once('close', resolve)) };
}

/** What the stream writes until the mark, or until its end. */
function collect(stream: Readable, mark: string, closed: Promise<unknown>): Promise<string> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const finish = () => {
      stream.off('data', take);
      const text = Buffer.concat(chunks).toString();
      resolve(text.endsWith(mark) ? text.slice(0, -mark.length) : text);
    };
    const take = (chunk: Buffer) => {
      chunks.push(chunk);
      const tail = Buffer.concat(chunks.slice(-2)).subarray(-mark.length);
      if (tail.toString() === mark) finish();
    };
    stream.on('data', take);
    void closed.then(finish);
  });
}
