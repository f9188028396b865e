/**
 * Runs commands of the built program one after the other in one process, which has loaded the program once.
 * Each command has its own evaluation of the entry, its arguments, environment and standard input. It has
 * ended when nothing is left to wait for, as a process does: a command that leaves something open hangs here
 * too. After `process.exit` nothing that it does is seen.
 */
import { Readable } from 'node:stream';
import { setFlagsFromString } from 'node:v8';

/** After `process.exit`: how long its connections may take to close before the process really ends. */
const CLOSING_MS_MAX = 2_000;

// As in bin/minato.js.
setFlagsFromString('--heap-growing-percent=100');
const entry = new URL('../../dist/cli/main.js', import.meta.url).href;
const streams = [process.stdout, process.stderr];
const writeTo = streams.map((stream) => stream.write.bind(stream));
const reallyExit = process.exit.bind(process);

class Exit extends Error {}

let runs = 0;
/** The command that runs now. */
let run;

process.on('message', ({ args, env, stdin, mark }) => {
  runs += 1;
  run = { mark, exitCode: undefined, isLoaded: false, closing: undefined };
  process.argv.splice(2, process.argv.length, ...args);
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, env);
  const input = Readable.from(stdin === undefined ? [] : [Buffer.from(stdin)]);
  Object.defineProperty(process, 'stdin', { configurable: true, value: input });
  process.exitCode = undefined;
  process.channel.unref();
  const started = run;
  import(`${entry}?run=${runs}`).then(() => {
    started.isLoaded = true;
  }, fail);
});

/** Nothing is left to wait for. */
process.on('beforeExit', () => {
  if (run === undefined) return;
  // 13: Node.js's own code for a module that waits for something that never happens.
  const code = run.exitCode ?? (run.isLoaded ? Number(process.exitCode ?? 0) : 13);
  const { mark, closing } = run;
  clearTimeout(closing);
  run = undefined;
  process.exitCode = undefined;
  for (const stream of streams) {
    stream.removeAllListeners('error');
    delete stream.write;
  }
  process.channel.ref();
  for (const write of writeTo) write(mark);
  process.send({ code });
});

process.exit = (code) => {
  if (run === undefined) return reallyExit(code);
  if (run.exitCode === undefined) {
    run.exitCode = Number(code ?? process.exitCode ?? 0);
    for (const stream of streams) stream.write = () => true;
    run.closing = setTimeout(reallyExit, CLOSING_MS_MAX, run.exitCode).unref();
  }
  throw new Exit('the command has ended');
};

/** As Node.js does with an error that nobody catches. */
function fail(error) {
  if (run?.exitCode !== undefined) return;
  writeTo[1](`${error?.stack ?? error}\n`);
  reallyExit(1);
}
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);
process.on('disconnect', () => reallyExit(0));
