/**
 * `npm run bench -- --only floods`: how a flood affects other clients. Well-behaved clients are measured
 * alone, beside a flood against a sink, and beside the same flood against the node. Everything shares the
 * cores: the second shows what the flood costs the machine, and the third divided by the second shows what
 * the node adds. The node has its default settings except for the open topic mode. Attackers and visitors
 * appear to come through a proxy on this machine, so each has an outside address.
 */
import { fork } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type Corpus, loadCorpus } from '../corpus.js';
import { drawProfiles } from '../flame.js';
import {
  type BootedNode,
  makeFolder,
  portOf,
  removeFolder,
  residentMegabytes,
  withCleanUp,
} from '../node.js';
import type { Options } from '../options.js';
import { describeMachine, type Machine } from '../report.js';
import { openSigner, type Sign } from '../sign.js';
import { Attacker, type Sent } from './attacker-commands.js';
import { keepCoresAwake } from './awake-cores.js';
import { ADDRESSES, type Flood, titleOf } from './flood.js';
import { FLOODS } from './floods.js';
import { type Ratio, ratioOfP99 } from './ratio.js';
import { changeSettings, fillStore, withNode } from './set-up.js';
import { type Use, UseWatch } from './use.js';
import {
  countedSamples,
  type Question,
  summarize,
  Tally,
  type Visit,
  type VisitPlan,
  visit,
} from './visitors.js';

export interface FloodRow {
  readonly name: string;
  readonly title: string;
  readonly alone: Visit;
  readonly besideSink: Visit;
  readonly besideFlood: Visit;
  /** p99 beside the flood to p99 beside the sink. */
  readonly ratio: Readonly<Record<Question, Ratio>>;
  readonly toSink: Sent;
  readonly toNode: Sent;
  /** What node and database used beside the sink and beside the flood. */
  readonly use: { readonly besideSink: Use; readonly besideFlood: Use };
  /**
   * Memory of the node: before the flood, at most, and a while after each round. If these are equal, later
   * rounds leave nothing behind.
   */
  readonly megabytes: {
    readonly before: number;
    readonly most: number;
    readonly after: readonly number[];
  };
  /** The part of a core that the host took away, in the worst of the counted rounds. */
  readonly stolen: number;
  /** Why the target is not met, where it is not. */
  readonly cause: string;
  readonly failures: readonly string[];
}

export interface FloodsReport {
  readonly format: 5;
  readonly command: string;
  readonly date: string;
  readonly quick: boolean;
  readonly machine: Machine;
  /** The load average of the minute before. If it is far from 0, the figures mean little. */
  readonly loadBefore: number;
  readonly storedEvents: number;
  /** Length of a phase in each round. */
  readonly seconds: number;
  /** Time between the end of a flood and the reading of the memory. */
  readonly restSeconds: number;
  readonly rounds: number;
  readonly floods: readonly FloodRow[];
  /** Floods that could not be measured, and why. */
  readonly failures: readonly string[];
}

const STORED_SAMPLE = 2_000;
const VARIANTS = 5_000;
const WARM_UP_SECONDS = 0.5;
const VISITORS = 8;
/** 203.0.113.0/24 and 2001:db8::/32 are reserved for documentation, 198.18.0.0/15 for benchmarks. */
const VISITOR_ADDRESSES = Array.from({ length: VISITORS }, (_, number) => `203.0.113.${number + 1}`);

interface Run {
  readonly options: Options;
  readonly corpus: Corpus;
  readonly folder: string;
  readonly sinkPort: number;
  readonly sign: Sign;
  readonly say: (text: string) => void;
}

export async function measureFloods(options: Options, say: (text: string) => void): Promise<FloodsReport> {
  const stored = options.sizes.floodStored;
  const loadBefore = loadavg()[0]!;
  const { corpus } = await loadCorpus(options.seed, stored, say);
  const folder = makeFolder(options.temp);
  const sink = fork(fileURLToPath(new URL('sink.ts', import.meta.url)));
  const letCoresSleep = options.quick ? () => undefined : keepCoresAwake();
  const cleanUp = async (): Promise<void> => {
    letCoresSleep();
    sink.kill();
    removeFolder(folder);
  };
  return withCleanUp(cleanUp, async () => {
    const run = { options, corpus, folder, sinkPort: await portOf(sink), sign: await openSigner(), say };
    say(`filling the store with ${corpus.size.toLocaleString('en')} events`);
    await fillStore(folder, corpus, options.nodeEnv);
    await changeSettings(folder, options.nodeSettings, options.nodeEnv);
    const rows: FloodRow[] = [];
    const failures: string[] = [];
    const chosen = FLOODS.filter(({ name }) => options.floods?.includes(name) ?? true);
    // A fresh node for each flood, so that memory left by one does not affect the next.
    for (const flood of chosen) await measureOnFreshNode(run, flood, rows, failures);
    return {
      format: 5,
      command: options.command,
      date: new Date().toISOString(),
      quick: options.quick,
      machine: describeMachine(),
      loadBefore,
      storedEvents: stored,
      seconds: options.sizes.floodSeconds,
      restSeconds: options.sizes.floodRestSeconds,
      rounds: options.sizes.repeat,
      floods: rows,
      failures,
    };
  });
}

export function readFloods(file: string): FloodsReport {
  const report = JSON.parse(readFileSync(file, 'utf8')) as FloodsReport;
  if (report.format !== 5 || report.floods === undefined)
    throw new Error(`${file} is not a report of --only floods`);
  return report;
}

/** Adds the other floods of an earlier run of the same size, in the order of the list. */
export function appendFloods(file: string, report: FloodsReport): FloodsReport {
  if (!existsSync(file)) return report;
  const earlier = readFloods(file);
  for (const size of ['quick', 'storedEvents', 'seconds', 'rounds'] as const)
    if (earlier[size] !== report[size]) throw new Error(`${file} is of another size: ${size}`);
  const measured = new Set(report.floods.map(({ name }) => name));
  const floods = [...earlier.floods.filter(({ name }) => !measured.has(name)), ...report.floods];
  const place = (row: FloodRow): number => FLOODS.findIndex(({ name }) => name === row.name);
  return {
    ...report,
    command: report.command.replace(/ --flood \S+/, ''),
    loadBefore: Math.max(earlier.loadBefore, report.loadBefore),
    floods: floods.sort((one, other) => place(one) - place(other)),
    failures: [
      ...earlier.failures.filter((failure) => !measured.has(failure.split(':')[0]!)),
      ...report.failures,
    ],
  };
}

async function measureOnFreshNode(
  run: Run,
  flood: Flood,
  rows: FloodRow[],
  failures: string[],
): Promise<void> {
  run.say(flood.name);
  const { profile } = run.options;
  const profileFolder = profile === undefined ? undefined : join(profile, flood.name);
  try {
    const measure = async (node: BootedNode, port: number): Promise<void> => {
      await visitFor(run, node, new Tally(), { seconds: run.options.sizes.floodWarmUpSeconds });
      rows.push(await measureFlood(run, node, port, flood));
    };
    await withNode(run.folder, run.options.nodeEnv, measure, profileFolder);
  } catch (error) {
    failures.push(`${flood.name}: ${(error as Error).message}`);
  }
  const drawn = profileFolder === undefined ? undefined : drawProfiles(profileFolder, flood.name);
  if (drawn !== undefined) run.say(`flame graph: ${drawn}`);
}

/**
 * Waits until the node answers quickly again, so that the flood does not affect the next phase. False when
 * the node has ended or takes too long.
 */
async function hasRecovered(run: Run, node: BootedNode): Promise<boolean> {
  const deadlineMs = performance.now() + RECOVERY_MS_MAX;
  while (performance.now() < deadlineMs && memoryOf(node.pid) !== undefined) {
    const tally = new Tally();
    await visitFor(run, node, tally, { seconds: RECOVERY_SECONDS }).catch(() => undefined);
    const { ok, eose, lost } = summarize([tally]);
    if (lost === 0 && Math.max(ok.p99Ms, eose.p99Ms) < RECOVERED_MS) return true;
  }
  return false;
}
const RECOVERY_SECONDS = 0.3;
const RECOVERED_MS = 1_000;
const RECOVERY_MS_MAX = 45_000;

interface Round {
  readonly alone: Tally;
  readonly sink: Tally;
  readonly flood: Tally;
  /** Memory of the node after it; undefined when the node has ended. */
  megabytesAfter?: number | undefined;
}

/** The part of a core that the host took away while the round compared the two. */
const stolenPart = ({ sink, flood }: Round): number => Math.max(sink.stolen.part, flood.stolen.part);
/** With less a round is quiet. It is repeated if it is not, until there are twice as many rounds. */
const QUIET_PART = 0.1;

/** The quietest rounds, in their order. */
function quietest(rounds: readonly Round[], count: number): Round[] {
  const sorted = [...rounds].sort((one, other) => stolenPart(one) - stolenPart(other));
  const chosen = new Set(sorted.slice(0, count));
  return rounds.filter((round) => chosen.has(round));
}

/**
 * Each round measures alone, beside the flood and beside the sink, so that other work of the machine affects
 * all three. The sink is last because it gets what the node accepted: an attacker that the node does not
 * read, closes or refuses sends less, and the sink must not get more.
 */
async function measureFlood(run: Run, node: BootedNode, nodePort: number, flood: Flood): Promise<FloodRow> {
  const { sizes } = run.options;
  const rounds: Round[] = [];
  const isEnough = (): boolean =>
    rounds.length >= sizes.repeat * 2 ||
    rounds.filter((round) => stolenPart(round) < QUIET_PART).length >= sizes.repeat;
  const attacker = await Attacker.prepare({
    flood: flood.name,
    stored: Array.from({ length: Math.min(STORED_SAMPLE, run.corpus.size) }, (_, at) => run.corpus.event(at)),
    nodePort,
    variants: VARIANTS,
    socketsMax: sizes.floodSocketsMax,
  });
  return withCleanUp(
    () => attacker.end(),
    async () => {
      const memory = new MemoryWatch(node.pid);
      const used = { sink: new UseWatch(node), flood: new UseWatch(node) };
      let toSink = NOTHING_SENT;
      let toNode = NOTHING_SENT;
      while (!isEnough()) {
        const addresses = attackerAddresses(flood, rounds.length);
        const round: Round = { alone: new Tally(), sink: new Tally(), flood: new Tally() };
        rounds.push(round);
        const against = async (
          tally: Tally,
          port: number,
          used: UseWatch,
          pace?: readonly number[],
        ): Promise<Sent> => {
          await used.begin();
          const beside = async (): Promise<void> => {
            await attacker.start(port, addresses, pace);
            await sleep(WARM_UP_SECONDS * 1_000);
          };
          await visitFor(run, node, tally, { beside });
          const sent = await attacker.stop();
          await used.end(sent.seconds);
          return sent;
        };
        await visitFor(run, node, round.alone, { seconds: sizes.floodSeconds * ALONE_PART });
        memory.begin();
        const begunMicros = monotonicMicros();
        const taken = await against(round.flood, nodePort, used.flood);
        if (run.options.profile !== undefined)
          run.say(`the flood in the profile: ${begunMicros} to ${monotonicMicros()} µs`);
        toNode = sum(toNode, taken);
        await sleep(sizes.floodRestSeconds * 1_000);
        round.megabytesAfter = memoryOf(node.pid);
        if (!(await hasRecovered(run, node))) break;
        toSink = sum(toSink, await against(round.sink, run.sinkPort, used.sink, taken.pace));
      }
      const megabytes = memory.end();
      const chosen = quietest(rounds, sizes.repeat);
      const everySeen = summarize(rounds.map((round) => round.flood));
      const ratio = (question: Question): Ratio =>
        ratioOfP99(
          chosen.map(({ flood }) => countedSamples(flood, question)),
          chosen.map(({ sink }) => countedSamples(sink, question)),
        );
      return {
        name: flood.name,
        title: titleOf(flood, sizes.floodSocketsMax),
        cause: flood.cause,
        alone: summarize(chosen.map((round) => round.alone)),
        besideSink: summarize(chosen.map((round) => round.sink)),
        besideFlood: summarize(chosen.map((round) => round.flood)),
        ratio: { ok: ratio('ok'), eose: ratio('eose') },
        stolen: Math.max(...chosen.map(stolenPart)),
        toSink,
        toNode,
        use: { besideSink: used.sink.use, besideFlood: used.flood.use },
        megabytes: { ...megabytes, after: chosen.flatMap((round) => round.megabytesAfter ?? []) },
        failures: findingsOf(everySeen, memoryOf(node.pid) === undefined),
      };
    },
  );
}

/** The figures without a flood are for comparison only; no ratio depends on them. */
const ALONE_PART = 0.5;

/** The clock of CPU profiles. */
const monotonicMicros = (): bigint => process.hrtime.bigint() / 1_000n;

const NOTHING_SENT: Sent = { seconds: 0, messages: 0, bytes: 0, opened: 0, closed: 0, refused: 0, pace: [] };

function sum(before: Sent, more: Sent): Sent {
  const total = (key: keyof Omit<Sent, 'pace'>): number => before[key] + more[key];
  return {
    seconds: total('seconds'),
    messages: total('messages'),
    bytes: total('bytes'),
    opened: total('opened'),
    closed: total('closed'),
    refused: total('refused'),
    pace: [],
  };
}

/** New addresses in each round: a node that still refuses an address would make the round easy. */
function attackerAddresses(flood: Flood, round: number): string[] {
  const count = flood.addresses ?? ADDRESSES;
  return Array.from({ length: count }, (_, number) => {
    const place = round * count + number;
    if (flood.oneNetwork) return `2001:db8:${round}:${number}::1`;
    return `198.${18 + Math.floor(place / 250)}.${FLOODS.indexOf(flood)}.${(place % 250) + 1}`;
  });
}

function visitFor(
  { options, corpus, sign }: Run,
  { url }: BootedNode,
  tally: Tally,
  {
    seconds = options.sizes.floodSeconds,
    beside = async () => undefined,
  }: Partial<Pick<VisitPlan, 'seconds' | 'beside'>> = {},
): Promise<void> {
  const authors = [...corpus.byAuthor.keys()];
  return visit({ url, addresses: VISITOR_ADDRESSES, authors, seconds, sign, tally, beside });
}

function findingsOf({ lost, refused, reason }: Visit, hasEnded: boolean): string[] {
  return [
    ...(hasEnded ? ['the node ended'] : []),
    ...(lost > 0 ? [`${lost} messages of well-behaved clients got no answer`] : []),
    ...(refused > 0 ? [`${refused} messages of well-behaved clients were refused: ${reason}`] : []),
  ];
}

/** Resident memory of the node while a flood runs. */
class MemoryWatch {
  #before = Number.NaN;
  #most = Number.NaN;
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly pid: number) {}

  begin(): void {
    if (this.#timer !== undefined) return;
    this.#before = memoryOf(this.pid) ?? Number.NaN;
    this.#most = this.#before;
    this.#timer = setInterval(() => this.#look(), MEMORY_POLL_MS);
  }

  end(): Omit<FloodRow['megabytes'], 'after'> {
    clearInterval(this.#timer);
    this.#look();
    return { before: this.#before, most: this.#most };
  }

  #look(): void {
    this.#most = Math.max(this.#most, memoryOf(this.pid) ?? 0);
  }
}
const MEMORY_POLL_MS = 200;

/** Undefined when the process has ended. On Linux it reads /proc, which costs less than running `ps`. */
function memoryOf(pid: number): number | undefined {
  try {
    const kibibytes = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return kibibytes === undefined ? undefined : (Number(kibibytes) * 1024) / 1e6;
  } catch {
    if (process.platform === 'linux') return undefined;
  }
  try {
    return residentMegabytes(pid);
  } catch {
    return undefined;
  }
}
