/**
 * Deletion requests. The numbers are the requirements 1.1 to 6.2 on deletion; those that need a socket
 * (1.1, 1.4, 1.5, 4.1–4.3, 6.1, 6.2) are in test/events/deletion.test.ts.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type DeletionTarget,
  deletes,
  deletionTargets,
  isOwner,
  isProtectedKind,
  isWithinWindow,
  ownersOf,
} from './deletion.js';
import { KIND_MAX, type NostrEvent } from './event.js';

const hex = (digit: string) => digit.repeat(64);
const ALICE = hex('a');
const BOB = hex('b');
const CAROL = hex('c');

const eventOf = (change: Partial<NostrEvent> = {}): NostrEvent => ({
  id: hex('1'),
  pubkey: ALICE,
  created_at: 100,
  kind: 1,
  tags: [],
  content: '',
  sig: 'c'.repeat(128),
  ...change,
});
const requestOf = (tags: string[][], change: Partial<NostrEvent> = {}) =>
  eventOf({ id: hex('5'), kind: 5, tags, ...change });
const byId = (id: string): DeletionTarget => ({ type: 'id', id });
const byAddress = (address: string): DeletionTarget => ({ type: 'address', address });

/** Does the request delete the event, by any of its targets? */
const hides = (request: NostrEvent, event: NostrEvent) =>
  deletionTargets(request).some((target) => deletes(request, target, event));

interface Rule {
  readonly rule: string;
  readonly tags: string[][];
  readonly targets: DeletionTarget[];
}

const LONG = 'x'.repeat(10_000);
const EXTRACTED: Rule[] = [
  { rule: '1.2 an e tag names an event', tags: [['e', hex('1')]], targets: [byId(hex('1'))] },
  {
    rule: '1.2 every e tag counts, in their order',
    tags: [
      ['e', hex('3')],
      ['e', hex('1')],
      ['e', hex('2')],
    ],
    targets: [byId(hex('3')), byId(hex('1')), byId(hex('2'))],
  },
  {
    rule: '1.2 values after the id do not matter',
    tags: [['e', hex('1'), 'wss://relay.test', 'mention', BOB]],
    targets: [byId(hex('1'))],
  },
  {
    rule: '1.3 an a tag names an address',
    tags: [['a', `30023:${ALICE}:article`]],
    targets: [byAddress(`30023:${ALICE}:article`)],
  },
  {
    rule: '1.3 e and a tags together',
    tags: [
      ['e', hex('1')],
      ['a', `30023:${ALICE}:x`],
    ],
    targets: [byId(hex('1')), byAddress(`30023:${ALICE}:x`)],
  },
  {
    rule: '1.3 d may hold colons',
    tags: [['a', `30023:${ALICE}:a:b::c:`]],
    targets: [byAddress(`30023:${ALICE}:a:b::c:`)],
  },
  { rule: '1.3 d may be empty', tags: [['a', `30023:${ALICE}:`]], targets: [byAddress(`30023:${ALICE}:`)] },
  {
    rule: '1.3 d may be of 10 kB',
    tags: [['a', `30023:${ALICE}:${LONG}`]],
    targets: [byAddress(`30023:${ALICE}:${LONG}`)],
  },
  {
    rule: '1.3 d may hold anything',
    tags: [['a', `30023:${ALICE}:\n\u0000'";DROP TABLE events;--🌊\ud800`]],
    targets: [byAddress(`30023:${ALICE}:\n\u0000'";DROP TABLE events;--🌊\ud800`)],
  },
  {
    rule: '1.3 a replaceable kind has an empty d',
    tags: [
      ['a', `10002:${ALICE}:`],
      ['a', `0:${ALICE}:`],
    ],
    targets: [byAddress(`10002:${ALICE}:`), byAddress(`0:${ALICE}:`)],
  },
  {
    rule: '1.3 a replaceable kind may come without the last colon, and is the same address',
    tags: [
      ['a', `10002:${ALICE}`],
      ['a', `10002:${ALICE}:`],
    ],
    targets: [byAddress(`10002:${ALICE}:`)],
  },
  {
    rule: 'the same target twice is one',
    tags: [
      ['e', hex('1')],
      ['a', `30023:${ALICE}:x`],
      ['e', hex('1'), 'wss://relay.test'],
      ['a', `30023:${ALICE}:x`],
    ],
    targets: [byId(hex('1')), byAddress(`30023:${ALICE}:x`)],
  },
  {
    rule: '3.2 an address of another author is dropped',
    tags: [
      ['a', `30023:${BOB}:x`],
      ['a', `10002:${BOB}:`],
      ['a', `30023:${ALICE}:x`],
    ],
    targets: [byAddress(`30023:${ALICE}:x`)],
  },
  {
    rule: 'own and foreign, well formed and malformed: each is judged alone',
    tags: [
      ['e', 'nonsense'],
      ['a', `30023:${BOB}:x`],
      ['e', hex('1')],
      ['a', 'nonsense'],
      ['a', `30023:${ALICE}:x`],
      ['e'],
      ['a'],
      [],
    ],
    targets: [byId(hex('1')), byAddress(`30023:${ALICE}:x`)],
  },
  {
    rule: 'no target at all is an empty list',
    tags: [
      ['k', '1'],
      ['p', hex('1')],
      ['E', hex('1')],
      ['A', `30023:${ALICE}:x`],
    ],
    targets: [],
  },
];

describe('the targets of a request', () => {
  it.each(EXTRACTED)('$rule', ({ tags, targets }) => {
    expect(deletionTargets(requestOf(tags))).toEqual(targets);
  });

  it.each([
    hex('A'),
    'a'.repeat(63),
    'a'.repeat(65),
    ` ${'a'.repeat(63)}`,
    `${hex('a')}\n`,
    'g'.repeat(64),
    '',
    'nevent1abc',
    '%',
  ])('1.2 an id that is not 64 lowercase hex (%j) is dropped', (value) => {
    expect(deletionTargets(requestOf([['e', value]]))).toEqual([]);
  });

  it.each([
    `30023:${hex('A')}:x`,
    `30023:${'a'.repeat(63)}:x`,
    `30023:${ALICE}`,
    `1:${ALICE}:`,
    `1:${ALICE}:x`,
    `5:${ALICE}:`,
    `62:${ALICE}:`,
    `1059:${ALICE}:`,
    `20000:${ALICE}:x`,
    `40000:${ALICE}:x`,
    `65536:${ALICE}:x`,
    `99999:${ALICE}:x`,
    `300230:${ALICE}:x`,
    `-1:${ALICE}:x`,
    `+30023:${ALICE}:x`,
    `3e4:${ALICE}:x`,
    `0x7547:${ALICE}:x`,
    ` 30023:${ALICE}:x`,
    `30023 :${ALICE}:x`,
    `\n30023:${ALICE}:x`,
    `:${ALICE}:x`,
    `30023::x`,
    `${ALICE}:x`,
    `10002:${ALICE}:x`,
    `0:${ALICE}:x`,
    '',
    ':',
    '::',
  ])('1.3 an address that is none (%j) is dropped', (value) => {
    expect(deletionTargets(requestOf([['a', value]]))).toEqual([]);
  });

  it('1.3 an address with leading zeros is the one that NIP-01 writes', () => {
    expect(deletionTargets(requestOf([['a', `00003:${ALICE}:`]]))).toEqual([byAddress(`3:${ALICE}:`)]);
  });

  it('for any tags nothing throws, and only ids and own addresses are returned', () => {
    const value = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom(hex('1'), `30023:${ALICE}:x`, `30023:${BOB}:x`, `10002:${ALICE}`),
    );
    const tag = fc.tuple(fc.constantFrom('e', 'a', 'k', ''), value).map((pair) => [...pair]);
    const property = fc.property(fc.array(fc.oneof(tag, fc.array(value, { maxLength: 3 }))), (tags) => {
      for (const target of deletionTargets(requestOf(tags))) {
        if (target.type === 'id') expect(target.id).toMatch(/^[0-9a-f]{64}$/);
        else expect(target.address.split(':')[1]).toBe(ALICE);
      }
    });
    fc.assert(property, { seed: 7447, numRuns: 300 });
  });

  it('a thousand targets are all returned', () => {
    const ids = Array.from({ length: 1_000 }, (_, at) => at.toString(16).padStart(64, '0'));
    expect(deletionTargets(requestOf(ids.map((id) => ['e', id])))).toEqual(ids.map(byId));
  });
});

interface Judged {
  readonly rule: string;
  readonly request: NostrEvent;
  readonly event: NostrEvent;
  readonly deleted: boolean;
}

const article = (change: Partial<NostrEvent> = {}) =>
  eventOf({ kind: 30_023, tags: [['d', 'x']], ...change });
const ofArticle = (change: Partial<NostrEvent> = {}) => requestOf([['a', `30023:${ALICE}:x`]], change);
const ofNote = (change: Partial<NostrEvent> = {}) => requestOf([['e', hex('1')]], change);
const wrap = (tags: string[][]) => eventOf({ kind: 1_059, pubkey: hex('d'), tags });

const JUDGED: Judged[] = [
  { rule: '2.1 the event that is named by id', request: ofNote(), event: eventOf(), deleted: true },
  {
    rule: '2.2 only when the author is the same',
    request: ofNote({ pubkey: BOB }),
    event: eventOf(),
    deleted: false,
  },
  {
    rule: '2.3 another author’s event is skipped, also when it names the requester',
    request: ofNote({ pubkey: BOB }),
    event: eventOf({ tags: [['p', BOB]] }),
    deleted: false,
  },
  {
    rule: '2.4 an event of the same author that is not named',
    request: ofNote(),
    event: eventOf({ id: hex('2') }),
    deleted: false,
  },
  {
    rule: '2.5 by id in whatever order of time: an event newer than the request',
    request: ofNote({ created_at: 1 }),
    event: eventOf({ created_at: 100 }),
    deleted: true,
  },
  {
    rule: '2.5 one version of an address, by its id',
    request: ofNote(),
    event: article(),
    deleted: true,
  },
  { rule: '3.1 the version at a named address', request: ofArticle(), event: article(), deleted: true },
  {
    rule: '3.1 only at that d',
    request: ofArticle(),
    event: article({ tags: [['d', 'x:']] }),
    deleted: false,
  },
  { rule: '3.1 only of that kind', request: ofArticle(), event: article({ kind: 30_024 }), deleted: false },
  {
    rule: '3.1 a replaceable kind, whatever its d tag says',
    request: requestOf([['a', `10002:${ALICE}:`]]),
    event: eventOf({ kind: 10_002, tags: [['d', 'x']] }),
    deleted: true,
  },
  {
    rule: '3.1 an addressable one without d has the empty d',
    request: requestOf([['a', `30023:${ALICE}:`]]),
    event: article({ tags: [] }),
    deleted: true,
  },
  {
    rule: '3.2 another author’s address',
    request: requestOf([['a', `30023:${BOB}:x`]]),
    event: article({ pubkey: BOB }),
    deleted: false,
  },
  {
    rule: '3.3 a version older than the request',
    request: ofArticle({ created_at: 101 }),
    event: article(),
    deleted: true,
  },
  {
    rule: '3.3 a version of the same second',
    request: ofArticle({ created_at: 100 }),
    event: article(),
    deleted: true,
  },
  {
    rule: '3.4 a version newer than the request survives',
    request: ofArticle({ created_at: 99 }),
    event: article(),
    deleted: false,
  },
  {
    rule: '5.1 a deletion request, by its author',
    request: ofNote(),
    event: eventOf({ kind: 5 }),
    deleted: false,
  },
  { rule: '5.1 a request to vanish', request: ofNote(), event: eventOf({ kind: 62 }), deleted: false },
  {
    rule: '5.2 a request that names itself',
    request: requestOf([['e', hex('5')]]),
    event: requestOf([['e', hex('5')]]),
    deleted: false,
  },
  {
    rule: 'k never decides: it names another kind',
    request: requestOf([
      ['e', hex('1')],
      ['k', '30023'],
    ]),
    event: eventOf(),
    deleted: true,
  },
  {
    rule: 'k never decides: it alone names nothing',
    request: requestOf([['k', '1']]),
    event: eventOf(),
    deleted: false,
  },
  {
    rule: 'k never decides: it does not lift the protection',
    request: requestOf([
      ['e', hex('1')],
      ['k', '5'],
    ]),
    event: eventOf({ kind: 5 }),
    deleted: false,
  },
  {
    rule: 'a gift wrap, by its recipient',
    request: ofNote(),
    event: wrap([['p', ALICE]]),
    deleted: true,
  },
  {
    rule: 'a gift wrap, by one of several recipients',
    request: ofNote(),
    event: wrap([
      ['p', BOB],
      ['p', ALICE],
    ]),
    deleted: true,
  },
  {
    rule: 'a gift wrap, by its throw-away author',
    request: ofNote({ pubkey: hex('d') }),
    event: wrap([['p', ALICE]]),
    deleted: true,
  },
  {
    rule: 'a gift wrap, by a stranger',
    request: ofNote({ pubkey: BOB }),
    event: wrap([['p', ALICE]]),
    deleted: false,
  },
  {
    rule: 'a gift wrap, by a key that another tag names',
    request: ofNote(),
    event: wrap([
      ['P', ALICE],
      ['e', ALICE],
      ['p', BOB, ALICE],
    ]),
    deleted: false,
  },
];

describe('a request deletes', () => {
  it.each(JUDGED)('$rule: $deleted', ({ request, event, deleted }) => {
    expect(hides(request, event)).toBe(deleted);
  });

  it('only the own targets of a request that names own and foreign ones', () => {
    const request = requestOf([
      ['e', hex('1')],
      ['e', hex('2')],
      ['a', `30023:${ALICE}:x`],
      ['a', `30023:${BOB}:x`],
    ]);
    expect(hides(request, eventOf())).toBe(true);
    expect(hides(request, eventOf({ id: hex('2'), pubkey: BOB }))).toBe(false);
    expect(hides(request, article({ id: hex('3') }))).toBe(true);
    expect(hides(request, article({ id: hex('4'), pubkey: BOB }))).toBe(false);
  });

  it.each(['', 'a:b:c', ':', LONG, '\u0000', "'; --", '🌊', '\ud800', ' x ', 'x\n'])(
    '3.1 the version with d %j, and no other',
    (d) => {
      const request = requestOf([['a', `30023:${ALICE}:${d}`]]);
      expect(hides(request, article({ tags: [['d', d]] }))).toBe(true);
      expect(hides(request, article({ tags: [['d', `${d}.`]] }))).toBe(false);
      expect(hides(request, article({ kind: 1, tags: [['d', d]] }))).toBe(false);
    },
  );
});

describe('the parts', () => {
  it('5.1 exactly the kinds 5 and 62 are protected', () => {
    const kinds = Array.from({ length: KIND_MAX + 1 }, (_, kind) => kind);
    expect(kinds.filter(isProtectedKind)).toEqual([5, 62]);
  });

  it.each([
    [99, 100, true],
    [100, 100, true],
    [101, 100, false],
    [0, 0, true],
  ])('3.3, 3.4 created at %i, asked at %i: in the window is %s', (createdAt, requestedAt, within) => {
    expect(isWithinWindow(createdAt, requestedAt)).toBe(within);
  });

  it('2.2 an event belongs to its author; a gift wrap also to each recipient, once', () => {
    expect(ownersOf(eventOf({ tags: [['p', BOB]] }))).toEqual([ALICE]);
    const shared = eventOf({
      kind: 1_059,
      tags: [['p', BOB], ['p', ALICE], ['p', BOB], ['p', CAROL], ['p', hex('B')], ['p', 'short'], ['p']],
    });
    expect(ownersOf(shared)).toEqual([ALICE, BOB, CAROL]);
    expect(isOwner(shared, CAROL)).toBe(true);
    expect(isOwner(shared, hex('B'))).toBe(false);
    expect(isOwner(eventOf(), BOB)).toBe(false);
  });
});
