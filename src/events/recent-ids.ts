/**
 * The recent ids: events that were announced lately. Admission answers a repeat of one of them as a
 * duplicate, without a signature check and without a query. The fan-out keeps this memory up to date: it adds
 * an id with its `upsert` and removes it with its `delete`, in outbox order. A commit of this process that
 * hides an event withdraws its id at once. I14: it holds at most `RECENT_IDS_MAX` ids.
 *
 * After a restart it is empty. Live delivery also knows the ids of the window in memory (`alsoServed`).
 */
import { LRUCache } from 'lru-cache';
import { factKey } from './rules/facts.js';

const RECENT_IDS_MAX = 100_000;

export class RecentIds {
  private readonly ids = new LRUCache<string, true>({ max: RECENT_IDS_MAX });

  /**
   * Ids that a commit has hidden before the outbox reader reached its `delete`. An `upsert` that is read in
   * the meantime does not add them again.
   */
  private readonly withdrawn = new LRUCache<string, true>({ max: RECENT_IDS_MAX });

  /** Another memory of served events. Live delivery sets it. */
  alsoServed: (community: number, id: string) => boolean = () => false;

  has(community: number, id: string): boolean {
    return this.ids.get(factKey(community, id)) === true || this.alsoServed(community, id);
  }

  /** For an `upsert` of the outbox, or an ephemeral event of the live bus. */
  add(community: number, id: string): void {
    const key = factKey(community, id);
    if (!this.withdrawn.has(key)) this.ids.set(key, true);
  }

  /** For a commit of this process that hides the event. Its `delete` follows in the outbox. */
  withdraw(community: number, id: string): void {
    const key = factKey(community, id);
    this.withdrawn.set(key, true);
    this.ids.delete(key);
  }

  /** For a `delete` of the outbox. */
  forget(community: number, id: string): void {
    const key = factKey(community, id);
    this.withdrawn.delete(key);
    this.ids.delete(key);
  }

  /**
   * When it is not known which events were hidden, as by a request to vanish: none of them may be answered as
   * a duplicate.
   */
  clear(): void {
    this.ids.clear();
  }
}
