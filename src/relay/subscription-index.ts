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

/** Subscriptions, and `undefined` after so many comparisons. */
export type Matches<S> = Generator<S | undefined, void>;
const COMPARED_AT_ONCE = 50;
/** What comparing the text of a search counts as. */
const COMPARED_FOR_SEARCH = 10;
const NONE: readonly never[] = [];

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

  protected *compare(
    places: Iterable<[field: string, value: Value]>,
    isMatch: (entry: Entry<S>) => boolean,
  ): Matches<S> {
    const matched = new Set<S>();
    let compared = 0;
    for (const [field, value] of places) {
      for (const entry of this.filedUnder(field, value)) {
        compared += entry.filter.search === undefined ? 1 : COMPARED_FOR_SEARCH;
        if (!matched.has(entry.subscription) && isMatch(entry)) {
          matched.add(entry.subscription);
          yield entry.subscription;
        } else if (compared >= COMPARED_AT_ONCE) {
          compared = 0;
          yield undefined;
        }
      }
    }
  }

  private filedUnder(field: string, value: Value): Iterable<Entry<S>> {
    const held = this.fields.get(field)?.get(value);
    return held === undefined ? NONE : held instanceof Set ? held : [held];
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

  /** Each subscription that the event matches, once. What is filed or removed meanwhile counts. */
  match(event: MatchedEvent): Matches<S> {
    return this.compare(placesOf(event), ({ filter }) => matchFilter(filter, event));
  }
}

/** For deletions: those subscriptions that have a cursor, by what an outline knows of an event. */
export class FollowerIndex<S extends { readonly reader: GoneReader | undefined }> extends FilterIndex<S> {
  protected override isFiledBy(condition: TagCondition): boolean {
    return hasOnlyTopics(condition);
  }

  /** Each subscription whose client could hold the event, once. */
  match(outline: EventOutline): Matches<S> {
    return this.compare(placesOfOutline(outline), ({ subscription: { reader }, filter }) => {
      return reader !== undefined && couldHold(filter, outline, reader);
    });
  }
}

/** Under which fields and values the filters are filed that an event may match. */
function* placesOf(event: MatchedEvent): Generator<[field: string, value: Value]> {
  yield [ID, event.id];
  yield [AUTHOR, event.pubkey];
  yield [KIND, event.kind];
  yield [ANY, ''];
  const tags = indexTags(event);
  if (tags !== undefined) {
    for (const [name, values] of tags) for (const value of values) yield [`#${name}`, value];
  } else
    for (const [name, value] of event.tags)
      if (name?.length === 1 && value !== undefined) yield [`#${name}`, value];
  for (const topic of event.bound ?? []) yield ['#t', topic];
}

function* placesOfOutline({ id, author, kind, topics }: EventOutline): Generator<[string, Value]> {
  yield [ID, id];
  yield [AUTHOR, author];
  yield [KIND, kind];
  yield [ANY, ''];
  for (const topic of topics) yield ['#t', topic];
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
