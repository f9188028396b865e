/**
 * Authors that this process has listed, so that most posts write no entry for their author. Bounded (I14). An
 * erasure deletes the entry of its member. So whoever has a mark is listed again with each event: another
 * process may have erased them since.
 */
import { type BatchFacts, factKey } from '../rules/facts.js';
import type { NewRow } from '../rules/writes.js';
import type { WriteOf } from './client.js';
import { personEntry } from './items.js';

const KNOWN_MAX = 50_000;

type Posted = Pick<NewRow, 'submission'>;

export class KnownPeople {
  private now = new Set<string>();
  private before = new Set<string>();

  /** The entry to write before the event; none where the author is known. */
  entries(
    { submission: { community, event } }: Posted,
    { vanished, erased }: Pick<BatchFacts, 'vanished' | 'erased'>,
  ): WriteOf[] {
    const key = factKey(community, event.pubkey);
    const isMarked = vanished.has(key) || erased?.has(key);
    if (!isMarked && (this.now.has(key) || this.before.has(key))) return [];
    return [{ table: 'index', put: personEntry(community, event.pubkey) }];
  }

  /** The entry was written. */
  note({ submission: { community, event } }: Posted): void {
    if (this.now.size >= KNOWN_MAX) {
      this.before = this.now;
      this.now = new Set();
    }
    this.now.add(factKey(community, event.pubkey));
  }
}
