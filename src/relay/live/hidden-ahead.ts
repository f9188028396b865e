/**
 * What this process has hidden in commits that its fan-out has not come to. It is not delivered any more: the
 * client that hid it may have its OK (I5, I6).
 */
import { covers } from '../../events/rules/deletion.js';
import type { NostrEvent } from '../../events/rules/event.js';
import { factKey } from '../../events/rules/facts.js';
import type { BatchWrites, VanishMark } from '../../events/rules/writes.js';
import type { Position } from '../../events/store.js';

export class HiddenAhead {
  /** Up to which position the event is hidden: one that is restored later has a higher one. */
  private readonly ids = new Map<string, Position>();
  private marks: readonly VanishMark[] = [];
  private last: Position = 0;

  /** The last commit that hid something. */
  get until(): Position {
    return this.last;
  }

  add({ hidden, vanishMarks, lastSeq }: Pick<BatchWrites, 'hidden' | 'vanishMarks' | 'lastSeq'>): void {
    if (hidden.length + vanishMarks.length === 0) return;
    for (const { community, id } of hidden) this.ids.set(factKey(community, id), lastSeq);
    if (vanishMarks.length > 0) this.marks = [...this.marks, ...vanishMarks];
    this.last = lastSeq;
  }

  /** The fan-out has come to this position. */
  pass(position: Position): void {
    if (position < this.last) return;
    if (this.ids.size > 0) this.ids.clear();
    if (this.marks.length > 0) this.marks = [];
  }

  has(community: number, event: NostrEvent, seq: Position): boolean {
    if (seq >= this.last) return false;
    return (
      seq < (this.ids.get(factKey(community, event.id)) ?? 0) ||
      this.marks.some((mark) => mark.community === community && covers(mark, event))
    );
  }
}
