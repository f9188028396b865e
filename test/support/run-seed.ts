/**
 * The seed of tests with random inputs: a fresh one for each process. So what CI runs once more has the
 * inputs of its first try: a bug fails twice, a hiccup of a busy machine once. It is a setup file of vitest,
 * so that properties of fast-check without a seed of their own use it too.
 */
import { randomInt } from 'node:crypto';
import fc from 'fast-check';

export const RUN_SEED = randomInt(1_000_000_000);
fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: RUN_SEED });

interface Tried {
  readonly name: string;
  readonly result?: { readonly retryCount?: number } | undefined;
}

/** The seed, which is printed at each try. */
export function seedOf({ name, result }: Tried): number {
  const again = (result?.retryCount ?? 0) > 0 ? ' once more: the first try failed' : '';
  console.log(`${name}: seed ${RUN_SEED}${again}`);
  return RUN_SEED;
}
