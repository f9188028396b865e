/** The lane's bounded waiting room: first in, first out within a community, round-robin between communities. */

export interface Queued {
  readonly community: number;
  readonly bytes: number;
}

export const QUEUE_EVENTS_MAX = 20_000;
export const QUEUE_BYTES_MAX = 64 * 1_048_576;
/** No community may fill more than this share, so that its flood leaves room for the others. */
const SHARE_MAX = 0.5;

interface Line<T> {
  items: T[];
  /** Items before it are taken; the array is cut when it is all taken, so that taking stays cheap. */
  next: number;
  bytes: number;
}

export class LaneQueue<T extends Queued> {
  private readonly lines = new Map<number, Line<T>>();
  private bytes = 0;
  size = 0;

  /** False when there is no room: the caller refuses. */
  add(item: T): boolean {
    const line = this.lines.get(item.community) ?? { items: [], next: 0, bytes: 0 };
    const waiting = line.items.length - line.next;
    if (this.size >= QUEUE_EVENTS_MAX || this.bytes + item.bytes > QUEUE_BYTES_MAX) return false;
    if (waiting >= QUEUE_EVENTS_MAX * SHARE_MAX || line.bytes + item.bytes > QUEUE_BYTES_MAX * SHARE_MAX)
      return false;
    line.items.push(item);
    line.bytes += item.bytes;
    this.bytes += item.bytes;
    this.size += 1;
    this.lines.set(item.community, line);
    return true;
  }

  /** The next batch: one of each community in turn, until it is full or nothing waits. At least one if any waits. */
  take(eventsMax: number, bytesMax: number): T[] {
    const batch: T[] = [];
    let bytes = 0;
    while (this.size > 0) {
      if (this.lines.size === 0)
        throw new Error(`the lane counts ${this.size} waiting events, but holds none`);
      for (const [community, line] of this.lines) {
        const item = line.items[line.next]!;
        if (batch.length > 0 && (batch.length >= eventsMax || bytes + item.bytes > bytesMax)) return batch;
        batch.push(item);
        bytes += item.bytes;
        this.drop(community, line, item);
      }
    }
    return batch;
  }

  private drop(community: number, line: Line<T>, item: T): void {
    line.next += 1;
    line.bytes -= item.bytes;
    this.bytes -= item.bytes;
    this.size -= 1;
    // Moved to the end, so that the community that was served last waits longest.
    this.lines.delete(community);
    if (line.next < line.items.length) this.lines.set(community, compact(line));
  }
}

function compact<T>(line: Line<T>): Line<T> {
  if (line.next < 1_024) return line;
  return { ...line, items: line.items.slice(line.next), next: 0 };
}
