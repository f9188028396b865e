/**
 * What subscriptions are told, in the order in which the fan-out has passed it, in slices of the event loop
 * (I18, I10). Queries do not wait for it: memory has the events already. A subscription that comes meanwhile
 * counts them as stored, one that has left is not found any more, and what was hidden meanwhile is told to
 * nobody else (docs/decisions/0029-live-delivery-in-slices.md).
 */
import { setImmediate as nextPass } from 'node:timers/promises';
import type { Log } from '../../node/log.js';
import type { Matches } from '../subscription-index.js';
import type { WaitingEvent } from './waiting.js';

/** Work on the event loop before others have a pass of it: about 500 readers of a note. */
const SLICE_MS = 1;
/** For a reader who does not get it now: it is at most put into a list. */
const TOLD_MS = 0.000_2;
/** For the filters that are compared at once (subscription-index.ts). */
const COMPARED_MS = 0.004;
/** With more of them waiting, the fan-out goes no further. */
const QUEUED_MAX = 2_000;
const QUEUED_BYTES_MAX = 16 * 1_048_576;

/** What many readers are told. */
export interface News<R> {
  /** The event in it, which can be withdrawn while this waits. */
  readonly waits?: WaitingEvent;
  readonly bytes: number;
  isOver(): boolean;
  /** What it took of the event loop, in ms. */
  tell(reader: R): number;
  /** All were told, or nobody is to be told any more. */
  end(): void;
}

interface Queued {
  readonly news: Pick<News<never>, 'waits' | 'bytes'>;
  /** True when it has ended. */
  tellOn(): boolean;
}

export class Deliveries {
  private readonly queue: Queued[] = [];
  private bytes = 0;
  /** Work since others had a pass of the event loop. */
  private sliceMs = 0;
  private running: Promise<void> | undefined;

  constructor(private readonly log: Log) {}

  /** Mostly at once: all readers have room in the slice that has begun, and nothing waits. */
  add<R>(readers: Matches<R>, news: News<R>): void {
    const tellOn = () => this.tellOn(readers, news);
    if (this.queue.length === 0 && tellOn()) return;
    news.waits?.hold();
    this.bytes += news.bytes;
    this.queue.push({ news, tellOn });
    this.running ??= this.run();
  }

  /** Resolves when few are left. */
  async room(): Promise<void> {
    while (this.queue.length > QUEUED_MAX || this.bytes > QUEUED_BYTES_MAX) await nextPass();
  }

  /** Resolves when none is left. */
  async ended(): Promise<void> {
    await this.running;
  }

  private tellOn<R>(readers: Matches<R>, news: News<R>): boolean {
    try {
      if (!news.isOver() && !this.tellSome(readers, news)) return false;
    } catch (error) {
      this.log.error({ error: String(error) }, 'an event could not be delivered');
    }
    news.end();
    return true;
  }

  /** True when all were told. */
  private tellSome<R>(readers: Matches<R>, news: News<R>): boolean {
    while (this.sliceMs < SLICE_MS) {
      const { done, value: reader } = readers.next();
      if (done === true) return true;
      this.sliceMs += reader === undefined ? COMPARED_MS : TOLD_MS + news.tell(reader);
    }
    return false;
  }

  private async run(): Promise<void> {
    while (this.queue.length > 0) {
      await nextPass();
      this.sliceMs = 0;
      while (this.queue[0]?.tellOn()) {
        const { news } = this.queue.shift()!;
        this.bytes -= news.bytes;
        news.waits?.release();
      }
    }
    this.running = undefined;
  }
}
