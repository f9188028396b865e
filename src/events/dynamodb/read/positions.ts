/**
 * The positions at which events were announced, as far as this process has read the changes. An item knows
 * nothing of its position, because the log assigns it later. A subscription compares the position of a stored
 * event with the one at which it began, so that it gets each event once (I10):
 *
 * - an event that the changes have announced to this process has that position;
 * - one that is older than any delay of the stream has a position before all others;
 * - any other was not announced yet, or before this process began to read: it has a position after all
 *   others.
 */
import { LRUCache } from 'lru-cache';
import type { NamedChange, Position } from '../../store.js';

/** The stream is behind by seconds; by more than this only when no worker has run. */
const DELAY_MS_MAX = 10 * 60_000;
/** I14. */
const KEPT_MAX = 100_000;
const HEADS_MAX = 1_000;

export class Positions {
  /** In the order of the changes. */
  private readonly announced = new Map<string, Position>();
  /** When each of the last heads was asked for, in milliseconds. */
  private readonly heads = new LRUCache<Position, number>({ max: HEADS_MAX });

  note(changes: readonly NamedChange[]): void {
    for (const { op, community, id, seq } of changes) {
      const key = `${community}/${id}`;
      this.announced.delete(key);
      if (op === 'upsert') this.announced.set(key, seq);
    }
    for (const key of this.announced.keys()) {
      if (this.announced.size <= KEPT_MAX) break;
      this.announced.delete(key);
    }
  }

  /** Changes of the past, which a client has missed: a later position of the same event stays. */
  noteMissed(changes: readonly NamedChange[]): void {
    const isNews = ({ op, community, id, seq }: NamedChange) =>
      op === 'upsert' && (this.announced.get(`${community}/${id}`) ?? -1) < seq;
    this.note(changes.filter(isNews));
  }

  noteHead(head: Position, now: number): Position {
    this.heads.set(head, now);
    return head;
  }

  /** What was stored before a head was asked for was visible then, also if it was announced later. */
  wasVisible(community: number, id: string, ingestedAt: number, head: Position): boolean {
    const seq = this.announced.get(`${community}/${id}`);
    if (seq !== undefined && seq <= head) return true;
    const askedAt = this.heads.get(head);
    return askedAt === undefined ? seq === undefined : ingestedAt <= askedAt;
  }

  /** Different for two events: a position also names a row of an answer. */
  of(community: number, id: string, ingestedAt: number, now: number): Position {
    const seq = this.announced.get(`${community}/${id}`);
    if (seq !== undefined) return seq;
    const number = Number.parseInt(id.slice(0, 12), 16);
    return ingestedAt < now - DELAY_MS_MAX ? -1 - number : Number.MAX_SAFE_INTEGER - number;
  }
}
