/** The options of `npm run test:faults`. */
import { parseArgs } from 'node:util';

export interface Options {
  readonly seed: number;
  /** The first round, counted from 0. */
  readonly from: number;
  /** How many rounds there are in all. */
  readonly rounds: number;
  readonly resume: boolean;
  readonly state: string;
  /** How long a round waits for what must happen. */
  readonly settleSeconds: number;
}

/** Longer than every deadline of the node together: what has not happened by then never happens. */
const SETTLE_SECONDS_MAX = 180;
const WHOLE = /^\d{1,9}$/;
const SEED_MAX = 1_000_000_000;

export function readOptions(args: readonly string[], random = Math.random): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seed: { type: 'string' },
      from: { type: 'string', default: '0' },
      rounds: { type: 'string', default: '8' },
      resume: { type: 'boolean', default: false },
      state: { type: 'string' },
      settle: { type: 'string', default: `${SETTLE_SECONDS_MAX}` },
    },
  });
  for (const name of ['seed', 'from', 'rounds', 'settle'] as const) {
    const text = values[name];
    if (text !== undefined && !WHOLE.test(text))
      throw new Error(`--${name} must be a whole number, not "${text}"`);
  }
  if (values.resume && values.seed === undefined) throw new Error('--resume needs the --seed of the run');
  const seed = values.seed === undefined ? Math.floor(random() * SEED_MAX) : Number(values.seed);
  return {
    seed,
    from: Number(values.from),
    rounds: Number(values.rounds),
    resume: values.resume,
    settleSeconds: Number(values.settle),
    state: values.state ?? `node_modules/.cache/minato/faults-${seed}.json`,
  };
}
