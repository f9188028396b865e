import { describe, expect, it } from 'vitest';
import type { NostrEvent } from './event.js';
import { type Filter, parseFilter } from './filter.js';
import { type Settings, settingsFrom } from './settings.js';
import {
  isTopic,
  needsNoTopic,
  refuseEventTopic,
  refuseFilterTopic,
  TOPIC_LENGTH_MAX,
  topicsOf,
} from './topic.js';

const required = settingsFrom(new Map<string, unknown>([['topic.mode', 'required']]));
const open = settingsFrom(new Map<string, unknown>([['topic.mode', 'open']]));
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

describe('refuseEventTopic', () => {
  it.each([
    ['required', required, eventOf(1), true],
    ['required', required, eventOf(1, ['t', '']), true],
    ['required', required, eventOf(1, ['t', '\n']), true],
    ['required', required, eventOf(1, ['T', 'sea']), true],
    ['required', required, eventOf(30_023, ['d', 'x']), true],
    ['required', required, eventOf(1, ['t', ''], ['t', 'sea']), false],
    ['required', required, eventOf(0), false],
    ['required', required, eventOf(5), false],
    ['required', required, eventOf(10_002), false],
    ['open', open, eventOf(1), false],
  ] as [string, Settings, NostrEvent, boolean][])('%s mode, %#', (_, settings, event, refused) => {
    const expected = refused ? { refused: 'invalid', why: 'missing topic' } : undefined;
    expect(refuseEventTopic(event, settings)).toEqual(expected);
  });
});

describe('refuseFilterTopic', () => {
  it.each([
    [{}, true],
    [{ kinds: [1] }, true],
    [{ kinds: [0, 1] }, true],
    [{ kinds: [] }, true],
    [{ authors: ['a'.repeat(64)] }, true],
    [{ ids: ['a'.repeat(64)] }, true],
    [{ '#T': ['sea'] }, true],
    [{ '#e': ['x'], kinds: [1] }, true],
    [{ '#t': ['sea'] }, false],
    [{ '#t': ['sea'], kinds: [1] }, false],
    [{ '#t': [] }, false],
    [{ kinds: [0] }, false],
    [{ kinds: [0, 3, 10_002], authors: ['a'.repeat(64)] }, false],
  ])('in required mode %j is refused: %s; in open mode never', (raw, refused) => {
    const answer = refuseFilterTopic(filterOf(raw), required);
    if (refused)
      expect(answer).toMatchObject({ refused: 'invalid', why: expect.stringContaining('missing topic') });
    else expect(answer).toBeUndefined();
    expect(refuseFilterTopic(filterOf(raw), open)).toBeUndefined();
  });
});
