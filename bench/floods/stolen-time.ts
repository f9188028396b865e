/**
 * Time that the host of a virtual machine takes away from it. It stops every process on a core for up to a
 * tenth of a second, whatever the node does, and would decide every p99. Samples that meet much of it are
 * left out, and rounds with much of it are repeated, by rules that do not look at how long anything took: a
 * slow answer is not more likely to be left out.
 */
import { readFileSync } from 'node:fs';

const READ_MS = 25;
/** From this part of a period on, of one core, the period counts as stolen. */
const STOLEN_PART = 0.4;
/** A sample is left out when a stolen period begins or lasts within this time from its sending. */
const AFTER_MS = 25;
const MS_PER_TICK = 10;

export class StolenTime {
  readonly #periods: { readonly fromMs: number; readonly toMs: number }[] = [];
  #timer: NodeJS.Timeout | undefined;
  #begun = { stolenMs: 0, atMs: 0 };
  /** The part of a core that was taken away between the last begin and end. */
  part = 0;

  begin(): void {
    let before = stolenMs();
    let fromMs = performance.now();
    this.#begun = { stolenMs: before, atMs: fromMs };
    this.#timer = setInterval(() => {
      const now = stolenMs();
      const toMs = performance.now();
      if (now - before > (toMs - fromMs) * STOLEN_PART) this.#periods.push({ fromMs, toMs });
      before = now;
      fromMs = toMs;
    }, READ_MS);
  }

  end(): void {
    clearInterval(this.#timer);
    const { stolenMs: before, atMs } = this.#begun;
    this.part = (stolenMs() - before) / (performance.now() - atMs);
  }

  meets(sentMs: number): boolean {
    return this.#periods.some(({ fromMs, toMs }) => fromMs < sentMs + AFTER_MS && toMs > sentMs);
  }
}

/** Of all cores together. 0 where the system does not say. */
function stolenMs(): number {
  try {
    const ticks = /^cpu +(?:\d+ +){7}(\d+)/.exec(readFileSync('/proc/stat', 'latin1'))?.[1];
    return Number(ticks ?? 0) * MS_PER_TICK;
  } catch {
    return 0;
  }
}
