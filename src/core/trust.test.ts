import { describe, expect, it } from 'vitest';
import type { NostrEvent } from './event.js';
import type { TopicSubscription } from './retention.js';
import { DAY_MS } from './retention.js';
import { type Settings, settingsFrom } from './settings.js';
import {
  assertionOf,
  CONTACTS_MAX,
  contactsNeeded,
  densityOf,
  groundTime,
  isPublic,
  makesContacts,
  namedBy,
  rankOf,
  renewalMs,
  riskOf,
  scoringRules,
  standingOf,
  windowStart,
} from './trust.js';

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
  it.each([
    [0, 0, 100],
    [1, 0.1, 90],
    [2.345, 0.2345, 77],
    [10, 1, 0],
    [11, 1, 0],
  ])('of reports and labels that weigh %f is a risk of %f and a rank of %i', (weight, risk, rank) => {
    expect(riskOf(weight, settings)).toBe(risk);
    expect(rankOf('report-based', risk)).toBe(rank);
  });

  it.each([
    [0, 0, 0],
    [1, 0.05, 5],
    [1.8, 0.09, 9],
    [20, 1, 100],
    [1e6, 1, 100],
  ])('of contacts that weigh %f is a density of %f and a rank of %i', (weight, density, rank) => {
    expect(densityOf(weight, settings)).toBe(density);
    expect(rankOf('communication-density', density)).toBe(rank);
  });

  it('goes by the settings of the community', () => {
    expect(riskOf(1, changed('trust.reportsFull', 2))).toBe(0.5);
    expect(densityOf(1, changed('trust.densityFull', 4))).toBe(0.25);
    expect(windowStart(10 * DAY_MS, changed('trust.windowDays', 7))).toBe(3 * DAY_MS);
  });

  it('depends on no setting that its rules do not name', () => {
    const scoring = (own: Settings, keys: string[] = [], topics = new Map<string, TopicSubscription>()) =>
      scoringRules({ settings: own, topics, refused: new Map() }, keys);
    const rules = scoring(settings);
    const others: [string, unknown][] = [
      ['trust.windowDays', 7],
      ['trust.reportsFull', 7],
      ['trust.densityFull', 7],
      ['trust.kindWeights', { 1: 2 }],
      ['trust.assertionDays', 3],
      ['trust.publish', false],
    ];
    for (const [name, value] of others) expect(scoring(changed(name, value))).not.toBe(rules);
    expect(scoring(settings, [key(1)])).not.toBe(rules);
    const closed = changed('auth.mode', 'required');
    const open = new Map([['kukuri:open', { enabled: true, public: true } as TopicSubscription]]);
    expect(scoring(closed)).not.toBe(rules);
    expect(scoring(closed, [], open)).not.toBe(scoring(closed));
    expect(scoring(settings, [], open)).toBe(rules);
  });
});

describe('a contact', () => {
  it('is each other person that an event names, once, up to a bound', () => {
    const tags = [['p', key(3)], ['p', key(2)], ['p', key(3)], ['p', 'x'], ['p'], ['e', key(4)]];
    expect(namedBy(event({ tags }))).toEqual([key(3)]);
    const many = Array.from({ length: 60 }, (_, at) => ['p', key(100 + at)]);
    expect(namedBy(event({ tags: many }))).toHaveLength(CONTACTS_MAX);
  });

  it('is of a kind that has a weight', () => {
    expect([1, 6, 7, 0, 4, 1_984].filter((kind) => makesContacts(kind, settings))).toEqual([1, 6, 7]);
    expect(makesContacts(1_111, changed('trust.kindWeights', { 1111: 2 }))).toBe(true);
  });

  it('is never of the future, and may be of the past', () => {
    expect(groundTime(2_000, 1_000_000)).toBe(1_000_000);
    expect(groundTime(500, 1_000_000)).toBe(500_000);
  });

  it('is public when anyone may read its event: no topic, or a public one where clients must authenticate', () => {
    const topic = (open: boolean): TopicSubscription =>
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

  it('fills the density together with so many others at most', () => {
    expect(contactsNeeded(settings)).toBe(67);
    expect(contactsNeeded(changed('trust.kindWeights', {}))).toBe(0);
  });
});

describe('standing', () => {
  const known = { seenForMs: 90 * DAY_MS, ties: 5, approved: false, risk: 0 };

  it.each([
    ['one who has been here for long and is known', {}, 1],
    ['a key of which nothing was seen', { seenForMs: undefined }, 0],
    ['a key of a week', { seenForMs: 7 * DAY_MS }, 0],
    ['a key of some weeks', { seenForMs: 18.5 * DAY_MS }, 0.5],
    ['a key of a month', { seenForMs: 30 * DAY_MS }, 1],
    ['one whom nobody of standing has named', { ties: 0 }, 0],
    ['one whom two of them have named', { ties: 2 }, 0.4],
    ['one who knows everybody', { ties: 500 }, 1],
    ['a newcomer whom an operator has approved', { seenForMs: 0, ties: 0, approved: true }, 1],
    ['one who is at risk', { risk: 0.7 }, 0.3],
    ['an approved member who is at full risk', { approved: true, risk: 1 }, 0],
  ])('of %s', (_, of, weight) => {
    expect(standingOf({ ...known, ...of }, settings)).toBe(weight);
  });

  it('is that of approved members only, where the community says so', () => {
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
