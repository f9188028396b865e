/**
 * Events that wait to be written, in a bounded queue that is shared fairly (I14, I18). Two events of one key
 * at once would only conflict, so each waits for the turn of its key. It waits beside the queue: an author
 * with many versions of one key delays neither the events behind them nor those of others.
 *
 *   queue ──────────── the key is free ───────────→ written
 *     └─ its turn is taken → behind ─→ turned ─┘
 */
import { LaneQueue, QUEUE_BYTES_MAX, QUEUE_EVENTS_MAX, type Queued } from '../postgres/lane/queue.js';

export interface WaitingEvent extends Queued {
  /** Of one key only one event is written at a time. Undefined for an event without a key. */
  readonly key: string | undefined;
}

export class WaitingEvents<T extends WaitingEvent> {
  private readonly room = new Room();
  private readonly queue = new LaneQueue<T>();
  /** Those that have received the turn of their key, and wait to be written. */
  private readonly turned = new LaneQueue<T>();
  /** The keys whose turn is taken, each with those that wait for it in the order of arrival. */
  private readonly behind = new Map<string, T[]>();
  private wasTurned = false;

  get size(): number {
    return this.room.size;
  }

  /** False when there is no room; then the caller refuses the event. */
  add(item: T): boolean {
    return this.room.enter(item) && this.queue.add(item);
  }

  /** The next event that may be written. It has the turn of its key until `giveBack`. */
  take(): T | undefined {
    // Alternately, so that authors with many versions of many keys leave half of the writes to others.
    this.wasTurned = this.turned.size > 0 && !(this.wasTurned && this.queue.size > 0);
    const item = this.wasTurned ? takeOne(this.turned) : this.takeFree();
    const taken = item ?? takeOne(this.turned);
    if (taken !== undefined) this.room.leave(taken);
    return taken;
  }

  /** The next event of its key receives the turn. */
  giveBack({ key }: T): void {
    if (key === undefined) return;
    const next = this.behind.get(key)?.shift();
    if (next === undefined) this.behind.delete(key);
    else this.turned.add(next);
  }

  /** Everything that waits. The turns of events that were taken before stay with them. */
  takeAll(): T[] {
    const turned = this.turned.takeAll();
    const behind = [...this.behind.values()].flatMap((line) => line.splice(0));
    const all = [...this.queue.takeAll(), ...turned, ...behind];
    for (const item of turned) this.giveBack(item);
    for (const item of all) this.room.leave(item);
    return all;
  }

  /** The next event of the queue whose key is free. Those before it wait for the turns of theirs. */
  private takeFree(): T | undefined {
    for (;;) {
      const item = takeOne(this.queue);
      if (item?.key === undefined) return item;
      const line = this.behind.get(item.key);
      if (line === undefined) {
        this.behind.set(item.key, []);
        return item;
      }
      line.push(item);
    }
  }
}

function takeOne<T extends Queued>(queue: LaneQueue<T>): T | undefined {
  return queue.take(1, Number.MAX_SAFE_INTEGER)[0];
}

// ── How many may wait ──────────────────────────────────────────────────────────────────────────────────────

/** The shares that the lane's queue has: of a community, and of a network, an address or an author. */
const COMMUNITY_SHARE_MAX = 0.5;
const SENDER_SHARE_MAX = 0.25;

/** Counts all that wait, because the lane's queue counts only what is in it. */
class Room {
  private readonly parts = new Map<string, { events: number; bytes: number }>();

  get size(): number {
    return this.parts.get('')?.events ?? 0;
  }

  /** False when there is no room for it. */
  enter(item: Queued): boolean {
    const parts = partsOf(item);
    for (const { name, share } of parts) {
      const { events, bytes } = this.parts.get(name) ?? { events: 0, bytes: 0 };
      if (events >= QUEUE_EVENTS_MAX * share || bytes + item.bytes > QUEUE_BYTES_MAX * share) return false;
    }
    for (const { name } of parts) this.count(name, 1, item.bytes);
    return true;
  }

  leave(item: Queued): void {
    for (const { name } of partsOf(item)) this.count(name, -1, -item.bytes);
  }

  private count(name: string, events: number, bytes: number): void {
    const part = this.parts.get(name) ?? { events: 0, bytes: 0 };
    part.events += events;
    part.bytes += bytes;
    if (part.events === 0) this.parts.delete(name);
    else this.parts.set(name, part);
  }
}

/** The parts of the queue that an event is in, the whole first, with the share that each may have. */
function partsOf({ community, from = [] }: Queued): { readonly name: string; readonly share: number }[] {
  const parts = [
    { name: '', share: 1 },
    { name: `${community}`, share: COMMUNITY_SHARE_MAX },
  ];
  for (const part of from) parts.push({ name: `${parts.at(-1)!.name} ${part}`, share: SENDER_SHARE_MAX });
  return parts;
}
