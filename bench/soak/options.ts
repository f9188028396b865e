/** The options of `npm run test:soak`. */
import { parseArgs } from 'node:util';

export interface SoakOptions {
  readonly minutes: number;
  /** Events a second. */
  readonly rate: number;
  /** Seconds between two samples. */
  readonly every: number;
  /** Holds the data of the node and the samples. */
  readonly folder: string;
  readonly resume: boolean;
  /** Where the plot is written. */
  readonly svg: string | undefined;
}

export const USAGE = `npm run test:soak -- [--minutes N] [--rate N] [--folder F] [--svg FILE] [--resume]
  --minutes  how long, in all (120)
  --rate     events a second (1,200: half of what ingest-full measures in docs/performance.md)
  --every    seconds between two samples (10)
  --folder   its data and samples (node_modules/.cache/minato/soak)
  --resume   continues a run that was stopped, with its data
  --svg      writes the plot`;

export function readSoakOptions(args: readonly string[]): SoakOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      minutes: { type: 'string', default: '120' },
      rate: { type: 'string', default: '1200' },
      every: { type: 'string', default: '10' },
      folder: { type: 'string', default: 'node_modules/.cache/minato/soak' },
      resume: { type: 'boolean', default: false },
      svg: { type: 'string' },
    },
  });
  const count = (name: 'minutes' | 'rate' | 'every') => {
    const number = Number(values[name]);
    if (!Number.isSafeInteger(number) || number < 1)
      throw new Error(`--${name} must be a whole number above 0\n${USAGE}`);
    return number;
  };
  return {
    minutes: count('minutes'),
    rate: count('rate'),
    every: count('every'),
    folder: values.folder,
    resume: values.resume,
    svg: values.svg,
  };
}
