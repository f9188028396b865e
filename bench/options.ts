/** What the command line asks for, and the two sizes of a run: full and `--quick`. */
import { tmpdir } from 'node:os';
import { Command, InvalidArgumentError } from 'commander';
import { PEERS, type Peer } from './peers.js';

export interface Sizes {
  readonly repeat: number;
  readonly ingestEvents: number;
  readonly ingestConnections: number;
  readonly ingestInFlight: number;
  readonly singleEvents: number;
  readonly storedEvents: number;
  readonly queryLoops: number;
  readonly querySeconds: number;
  readonly fanoutConnections: number;
  readonly fanoutSubscriptionsEach: number;
  readonly fanoutEvents: number;
  readonly fanoutInFlight: number;
  readonly deliverPerSecond: number;
  readonly deliverSeconds: number;
  readonly deleteTargets: number;
  readonly searchEvents: number;
  /** Of the store that random queries are asked in. */
  readonly searchDocuments: number;
  readonly searchLoadPerSecond: number;
  readonly eraseEvents: number;
  readonly purgeEvents: number;
  /** The sizes of a store at which `--growth` asks. */
  readonly growthEvents: readonly number[];
  readonly yardstickSeconds: number;
}

const FULL: Sizes = {
  repeat: 3,
  ingestEvents: 20_000,
  ingestConnections: 8,
  ingestInFlight: 100,
  singleEvents: 500,
  storedEvents: 100_000,
  queryLoops: 16,
  querySeconds: 3,
  fanoutConnections: 50,
  fanoutSubscriptionsEach: 20,
  fanoutEvents: 200,
  fanoutInFlight: 100,
  deliverPerSecond: 100,
  deliverSeconds: 5,
  deleteTargets: 1_000,
  searchEvents: 100,
  searchDocuments: 100_000,
  searchLoadPerSecond: 300,
  eraseEvents: 100_000,
  purgeEvents: 1_000_000,
  growthEvents: [10_000, 100_000, 1_000_000],
  yardstickSeconds: 1,
};

const QUICK: Sizes = {
  ...FULL,
  repeat: 1,
  ingestEvents: 1_000,
  singleEvents: 50,
  storedEvents: 3_000,
  querySeconds: 0.5,
  fanoutConnections: 10,
  fanoutEvents: 10,
  deliverSeconds: 1,
  deleteTargets: 100,
  searchEvents: 5,
  searchDocuments: 3_000,
  eraseEvents: 2_000,
  purgeEvents: 10_000,
  growthEvents: [1_000, 10_000],
  yardstickSeconds: 0.2,
};

export interface Options {
  readonly target: string | undefined;
  readonly peer: Peer | undefined;
  readonly label: string;
  readonly only: readonly string[] | undefined;
  readonly seed: number;
  readonly quick: boolean;
  readonly growth: boolean;
  readonly sizes: Sizes;
  readonly temp: string;
  readonly nodeEnv: Readonly<Record<string, string>>;
  readonly json: string | undefined;
  readonly svg: string | undefined;
  readonly compare: string | undefined;
  readonly markdown: boolean;
  /** A file of an earlier run, to be shown and not measured again. */
  readonly from: string | undefined;
  /** How to get the same: without what only says where things go. */
  readonly command: string;
}

interface Flags {
  target?: string;
  peer?: Peer;
  label?: string;
  only?: string[];
  repeat?: number;
  stored?: number;
  events?: number;
  seed: number;
  quick?: true;
  growth?: true;
  temp: string;
  env: Record<string, string>;
  json?: string;
  svg?: string;
  compare?: string;
  markdown?: true;
  from?: string;
}

export function readOptions(argv: readonly string[], rowIds: readonly string[]): Options {
  const flags = describe(rowIds).parse(argv, { from: 'user' }).opts<Flags>();
  const base = flags.quick ? QUICK : FULL;
  return {
    target: flags.target,
    peer: flags.peer,
    label: flags.label ?? (flags.target === undefined ? 'minato' : flags.target),
    only: flags.only,
    seed: flags.seed,
    quick: flags.quick === true,
    growth: flags.growth === true,
    sizes: {
      ...base,
      repeat: flags.repeat ?? base.repeat,
      storedEvents: flags.stored ?? base.storedEvents,
      ingestEvents: flags.events ?? base.ingestEvents,
    },
    temp: flags.temp,
    nodeEnv: flags.env,
    json: flags.json,
    svg: flags.svg,
    compare: flags.compare,
    markdown: flags.markdown === true,
    from: flags.from,
    command: commandOf(flags),
  };
}

function commandOf({ quick, growth, peer, target, only, repeat, stored, events, seed, env }: Flags): string {
  const given = [
    quick && '--quick',
    growth && '--growth',
    target && `--target ${target}`,
    peer && `--peer ${Object.keys(PEERS).find((name) => PEERS[name] === peer)}`,
    only && `--only ${only.join(',')}`,
    repeat && `--repeat ${repeat}`,
    stored && `--stored ${stored}`,
    events && `--events ${events}`,
    seed !== 1 && `--seed ${seed}`,
    ...Object.keys(env).map((key) => `--env ${key}=…`),
  ].filter((flag) => typeof flag === 'string');
  return ['npm run bench', ...(given.length > 0 ? ['--', ...given] : [])].join(' ');
}

function describe(rowIds: readonly string[]): Command {
  return new Command('npm run bench --')
    .description(
      'Measures a Nostr relay over real websockets: by default this node, booted on an empty folder; with --target any relay.\n' +
        'The table goes to stdout, progress to stderr. Exits with 1 when a check failed: ' +
        'a refused event, a wrong or missing row, a delivery that is missing or double.',
    )
    .option('--target <url>', 'measure the relay at this address; it should be empty', readTarget)
    .option(
      '--peer <name>',
      `measure this relay as well, booted beside the node after it: ${Object.keys(PEERS).join(', ')}`,
      readPeer,
    )
    .option('--only <rows>', `only these rows, comma separated: ${rowIds.join(', ')}`, readRows(rowIds))
    .option('--repeat <n>', 'measure each row so often; median and spread are shown (3; quick: 1)', readCount)
    .option('--stored <n>', 'events in the relay before it is queried (100,000; quick: 3,000)', readCount)
    .option('--events <n>', 'events of one repeat of ingest and import (20,000; quick: 1,000)', readCount)
    .option(
      '--seed <n>',
      'another seed makes another corpus, for a relay that already holds this one',
      readCount,
      1,
    )
    .option('--quick', 'everything small, as a smoke test: under a minute, figures mean little')
    .option(
      '--growth',
      'instead of the rows: the same queries at 10,000, 100,000 and 1,000,000 events stored',
    )
    .option('--temp <folder>', "where the node's data lives during the run; a real disk, not tmpfs", tmpdir())
    .option('--env <KEY=VALUE>', 'one more setting for the booted node; can be repeated', readEnv, {})
    .option('--json <file>', 'write everything that was measured')
    .option('--svg <file>', 'draw a bar chart')
    .option(
      '--markdown',
      'print the table of docs/performance.md, with the targets and what does not meet them',
    )
    .option('--from <file>', 'show an earlier --json again, in any of these forms, and measure nothing')
    .option('--label <name>', 'what the report calls this relay')
    .option(
      '--compare <file>',
      'set the result beside an earlier --json, from another relay or another commit',
    )
    .addHelpText('after', EXAMPLES);
}

const EXAMPLES = `
Examples:
  npm run bench -- --quick                                   does everything still work?
  npm run bench -- --only ingest,fanout --repeat 5           two rows, five times
  npm run bench -- --json before.json                        … change something …
  npm run bench -- --compare before.json --svg change.svg
  npm run bench -- --markdown --json report.json             the table of docs/performance.md
  npm run bench -- --growth --json growth.json --svg growth.svg
  npm run bench -- --peer npm --only ingest,author           beside the relay of the npm registry
  npm run bench -- --target ws://127.0.0.1:7777 --label strfry --json strfry.json

bench/README.md explains each row, what is checked and how to read the ratios.`;

function readCount(text: string): number {
  const count = Number(text);
  if (!Number.isSafeInteger(count) || count < 1)
    throw new InvalidArgumentError('must be a whole number above 0');
  return count;
}

function readTarget(text: string): string {
  if (!/^wss?:\/\/./.test(text)) throw new InvalidArgumentError('must begin with ws:// or wss://');
  return text;
}

function readPeer(text: string): Peer {
  const peer = PEERS[text];
  if (peer === undefined) throw new InvalidArgumentError(`there is ${Object.keys(PEERS).join(', ')}`);
  return peer;
}

function readRows(rowIds: readonly string[]): (text: string) => string[] {
  return (text) => {
    const rows = text.split(',').map((row) => row.trim());
    const unknown = rows.filter((row) => !rowIds.includes(row));
    if (unknown.length > 0) throw new InvalidArgumentError(`no such row: ${unknown.join(', ')}`);
    return rows;
  };
}

function readEnv(text: string, before: Record<string, string>): Record<string, string> {
  const [, key, value] = /^([A-Z][A-Z0-9_]*)=(.*)$/.exec(text) ?? [];
  if (key === undefined || value === undefined) throw new InvalidArgumentError('must look like KEY=VALUE');
  return { ...before, [key]: value };
}
