/** Runs a pure target: inputs from its grammar, and mutations of those that covered new code. */
import { readFileSync } from 'node:fs';
import { Dice } from '../../../src/demo/rules-dice.js';
import { Guide } from '../guide.js';
import { minimise } from '../minimise.js';
import { mutate } from '../mutate.js';
import { Broken, type Done, type PureTarget } from '../target.js';

const BATCH = 500;
/** Without new code in this many batches the counting ends: it slows the code down. */
const QUIET_BATCHES_MAX = 20;
const KEPT_MAX = 2_000;
const INPUT_LENGTH_MAX = 20_000;

export async function runPure(target: PureTarget, seed: string, inputs: number): Promise<Done> {
  const began = performance.now();
  const dice = new Dice(`${seed}/${target.name}`);
  const kept = target.corpus.flatMap(linesOf);
  const fromCorpus = kept.length;
  let guide: Guide | undefined = await Guide.start();
  let quiet = 0;
  let blocks = 0;
  const run = (input: string) => runOne(target, input);
  for (const input of kept) await run(input);
  await guide.takeNew();
  for (let done = 0; done < inputs; ) {
    const batch = Array.from({ length: Math.min(BATCH, inputs - done) }, () => next(target, dice, kept));
    for (const input of batch) await run(input);
    done += batch.length;
    if (guide === undefined) continue;
    const fresh = await guide.findNew(batch, run);
    blocks = guide.size;
    if (fresh !== undefined && kept.length < KEPT_MAX) kept.push(fresh);
    quiet = fresh === undefined ? quiet + 1 : 0;
    if (quiet < QUIET_BATCHES_MAX) continue;
    await guide.stop();
    guide = undefined;
  }
  await guide?.stop();
  const seconds = (performance.now() - began) / 1_000;
  return { target: target.name, inputs, seconds, notes: { kept: kept.length - fromCorpus, blocks } };
}

function next(target: PureTarget, dice: Dice, kept: readonly string[]): string {
  const isMade = kept.length === 0 || dice.chance(0.5);
  return (isMade ? target.make(dice) : mutate(dice, dice.pick(kept), kept)).slice(0, INPUT_LENGTH_MAX);
}

function linesOf(name: string): string[] {
  const text = readFileSync(new URL(`../corpus/${name}.txt`, import.meta.url), 'utf8');
  return text.split('\n').filter((line) => line !== '');
}

export async function runOne(target: PureTarget, input: string): Promise<void> {
  const why = await problemOf(target, input);
  if (why === undefined) return;
  // Shorter, with the same problem.
  const shortest = await minimise(input, async (shorter) => (await problemOf(target, shorter)) === why);
  throw new Broken(target.name, shortest, why);
}

async function problemOf(target: PureTarget, input: string): Promise<string | undefined> {
  try {
    await target.run(input);
    return undefined;
  } catch (error) {
    return String(error instanceof Error ? error.message : error);
  }
}
