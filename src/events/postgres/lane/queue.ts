/**
 * The bounded queue of the lane (I14). It is shared fairly by weight: between communities, then between
 * networks, then between addresses, then between authors (limits/rules-fair-queue.ts). It is first in, first
 * out for one author at one address of a community, so that a deletion stays behind the post that it names.
 * Events of the operator and of the node itself share one line per community.
 *
 * Heavy events are batched separately, and light ones go first. So a light event waits for the commit of one
 * batch of heavy ones at most (I18), and a heavy event for LIGHT_BATCHES_MAX batches of light ones. While
 * light events come, heavy ones take a small part of the lane's time: after each batch of them the next one
 * rests. Otherwise every light event of a flood's time would wait for one.
 */
import { FairQueue, type Weighed } from '../../../limits/rules-fair-queue.js';
import { restMsAfter } from '../../../limits/rules-rest.js';
import { isHeavy, weightOf } from '../../rules/weight.js';

/** Each tag is a row to write. */
export interface Queued extends Weighed {
  readonly community: number;
  /**
   * The line that it waits in, the widest part first (limits/rules-lines.ts); undefined for events of the
   * operator.
   */
  readonly from?: readonly string[] | undefined;
}

export const QUEUE_EVENTS_MAX = 20_000;
export const QUEUE_BYTES_MAX = 64 * 1_048_576;
/** A community may fill at most this share of the queue, so that a flood leaves room for others. */
const COMMUNITY_SHARE_MAX = 0.5;
/** The same for a network, an address or an author. */
const SENDER_SHARE_MAX = 0.25;

/** Batches of light events in a row while a heavy one waits. */
export const LIGHT_BATCHES_MAX = 4;

/**
 * A batch of heavy events has no more than this, or is one event: light ones wait for it. 1,000 rows of tags
 * take about 7 ms.
 */
export const HEAVY_BATCH_BYTES_MAX = 262_144;
export const HEAVY_BATCH_TAGS_MAX = 1_000;
/**
 * The rest after a batch of heavy events. One of 4 ms has a tenth of the lane's time, one of 20 ms a
 * fiftieth.
 */
export const HEAVY_REST = { times: 10, timesPerMs: 2.5, msMax: 2_000 };
/** Heavy events do not rest if no light one was written for this time. */
export const LIGHT_RECENT_MS = 1_000;

/** The line of the operator's events. */
const OPERATOR: readonly string[] = [''];

export class LaneQueue<T extends Queued> {
  private readonly light = new FairQueue<T>();
  /** Heavy events, and the events behind them in their lines. */
  private readonly heavy = new FairQueue<T>();
  /** In a row, while a heavy event waited. */
  private lightBatches = 0;
  private lastTaken: FairQueue<T> | undefined;
  private heavyRestsUntil = Number.NEGATIVE_INFINITY;
  private lightWrittenAt = Number.NEGATIVE_INFINITY;

  /** `now`: a monotonic clock in milliseconds. */
  constructor(private readonly now: () => number = () => performance.now()) {}

  get size(): number {
    return this.light.size + this.heavy.size;
  }

  /** False when there is no room; then the caller refuses the event. */
  add(item: T): boolean {
    const { from = OPERATOR } = item;
    const path = pathOf(item);
    let light: Line = this.light;
    let heavy: Line = this.heavy;
    if (!hasRoom(light, heavy, item, 1)) return false;
    for (const [depth, key] of path.entries()) {
      light = light?.find(key);
      heavy = heavy?.find(key);
      const share = depth === 0 ? COMMUNITY_SHARE_MAX : SENDER_SHARE_MAX;
      const isShared = depth === 0 || from !== OPERATOR;
      if (isShared && !hasRoom(light, heavy, item, share)) return false;
    }
    // An event behind a heavy one of its own line stays behind it.
    const waitsForHeavy = heavy !== undefined || isHeavy(weightOf(item.tags ?? 0, item.bytes));
    (waitsForHeavy ? this.heavy : this.light).add(item, path);
    return true;
  }

  /** The next batch: as many events as fit and wait, at least one if any waits that does not rest. */
  take(eventsMax: number, bytesMax: number, tagsMax = Number.POSITIVE_INFINITY): T[] {
    const queue = this.next();
    this.lastTaken = queue;
    if (queue === this.light) return this.takeFrom(queue, eventsMax, bytesMax, tagsMax);
    if (this.restMs > 0) return [];
    const [heavyBytes, heavyTags] = [HEAVY_BATCH_BYTES_MAX, HEAVY_BATCH_TAGS_MAX];
    return this.takeFrom(queue, eventsMax, Math.min(bytesMax, heavyBytes), Math.min(tagsMax, heavyTags));
  }

  private takeFrom(queue: FairQueue<T>, eventsMax: number, bytesMax: number, tagsMax: number): T[] {
    const batch: T[] = [];
    let bytes = 0;
    let tags = 0;
    while (queue.size > 0) {
      const item = queue.peek();
      bytes += item.bytes;
      tags += item.tags ?? 0;
      if (batch.length > 0 && (batch.length >= eventsMax || bytes > bytesMax || tags > tagsMax)) return batch;
      if (queue === this.heavy && this.isBehindLight(item)) return batch;
      batch.push(queue.take());
    }
    return batch;
  }

  /** The last batch was written, and took so long. */
  noteWritten(tookMs: number): void {
    if (this.lastTaken === this.light) this.lightWrittenAt = this.now();
    else this.heavyRestsUntil = this.now() + restMsAfter(tookMs, HEAVY_REST);
  }

  /** For how long the next heavy event rests; 0 when there is none. The operator's never rest. */
  get restMs(): number {
    if (this.heavy.size === 0 || this.heavy.peek().from === undefined) return 0;
    const until = Math.min(this.heavyRestsUntil, this.lightWrittenAt + LIGHT_RECENT_MS);
    return Math.max(0, until - this.now());
  }

  /** Heavy events do not rest any more. */
  endRest(): void {
    this.heavyRestsUntil = Number.NEGATIVE_INFINITY;
  }

  /** Everything that waits. */
  takeAll(): T[] {
    const all: T[] = [];
    for (const queue of [this.light, this.heavy]) while (queue.size > 0) all.push(queue.take());
    return all;
  }

  private next(): FairQueue<T> {
    const isHeavyDue =
      this.heavy.size > 0 &&
      (this.light.size === 0 ||
        (this.lightBatches >= LIGHT_BATCHES_MAX &&
          this.restMs === 0 &&
          !this.isBehindLight(this.heavy.peek())));
    this.lightBatches = isHeavyDue || this.heavy.size === 0 ? 0 : this.lightBatches + 1;
    return isHeavyDue ? this.heavy : this.light;
  }

  /** Its line has light events, which came before it. */
  private isBehindLight(item: T): boolean {
    let line: Line = this.light;
    for (const key of pathOf(item)) line = line?.find(key);
    return line !== undefined;
  }
}

function pathOf({ community, from = OPERATOR }: Queued): readonly string[] {
  return [String(community), ...from];
}

type Line = FairQueue<Queued> | undefined;

function hasRoom(light: Line, heavy: Line, item: Queued, share: number): boolean {
  const size = (light?.size ?? 0) + (heavy?.size ?? 0);
  const bytes = (light?.bytes ?? 0) + (heavy?.bytes ?? 0);
  return size < QUEUE_EVENTS_MAX * share && bytes + item.bytes <= QUEUE_BYTES_MAX * share;
}
