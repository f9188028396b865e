/**
 * What the node uses in a phase: cores, of its process and of the database, and its longest pause. Unlike
 * latencies, the cores mean something on a busy machine too.
 */
import { type BootedNode, type CpuSeconds, cpuSecondsOf } from '../node.js';

export interface Use {
  /** Undefined without /proc. */
  readonly cores: CpuSeconds | undefined;
  /** The longest pass of the event loop, with a resolution of 10 ms. Undefined if the node does not say. */
  readonly passMsMax: number | undefined;
}

/** The node watches its event loop with a timer of this period. */
const WATCH_MS = 10;
const SCRAPE_MS_MAX = 5_000;

/** Sums up a phase over all rounds. */
export class UseWatch {
  #seconds = 0;
  #node = 0;
  #database = 0;
  #before: CpuSeconds | undefined;
  #passMsMax: number | undefined;

  constructor(private readonly node: BootedNode) {}

  async begin(): Promise<void> {
    await longestPassMs(this.node.url);
    this.#before = cpuSecondsOf(this.node.pid);
  }

  async end(seconds: number): Promise<void> {
    const after = cpuSecondsOf(this.node.pid);
    this.#node += (after?.node ?? Number.NaN) - (this.#before?.node ?? Number.NaN);
    this.#database += (after?.database ?? Number.NaN) - (this.#before?.database ?? Number.NaN);
    this.#seconds += seconds;
    const passMs = await longestPassMs(this.node.url);
    if (passMs !== undefined) this.#passMsMax = Math.max(this.#passMsMax ?? 0, passMs);
  }

  get use(): Use {
    const cores = { node: this.#node / this.#seconds, database: this.#database / this.#seconds };
    return { cores: Number.isNaN(cores.node) ? undefined : cores, passMsMax: this.#passMsMax };
  }
}

/** Since the last call: each scrape begins a new measurement. Undefined if there is no answer in time. */
async function longestPassMs(url: string): Promise<number | undefined> {
  const { host } = new URL(url);
  const text = await fetch(`http://${host}/metrics`, { signal: AbortSignal.timeout(SCRAPE_MS_MAX) })
    .then((answer) => answer.text())
    .catch(() => '');
  const seconds = /^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(text)?.[1];
  return seconds === undefined ? undefined : Math.max(0, Number(seconds) * 1_000 - WATCH_MS);
}
