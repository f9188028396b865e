import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { View } from '../../events/rules/access.js';
import type { NostrEvent } from '../../events/rules/event.js';
import { isExpired } from '../../events/rules/expiration.js';
import { type Filter, matchFilter } from '../../events/rules/filter.js';
import {
  ages,
  DAY_MS,
  defaultSince,
  eventSince,
  type Retention,
  topicSince,
} from '../../events/rules/retention.js';
import { type MatchedEvent, topicsOf } from '../../topics/rules.js';
import { readWindow } from './read.js';
import { EVERYTHING, Window } from './window.js';

const KEY = { low: 1, high: 2 };
const BYTES = 100 * 1_048_576;
const START = 100 * DAY_MS;

const hex = (number: number) => number.toString(16).padStart(64, '0');
const idOf = (number: number) => hex(number * 7_919 + 1);
const RULES: Retention = { settings: { 'retention.regularDays': 30 }, topics: new Map() };

interface Row {
  readonly community: number;
  readonly event: NostrEvent;
  readonly seq: number;
  readonly ingestedAt: number;
  readonly bound: readonly string[];
}

function eventOf(number: number, given: Partial<NostrEvent> = {}): NostrEvent {
  const event = {
    id: idOf(number),
    pubkey: hex(1),
    created_at: 1_000,
    kind: 1,
    tags: [],
    content: '',
    sig: '',
  };
  return { ...event, ...given };
}
const payloadOf = (event: NostrEvent) => Buffer.from(JSON.stringify(event));

/** The same by the plainest means. */
class Model {
  readonly rows = new Map<string, Row>();
  readonly marks: { community: number; pubkey: string; until: number }[] = [];

  read(filter: Filter, asked: { community: number; limit: number; now: number; rules: Retention }): string[] {
    const seconds = Math.floor(asked.now / 1_000);
    const found = [...this.rows.values()].filter(({ community, event, bound, ingestedAt }) => {
      if (community !== asked.community || isExpired(event, seconds) || this.hides(community, event))
        return false;
      const kept = keptFor(filter, { event, bound, ingestedAt }, asked);
      return kept !== undefined && matchFilter(filter, kept);
    });
    return newestFirst(found).slice(0, asked.limit);
  }

  inOrder(ids: readonly string[], community: number): string[] {
    return newestFirst(ids.map((id) => this.rows.get(`${community}/${id}`)!));
  }

  hides(community: number, { pubkey, kind, tags, created_at }: NostrEvent): boolean {
    return this.marks.some(
      (mark) =>
        mark.community === community &&
        created_at <= mark.until &&
        (mark.pubkey === pubkey ||
          (kind === 1059 && tags.some(([name, value]) => name === 'p' && value === mark.pubkey))),
    );
  }
}

/**
 * As the database has it: where topics are asked for, each for itself; else as long as one of those it names
 * keeps it.
 */
function keptFor(
  { tags }: Filter,
  { event, bound, ingestedAt }: Pick<Row, 'event' | 'bound' | 'ingestedAt'>,
  { rules, now }: { rules: Retention; now: number },
): MatchedEvent | undefined {
  if (!ages(event.kind)) return { ...event, bound };
  if (tags.every(({ name }) => name !== 't'))
    return ingestedAt >= eventSince(rules, topicsOf(event), now) ? { ...event, bound } : undefined;
  const values = event.tags.flatMap(([name, value]) => (name === 't' && value !== undefined ? [value] : []));
  return {
    ...event,
    bound: ingestedAt >= defaultSince(rules, now) ? bound : [],
    past: values.filter((topic) => ingestedAt < topicSince(rules, topic, now)),
  };
}

const newestFirst = (rows: readonly Row[]) =>
  [...rows]
    .sort((a, b) => b.event.created_at - a.event.created_at || (a.event.id < b.event.id ? -1 : 1))
    .map(({ event }) => event.id);

const TOPICS = ['tea', 'ü"\\', 'minato:x', hex(77), ''];
const KINDS = [1, 5, 7, 1059, 30_023];
const AUTHORS = [hex(1), hex(2), hex(3)];

const numbers = fc.integer({ min: 0, max: 60 });
const tag = fc.oneof(
  fc.tuple(fc.constant('t'), fc.constantFrom(...TOPICS)),
  fc.tuple(fc.constantFrom('p', 'e', 'E'), fc.constantFrom(...AUTHORS)),
  fc.constant(['expiration', String(START / 1_000 + 5)] as const),
  fc.constant(['t'] as const),
  fc.constant(['alt', 'tea'] as const),
);
/** A filter names few of its fields. */
const seldom = <T>(arbitrary: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary });
const added = {
  number: numbers,
  community: fc.constantFrom(1, 1, 1, 2),
  author: fc.constantFrom(...AUTHORS),
  kind: fc.constantFrom(...KINDS),
  createdAt: fc.integer({ min: 0, max: 8 }),
  tags: fc.array(tag, { maxLength: 4, size: 'max' }),
  bound: fc.oneof(fc.constant([]), fc.constant(['minato:x'])),
};
const step = fc.record({
  ...added,
  what: fc.constantFrom('add', 'add', 'add', 'remove', 'vanish', 'pass', 'ask', 'ask', 'ask', 'trim'),
  filter: fc.record({
    ids: seldom(fc.uniqueArray(numbers, { minLength: 5, maxLength: 30, size: 'max' })),
    authors: seldom(fc.subarray(AUTHORS, { minLength: 1 })),
    kinds: seldom(fc.subarray(KINDS, { minLength: 1 })),
    topics: seldom(fc.subarray([...TOPICS, '\ud800'], { minLength: 1 })),
    people: seldom(fc.subarray(AUTHORS, { minLength: 1 })),
    since: seldom(fc.integer({ min: 0, max: 8 })),
    until: seldom(fc.integer({ min: -1, max: 8 })),
    view: seldom(fc.constantFrom('parties', 'topics')),
  }),
  limit: fc.integer({ min: 1, max: 20 }),
});
const firstOnes = fc.array(fc.record(added), { minLength: 20, maxLength: 40, size: 'max' });
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

const carried = {
  key: '',
  prefix: 'minato:',
  plain: new Set(['tea']),
  known: new Set(['tea']),
  enabled: new Set(['tea']),
  public: new Set<string>(),
};
const VIEWS: Record<string, View | undefined> = {
  none: undefined,
  parties: {
    key: 'p',
    parties: { ranges: [[1059, 1059]], pubkeys: new Set([AUTHORS[0]!]) },
    topics: undefined,
    kinds: undefined,
  },
  topics: {
    key: 't',
    parties: undefined,
    topics: { key: '', carried, subscribed: new Set() },
    kinds: undefined,
  },
};

function filterOf({ filter: { ids, topics, people, view, ...given } }: Step): Filter {
  const { authors, kinds, since, until } = given;
  const seen = VIEWS[view ?? 'none'];
  return {
    ...(ids && { ids: new Set(ids.map(idOf)) }),
    ...(authors && { authors: new Set(authors) }),
    ...(kinds && { kinds: new Set(kinds) }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
    ...(seen && { view: seen }),
    tags: [
      ...(topics ? [{ name: 't', values: new Set(topics) }] : []),
      ...(people ? [{ name: 'p', values: new Set(people) }] : []),
    ],
  };
}

const TOPIC = { enabled: true, blocked: false, public: true, priority: 0 };
const SHORT_TEA: Retention = {
  settings: { 'retention.regularDays': 30 },
  topics: new Map([['tea', { ...TOPIC, policy: { retentionDays: 2 } }]]),
};
const LONG_TEA: Retention = {
  settings: { 'retention.regularDays': 2 },
  topics: new Map([['tea', { ...TOPIC, policy: { retentionDays: 30 } }]]),
};

describe('the window', () => {
  it('answers as the plainest search would, or says what is left, in whatever order', () => {
    let found = 0;
    const steps = fc.array(step, { maxLength: 60, size: 'max' });
    fc.assert(
      fc.property(firstOnes, steps, (first, taken) => {
        const run = new Run();
        for (const one of first) run.add(one);
        for (const one of taken) found += run.take(one);
      }),
      { numRuns: 200 },
    );
    // A test of empty answers would show nothing.
    expect(found).toBeGreaterThan(10_000);
  });
});

/** The window and the model side by side. */
class Run {
  private readonly window = new Window(KEY, BYTES);
  private readonly model = new Model();
  private now = START;
  private seq = 0;

  constructor() {
    for (const community of [1, 2]) this.window.reach(community, EVERYTHING);
  }

  add({
    number,
    community,
    author,
    kind,
    createdAt,
    tags,
    bound,
  }: Omit<Step, 'what' | 'filter' | 'limit'>): void {
    const key = `${community}/${idOf(number)}`;
    const own = { pubkey: author, kind, created_at: createdAt, tags: tags.map((values) => [...values]) };
    const event = eventOf(number, own);
    // Nothing is taken in that a mark would hide.
    if (this.model.rows.has(key) || this.model.hides(community, event)) return;
    const row = { community, event, seq: ++this.seq, ingestedAt: this.now, bound };
    this.model.rows.set(key, row);
    // Below what is complete it may be held or not.
    if (createdAt >= this.window.extent(community).from || number % 2 === 0)
      this.window.add(community, { ...row, payload: payloadOf(event) });
  }

  /** Gives how many events were found. */
  take(step: Step): number {
    const { what, number, community, author, createdAt } = step;
    const { window, model } = this;
    if (what === 'add') this.add(step);
    else if (what === 'remove') {
      model.rows.delete(`${community}/${idOf(number)}`);
      window.remove(community, idOf(number));
    } else if (what === 'vanish' && number < 10) {
      model.marks.push({ community, pubkey: author, until: createdAt });
      window.vanish(community, author, createdAt);
    } else if (what === 'pass') this.now += number < 30 ? 1_000 * createdAt : DAY_MS;
    else if (what === 'trim' && number < 20) this.trim();
    else if (what === 'ask')
      return [RULES, SHORT_TEA, LONG_TEA].reduce((sum, rules) => sum + this.ask(step, rules), 0);
    return 0;
  }

  /** So full that the oldest has to go. */
  private trim(): void {
    this.window.allow(this.window.bytes - 1);
    this.window.trim();
    this.window.allow(BYTES);
  }

  private ask(step: Step, rules: Retention): number {
    const { community, limit } = step;
    const filter = filterOf(step);
    const asked = { community, limit, now: this.now, rules };
    const answer = readWindow(this.window, filter, asked)!;
    for (const { id, payload } of answer.rows)
      expect(JSON.parse(payload!.toString())).toEqual(this.model.rows.get(`${community}/${id}`)!.event);
    const ids = answer.rows.map(({ id }) => id);
    // What it leaves to the database comes from the model.
    const rest = answer.rest === undefined ? [] : this.model.read(answer.rest, asked);
    const whole =
      filter.ids === undefined ? [...ids, ...rest] : this.model.inOrder([...ids, ...rest], community);
    expect(whole.slice(0, limit)).toEqual(this.model.read(filter, asked));
    return ids.length;
  }
}
