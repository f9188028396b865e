/** The options of the command line, and the two sizes of a run: full and `--quick`. */
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { Command, InvalidArgumentError, Option } from 'commander';
import { FLOODS } from './floods/floods.js';
import { PEERS, type Peer } from './peers.js';

/** Not a row of the table but a separate run, with its own nodes. */
export const FLOODS_ROW = 'floods';
/** Names for `--only` that stand for several rows. */
const GROUPS = ['main', 'all'];
const FLOOD_NAMES = FLOODS.map(({ name }) => name);

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
  readonly fanoutAllEvents: number;
  readonly fanoutInFlight: number;
  readonly deliverPerSecond: number;
  readonly deliverSeconds: number;
  readonly idleSeconds: number;
  readonly deleteTargets: number;
  readonly searchEvents: number;
  /** Documents in the store for random queries. */
  readonly searchDocuments: number;
  readonly searchLoadPerSecond: number;
  readonly eraseEvents: number;
  readonly purgeEvents: number;
  /** The sizes of a store that `--growth` measures. */
  readonly growthEvents: readonly number[];
  readonly yardstickSeconds: number;
  /** Events in the store that `floods` are measured on. */
  readonly floodStored: number;
  /** The length of each phase: alone, beside the sink, beside the flood. */
  readonly floodSeconds: number;
  readonly floodRestSeconds: number;
  /** Before the first phase: a node that has just started is slow, until its code is compiled. */
  readonly floodWarmUpSeconds: number;
  readonly floodSocketsMax: number;
}

const FULL: Sizes = {
  repeat: 3,
  ingestEvents: 20_000,
  ingestConnections: 8,
  ingestInFlight: 100,
  singleEvents: 1_000,
  storedEvents: 100_000,
  queryLoops: 16,
  querySeconds: 3,
  fanoutConnections: 50,
  fanoutSubscriptionsEach: 20,
  fanoutEvents: 5_000,
  fanoutAllEvents: 200,
  fanoutInFlight: 100,
  deliverPerSecond: 100,
  deliverSeconds: 10,
  idleSeconds: 20,
  deleteTargets: 1_000,
  searchEvents: 100,
  searchDocuments: 100_000,
  searchLoadPerSecond: 300,
  eraseEvents: 100_000,
  purgeEvents: 1_000_000,
  growthEvents: [10_000, 100_000, 1_000_000],
  yardstickSeconds: 1,
  floodStored: 20_000,
  floodSeconds: 6,
  floodRestSeconds: 2,
  floodWarmUpSeconds: 12,
  floodSocketsMax: 10_000,
};

const QUICK: Sizes = {
  ...FULL,
  repeat: 1,
  ingestEvents: 1_000,
  singleEvents: 50,
  storedEvents: 3_000,
  querySeconds: 0.5,
  fanoutConnections: 10,
  fanoutEvents: 500,
  fanoutAllEvents: 10,
  deliverSeconds: 2,
  idleSeconds: 2,
  deleteTargets: 100,
  searchEvents: 5,
  searchDocuments: 3_000,
  eraseEvents: 2_000,
  purgeEvents: 10_000,
  growthEvents: [1_000, 10_000],
  yardstickSeconds: 0.2,
  floodStored: 3_000,
  floodSeconds: 1.5,
  floodRestSeconds: 0.5,
  floodWarmUpSeconds: 1.5,
  floodSocketsMax: 600,
};

/** DynamoDB Local answers some tens of writes a second: with more in flight, writes miss their deadline. */
const LOCAL = { ingestConnections: 4, ingestInFlight: 4, queryLoops: 4 };

export interface Options {
  readonly target: string | undefined;
  readonly peer: Peer | undefined;
  readonly label: string;
  readonly only: readonly string[] | undefined;
  /** Of `--only floods`: these floods; all by default. */
  readonly floods: readonly string[] | undefined;
  /** Of `--only floods`: the other floods of the --json file stay in it. */
  readonly append: boolean;
  /** Of `--only floods`: settings that are not the defaults. */
  readonly nodeSettings: Readonly<Record<string, string>>;
  readonly seed: number;
  readonly quick: boolean;
  readonly growth: boolean;
  /** Where the booted node keeps its events. */
  readonly store: 'postgres' | 'dynamodb';
  /** False: search, moderation and trust are paused on the booted node. */
  readonly consumers: boolean;
  /** The folder for CPU profiles and flame graphs of the booted node. */
  readonly profile: string | undefined;
  /** Rows that are already in the file of `--json` are not measured again. */
  readonly resume: boolean;
  readonly sizes: Sizes;
  readonly temp: string;
  readonly nodeEnv: Readonly<Record<string, string>>;
  readonly json: string | undefined;
  readonly svg: string | undefined;
  readonly compare: CompareTarget | undefined;
  readonly markdown: boolean;
  /** A file of an earlier run to show instead of measuring. */
  readonly from: string | undefined;
  /** The command that repeats this run, without the paths of output files. */
  readonly command: string;
}

export type CompareTarget =
  | { readonly with: 'file'; readonly file: string }
  /** Undefined: the commit before, see compare.ts. */
  | { readonly with: 'revision'; readonly revision: string | undefined };

/** `--compare` alone, with a file of an earlier run, or with a revision of git. */
export function compareTarget(value: string | true, isFile: (path: string) => boolean): CompareTarget {
  if (value === true) return { with: 'revision', revision: undefined };
  if (value.endsWith('.json') || isFile(value)) return { with: 'file', file: value };
  return { with: 'revision', revision: value };
}

interface Flags {
  target?: string;
  peer?: Peer;
  label?: string;
  only?: string[];
  flood?: string[];
  append?: true;
  setting: Record<string, string>;
  repeat?: number;
  stored?: number;
  events?: number;
  seed: number;
  quick?: true;
  growth?: true;
  store: 'postgres' | 'dynamodb';
  sizes?: number[];
  consumers: 'on' | 'off';
  profile?: string;
  resume?: true;
  temp: string;
  env: Record<string, string>;
  json?: string;
  svg?: string;
  compare?: string | true;
  markdown?: true;
  from?: string;
}

export function readOptions(argv: readonly string[], rowIds: readonly string[]): Options {
  const flags = describe([...rowIds, ...GROUPS, FLOODS_ROW])
    .parse(argv, { from: 'user' })
    .opts<Flags>();
  if (flags.only?.includes(FLOODS_ROW) && flags.only.length > 1)
    throw new Error('--only floods cannot be combined with other rows');
  if (flags.flood !== undefined && flags.only?.[0] !== FLOODS_ROW)
    throw new Error('--flood needs --only floods');
  if (Object.keys(flags.setting).length > 0 && flags.only?.[0] !== FLOODS_ROW)
    throw new Error('--setting needs --only floods');
  if (flags.append && (flags.only?.[0] !== FLOODS_ROW || flags.json === undefined))
    throw new Error('--append needs --only floods and --json');
  if (flags.compare !== undefined && (flags.growth || flags.only?.[0] === FLOODS_ROW))
    throw new Error('--compare compares rows and takes neither --growth nor --only floods');
  if (flags.store === 'dynamodb' && (flags.growth || flags.target || flags.peer || flags.compare))
    throw new Error('--store dynamodb measures the rows of this node, without another one');
  if (flags.sizes !== undefined && !flags.growth) throw new Error('--sizes needs --growth');
  if (flags.resume && (flags.json === undefined || flags.compare === undefined))
    throw new Error('--resume continues a --compare COMMIT and needs its --json FILE');
  const base = flags.quick ? QUICK : FULL;
  return {
    target: flags.target,
    peer: flags.peer,
    label: flags.label ?? (flags.target === undefined ? 'minato' : flags.target),
    only: flags.only,
    floods: flags.flood,
    append: flags.append === true,
    nodeSettings: flags.setting,
    seed: flags.seed,
    quick: flags.quick === true,
    growth: flags.growth === true,
    store: flags.store,
    consumers: flags.consumers === 'on',
    profile: flags.profile,
    resume: flags.resume === true,
    sizes: {
      ...base,
      ...(flags.store === 'dynamodb' ? LOCAL : {}),
      repeat: flags.repeat ?? base.repeat,
      storedEvents: flags.stored ?? base.storedEvents,
      floodStored: flags.stored ?? base.floodStored,
      ingestEvents: flags.events ?? base.ingestEvents,
      growthEvents: flags.sizes ?? base.growthEvents,
    },
    temp: flags.temp,
    nodeEnv: flags.env,
    json: flags.json,
    svg: flags.svg,
    compare: flags.compare === undefined ? undefined : compareTarget(flags.compare, existsSync),
    markdown: flags.markdown === true,
    from: flags.from,
    command: commandOf(flags),
  };
}

function commandOf(flags: Flags): string {
  const { quick, growth, sizes, peer, target, only, flood, repeat, stored, events, seed, env, compare } =
    flags;
  const given = [
    quick && '--quick',
    growth && '--growth',
    flags.store === 'dynamodb' && '--store dynamodb',
    sizes && `--sizes ${sizes.join(',')}`,
    flags.consumers === 'off' && '--consumers off',
    flags.profile && '--profile',
    target && `--target ${target}`,
    peer && `--peer ${Object.keys(PEERS).find((name) => PEERS[name] === peer)}`,
    compare === true && '--compare',
    typeof compare === 'string' && `--compare ${compare}`,
    only && `--only ${only.join(',')}`,
    flood && `--flood ${flood.join(',')}`,
    repeat && `--repeat ${repeat}`,
    stored && `--stored ${stored}`,
    events && `--events ${events}`,
    seed !== 1 && `--seed ${seed}`,
    ...Object.entries(flags.setting).map(([key, value]) => `--setting ${key}=${value}`),
    ...Object.keys(env).map((key) => `--env ${key}=…`),
  ].filter((flag) => typeof flag === 'string');
  return ['npm run bench', ...(given.length > 0 ? ['--', ...given] : [])].join(' ');
}

function describe(rowIds: readonly string[]): Command {
  return new Command('npm run bench --')
    .description(
      'Measures a Nostr relay over real WebSockets: by default this node, booted on an empty folder; ' +
        'with --target any relay.\n' +
        'Prints the table to stdout and the progress to stderr. Exits with 1 when a check failed: ' +
        'a refused event, a wrong or missing row, a delivery that is missing or double.',
    )
    .option('--target <url>', 'measure the relay at this address; it should be empty', readTarget)
    .option('--peer <name>', `then measure this relay as well: ${Object.keys(PEERS).join(', ')}`, readPeer)
    .option(
      '--only <rows>',
      `only these rows, comma separated (main: the rows by which commits are compared): ${rowIds.join(', ')}`,
      readNames('row', rowIds),
    )
    .option(
      '--flood <names>',
      `of --only floods: only these, comma separated: ${FLOOD_NAMES.join(', ')}`,
      readNames('flood', FLOOD_NAMES),
    )
    .option(
      '--append',
      'of --only floods: keep the other floods of the --json file, so that a run can be done in parts',
    )
    .option(
      '--setting <KEY=VALUE>',
      'of --only floods: a setting of the node, such as node.memoryWindowMB=0; can be repeated',
      readSetting,
      {},
    )
    .option(
      '--repeat <n>',
      'how often to measure each row; the report shows median and spread (3; quick: 1)',
      readCount,
    )
    .option('--stored <n>', 'events in the relay before it is queried (100,000; quick: 3,000)', readCount)
    .option('--events <n>', 'events of one repeat of ingest and import (20,000; quick: 1,000)', readCount)
    .option(
      '--seed <n>',
      'seed of the corpus; use another one for a relay that already holds this corpus',
      readCount,
      1,
    )
    .option('--quick', 'a small run of the main rows as a smoke test: about a minute, figures mean little')
    .option(
      '--growth',
      'measure the same queries at 10,000, 100,000 and 1,000,000 stored events, instead of the rows',
    )
    .addOption(
      new Option(
        '--store <name>',
        'where the node keeps its events; dynamodb: on DynamoDB Local, with the capacity units of each row ' +
          'and with 16 events in flight',
      )
        .choices(['postgres', 'dynamodb'])
        .default('postgres'),
    )
    .option('--sizes <list>', 'of --growth: other sizes, comma separated, such as 1000000,5000000', readSizes)
    .addOption(
      new Option('--consumers <on or off>', 'off: pause search, moderation and trust, to see what they cost')
        .choices(['on', 'off'])
        .default('on'),
    )
    .option('--profile <folder>', 'write the CPU profile of the booted node and its flame graph there')
    .option('--resume', 'continue a --compare: rows that are already in --json FILE are not measured again')
    .option(
      '--temp <folder>',
      "folder for the node's data during the run; on a real disk, not tmpfs",
      tmpdir(),
    )
    .option('--env <KEY=VALUE>', 'one more setting for the booted node; can be repeated', readEnv, {})
    .option('--json <file>', 'write everything that was measured')
    .option('--svg <file>', 'draw a bar chart')
    .option('--markdown', 'print the table of docs/performance.md, with the targets and the missed ones')
    .option('--from <file>', 'show an earlier --json again, in any of these forms, and measure nothing')
    .option('--label <name>', 'name of this relay in the report')
    .option(
      '--compare [file or revision]',
      'measure a commit of this repository alternately with this tree, in the same run ' +
        '(by default HEAD while something is uncommitted, ' +
        'else where the branch left main, else the commit before); ' +
        'or set the result beside an earlier --json',
    )
    .addHelpText('after', EXAMPLES);
}

const EXAMPLES = `
Examples:
  npm run bench -- --quick                                   does everything still work?
  npm run bench -- --only ingest,fanout --repeat 5           two rows, five times
  npm run bench -- --compare HEAD~5 --markdown --json c.json every main row beside a commit
  npm run bench -- --compare HEAD~5 --json c.json --resume   continue the interrupted run
  npm run bench -- --compare --only ingest,single,author     some rows beside the commit before
  npm run bench -- --consumers off --only main               without search, moderation and trust
  npm run bench -- --only ingest-full --repeat 1 --profile p a flame graph of the node while it stores events
  npm run bench -- --compare v1.0.0 --quick --only ingest
  npm run bench -- --compare strfry.json --svg chart.svg     beside an earlier --json
  npm run bench -- --markdown --json report.json             the table of docs/performance.md
  npm run bench -- --growth --sizes 1000000,5000000 --json growth.json --svg growth.svg
  npm run bench -- --only floods --quick --flood pings,count how a flood affects other clients
  npm run bench -- --peer npm --only ingest,author           beside the relay of the npm registry
  npm run bench -- --target ws://127.0.0.1:7777 --label strfry --json strfry.json

bench/README.md explains each row, what is checked and how to read the ratios.`;

function readCount(text: string): number {
  const count = Number(text);
  if (!Number.isSafeInteger(count) || count < 1)
    throw new InvalidArgumentError('must be a whole number above 0');
  return count;
}

function readSizes(text: string): number[] {
  return text.split(',').map(readCount);
}

function readTarget(text: string): string {
  if (!/^wss?:\/\/./.test(text)) throw new InvalidArgumentError('must begin with ws:// or wss://');
  return text;
}

function readPeer(text: string): Peer {
  const peer = PEERS[text];
  if (peer === undefined) throw new InvalidArgumentError(`must be one of ${Object.keys(PEERS).join(', ')}`);
  return peer;
}

function readNames(what: string, known: readonly string[]): (text: string) => string[] {
  return (text) => {
    const names = text.split(',').map((name) => name.trim());
    const unknown = names.filter((name) => !known.includes(name));
    if (unknown.length > 0) throw new InvalidArgumentError(`no such ${what}: ${unknown.join(', ')}`);
    return names;
  };
}

function readSetting(text: string, before: Record<string, string>): Record<string, string> {
  const [, key, value] = /^([a-z][A-Za-z.]*)=(.*)$/.exec(text) ?? [];
  if (key === undefined || value === undefined) throw new InvalidArgumentError('must look like KEY=VALUE');
  return { ...before, [key]: value };
}

function readEnv(text: string, before: Record<string, string>): Record<string, string> {
  const [, key, value] = /^([A-Z][A-Z0-9_]*)=(.*)$/.exec(text) ?? [];
  if (key === undefined || value === undefined) throw new InvalidArgumentError('must look like KEY=VALUE');
  return { ...before, [key]: value };
}
