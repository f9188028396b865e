import { describe, expect, it } from 'vitest';
import { haveOneHiddenClass } from '../../../test/support/hidden-class.js';
import { type SettingKey, settingsFrom } from '../../communities/rules-settings.js';
import {
  type Access,
  type AccessRules,
  ANONYMOUS,
  isGuarded,
  refuseEventAccess,
  refuseFilterAccess,
  refusePrivate,
  seenBy,
  sees,
  wouldShowMore,
} from './access.js';
import type { NostrEvent } from './event.js';
import { type Filter, parseFilter } from './filter.js';

const ALICE = 'a'.repeat(64);
const BOB = 'b'.repeat(64);
const topic = (enabled: boolean, isPublic = false) => ({
  enabled,
  blocked: false,
  public: isPublic,
  priority: 0,
  policy: {},
});

function rulesOf(settings: Partial<Record<SettingKey, unknown>> = {}, refused: string[] = []): AccessRules {
  return {
    settings: settingsFrom(new Map(Object.entries(settings))),
    topics: new Map([
      ['kukuri:global', topic(true, true)],
      ['kukuri:boats', topic(true)],
      ['kukuri:nets', topic(true)],
      ['kukuri:old', topic(false)],
      ['plain', topic(true)],
    ]),
    refused: new Map(refused.map((pubkey) => [pubkey, 'disabled'])),
  };
}
const rules = rulesOf();

function eventOf(change: Partial<NostrEvent>): NostrEvent {
  const id = 'c'.repeat(64);
  return {
    id,
    pubkey: ALICE,
    created_at: 1,
    kind: 1,
    tags: [],
    content: '',
    sig: 'd'.repeat(128),
    ...change,
  };
}
const tagged = (...topics: string[]) => eventOf({ tags: topics.map((value) => ['t', value]) });
const filterOf = (raw: object) => parseFilter(raw, settingsFrom(new Map())) as Filter;

const member = (...subscribed: string[]): Access => ({
  pubkeys: new Set([ALICE]),
  enforced: true,
  consented: new Set([ALICE]),
  subscribed: new Set(subscribed),
});
const known: Access = { ...ANONYMOUS, pubkeys: new Set([ALICE]), consented: new Set([ALICE]) };
const stranger: Access = { ...ANONYMOUS, enforced: true };

describe('an event', () => {
  it('is accepted from anyone while authentication is off', () => {
    expect(refuseEventAccess(tagged('kukuri:boats', 'x'), ANONYMOUS, rules)).toBeUndefined();
  });

  it('needs an authenticated sender where authentication is required', () => {
    expect(refuseEventAccess(tagged('kukuri:global'), stranger, rules)).toMatchObject({
      refused: 'auth-required',
    });
  });

  it.each<[string, string[], string[], boolean]>([
    ['a public topic', ['kukuri:global'], [], true],
    ['a topic without the right', ['kukuri:boats'], [], false],
    ['a topic with the right', ['kukuri:boats'], ['kukuri:boats'], true],
    ['an allowed and a forbidden topic', ['kukuri:boats', 'kukuri:nets'], ['kukuri:boats'], false],
    ['a forbidden and a public topic', ['kukuri:global', 'kukuri:nets'], [], false],
    ['a plain topic of the operator', ['plain'], [], false],
    ['a hashtag beside an allowed topic', ['kukuri:boats', 'sunset'], ['kukuri:boats'], true],
    ['a topic that is not carried', ['kukuri:old'], [], true],
    ['no topic', [], [], true],
  ])('with %s', (_what, topics, subscribed, passes) => {
    const refused = refuseEventAccess(tagged(...topics), member(...subscribed), rules);
    expect(refused?.refused).toBe(passes ? undefined : 'restricted');
  });

  it('of a disabled member is refused, whoever sends it and in every mode', () => {
    for (const access of [ANONYMOUS, known, member()])
      expect(refuseEventAccess(eventOf({ pubkey: BOB }), access, rulesOf({}, [BOB]))).toMatchObject({
        refused: 'restricted',
      });
  });

  it('that deletes or vanishes is accepted without consent and without an account', () => {
    const disagreeing = { ...member(), consented: new Set<string>() };
    const erasing = { ...rules, refused: new Map([[ALICE, 'erasing']] as const) };
    for (const kind of [5, 62]) {
      for (const access of [ANONYMOUS, disagreeing]) {
        expect(refuseEventAccess(eventOf({ kind }), access, rulesOf({}, [ALICE]))).toBeUndefined();
        expect(refuseEventAccess(eventOf({ kind }), access, erasing)?.why).toMatch(/being erased/);
      }
      const tags = [['t', 'kukuri:boats']];
      expect(refuseEventAccess(eventOf({ kind, tags }), disagreeing, rules)).toBeUndefined();
      expect(refuseEventAccess(eventOf({ kind }), stranger, rules)?.refused).toBe('auth-required');
    }
    expect(refuseEventAccess(eventOf({}), disagreeing, rules)?.why).toBe('consent required');
    const disabled = rulesOf({}, [ALICE]);
    expect(refuseEventAccess(eventOf({}), disagreeing, disabled)?.why).toBe('this account is disabled');
    expect(refuseFilterAccess(filterOf({}), disagreeing, disabled)?.why).toBe('this account is disabled');
  });

  it('that is protected (NIP-70) is accepted from its author only, in both modes', () => {
    const own = eventOf({ tags: [['-']] });
    expect(refuseEventAccess(own, ANONYMOUS, rules)).toMatchObject({ refused: 'auth-required' });
    expect(refuseEventAccess({ ...own, pubkey: BOB }, known, rules)).toMatchObject({
      refused: 'auth-required',
    });
    expect(refuseEventAccess(own, known, rules)).toBeUndefined();
    expect(refuseEventAccess(own, member(), rules)).toBeUndefined();
  });
});

it('an event without a topic needs the right to the topic that it is bound to by default', () => {
  const inDefault = rulesOf({ 'topic.mode': 'default' });
  const closed = new Map([...inDefault.topics, ['kukuri:global', topic(true)]]);
  const bare = eventOf({});
  expect(refuseEventAccess(bare, member(), inDefault)).toBeUndefined();
  expect(refuseEventAccess(bare, member(), { ...inDefault, topics: closed })?.refused).toBe('restricted');
  expect(refuseEventAccess(bare, member('kukuri:global'), { ...inDefault, topics: closed })).toBeUndefined();
});

describe('a filter', () => {
  const refused = (raw: object, access: Access) => refuseFilterAccess(filterOf(raw), access, rules)?.refused;

  it('of private kinds only needs an authenticated client, in both modes', () => {
    const closed = (access: Access, ...raw: object[]) =>
      refusePrivate(raw.map(filterOf), access, rules)?.refused;
    expect(closed(ANONYMOUS, { kinds: [4, 1059] })).toBe('auth-required');
    expect(closed(ANONYMOUS, { kinds: [1059], '#p': [ALICE] }, { kinds: [4] })).toBe('auth-required');
    expect(closed(ANONYMOUS, { kinds: [4, 1] })).toBeUndefined();
    expect(closed(ANONYMOUS, { kinds: [1059] }, { kinds: [1] })).toBeUndefined();
    expect(closed(ANONYMOUS, { kinds: [] })).toBeUndefined();
    expect(closed(ANONYMOUS, {})).toBeUndefined();
    expect(closed(known, { kinds: [4, 1059] })).toBeUndefined();
  });

  it('would show more after authentication exactly when it names a private kind', () => {
    const more = (access: Access, ...raw: object[]) => wouldShowMore(raw.map(filterOf), access, rules);
    for (const raw of [[{ kinds: [1, 4] }], [{ kinds: [1] }, { kinds: [1059] }]])
      expect(more(ANONYMOUS, ...raw)).toBe(true);
    for (const raw of [[{}], [{ kinds: [1] }], [{ authors: [ALICE] }, { kinds: [0, 3] }]])
      expect(more(ANONYMOUS, ...raw)).toBe(false);
    expect(more(known, { kinds: [1, 4] })).toBe(false);
  });

  it('needs the right to every carried topic that it names, where authentication is required', () => {
    expect(refused({ '#t': ['kukuri:global'] }, stranger)).toBe('auth-required');
    expect(refused({ '#t': ['kukuri:boats'] }, member())).toBe('restricted');
    expect(refused({ '#t': ['kukuri:boats', 'kukuri:nets'] }, member('kukuri:boats'))).toBe('restricted');
    expect(
      refused({ '#t': ['kukuri:boats', 'kukuri:global', 'sunset'] }, member('kukuri:boats')),
    ).toBeUndefined();
    expect(refused({ '#t': ['kukuri:boats'] }, ANONYMOUS)).toBeUndefined();
  });
});

describe('a client that must authenticate', () => {
  const silent: Access = { ...member('kukuri:boats'), consented: new Set() };
  const CONSENT = { refused: 'restricted', why: 'consent required' };

  it('neither posts nor reads without a key that has agreed to the current policies', () => {
    expect(refuseEventAccess(tagged('kukuri:global'), silent, rules)).toEqual(CONSENT);
    expect(refuseEventAccess(eventOf({ tags: [['-']] }), silent, rules)).toEqual(CONSENT);
    for (const raw of [{}, { '#t': ['kukuri:global'] }, { kinds: [4] }])
      expect(refuseFilterAccess(filterOf(raw), silent, rules)).toEqual(CONSENT);
  });

  it('gets auth-required first, and no consent is needed where authentication is not required', () => {
    expect(refuseFilterAccess(filterOf({}), stranger, rules)?.refused).toBe('auth-required');
    const free = { ...silent, enforced: false, consented: new Set([ALICE]) };
    expect(refuseEventAccess(tagged('kukuri:boats'), free, rules)).toBeUndefined();
    expect(refuseFilterAccess(filterOf({}), free, rules)).toBeUndefined();
  });

  it('has the rights of its keys that have agreed, and of no other key', () => {
    const both: Access = { ...member(), pubkeys: new Set([ALICE, BOB]), consented: new Set([BOB]) };
    const own = eventOf({ tags: [['-']] });
    expect(refuseEventAccess(own, both, rules)).toEqual(CONSENT);
    expect(refuseEventAccess({ ...own, pubkey: BOB }, both, rules)).toBeUndefined();
    const { parties } = seenBy(filterOf({ kinds: [4] }), both, rules).view!;
    expect([...parties!.pubkeys]).toEqual([BOB]);
    expect(seenBy(filterOf({ kinds: [4], '#p': [ALICE] }), both, rules).view?.parties).toBeDefined();
    expect(seenBy(filterOf({ kinds: [4], '#p': [BOB] }), both, rules).view?.parties).toBeUndefined();
  });
});

describe('the view of a filter', () => {
  const viewOf = (raw: object, access: Access, by = rules) => seenBy(filterOf(raw), access, by).view;

  it('leaves filters of the same fields one hidden class', () => {
    const seen = Array.from({ length: 1_000 }, (_, at) =>
      seenBy(filterOf({ '#t': [`topic ${at}`], limit: 1 }), ANONYMOUS, rules),
    );
    expect(seen[0]!.view).toBeDefined();
    expect(haveOneHiddenClass(seen)).toBe(true);
  });

  it('is left out where the filter cannot match anything hidden', () => {
    const carried = new Map([...rules.topics].filter(([, { enabled }]) => enabled));
    const allCarried = { ...rules, topics: carried };
    expect(viewOf({ kinds: [1] }, ANONYMOUS, allCarried)).toBeUndefined();
    expect(viewOf({ '#t': ['sunset', 'plain'] }, ANONYMOUS, allCarried)?.topics).toBeUndefined();
    expect(viewOf({ kinds: [1], '#t': ['plain', 'kukuri:nets'] }, ANONYMOUS)).toBeUndefined();
    expect(viewOf({ kinds: [1059], '#p': [ALICE] }, known, allCarried)).toBeUndefined();
    expect(viewOf({ authors: [ALICE] }, known, allCarried)).toBeUndefined();
    expect(
      viewOf({ kinds: [1], '#t': ['kukuri:boats', 'kukuri:global'] }, member('kukuri:boats')),
    ).toBeUndefined();
    const open = rulesOf({ 'auth.privateKinds': [], 'topic.mode': 'open' });
    expect(viewOf({}, ANONYMOUS, open)).toBeUndefined();
  });

  it('has the same key exactly for clients that see the same', () => {
    expect(viewOf({}, ANONYMOUS)?.key).toBe(viewOf({}, { ...ANONYMOUS, pubkeys: new Set() })?.key);
    expect(viewOf({}, known)?.key).not.toBe(viewOf({}, ANONYMOUS)?.key);
    expect(viewOf({ kinds: [0] }, member('kukuri:boats'))?.key).not.toBe(
      viewOf({ kinds: [0] }, member())?.key,
    );
  });

  it('has another key when a plain topic, the namespace, or a carried or public topic changes', () => {
    const keyBy = (by: AccessRules) => viewOf({ kinds: [0] }, member('kukuri:boats'), by)?.key;
    const withTopics = (...more: [string, ReturnType<typeof topic>][]) => ({
      ...rules,
      topics: new Map([...rules.topics, ...more]),
    });
    const keys = [
      rules,
      rulesOf({ 'topic.namespace': 'team' }),
      withTopics(['secret', topic(true)]),
      withTopics(['kukuri:boats', topic(false)]),
      withTopics(['kukuri:nets', topic(true, true)]),
    ].map(keyBy);
    expect(new Set(keys).size).toBe(keys.length);
    expect(keyBy(rulesOf())).toBe(keys[0]);
  });

  it('is one object for all filters of a client, so that many filters cost no more than one', () => {
    const access = member('kukuri:boats');
    const [one, other] = [{ kinds: [0] }, { kinds: [3] }].map((raw) => viewOf(raw, access)?.topics);
    expect(one).toBeDefined();
    expect(other).toBe(one);
  });

  const sights: [string, object, Access, Partial<NostrEvent>, boolean][] = [
    ['a stranger does not see a private event', {}, ANONYMOUS, { kind: 4 }, false],
    ['nor an event in a range of private kinds', {}, ANONYMOUS, { kind: 21_059 }, false],
    ['its author sees it', {}, known, { kind: 4 }, true],
    [
      'a recipient sees it',
      {},
      known,
      {
        kind: 4,
        pubkey: BOB,
        tags: [
          ['p', BOB],
          ['p', ALICE],
        ],
      },
      true,
    ],
    [
      'a third person does not',
      {},
      known,
      {
        kind: 4,
        pubkey: BOB,
        tags: [
          ['p', BOB],
          ['e', ALICE],
        ],
      },
      false,
    ],
    ['anyone sees the other kinds', { kinds: [1, 4] }, ANONYMOUS, { kind: 1 }, true],
    ['a forbidden topic hides an event', { kinds: [0] }, member(), { tags: [['t', 'kukuri:boats']] }, false],
    ['a topic of the operator too', { kinds: [0] }, member(), { tags: [['t', 'plain']] }, false],
    ['a topic that is not carried too', { kinds: [0] }, member(), { tags: [['t', 'kukuri:old']] }, false],
    ['an unknown topic id too', { kinds: [0] }, member(), { tags: [['t', 'kukuri:any']] }, false],
    ['a hashtag does not', { kinds: [0] }, member(), { tags: [['t', 'sunset']] }, true],
    ['no topic does not', { kinds: [0] }, member(), {}, true],
    ['without authentication too', { kinds: [1] }, ANONYMOUS, { tags: [['t', 'kukuri:old']] }, false],
    [
      'also where the filter names a carried one too',
      { '#t': ['kukuri:boats', 'kukuri:old'] },
      ANONYMOUS,
      { tags: [['t', 'kukuri:old']] },
      false,
    ],
    [
      'also where the topic is unknown',
      { '#t': ['kukuri:boats', 'kukuri:any'] },
      ANONYMOUS,
      { tags: [['t', 'kukuri:any']] },
      false,
    ],
    [
      'an event in a carried topic is seen',
      { kinds: [1] },
      ANONYMOUS,
      { tags: [['t', 'kukuri:boats']] },
      true,
    ],
    [
      'one allowed topic is enough',
      { '#t': ['sunset'] },
      member('kukuri:boats'),
      {
        tags: [
          ['t', 'kukuri:nets'],
          ['t', 'kukuri:boats'],
          ['t', 'sunset'],
        ],
      },
      true,
    ],
    [
      'a hashtag does not open a topic',
      { '#t': ['sunset'] },
      member(),
      {
        tags: [
          ['t', 'kukuri:boats'],
          ['t', 'sunset'],
        ],
      },
      false,
    ],
  ];
  it.each(sights)('%s', (_what, raw, access, change, expected) => {
    const view = viewOf(raw, access)!;
    const event = eventOf(change);
    expect(sees(view, event)).toBe(expected);
    // An unguarded kind is never hidden.
    if (!isGuarded(view, event.kind)) expect(sees(view, event)).toBe(true);
  });
});
