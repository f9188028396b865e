/**
 * The recent ids: events that were announced lately. Admission answers a repeat of one of them as a
 * duplicate, without a signature check and without a query. The fan-out keeps this memory up to date: it adds
 * an id with its `upsert` and removes it with its `delete`, in outbox order. A commit of this process that
 * hides an event withdraws its id at once. I14: it holds at most `RECENT_IDS_MAX` ids, about 5 MB.
 *
 * After a restart it is empty. Live delivery also knows the ids of the window in memory (`alsoServed`).
 */
import { IdSet } from './id-set.js';

const RECENT_IDS_MAX = 100_000;

export class RecentIds {
  private readonly ids = new IdSet(RECENT_IDS_MAX);

  /**
   * Ids that a commit has hidden before the outbox reader reached its `delete`. An `upsert` that is read in
   * the meantime does not add them again.
   */
  private readonly withdrawn = new IdSet(RECENT_IDS_MAX);

  /** Another memory of served events. Live delivery sets it. */
  alsoServed: (community: number, id: string) => boolean = () => false;

  has(community: number, id: string): boolean {
    return this.ids.has(community, id) || this.alsoServed(community, id);
  }

  /** For an `upsert` of the outbox, or an ephemeral event of the live bus. */
  add(community: number, id: string): void {
    if (!this.withdrawn.has(community, id)) this.ids.add(community, id);
  }

  /** For a commit of this process that hides the event. Its `delete` follows in the outbox. */
  withdraw(community: number, id: string): void {
    this.withdrawn.add(community, id);
    this.ids.delete(community, id);
  }

  /** For a `delete` of the outbox. */
  forget(community: number, id: string): void {
    this.withdrawn.delete(community, id);
    this.ids.delete(community, id);
  }

  /**
   * When it is not known which events were hidden, as by a request to vanish: none of them may be answered as
   * a duplicate.
   */
  clear(): void {
    this.ids.clear();
  }
}
