/**
 * `npm run test:fuzz`: inputs from grammars, from a corpus and from mutations, first for the pure parts of
 * the node in this process, then over sockets and HTTP to a node of its own. The same seed gives the same
 * pure inputs. A failure prints its seed and input.
 */
import { type Options, readOptions, toReplay } from './options.js';
import { PURE_TARGETS } from './pure/list.js';
import { runPure } from './pure/run.js';
import { Broken, type Done } from './target.js';
import { replayWire, runWire, WIRE_TARGETS } from './wire/run.js';

/** What the pure targets may leave behind: compiled patterns, caches of the runtime. */
const HEAP_GROWTH_MAX = 48 * 1_048_576;

async function main(options: Options): Promise<void> {
  const { seed, replay } = options;
  if (replay !== undefined) return replayOne(replay);
  console.log(`fuzz: seed ${seed}, ${options.inputs} inputs, ${options.wire} of them over the wire`);
  const done = await runAll(options);
  report(done);
}

async function runAll({ seed, inputs, wire, only }: Options): Promise<Done[]> {
  const isWanted = ({ name }: { readonly name: string }) => only.length === 0 || only.includes(name);
  const pure = PURE_TARGETS.filter(isWanted);
  const overWire = WIRE_TARGETS.filter(isWanted);
  const done = pure.length === 0 ? [] : await runAllPure(pure, seed, inputs - wire);
  if (overWire.length === 0 || wire === 0) return done;
  const { done: sent, heapBefore, heapAfter } = await runWire(overWire, seed, wire, log);
  console.log(`heap of the node: ${mib(heapBefore)} MiB after a third, ${mib(heapAfter)} MiB at the end`);
  return [...done, ...sent];
}

async function runAllPure(pure: typeof PURE_TARGETS, seed: string, inputs: number): Promise<Done[]> {
  const share = Math.ceil(inputs / pure.length);
  // The first round loads what every later one needs.
  for (const target of pure) await runPure(target, `${seed}/first`, Math.min(1_000, share));
  const before = heapBytes();
  const done: Done[] = [];
  for (const target of pure) done.push(log(await runPure(target, seed, share)));
  const grown = heapBytes() - before;
  console.log(`heap of the pure targets: ${mib(before)} MiB, then ${mib(before + grown)} MiB`);
  if (grown > HEAP_GROWTH_MAX) throw new Error(`a leak: the heap has grown by ${mib(grown)} MiB`);
  return done;
}

function log(done: Done): Done {
  const rate = Math.round(done.inputs / Math.max(done.seconds, 0.001));
  const notes = Object.entries(done.notes).map(([name, count]) => `${count} ${name}`);
  console.log(`${[`${done.target}: ${done.inputs} inputs`, `${rate}/s`, ...notes].join(', ')}`);
  return done;
}

function report(done: readonly Done[]): void {
  const inputs = done.reduce((sum, one) => sum + one.inputs, 0);
  console.log(`fuzz: ${inputs} inputs, no rule broken`);
}

async function replayOne({ target: name, input }: NonNullable<Options['replay']>): Promise<void> {
  const target = PURE_TARGETS.find((one) => one.name === name);
  console.log(`replay of ${JSON.stringify(input)}`);
  if (target === undefined) await replayWire(name, input);
  else await target.run(input);
  console.log('no rule broken');
}

function heapBytes(): number {
  if (globalThis.gc === undefined) throw new Error('start it with --expose-gc');
  globalThis.gc();
  globalThis.gc();
  return process.memoryUsage().heapUsed;
}

const mib = (bytes: number) => (bytes / 1_048_576).toFixed(1);

process.on('unhandledRejection', (error) => fail('an unhandled rejection', error));
const options = readOptions(process.argv.slice(2));
main(options).then(
  () => process.exit(0),
  (error: unknown) => fail('a rule is broken', error),
);

function fail(what: string, error: unknown): never {
  console.error(`fuzz: ${what}, seed ${options.seed}`);
  if (error instanceof Broken) {
    console.error(
      `  target  ${error.target}\n  rule    ${error.why}\n  input   ${JSON.stringify(error.input)}`,
    );
    console.error(`  replay  npm run test:fuzz -- --replay ${toReplay(error.target, error.input)}`);
  } else console.error(error);
  process.exit(1);
}
