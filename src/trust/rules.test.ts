import { describe, expect, it } from 'vitest';
import { type Settings, settingsFrom } from '../communities/rules-settings.js';
import type { NostrEvent } from '../events/rules/event.js';
import type { TopicRule } from '../events/rules/retention.js';
import { DAY_MS } from '../events/rules/retention.js';
import {
  assertionOf,
  CONTACTS_MAX,
  contactWeight,
  foundedUntil,
  groundTime,
  isPublic,
  makesContacts,
  namedBy,
  rankOf,
  renewalMs,
  scoreOf,
  scoringRules,
  standingOf,
  tieOf,
  windowStart,
} from './rules.js';

const settings = settingsFrom(new Map());
const changed = (key: string, value: unknown): Settings => settingsFrom(new Map([[key, value]]));
const key = (at: number) => at.toString(16).padStart(64, '0');
const event = (draft: Partial<NostrEvent>): NostrEvent => ({
  id: key(1),
  pubkey: key(2),
  created_at: 1,
  kind: 1,
  tags: [],
  content: '',
  sig: '',
  ...draft,
});

describe('a score', () => {
  const risk = (weight: number, labels = 0, own = settings) =>
    scoreOf('report-based', { weight, labels }, own);
  const density = (weight: number, own = settings) =>
    scoreOf('communication-density', { weight, labels: 0 }, own);

  it.each([
    [0, 0, 0, 100],
    [4, 0, 0.08, 92],
    [5, 0, 0.1, 90],
    [7.5, 0, 0.55, 45],
    [10, 0, 1, 0],
    [11, 0, 1, 0],
    [0, 3, 0.3, 70],
    [5, 3, 0.4, 60],
    [8, 8, 1, 0],
  ])(
    'of reports that weigh %f and %i labels is a risk of %f and a rank of %i',
    (weight, labels, is, rank) => {
      expect(risk(weight, labels)).toBe(is);
      expect(rankOf('report-based', is)).toBe(rank);
    },
  );

  it.each([
    [0, 0, 0],
    [4, 0.08, 8],
    [5, 0.1, 10],
    [12.5, 0.55, 55],
    [20, 1, 100],
    [1e6, 1, 100],
  ])('of ties that weigh %f is a density of %f and a rank of %i', (weight, is, rank) => {
    expect(density(weight)).toBe(is);
    expect(rankOf('communication-density', is)).toBe(rank);
  });

  it('is moved by at most a tenth by fewer established members than trust.establishedMin', () => {
    for (const few of [2, 5, 20, 100])
      for (const full of [1, 10, 1_000]) {
        const own = settingsFrom(
          new Map([
            ['trust.establishedMin', few],
            ['trust.reportsFull', full],
            ['trust.densityFull', full],
          ]),
        );
        expect(risk(few - 1, 0, own)).toBeLessThanOrEqual(0.1);
        expect(density(few - 1, own)).toBeLessThanOrEqual(0.1);
        expect(risk(Math.max(full, few + 1), 0, own)).toBe(1);
        for (let weight = 0; weight < 30; weight += 0.5)
          expect(density(weight + 0.5, own)).toBeGreaterThanOrEqual(density(weight, own));
      }
  });

  it('follows the settings of the community', () => {
    expect(risk(7, 0, changed('trust.reportsFull', 7))).toBe(1);
    expect(density(7, changed('trust.densityFull', 9))).toBe(0.55);
    expect(windowStart(10 * DAY_MS, changed('trust.windowDays', 7))).toBe(3 * DAY_MS);
  });

  it('depends only on settings that scoringRules names', () => {
    const scoring = (own: Settings, keys: string[] = [], topics = new Map<string, TopicRule>()) =>
      scoringRules({ settings: own, topics, refused: new Map() }, keys);
    const rules = scoring(settings);
    const others: [string, unknown][] = [
      ['trust.windowDays', 7],
      ['trust.reportsFull', 7],
      ['trust.densityFull', 7],
      ['trust.establishedMin', 7],
      ['trust.foundingDays', 7],
      ['trust.kindWeights', { 1: 2 }],
      ['trust.assertionDays', 3],
      ['trust.publish', false],
    ];
    for (const [name, value] of others) expect(scoring(changed(name, value))).not.toBe(rules);
    expect(scoring(settings, [key(1)])).not.toBe(rules);
    const closed = changed('auth.mode', 'required');
    const open = new Map([['kukuri:open', { enabled: true, public: true } as TopicRule]]);
    expect(scoring(closed)).not.toBe(rules);
    expect(scoring(closed, [], open)).not.toBe(scoring(closed));
    expect(scoring(settings, [], open)).toBe(rules);
  });
});

describe('a contact', () => {
  it('is each other person that an event names, once, up to a limit', () => {
    const tags = [['p', key(3)], ['p', key(2)], ['p', key(3)], ['p', 'x'], ['p'], ['e', key(4)]];
    expect(namedBy(event({ tags }))).toEqual({ named: [key(3)], shared: 1 });
    const many = namedBy(event({ tags: Array.from({ length: 60 }, (_, at) => ['p', key(100 + at)]) }));
    expect(many.named).toHaveLength(CONTACTS_MAX);
    expect(many.shared).toBe(60);
  });

  it('weighs the weight of its kind divided by the number of people that its event names', () => {
    expect([1, 6, 7, 9].map((kind) => contactWeight(kind, 1, settings))).toEqual([1, 0.5, 0.3, 0]);
    expect(contactWeight(1, 25, settings)).toBe(0.04);
    expect(contactWeight(7, 7, settings)).toBe(0.043);
  });

  it('is of a kind that has a weight', () => {
    expect([1, 6, 7, 0, 4, 1_984].filter((kind) => makesContacts(kind, settings))).toEqual([1, 6, 7]);
    expect(makesContacts(1_111, changed('trust.kindWeights', { 1111: 2 }))).toBe(true);
  });

  it('has a time that may be in the past but never in the future', () => {
    expect(groundTime(2_000, 1_000_000)).toBe(1_000_000);
    expect(groundTime(500, 1_000_000)).toBe(500_000);
  });

  it('is public when anyone may read its event: no topic, or a public one with auth required', () => {
    const topic = (open: boolean): TopicRule =>
      ({ enabled: true, public: open, pinned: true, blocked: false, priority: 0, policy: {} }) as never;
    const topics = new Map([
      ['kukuri:open', topic(true)],
      ['kukuri:shut', topic(false)],
    ]);
    const rules = (mode: string) => ({
      settings: changed('auth.mode', mode),
      topics,
      refused: new Map(),
    });
    const of = (name?: string, kind = 1) => event({ kind, tags: name === undefined ? [] : [['t', name]] });
    const shown = (mode: string) =>
      [of(), of('kukuri:open'), of('kukuri:shut'), of('kukuri:open', 4)].map((one) =>
        isPublic(one, rules(mode)),
      );
    expect(shown('required')).toEqual([true, true, false, false]);
    expect(shown('off')).toEqual([true, true, true, false]);
  });
});

describe('a tie', () => {
  it.each([
    [3, 3, 1],
    [9, 9, 1],
    [9, 1, 0.333],
    [1, 9, 0.333],
    [9, 0, 0],
    [0.12, 3, 0.04],
  ])('between two who said %f and %f to each other is %f: by the lesser', (given, got, strength) => {
    expect(tieOf(given, got)).toBe(strength);
  });

  it('of a founder counts: a key that was seen in the founding days of the community', () => {
    expect(foundedUntil(DAY_MS, settings)).toBe(31 * DAY_MS);
    expect(foundedUntil(DAY_MS, changed('trust.foundingDays', 0))).toBe(-1);
  });
});

describe('standing', () => {
  const known = { seenForMs: 90 * DAY_MS, ties: 5, approved: false, risk: 0 };

  it.each([
    ['one who has been here for long and is known', {}, 1],
    ['a key of which nothing was seen', { seenForMs: undefined }, 0],
    ['a key of some weeks, however well known', { seenForMs: 29 * DAY_MS, ties: 50 }, 0],
    ['a key of a month', { seenForMs: 30 * DAY_MS }, 1],
    ['one with whom nobody of standing talks', { ties: 0 }, 0],
    ['one with whom not enough of them talk', { ties: 4.999 }, 0],
    ['one who knows everybody', { ties: 500 }, 1],
    ['a newcomer whom an operator has approved', { seenForMs: 0, ties: 0, approved: true }, 1],
    ['one who is at risk', { risk: 0.7 }, 0.3],
    ['an approved member who is at full risk', { approved: true, risk: 1 }, 0],
  ])('of %s', (_, of, weight) => {
    expect(standingOf({ ...known, ...of }, settings)).toBe(weight);
  });

  it('is limited to approved members when the community sets it so', () => {
    const strict = changed('trust.reporters', 'approved');
    expect(standingOf(known, strict)).toBe(0);
    expect(standingOf({ ...known, approved: true }, strict)).toBe(1);
  });
});

describe('an assertion', () => {
  it('is addressed by its subject, has a rank, and expires', () => {
    expect(assertionOf({ subject: key(5), rank: 42, at: 1_000 }, settings)).toEqual({
      kind: 30_382,
      created_at: 1_000,
      tags: [
        ['d', key(5)],
        ['rank', '42'],
        ['expiration', String(1_000 + 7 * 86_400)],
      ],
      content: '',
    });
  });

  it('is renewed before it expires', () => {
    expect(renewalMs(settings)).toBeLessThan(7 * DAY_MS);
    expect(renewalMs(settings)).toBeGreaterThan(DAY_MS);
  });
});
