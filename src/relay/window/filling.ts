/**
 * Fills the window from the database in the background: newest first, one community after another, one
 * bounded page at a time. After each page it pauses for as long as the page took, so that queries of clients
 * go first. The filled part is used at once. It continues until every community is complete or the budget is
 * nearly used, and starts again after the window was dropped. It sends no query while there is nothing to
 * fill.
 */
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import type { NostrEvent } from '../../events/rules/event.js';
import type { EventStore, Position } from '../../events/store.js';
import type { Log } from '../../node/log.js';
import type { Memory } from '../memory.js';
import { EVERYTHING } from './window.js';

/**
 * Filling leaves space for new events and never evicts any. It resumes once this much space is free.
 */
const SHARE_MAX = 0.95;
const SHARE_AGAIN = 0.85;
/** Pages that may be read again because too much changed meanwhile; then it waits for the next `kick`. */
const TRIES_MAX = 5;

export interface FillingOptions {
  readonly events: Pick<EventStore, 'newest'>;
  readonly memory: Memory;
  /** The communities that are there. */
  readonly communities: () => readonly number[];
  /** MiB. */
  readonly budget: () => number;
  /** The last position that the fan-out has passed. */
  readonly position: () => Position;
  readonly log: Log;
}

export class Filling {
  private readonly stopping = new AbortController();
  private running: Promise<void> | undefined;
  private wasFull = false;

  constructor(private readonly options: FillingOptions) {}

  /** Starts filling in the background if there is something to fill. */
  kick(): void {
    const { memory, budget } = this.options;
    memory.allow(budget());
    if (this.running !== undefined || this.stopping.signal.aborted) return;
    if (!memory.window.isFull && this.unfilled(this.wasFull ? SHARE_AGAIN : SHARE_MAX).length === 0) return;
    this.running = this.run()
      .catch((error: unknown) => {
        this.options.log.warn({ error: String(error) }, 'the window in memory could not be filled');
      })
      .finally(() => {
        this.running = undefined;
      });
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.running;
  }

  private async run(): Promise<void> {
    const { memory } = this.options;
    const { signal } = this.stopping;
    await this.trim();
    let tries = 0;
    let shareMax = SHARE_MAX;
    for (let left = this.unfilled(shareMax); left.length > 0; left = this.unfilled(shareMax)) {
      for (const community of left) {
        if (signal.aborted) return;
        const begunMs = performance.now();
        if (!(await this.fillPage(community)) && ++tries > TRIES_MAX) return;
        // Evicting may free more than was needed, and filling that would evict again: only small ones go on.
        if (memory.window.isFull) shareMax = 0;
        await this.trim();
        await delay(performance.now() - begunMs, undefined, { signal }).catch(() => undefined);
      }
    }
    this.wasFull = memory.window.share > shareMax;
  }

  private async trim(): Promise<void> {
    while (!this.stopping.signal.aborted && !this.options.memory.window.trim()) await turn();
  }

  /**
   * Those that are not held as a whole and may have more: while there is room, or while others hold much more
   * than they do.
   */
  private unfilled(shareMax: number): number[] {
    const { communities, memory } = this.options;
    const { window } = memory;
    const hasRoom = window.share <= shareMax;
    return communities().filter(
      (id) => window.extent(id).from > Number.NEGATIVE_INFINITY && (hasRoom || window.isSmall(id)),
    );
  }

  /**
   * Reads on where the window ends. False when what was read cannot be used: everything was cleared
   * meanwhile, or an event of this community was evicted, which may have been one of the page's time.
   */
  private fillPage(community: number): Promise<boolean> {
    const { memory, position } = this.options;
    const { window } = memory;
    const { downTo } = window.extent(community);
    return memory.reading(community, async (reading) => {
      const createdAt = Math.min(downTo.createdAt, Number.MAX_SAFE_INTEGER);
      const { events, isLast } = await this.options.events.newest(community, { ...downTo, createdAt });
      if (reading.isVoid || memory.window !== window || window.extent(community).downTo !== downTo)
        return false;
      const passed = position();
      for (const { seq, id, payload, ingestedAt, bound } of events) {
        // The fan-out brings what is ahead of it, after the deletion of what it replaces.
        if (seq > passed || !reading.mayHold(id)) continue;
        const event = JSON.parse(payload) as NostrEvent;
        window.add(community, { seq, ingestedAt, event, payload: Buffer.from(payload), bound });
      }
      const last = events.at(-1);
      const isWhole = isLast || last === undefined;
      window.reach(community, isWhole ? EVERYTHING : { createdAt: last.createdAt, id: last.id });
      return true;
    });
  }
}
