import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { settingsFrom } from '../communities/rules-settings.js';
import { type AccessRules, ANONYMOUS, seenBy } from '../events/rules/access.js';
import type { NostrEvent } from '../events/rules/event.js';
import { type Filter, matchFilter, parseFilter } from '../events/rules/filter.js';
import type { EventOutline } from '../events/rules/hidden.js';
import { isRefusal } from '../events/rules/reply.js';
import type { TopicRule } from '../events/rules/retention.js';
import { topicsOf } from '../topics/rules.js';
import { couldHold, goneReader } from './rules-gone.js';

const [ALICE, BOB, CAROL] = ['a', 'b', 'c'].map((digit) => digit.repeat(64)) as [string, string, string];
const topic = (isPublic: boolean): TopicRule => ({
  enabled: true,
  blocked: false,
  public: isPublic,
  priority: 0,
  policy: {},
});
const rules: AccessRules = {
  settings: settingsFrom(new Map()),
  topics: new Map([
    ['open', topic(true)],
    ['closed', topic(false)],
  ]),
  refused: new Map(),
};
const privateKinds = rules.settings['auth.privateKinds'];
const keyOf = (letter: string, value: string) => `${letter}:${value}`;

const accessOf = (...pubkeys: string[]) => ({
  ...ANONYMOUS,
  enforced: true,
  pubkeys: new Set(pubkeys),
  consented: new Set(pubkeys),
});
const filterOf = (input: object): Filter => {
  const filter = parseFilter(input, rules.settings);
  if (isRefusal(filter)) throw new Error(filter.why);
  return filter;
};
const event = (draft: Partial<NostrEvent>): NostrEvent => ({
  id: '1'.repeat(64),
  pubkey: ALICE,
  created_at: 100,
  kind: 1,
  tags: [],
  content: '',
  sig: '',
  ...draft,
});
/** As the outbox has it; without tags for a superseded version. */
const outlineOf = (of: NostrEvent, knowsTags: boolean): EventOutline => ({
  id: of.id,
  author: of.pubkey,
  kind: of.kind,
  createdAt: of.created_at,
  topics: topicsOf(of),
  tags: knowsTags
    ? new Set(of.tags.flatMap(([name, value]) => (value === undefined ? [] : [keyOf(name!, value)])))
    : undefined,
});
const holds = (input: object, of: NostrEvent, keys: string[] = [CAROL], knowsTags = true): boolean => {
  const access = accessOf(...keys);
  const reader = goneReader(access, privateKinds, keyOf);
  return couldHold(seenBy(filterOf(input), access, rules), outlineOf(of, knowsTags), reader);
};

describe('a deletion is announced to those who could hold the event', () => {
  it('by kind, author, id and time, exactly', () => {
    const note = event({});
    for (const input of [
      {},
      { kinds: [1] },
      { authors: [ALICE] },
      { ids: [note.id] },
      { since: 100, until: 100 },
    ])
      expect(holds(input, note), JSON.stringify(input)).toBe(true);
    for (const input of [
      { kinds: [7] },
      { authors: [BOB] },
      { ids: ['2'.repeat(64)] },
      { since: 101 },
      { until: 99 },
    ])
      expect(holds(input, note), JSON.stringify(input)).toBe(false);
  });

  it('by tags exactly where they are known, and without them where they are not', () => {
    const reply = event({ tags: [['e', '3'.repeat(64)]] });
    expect(holds({ '#e': ['3'.repeat(64)] }, reply)).toBe(true);
    expect(holds({ '#e': ['4'.repeat(64)] }, reply)).toBe(false);
    expect(holds({ '#e': ['4'.repeat(64)] }, reply, [CAROL], false)).toBe(true);
  });

  it('by topics exactly, also where tags are not known', () => {
    const post = event({ tags: [['t', 'open']] });
    for (const knows of [true, false]) {
      expect(holds({ '#t': ['open'] }, post, [CAROL], knows)).toBe(true);
      expect(holds({ '#t': ['sea'] }, post, [CAROL], knows)).toBe(false);
    }
  });

  it('by a value of t that is too long to be a topic', () => {
    const long = 'x'.repeat(300);
    for (const knows of [true, false])
      expect(holds({ '#t': [long] }, event({ tags: [['t', long]] }), [CAROL], knows)).toBe(true);
  });

  it('not in topics that the client may not read', () => {
    expect(holds({}, event({ tags: [['t', 'closed']] }))).toBe(false);
    expect(holds({}, event({ tags: [['t', 'closed']] }), [CAROL], false)).toBe(false);
    expect(
      holds(
        {},
        event({
          tags: [
            ['t', 'closed'],
            ['t', 'open'],
          ],
        }),
      ),
    ).toBe(true);
  });

  it('of a private kind only to its author and its recipients', () => {
    const wrap = event({ kind: 1_059, tags: [['p', BOB]] });
    for (const input of [{}, { kinds: [1_059] }, { ids: [wrap.id] }, { '#p': [BOB] }]) {
      expect(holds(input, wrap, [BOB]), JSON.stringify(input)).toBe(true);
      expect(holds(input, wrap, [ALICE])).toBe(true);
      expect(holds(input, wrap, [CAROL])).toBe(false);
      expect(holds(input, wrap, [])).toBe(false);
    }
    expect(holds({ '#p': [CAROL] }, wrap, [CAROL])).toBe(false);
  });

  it('of a private kind whose tags are not known only to its author', () => {
    const wrap = event({ kind: 1_059, tags: [['p', BOB]] });
    for (const input of [{}, { '#p': [BOB] }]) {
      expect(holds(input, wrap, [ALICE], false)).toBe(true);
      expect(holds(input, wrap, [BOB], false)).toBe(false);
      expect(holds({ '#p': [CAROL] }, wrap, [CAROL], false)).toBe(false);
    }
  });
});

describe('on random events, filters and clients', () => {
  const pubkey = fc.constantFrom(ALICE, BOB, CAROL);
  const value = fc.constantFrom('open', 'closed', 'sea', 'x'.repeat(300), '');
  const tag = fc.oneof(
    fc.tuple(fc.constant('t'), value),
    fc.tuple(fc.constant('p'), pubkey),
    fc.tuple(fc.constant('e'), fc.constantFrom('1', '2')),
  );
  const anEvent = fc.record({
    pubkey,
    kind: fc.constantFrom(1, 4, 1_059, 30_023),
    created_at: fc.integer({ min: 1, max: 3 }),
    tags: fc.array(
      tag.map((pair): string[] => [...pair]),
      { maxLength: 4 },
    ),
  });
  const some = <T>(of: fc.Arbitrary<T>) => fc.uniqueArray(of, { minLength: 1, maxLength: 2 });
  const aFilter = fc.record(
    {
      kinds: some(fc.constantFrom(1, 4, 1_059, 30_023)),
      authors: some(pubkey),
      '#t': some(value),
      '#p': some(pubkey),
      '#e': some(fc.constantFrom('1', '2')),
      since: fc.integer({ min: 1, max: 3 }),
    },
    { requiredKeys: [] },
  );

  it('no match is missed where tags are known, and every announced one was visible', () => {
    fc.assert(
      fc.property(anEvent, aFilter, fc.uniqueArray(pubkey), fc.boolean(), (draft, input, keys, knows) => {
        const of = event(draft);
        const access = accessOf(...keys);
        const filter = seenBy(filterOf(input), access, rules);
        const reader = goneReader(access, privateKinds, keyOf);
        const announced = couldHold(filter, outlineOf(of, knows), reader);
        const isPrivate = [4, 1_059].includes(of.kind);
        if (matchFilter(filter, of) && (knows || !isPrivate || keys.includes(of.pubkey)))
          expect(announced).toBe(true);
        // What is announced, the client sees by some filter.
        if (announced) expect(matchFilter(seenBy(filterOf({}), access, rules), of)).toBe(true);
      }),
      { numRuns: 3_000 },
    );
  });
});
