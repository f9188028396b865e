import { describe, expect, it } from 'vitest';
import { haveOneHiddenClass } from '../../test/support/hidden-class.js';
import { settingsFrom } from '../communities/rules-settings.js';
import type { NostrEvent } from '../events/rules/event.js';
import { type Filter, matchFilter, parseFilter } from '../events/rules/filter.js';
import {
  allTopics,
  asMatched,
  BOUND_MAX,
  bindTopics,
  impliedTopics,
  isTopic,
  needsNoTopic,
  refuseEventTopic,
  refuseFilterTopic,
  TOPIC_LENGTH_MAX,
  topicsOf,
  UNBOUND,
} from './rules.js';

const settingsOf = (stored: Record<string, unknown>) => settingsFrom(new Map(Object.entries(stored)));
const required = settingsOf({ 'topic.mode': 'required' });
const byDefault = settingsOf({ 'topic.mode': 'default' });
const open = settingsOf({ 'topic.mode': 'open' });
const eventOf = (kind: number, ...tags: string[][]): NostrEvent => ({
  id: '1'.repeat(64),
  pubkey: 'a'.repeat(64),
  created_at: 0,
  kind,
  tags,
  content: '',
  sig: 'c'.repeat(128),
});
const filterOf = (raw: unknown) => parseFilter(raw, { 'limits.filterValuesMax': 100 }) as Filter;

describe('isTopic', () => {
  it.each(['sea', ' ', '🌊', '港', 'a:b', '"', '%', 'x'.repeat(TOPIC_LENGTH_MAX)])('%j is one', (value) => {
    expect(isTopic(value)).toBe(true);
  });
  it.each([undefined, '', '\u0000', 'a\nb', 'a\tb', '\u007f', 'x'.repeat(TOPIC_LENGTH_MAX + 1)])(
    '%j is none',
    (value) => {
      expect(isTopic(value)).toBe(false);
    },
  );
});

describe('topicsOf', () => {
  it('is the well-formed values of the t tags, each once, in their order', () => {
    const event = eventOf(
      1,
      ['t', 'b'],
      ['T', 'upper'],
      ['t', 'a', 'c'],
      ['t'],
      ['t', ''],
      ['t', 'b'],
      ['t', 'x\n'],
    );
    expect(topicsOf(event)).toEqual(['b', 'a']);
    expect(topicsOf(eventOf(1))).toEqual([]);
  });
});

describe('needsNoTopic', () => {
  it('by default: profiles, contacts, requests, gift wraps and relay lists', () => {
    const free = (kind: number) => needsNoTopic(kind, required);
    for (const kind of [0, 3, 5, 62, 1_059, 10_000, 15_000, 19_999]) expect(free(kind), `${kind}`).toBe(true);
    for (const kind of [1, 4, 6, 9_999, 20_000, 30_023, 65_535]) expect(free(kind), `${kind}`).toBe(false);
  });

  it('follows the setting: numbers and ranges, both ends included', () => {
    const settings = settingsFrom(new Map<string, unknown>([['topic.freeKinds', [7, '100-102']]]));
    const free = Array.from({ length: 200 }, (_, kind) => kind).filter((kind) =>
      needsNoTopic(kind, settings),
    );
    expect(free).toEqual([7, 100, 101, 102]);
  });
});

const KNOWN = new Map([
  ['wind', { enabled: true, blocked: false, public: false }],
  ['sea', { enabled: true, blocked: false, public: true }],
  ['closed', { enabled: false, blocked: false, public: true }],
]);
const GLOBAL = ['kukuri:global', { enabled: true, blocked: false, public: true }] as const;
const TAG = 'add ["t","sea"]';
const FILTER = 'every filter needs #t on this relay, for example {"kinds":[1],"#t":["sea"]}';
const MISSING = { refused: 'invalid', why: `missing topic: ${TAG}` };
const NOT_ENABLED = { refused: 'restricted', why: 'topic not enabled' };
const HASHTAG = { refused: 'restricted', why: `topic not enabled: ${TAG}` };

describe('refuseEventTopic', () => {
  const t = (...topics: string[]) => topics.map((topic) => ['t', topic]);
  it.each<[NostrEvent, object | undefined]>([
    [eventOf(1), MISSING],
    [eventOf(1, ['t', '']), MISSING],
    [eventOf(1, ['t', '\n']), MISSING],
    [eventOf(1, ['T', 'sea']), MISSING],
    [eventOf(30_023, ['d', 'x']), MISSING],
    [eventOf(1, ['t', ''], ['t', 'sea']), undefined],
    [eventOf(1, ...t('sea')), undefined],
    [eventOf(1, ...t('closed', 'unknown', 'wind')), undefined],
    [eventOf(1, ...t('closed')), HASHTAG],
    [eventOf(1, ...t('unknown')), HASHTAG],
    [eventOf(1, ...t('Sea')), HASHTAG],
    [eventOf(1, ...t('closed', 'unknown')), HASHTAG],
    [eventOf(1, ...t('kukuri:elsewhere')), NOT_ENABLED],
    [eventOf(1, ...t('unknown', 'kukuri:elsewhere')), NOT_ENABLED],
    [eventOf(0), undefined],
    [eventOf(5), undefined],
    [eventOf(5, ...t('closed')), undefined],
    [eventOf(10_002), undefined],
  ])('in required mode, %#; in open mode never', (event, expected) => {
    expect(refuseEventTopic(event, required, KNOWN)).toEqual(expected);
    expect(refuseEventTopic(event, open, KNOWN)).toBeUndefined();
  });

  it('in default mode a hashtag is just a tag: an event without a topic goes to the global topic', () => {
    const known = new Map([...KNOWN, GLOBAL]);
    for (const tags of [[], t(''), t('nostr'), t('nostr', 'bitcoin'), t('Sea'), t('sea'), t('nostr', 'sea')])
      expect(refuseEventTopic(eventOf(1, ...tags), byDefault, known)).toBeUndefined();
    expect(refuseEventTopic(eventOf(0), byDefault, KNOWN)).toBeUndefined();
    expect(refuseEventTopic(eventOf(1, ...t('sea')), byDefault, KNOWN)).toBeUndefined();
  });

  it('in default mode an id of the namespace or a topic of the community must be carried', () => {
    const known = new Map([...KNOWN, GLOBAL]);
    expect(refuseEventTopic(eventOf(1), byDefault, KNOWN)).toEqual(NOT_ENABLED);
    expect(refuseEventTopic(eventOf(1, ...t('kukuri:elsewhere')), byDefault, known)).toEqual(NOT_ENABLED);
    expect(refuseEventTopic(eventOf(1, ...t('nostr', 'closed')), byDefault, known)).toMatchObject({
      why: 'topic not enabled: add ["t","kukuri:global"]',
    });
  });

  it('the advice names the global topic if it is public, else another public topic, else none', () => {
    const why = (...known: [string, { enabled: boolean; blocked: boolean; public: boolean }][]) =>
      refuseEventTopic(eventOf(1), required, new Map(known))?.why;
    expect(why(...KNOWN, [...GLOBAL])).toBe('missing topic: add ["t","kukuri:global"]');
    expect(why(...KNOWN, ['kukuri:global', { enabled: true, blocked: false, public: false }])).toBe(
      `missing topic: ${TAG}`,
    );
    expect(why()).toBe('missing topic: add a t tag with a topic of this relay');
  });
});

describe('refuseFilterTopic', () => {
  it.each<[object, object | undefined]>([
    [{}, MISSING],
    [{ kinds: [1] }, MISSING],
    [{ kinds: [0, 1] }, MISSING],
    [{ kinds: [] }, MISSING],
    [{ authors: ['a'.repeat(64)] }, MISSING],
    [{ ids: ['a'.repeat(64)] }, MISSING],
    [{ '#T': ['sea'] }, MISSING],
    [{ '#e': ['x'], kinds: [1] }, MISSING],
    [{ '#t': ['sea'] }, undefined],
    [{ '#t': ['sea'], kinds: [1] }, undefined],
    [{ '#t': [] }, undefined],
    [{ '#t': ['closed', 'unknown', 'sea'] }, undefined],
    [{ '#t': ['closed'] }, HASHTAG],
    [{ '#t': ['closed'], kinds: [0] }, HASHTAG],
    [{ '#t': ['kukuri:elsewhere'] }, NOT_ENABLED],
    [{ kinds: [0] }, undefined],
    [{ kinds: [0, 3, 10_002], authors: ['a'.repeat(64)] }, undefined],
  ])(
    'in required mode %j gives %j; in default mode only a topic refuses, in open mode nothing',
    (raw, expected) => {
      const advised = (refused: object, why: string) => ({ ...refused, why: `${why}: ${FILTER}` });
      const said =
        expected === MISSING
          ? advised(MISSING, 'missing topic')
          : expected === HASHTAG
            ? advised(HASHTAG, 'topic not enabled')
            : expected;
      expect(refuseFilterTopic(filterOf(raw), required, KNOWN)).toEqual(said);
      const inDefault = expected === MISSING ? undefined : said;
      expect(refuseFilterTopic(filterOf(raw), byDefault, KNOWN)).toEqual(inDefault);
      expect(refuseFilterTopic(filterOf(raw), open, KNOWN)).toBeUndefined();
    },
  );

  it('with a hashtag passes in default mode, and is refused in required mode', () => {
    for (const values of [['unknown', ''], ['nostr'], ['nostr', 'kukuri:elsewhere']]) {
      const filter = filterOf({ '#t': values });
      expect(refuseFilterTopic(filter, byDefault, KNOWN)).toBeUndefined();
      expect(refuseFilterTopic(filter, required, KNOWN)?.refused).toBe('restricted');
    }
  });
});

describe('bound topics', () => {
  it('default mode binds an event that needs a topic and names none to the global topic', () => {
    const minato = settingsOf({ 'topic.mode': 'default', 'topic.namespace': 'minato' });
    for (const event of [eventOf(1), eventOf(1, ['t', 'nostr'])])
      expect(impliedTopics(event, byDefault, KNOWN)).toEqual(['kukuri:global']);
    expect(impliedTopics(eventOf(1, ['t', '']), minato, KNOWN)).toEqual(['minato:global']);
    const named = ['sea', 'closed', 'kukuri:elsewhere'].map((topic) => eventOf(1, ['t', topic]));
    for (const event of [eventOf(0), eventOf(5), ...named])
      expect(impliedTopics(event, byDefault, KNOWN)).toBe(UNBOUND);
    for (const settings of [required, open]) expect(impliedTopics(eventOf(1), settings, KNOWN)).toBe(UNBOUND);
  });

  it('are those that the event does not name itself, without duplicates, up to a limit', () => {
    const event = eventOf(5, ['t', 'sea']);
    expect(bindTopics(event, ['wind', 'sea', 'wind', 'rain'])).toEqual(['wind', 'rain']);
    expect(bindTopics(event, ['sea'])).toBe(UNBOUND);
    function* endless() {
      for (let number = 0; ; number += 1) yield `topic ${number}`;
    }
    expect(bindTopics(event, endless())).toHaveLength(BOUND_MAX);
  });

  it('match filters like tags, and change nothing in the event', () => {
    const event = eventOf(5, ['e', 'x'], ['t', 'sea']);
    const matched = asMatched(event, ['wind']);
    expect(allTopics(event, ['wind'])).toEqual(['sea', 'wind']);
    for (const topic of ['sea', 'wind'])
      expect(matchFilter(filterOf({ kinds: [1, 5], '#t': [topic] }), matched)).toBe(true);
    expect(matchFilter(filterOf({ '#t': ['wind'] }), asMatched(eventOf(1), ['wind']))).toBe(true);
    expect(matchFilter(filterOf({ '#t': ['wind'] }), event)).toBe(false);
    expect(matchFilter(filterOf({ '#T': ['wind'] }), matched)).toBe(false);
    expect(asMatched(event, UNBOUND)).toBe(event);
  });

  it('leave events one hidden class, so that matching stays fast', () => {
    const matched = Array.from({ length: 1_000 }, () => asMatched(eventOf(1), ['wind']));
    expect(haveOneHiddenClass(matched)).toBe(true);
  });

  it('of a deletion request match only filters that name its kind', () => {
    const request = asMatched(eventOf(5), ['wind']);
    expect(matchFilter(filterOf({ '#t': ['wind'] }), request)).toBe(false);
    expect(matchFilter(filterOf({ '#t': ['wind'], kinds: [5] }), request)).toBe(true);
  });
});

it('an event or filter with a blocked topic is refused in every mode', () => {
  const blocked = new Map([...KNOWN, ['forbidden', { enabled: false, blocked: true, public: false }]]);
  const BLOCKED = { refused: 'restricted', why: 'topic blocked by the operator' };
  for (const settings of [required, byDefault, open]) {
    expect(refuseEventTopic(eventOf(1, ['t', 'sea'], ['t', 'forbidden']), settings, blocked)).toEqual(
      BLOCKED,
    );
    expect(refuseEventTopic(eventOf(0, ['t', 'forbidden']), settings, blocked)).toEqual(BLOCKED);
    expect(refuseFilterTopic(filterOf({ '#t': ['sea', 'forbidden'] }), settings, blocked)).toEqual(BLOCKED);
    expect(refuseFilterTopic(filterOf({ '#t': ['sea'] }), settings, blocked)).toBeUndefined();
  }
});
