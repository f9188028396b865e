/**
 * A queue that is fair by weight: heavy events of one client do not delay light events of another (I18). Each
 * item has a path, the widest part first: community, network, address. Paths with a common part share the
 * capacity of that part. Within a path the order is first in, first out.
 *
 * Deficit round robin (Shreedhar and Varghese, 1995): in each round every line gains credit for one ordinary
 * event, and its next event leaves when the credit covers its weight.
 */
import { weightOf } from '../events/rules/weight.js';

export interface Weighed {
  readonly bytes: number;
  readonly tags?: number;
}

export class FairQueue<T extends Weighed> {
  size = 0;
  bytes = 0;
  private credit = 0;
  /** It has received its credit of this round. */
  private isServed = false;
  private items: T[] = [];
  /** Items before this index are taken. The array is cut from time to time, so that taking stays cheap. */
  private next = 0;
  /** Instead of items: one queue per next part of the path. The first one is served next. */
  private readonly lines = new Map<string, FairQueue<T>>();

  find(key: string): FairQueue<T> | undefined {
    return this.lines.get(key);
  }

  add(item: T, path: readonly string[], depth = 0): void {
    this.size += 1;
    this.bytes += item.bytes;
    const key = path[depth];
    if (key === undefined) {
      this.items.push(item);
      return;
    }
    let line = this.lines.get(key);
    if (line === undefined) {
      line = new FairQueue();
      this.lines.set(key, line);
    }
    line.add(item, path, depth + 1);
  }

  /** The next item. The queue must not be empty. */
  peek(): T {
    return this.lines.size === 0 ? this.items[this.next]! : this.front()[1].peek();
  }

  take(): T {
    const item = this.lines.size === 0 ? this.shift() : this.takeFront();
    this.size -= 1;
    this.bytes -= item.bytes;
    return item;
  }

  private shift(): T {
    const item = this.items[this.next]!;
    this.next += 1;
    if (this.next >= 1_024) {
      this.items = this.items.slice(this.next);
      this.next = 0;
    }
    return item;
  }

  private takeFront(): T {
    const isAlone = this.lines.size === 1;
    const [key, line] = this.front();
    const item = line.take();
    // If nobody else waits, no credit is owed.
    line.credit = isAlone ? 0 : line.credit - weightIn(item);
    if (line.size === 0) this.lines.delete(key);
    return item;
  }

  /** Gives credit round by round until that of one line covers its next item. */
  private front(): [string, FairQueue<T>] {
    for (;;) {
      const [first] = this.lines;
      const [key, line] = first!;
      if (this.lines.size === 1) return first!;
      if (!line.isServed) line.credit += 1;
      line.isServed = line.credit >= weightIn(line.peek());
      if (line.isServed) return first!;
      this.lines.delete(key);
      this.lines.set(key, line);
    }
  }
}

function weightIn({ tags = 0, bytes }: Weighed): number {
  return weightOf(tags, bytes);
}
