/** The command line of the fuzz run. */
import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';

export interface Options {
  readonly seed: string;
  readonly inputs: number;
  /** How many of the inputs go over sockets and HTTP. */
  readonly wire: number;
  /** These targets only; all of them if it is empty. */
  readonly only: readonly string[];
  readonly replay: { readonly target: string; readonly input: string } | undefined;
}

export const USAGE = `npm run test:fuzz -- [--seed N] [--inputs M] [--wire W] [--only NAME,…]
npm run test:fuzz -- --replay TARGET:BASE64
  --seed    a new one by default; it is printed
  --inputs  how many inputs in all (20,000)
  --wire    how many of them over sockets and HTTP (a tenth)
  --only    names of targets
  --replay  one input of an earlier failure, as it printed it`;

export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seed: { type: 'string' },
      inputs: { type: 'string', default: '20000' },
      wire: { type: 'string' },
      only: { type: 'string', default: '' },
      replay: { type: 'string' },
    },
  });
  const inputs = countIn('--inputs', values.inputs);
  return {
    seed: values.seed ?? String(randomInt(2 ** 32)),
    inputs,
    wire: values.wire === undefined ? Math.ceil(inputs / 10) : countIn('--wire', values.wire),
    only: values.only.split(',').filter((name) => name !== ''),
    replay: values.replay === undefined ? undefined : replayIn(values.replay),
  };
}

function countIn(name: string, text: string): number {
  const count = Number(text);
  if (!Number.isSafeInteger(count) || count < 0) throw new Error(`${name} must be a whole number\n${USAGE}`);
  return count;
}

function replayIn(text: string): { target: string; input: string } {
  const [target, encoded] = text.split(':');
  if (target === undefined || encoded === undefined)
    throw new Error(`--replay must be TARGET:BASE64\n${USAGE}`);
  return { target, input: Buffer.from(encoded, 'base64').toString('utf16le') };
}

/** UTF-16, because an input may have lone surrogates. */
export function toReplay(target: string, input: string): string {
  return `${target}:${Buffer.from(input, 'utf16le').toString('base64')}`;
}
