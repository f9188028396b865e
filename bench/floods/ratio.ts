/**
 * The ratio of two p99, and how far chance alone moves it. Slow answers come in groups, because one pause
 * delays all messages that were sent in it. So samples are drawn again in blocks of time, and the range has
 * nine tenths of the ratios of such draws (a bootstrap by blocks).
 */
import { seededRandom } from '../generate.js';
import { quantile } from '../measure.js';

export interface Timed {
  readonly sentMs: number;
  readonly tookMs: number;
}

export interface Ratio {
  readonly value: number;
  readonly low: number;
  readonly high: number;
}

const BLOCK_MS = 250;
const DRAWS = 1_000;
const LEFT_OUT_EACH_SIDE = 0.05;

/** Each phase is a list of rounds. The same samples always give the same range. */
export function ratioOfP99(
  above: readonly (readonly Timed[])[],
  below: readonly (readonly Timed[])[],
): Ratio {
  const [blocksAbove, blocksBelow] = [above.flatMap(blocksOf), below.flatMap(blocksOf)];
  const random = seededRandom(1, 0);
  const draws = Float64Array.from(
    { length: DRAWS },
    () => p99Of(drawn(blocksAbove, random)) / p99Of(drawn(blocksBelow, random)),
  ).sort();
  return {
    value: p99Of(blocksAbove) / p99Of(blocksBelow),
    low: quantile(draws, LEFT_OUT_EACH_SIDE),
    high: quantile(draws, 1 - LEFT_OUT_EACH_SIDE),
  };
}

function blocksOf(samples: readonly Timed[]): number[][] {
  const blocks = new Map<number, number[]>();
  for (const { sentMs, tookMs } of samples) {
    const block = Math.floor(sentMs / BLOCK_MS);
    const known = blocks.get(block);
    if (known === undefined) blocks.set(block, [tookMs]);
    else known.push(tookMs);
  }
  return [...blocks.values()];
}

function drawn(blocks: readonly number[][], random: () => number): number[][] {
  return blocks.map(() => blocks[Math.floor(random() * blocks.length)]!);
}

function p99Of(blocks: readonly number[][]): number {
  return quantile(Float64Array.from(blocks.flat()).sort(), 0.99);
}
