/**
 * Boots a relay and measures rows on it. The order of the rows is part of the measurement: ingest needs an
 * empty store and queries a full one, live rows come later because they add events, and `erase` adds a whole
 * member.
 */
import { join } from 'node:path';
import { pauseConsumers } from './consumers.js';
import type { Corpus } from './corpus.js';
import { dynamodbEnvironment, readUnits, unitsBetween } from './dynamodb.js';
import { type Bench, Findings, type Row, type Sample, Skip, summarize } from './measure.js';
import {
  type BootedNode,
  makeFolder,
  nodeEnvironment,
  PROGRAM,
  removeFolder,
  runCommand,
  startNode,
  withCleanUp,
} from './node.js';
import type { Options, Sizes } from './options.js';
import type { Peer } from './peers.js';
import type { RowReport } from './report.js';
import { count } from './rows/count.js';
import { deletion } from './rows/delete.js';
import { erase } from './rows/erase.js';
import { exportFile, importFile } from './rows/files.js';
import { idle } from './rows/idle.js';
import { fill, ingest, ingestFull, single } from './rows/ingest.js';
import { deliver, fanout, fanoutAll } from './rows/live.js';
import { purge, sweep } from './rows/purge.js';
import { author, authorRepeated, ids, idsRepeated, newest, topic, topicRepeated } from './rows/queries.js';
import { reports } from './rows/reports.js';
import { gone, search, searchable, searches } from './rows/search.js';
import { untilQuiet, untilUpToDate } from './settle.js';
import { openSigner, type Sign } from './sign.js';
import type { Yardsticks } from './yardsticks.js';

export const ROWS: readonly Row[] = [
  ingest,
  ingestFull,
  author,
  topic,
  ids,
  newest,
  authorRepeated,
  topicRepeated,
  idsRepeated,
  count,
  search,
  single,
  fanout,
  fanoutAll,
  deliver,
  idle,
  deletion,
  searchable,
  gone,
  reports,
  erase,
  importFile,
  exportFile,
  searches,
  sweep,
  purge,
];

/** `--only`: names of rows, `main` or `all`. */
export function chosenRows(only: readonly string[] | undefined, byDefault: 'main' | 'all'): Row[] {
  const names = only ?? [byDefault];
  return ROWS.filter(
    ({ id, main }) => names.includes(id) || names.includes('all') || (main && names.includes('main')),
  );
}

/**
 * Ingest, the fill and `single` take their events from the corpus, one after the other. A `--target` is not
 * emptied between repeats.
 */
export function corpusSize(sizes: Sizes): number {
  const written = Math.max(sizes.storedEvents, sizes.ingestEvents * sizes.repeat + 1);
  return written + sizes.singleEvents * sizes.repeat;
}

export function repeatsOf({ once, repeatsMax = Number.POSITIVE_INFINITY }: Row, { repeat }: Sizes): number {
  return once ? 1 : Math.min(repeatsMax, repeat);
}

/** About how long the rows take on one relay. An estimate from other runs. */
export function expectedSeconds(rows: readonly Row[], sizes: Sizes): number {
  const fillsApart = !rows.some(({ id }) => id === ingestFull.id) && rows.some((row) => row.needsStored);
  const each = rows.map((row) => (row.seconds?.(sizes) ?? ROW_SECONDS) * repeatsOf(row, sizes));
  return each.reduce(
    (sum, seconds) => sum + seconds,
    BOOT_SECONDS + (fillsApart ? sizes.storedEvents / 1_500 : 0),
  );
}
const ROW_SECONDS = 8;
const BOOT_SECONDS = 15;

export function minutesText(seconds: number): string {
  return seconds < 90 ? `${Math.ceil(seconds / 10) * 10} s` : `${Math.ceil(seconds / 60)} minutes`;
}

export interface Relay {
  readonly options: Options;
  readonly corpus: Corpus;
  /** Another relay of the npm registry. */
  readonly peer?: Peer | undefined;
  /** The node's program; this tree's by default. */
  readonly program?: string;
  /** More arguments of `minato serve`. */
  readonly serveArgs?: readonly string[];
  /** Where the node writes a CPU profile when it ends. */
  readonly profileFolder?: string | undefined;
  /** Where DynamoDB Local is, with `--store dynamodb`. */
  readonly endpoint?: string | undefined;
  /** Runs before the relay is booted, so that the relay uses no CPU meanwhile. */
  prepare?(folder: string): Promise<void>;
  say(text: string): void;
}

/** Boots the relay on an empty folder, or uses `--target`, and removes the folder afterwards. */
export async function withRelay<T>(relay: Relay, work: (bench: Bench) => Promise<T>): Promise<T> {
  const { options, prepare } = relay;
  const folder = makeFolder(options.temp);
  let bench: BootedBench | undefined;
  const cleanUp = async (): Promise<void> => {
    await bench?.rest();
    removeFolder(folder);
  };
  return withCleanUp(cleanUp, async () => {
    await prepare?.(folder);
    bench = new BootedBench(relay, folder, await openSigner());
    if (options.target === undefined) await bench.boot();
    return work(bench);
  });
}

class BootedBench implements Bench {
  readonly program: string;
  nodeEnv: Readonly<Record<string, string>>;
  private fresh = 0;
  readonly consumersOn: boolean;
  readonly corpus: Corpus;
  readonly sizes: Sizes;
  readonly seed: number;
  readonly say: (text: string) => void;
  url: string;
  node: BootedNode | undefined;
  stored = 0;
  imported = 0;

  constructor(
    private readonly relay: Relay,
    readonly folder: string,
    readonly sign: Sign,
  ) {
    const { options, corpus, program = PROGRAM, say } = relay;
    this.program = program;
    this.nodeEnv = options.nodeEnv;
    this.consumersOn = options.consumers;
    this.corpus = corpus;
    this.sizes = options.sizes;
    this.seed = options.seed;
    this.say = say;
    this.url = options.target ?? '';
  }

  async boot(): Promise<void> {
    const { options, peer, say, profileFolder, serveArgs } = this.relay;
    say(`booting ${options.label}${this.stored === 0 ? ' on an empty folder' : ''}`);
    if (this.relay.endpoint !== undefined && this.stored === 0) await this.createTables(this.relay.endpoint);
    this.node = await (peer === undefined
      ? startNode(this.folder, this.nodeEnv, this.program, profileFolder, serveArgs)
      : peer.boot(this.folder, say));
    this.url = this.node.url;
    await this.node.ready();
    if (peer === undefined && !this.consumersOn) await pauseConsumers(this);
  }

  /** Each empty folder has tables of its own. */
  private async createTables(endpoint: string): Promise<void> {
    this.fresh += 1;
    this.nodeEnv = { ...this.relay.options.nodeEnv, ...dynamodbEnvironment(endpoint, `bench${this.fresh}_`) };
    const env = nodeEnvironment(join(this.folder, 'data'), 0, this.nodeEnv);
    const { code, output } = await runCommand(['migrate'], env, this.program);
    if (code !== 0) throw new Error(`the tables cannot be created: ${output}`);
  }

  async bootFresh(): Promise<void> {
    if (this.node === undefined || this.relay.peer !== undefined) return;
    // A folder without events is as good as an empty one.
    if (this.stored === 0) return this.node.hasEnded() ? this.boot() : undefined;
    await this.rest();
    removeFolder(join(this.folder, 'data'));
    this.stored = 0;
    await this.boot();
  }

  async rest(): Promise<void> {
    await this.node?.stop();
  }

  async wake(): Promise<void> {
    if (this.node === undefined || !this.node.hasEnded()) return;
    await this.boot();
    await untilUpToDate(this);
    await untilQuiet(this);
  }
}

/**
 * One row on one relay, repeat by repeat. A row that throws is a failed row; the others are still measured.
 */
export class RowRun {
  readonly #findings = new Findings();
  readonly #samples: Sample[] = [];
  #skipped: string | undefined;
  #ready = false;
  #broken = false;

  constructor(
    private readonly row: Row,
    private readonly bench: Bench,
  ) {}

  get repeats(): number {
    return repeatsOf(this.row, this.bench.sizes);
  }

  async measure(repeat: number): Promise<void> {
    const { row, bench } = this;
    await this.prepare();
    await this.#guard(async () => {
      if (row.fresh) await bench.bootFresh();
      const measure = (): Promise<Sample> => row.measure(bench, this.#findings, repeat);
      const counted = (): Promise<Sample> => withUnits(bench, measure);
      this.#samples.push(row.once ? await counted() : await withLoadCores(counted));
      if (row.writes) await untilUpToDate(bench);
    });
  }

  /**
   * Also called before the first repeat, so that one node of a comparison is not measured while the other
   * boots.
   */
  async prepare(): Promise<void> {
    if (this.#ready) return;
    this.#ready = true;
    await this.#guard(async () => {
      const { row, bench } = this;
      if (row.afterNode) await bench.rest();
      else if (!row.fresh) await bench.wake();
      if (row.needsStored) await fill(bench, this.#findings);
    });
  }

  async #guard(work: () => Promise<void>): Promise<void> {
    if (this.#broken) return;
    try {
      await work();
    } catch (error) {
      this.#broken = true;
      if (error instanceof Skip) this.#skipped = error.message;
      else this.#findings.fail((error as Error).message);
    }
  }

  report(yardsticks: Yardsticks): RowReport {
    const { row } = this;
    const summary = summarize(this.#samples);
    const ratio = row.ratio?.(summary, yardsticks);
    return {
      id: row.id,
      title: row.title,
      headline: row.headline,
      unit: row.unit,
      summary,
      samples: this.#samples,
      ...(ratio === undefined ? {} : { ratio }),
      notes: [...this.#findings.notes],
      failures: this.#findings.failures,
      failed: this.#findings.failed,
      ...(this.#skipped === undefined ? {} : { skipped: this.#skipped }),
    };
  }
}

/** Adds the CPU of the load generator, since it shares the cores with the relay. */
async function withLoadCores(measure: () => Promise<Sample>): Promise<Sample> {
  const startMs = performance.now();
  const before = process.cpuUsage();
  const sample = await measure();
  const used = process.cpuUsage(before);
  const elapsedMs = performance.now() - startMs;
  return { ...sample, loadCores: (used.user + used.system) / 1000 / elapsedMs };
}

/** Adds the capacity units, where events are in DynamoDB. */
async function withUnits(bench: Bench, measure: () => Promise<Sample>): Promise<Sample> {
  const isCounted = bench.nodeEnv.MINATO_EVENT_STORE === 'dynamodb';
  if (!isCounted || bench.node === undefined || bench.node.hasEnded()) return measure();
  const before = await readUnits(bench.url);
  const sample = await measure();
  if (bench.node.hasEnded()) return sample;
  return { ...sample, ...unitsBetween(before, await readUnits(bench.url)) };
}
