/**
 * The events that this process has stored in the last seconds. An index of `Events` is behind by a moment,
 * and a client expects to find what was acknowledged to it. What is found here is checked against the item
 * like everything else.
 */
import { asMatched } from '../../../topics/rules.js';
import { type Filter, matchFilter } from '../../rules/filter.js';
import type { NewRow } from '../../rules/writes.js';
import type { Placed } from '../keys.js';

/** An index is behind by less than a second; more is rare. */
const KEPT_MS = 30_000;
/** I14. */
const KEPT_MAX = 10_000;

export class RecentWrites {
  /** In the order of their writes. */
  private readonly rows = new Map<string, { readonly row: NewRow; readonly at: number }>();

  add(row: NewRow, now: number): void {
    const { community, event } = row.submission;
    this.rows.set(`${community}/${event.id}`, { row, at: now });
    for (const [key, { at }] of this.rows) {
      if (this.rows.size <= KEPT_MAX && at > now - KEPT_MS) break;
      this.rows.delete(key);
    }
  }

  /** Those that match a filter without its words and its limit. */
  find(community: number, filter: Filter): Placed[] {
    const found: Placed[] = [];
    for (const { row } of this.rows.values()) {
      const { submission, bound } = row;
      if (submission.community === community && matchFilter(filter, asMatched(submission.event, bound)))
        found.push({ createdAt: submission.event.created_at, id: submission.event.id });
    }
    return found;
  }
}
