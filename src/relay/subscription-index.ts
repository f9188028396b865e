/**
 * The open subscriptions of one community, so that an event touches only those it may match: each filter is
 * filed under the values of its most selective field, and an event looks under its own id, tags, author and
 * kind.
 */
import {
  type Filter,
  indexTags,
  matchesNothing,
  matchFilter,
  type TagCondition,
} from '../events/rules/filter.js';
import type { EventOutline } from '../events/rules/hidden.js';
import type { MatchedEvent } from '../topics/rules.js';
import { couldHold, type GoneReader, hasOnlyTopics } from './rules-gone.js';

interface Entry<S> {
  readonly subscription: S;
  readonly filter: Filter;
}

type Value = string | number;
/** Most values have one entry: a set for each took a third of the time of adding 900 of them. */
type Filed<S> = Entry<S> | Set<Entry<S>>;

abstract class FilterIndex<S> {
  /** By the name of the field, then by its value, which is used as it is: joining the two has a cost, too. */
  private readonly fields = new Map<string, Map<Value, Filed<S>>>();
  private readonly entriesOf = new Map<S, Entry<S>[]>();

  /** Whether an entry can be found by this condition. */
  protected abstract isFiledBy(condition: TagCondition): boolean;

  add(subscription: S, filters: readonly Filter[]): void {
    const entries = filters
      .filter((filter) => !matchesNothing(filter))
      .map((filter) => ({ subscription, filter }));
    for (const entry of entries) {
      const { field, values } = this.placeOf(entry.filter);
      const filed = this.fields.get(field) ?? new Map<Value, Filed<S>>();
      this.fields.set(field, filed);
      for (const value of values) {
        const others = filed.get(value);
        if (others === undefined) filed.set(value, entry);
        else if (others instanceof Set) others.add(entry);
        else filed.set(value, new Set([others, entry]));
      }
    }
    this.entriesOf.set(subscription, entries);
  }

  remove(subscription: S): void {
    for (const entry of this.entriesOf.get(subscription) ?? []) {
      const { field, values } = this.placeOf(entry.filter);
      const filed = this.fields.get(field);
      for (const value of values) {
        const held = filed?.get(value);
        if (held instanceof Set) held.delete(entry);
        if (held === entry || (held instanceof Set && held.size === 0)) filed?.delete(value);
      }
      if (filed?.size === 0) this.fields.delete(field);
    }
    this.entriesOf.delete(subscription);
  }

  get size(): number {
    return this.entriesOf.size;
  }

  get all(): Iterable<S> {
    return this.entriesOf.keys();
  }

  protected filedUnder(field: string, value: Value): Iterable<Entry<S>> | undefined {
    const held = this.fields.get(field)?.get(value);
    return held === undefined || held instanceof Set ? held : [held];
  }

  private placeOf(filter: Filter): Place {
    if (filter.ids !== undefined) return { field: ID, values: filter.ids };
    const usable = filter.tags.filter((tag) => this.isFiledBy(tag));
    const tag = usable.sort((a, b) => a.values.size - b.values.size)[0];
    if (tag !== undefined) return { field: `#${tag.name}`, values: tag.values };
    if (filter.authors !== undefined) return { field: AUTHOR, values: filter.authors };
    if (filter.kinds !== undefined) return { field: KIND, values: filter.kinds };
    return { field: ANY, values: [''] };
  }
}

/** For new events. */
export class SubscriptionIndex<S> extends FilterIndex<S> {
  protected override isFiledBy(): boolean {
    return true;
  }

  /** Each subscription that the event matches, once. */
  match(event: MatchedEvent): Set<S> {
    const matched = new Set<S>();
    const look = (field: string, value: Value): void => {
      const filed = this.filedUnder(field, value);
      if (filed === undefined) return;
      for (const { subscription, filter } of filed)
        if (!matched.has(subscription) && matchFilter(filter, event)) matched.add(subscription);
    };
    look(ID, event.id);
    look(AUTHOR, event.pubkey);
    look(KIND, event.kind);
    look(ANY, '');
    const tags = indexTags(event);
    if (tags !== undefined) {
      for (const [name, values] of tags) for (const value of values) look(`#${name}`, value);
    } else
      for (const [name, value] of event.tags)
        if (name?.length === 1 && value !== undefined) look(`#${name}`, value);
    for (const topic of event.bound ?? []) look('#t', topic);
    return matched;
  }
}

/** For deletions: those subscriptions that have a cursor, by what an outline knows of an event. */
export class FollowerIndex<S extends { readonly reader: GoneReader | undefined }> extends FilterIndex<S> {
  protected override isFiledBy(condition: TagCondition): boolean {
    return hasOnlyTopics(condition);
  }

  /** Each subscription whose client could hold the event, once. */
  match(outline: EventOutline): Set<S> {
    const matched = new Set<S>();
    const look = (field: string, value: Value): void => {
      for (const { subscription, filter } of this.filedUnder(field, value) ?? []) {
        const { reader } = subscription;
        if (reader !== undefined && !matched.has(subscription) && couldHold(filter, outline, reader))
          matched.add(subscription);
      }
    };
    look(ID, outline.id);
    look(AUTHOR, outline.author);
    look(KIND, outline.kind);
    look(ANY, '');
    for (const topic of outline.topics) look('#t', topic);
    return matched;
  }
}

const ID = 'id';
const AUTHOR = 'author';
const KIND = 'kind';
/** Filters without values. */
const ANY = 'any';

interface Place {
  readonly field: string;
  readonly values: Iterable<Value>;
}
