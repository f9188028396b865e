/**
 * Counts the outcome of each line of an import. Lines settle in any order and are counted in the order of the
 * file. So the state is always a line up to which everything is settled, with exactly the counts of those
 * lines: a run that resumes there counts nothing twice. I14: the lines and bytes between that line and the
 * reader are bounded.
 */
import assert from 'node:assert';
import { z } from 'zod';
import type { Outcome, Prefix } from '../rules/reply.js';

const OPEN_LINES_MAX = 2_000;
const OPEN_BYTES_MAX = 16 * 1_048_576;
const SHOWN_MAX = 10;

export interface Reject {
  /** `malformed`: the line is not JSON. */
  readonly refused: Prefix | 'malformed';
  readonly reason: string;
  readonly text: string;
}

export type Settled = Outcome | Reject | 'blank';

export const ledgerSchema = z.object({
  lines: z.number().int().min(0),
  outcomes: z.object({ stored: z.number(), duplicate: z.number(), older: z.number(), broadcast: z.number() }),
  refused: z.record(z.string(), z.number()),
  /** The first refusals, to show at the end. */
  shown: z.array(z.object({ line: z.number(), reason: z.string() })),
});

/** Everything about the lines up to `lines`. */
export type LedgerState = z.infer<typeof ledgerSchema>;

const EMPTY: LedgerState = {
  lines: 0,
  outcomes: { stored: 0, duplicate: 0, older: 0, broadcast: 0 },
  refused: {},
  shown: [],
};

export class Ledger {
  readonly state: LedgerState;
  private readonly open = new Map<number, { readonly bytes: number; settled?: Settled }>();
  private openBytes = 0;
  private closed = false;
  private wake: () => void = () => undefined;

  constructor(
    from: LedgerState | undefined,
    private readonly onReject: (line: number, reject: Reject) => void,
  ) {
    this.state = structuredClone(from ?? EMPTY);
  }

  get refusedCount(): number {
    return Object.values(this.state.refused).reduce((sum, value) => sum + value, 0);
  }

  /** Waits until another line may start, or the ledger is closed. */
  async room(): Promise<void> {
    while (!this.closed && (this.open.size >= OPEN_LINES_MAX || this.openBytes >= OPEN_BYTES_MAX)) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
  }

  /** The reader starts no more lines; those already started still settle. */
  close(): void {
    this.closed = true;
    this.wake();
  }

  begin(line: number, bytes: number): void {
    this.open.set(line, { bytes });
    this.openBytes += bytes;
  }

  settle(line: number, settled: Settled): void {
    const entry = this.open.get(line);
    assert(entry !== undefined && entry.settled === undefined, `line ${line} has started and settles once`);
    entry.settled = settled;
    const before = this.state.lines;
    for (let next = this.open.get(before + 1); next?.settled !== undefined; ) {
      this.count(this.state.lines + 1, next.settled, next.bytes);
      next = this.open.get(this.state.lines + 1);
    }
    if (this.state.lines > before) this.wake();
  }

  private count(line: number, settled: Settled, bytes: number): void {
    // First, because it may fail: then the line stays open.
    if (typeof settled !== 'string') this.onReject(line, settled);
    this.open.delete(line);
    this.openBytes -= bytes;
    this.state.lines = line;
    if (settled === 'blank') return;
    if (typeof settled === 'string') {
      this.state.outcomes[settled] += 1;
      return;
    }
    this.state.refused[settled.refused] = (this.state.refused[settled.refused] ?? 0) + 1;
    if (this.state.shown.length < SHOWN_MAX) this.state.shown.push({ line, reason: settled.reason });
  }
}
