/**
 * The open subscriptions of one community, so that an event touches only those it may match: each filter is filed under
 * the values of its most selective field, and an event looks under its own id, tags, author and kind.
 */
import { type Filter, matchesNothing, matchFilter } from '../core/filter.js';
import type { MatchedEvent } from '../core/topic.js';

interface Entry<S> {
  readonly subscription: S;
  readonly filter: Filter;
}

export class SubscriptionIndex<S> {
  private readonly entries = new Map<string, Set<Entry<S>>>();
  private readonly entriesOf = new Map<S, Entry<S>[]>();
  /** Those whose stored part is still under way. */
  readonly loading = new Set<S>();

  add(subscription: S, filters: readonly Filter[]): void {
    const entries = filters
      .filter((filter) => !matchesNothing(filter))
      .map((filter) => ({ subscription, filter }));
    for (const entry of entries) {
      for (const key of filterKeys(entry.filter)) {
        const filed = this.entries.get(key);
        if (filed === undefined) this.entries.set(key, new Set([entry]));
        else filed.add(entry);
      }
    }
    this.entriesOf.set(subscription, entries);
    this.loading.add(subscription);
  }

  /** Its stored part is sent. */
  settle(subscription: S): void {
    this.loading.delete(subscription);
  }

  remove(subscription: S): void {
    this.loading.delete(subscription);
    for (const entry of this.entriesOf.get(subscription) ?? []) {
      for (const key of filterKeys(entry.filter)) {
        const filed = this.entries.get(key);
        filed?.delete(entry);
        if (filed?.size === 0) this.entries.delete(key);
      }
    }
    this.entriesOf.delete(subscription);
  }

  get size(): number {
    return this.entriesOf.size;
  }

  /** Each subscription that the event matches, once. */
  match(event: MatchedEvent): Set<S> {
    const matched = new Set<S>();
    for (const key of eventKeys(event)) {
      for (const { subscription, filter } of this.entries.get(key) ?? []) {
        if (!matched.has(subscription) && matchFilter(filter, event)) matched.add(subscription);
      }
    }
    return matched;
  }
}

function filterKeys(filter: Filter): string[] {
  if (filter.ids !== undefined) return [...filter.ids].map((id) => `i${id}`);
  const tag = [...filter.tags].sort((a, b) => a.values.size - b.values.size)[0];
  if (tag !== undefined) return [...tag.values].map((value) => `#${tag.name}${value}`);
  if (filter.authors !== undefined) return [...filter.authors].map((author) => `a${author}`);
  if (filter.kinds !== undefined) return [...filter.kinds].map((kind) => `k${kind}`);
  return ['*'];
}

function eventKeys(event: MatchedEvent): Set<string> {
  const keys = new Set([`i${event.id}`, `a${event.pubkey}`, `k${event.kind}`, '*']);
  for (const tag of event.tags) {
    if (tag[0]?.length === 1 && tag[1] !== undefined) keys.add(`#${tag[0]}${tag[1]}`);
  }
  for (const topic of event.bound ?? []) keys.add(`#t${topic}`);
  return keys;
}
