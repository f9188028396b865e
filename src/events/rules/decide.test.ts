import { describe, expect, it } from 'vitest';
import { type Decision, decide, type Facts } from './decide.js';
import type { NostrEvent } from './event.js';
import type { Hidden } from './hidden.js';

const id = (digit: string) => digit.repeat(64);
const eventOf = (kind: number): NostrEvent => ({
  id: id('5'),
  pubkey: id('a'),
  created_at: 100,
  kind,
  tags: [['d', 'x']],
  content: '',
  sig: 'c'.repeat(128),
});

const NOW = 1_000;
const factsWith = (facts: Partial<Facts>): Facts => ({
  known: undefined,
  head: undefined,
  idDeleted: false,
  addressDeletedAt: undefined,
  vanishedUntil: undefined,
  erasedUntil: undefined,
  ...facts,
});

/** What the store can know about the event of `eventOf` and its key. */
const SITUATIONS: Record<string, Facts> = {
  'nothing is known': factsWith({}),
  'the id is known': factsWith({ known: 'served' }),
  'the id is known and is the head': factsWith({ known: 'served', head: { created_at: 100, id: id('5') } }),
  'the id is known and was superseded': factsWith({
    known: 'superseded',
    head: { created_at: 101, id: id('0') },
  }),
  'the id is known and the head is older': factsWith({
    known: 'served',
    head: { created_at: 99, id: id('0') },
  }),
  'the head is older': factsWith({ head: { created_at: 99, id: id('0') } }),
  'the head is newer': factsWith({ head: { created_at: 101, id: id('f') } }),
  'the head ties with a lower id': factsWith({ head: { created_at: 100, id: id('4') } }),
  'the head ties with a higher id': factsWith({ head: { created_at: 100, id: id('6') } }),
};

const byKey: Record<keyof typeof SITUATIONS, Decision> = {
  'nothing is known': 'stored',
  'the id is known': 'duplicate',
  'the id is known and is the head': 'duplicate',
  'the id is known and was superseded': 'duplicate',
  'the id is known and the head is older': 'duplicate',
  'the head is older': 'stored',
  'the head is newer': 'older',
  'the head ties with a lower id': 'older',
  'the head ties with a higher id': 'stored',
};
/** An event without a key has no head, so the facts about a head do not matter. */
const without = (decision: Decision) =>
  Object.fromEntries(
    Object.entries(SITUATIONS).map(([name, { known }]) => [
      name,
      known === undefined ? decision : 'duplicate',
    ]),
  ) as Record<string, Decision>;

const CLASSES = [
  {
    name: 'regular',
    kinds: [1, 2, 4, 5, 44, 45, 62, 999, 1_000, 9_999, 40_000, 65_535],
    table: without('stored'),
  },
  { name: 'replaceable', kinds: [0, 3, 10_000, 19_999], table: byKey },
  { name: 'addressable', kinds: [30_000, 39_999], table: byKey },
  { name: 'ephemeral', kinds: [20_000, 29_999], table: without('broadcast') },
];

describe.each(CLASSES)('a $name event', ({ kinds, table }) => {
  it.each(Object.keys(SITUATIONS))('when %s', (situation) => {
    for (const kind of kinds) {
      expect(decide(eventOf(kind), SITUATIONS[situation]!, NOW), `kind ${kind}`).toBe(table[situation]);
    }
  });
});

const ALL_KINDS = CLASSES.flatMap(({ name, kinds }) => kinds.map((kind) => ({ name, kind })));
const isProtected = (kind: number) => kind === 5 || kind === 62;

/** The decision for a hidden event that is sent again, by the reason why it is hidden. */
const HIDDEN: Record<Hidden, Decision> = {
  superseded: 'duplicate',
  deleted: 'deleted',
  expired: 'expired',
  retention: 'gone',
  capacity: 'crowdedOut',
  vanished: 'vanished',
  withheld: 'duplicate',
  removed: 'removed',
  erased: 'erased',
};

describe.each(ALL_KINDS)('kind $kind ($name)', ({ name, kind }) => {
  const fresh: Decision = name === 'ephemeral' ? 'broadcast' : 'stored';
  const decided = (facts: Partial<Facts>, now = NOW, tags: string[][] = []) =>
    decide({ ...eventOf(kind), tags: [['d', 'x'], ...tags] }, factsWith(facts), now);

  it.each(Object.keys(HIDDEN) as Hidden[])(
    'that is known and hidden as %s does not come back (I6)',
    (why) => {
      expect(decided({ known: why })).toBe(HIDDEN[why]);
    },
  );

  it('is refused when its owner deleted its id, unless it is a request', () => {
    const expected = isProtected(kind) ? fresh : 'deleted';
    expect(decided({ idDeleted: true })).toBe(expected);
    expect(decided({ idDeleted: true, known: 'served' })).toBe(isProtected(kind) ? 'duplicate' : 'deleted');
    expect(decided({ idDeleted: true, head: { created_at: 101, id: id('0') } })).toBe(
      isProtected(kind) ? fresh : 'deleted',
    );
  });

  it.each([
    [99, false],
    [100, true],
    [101, true],
    [0, false],
  ])('created at 100, with its address deleted at %i: refused is %s', (addressDeletedAt, refused) => {
    expect(decided({ addressDeletedAt })).toBe(refused && !isProtected(kind) ? 'deleted' : fresh);
  });

  it.each([
    [99, false],
    [100, true],
    [101, true],
  ])('created at 100, with an author vanished up to %i: refused is %s', (vanishedUntil, refused) => {
    expect(decided({ vanishedUntil })).toBe(refused && kind !== 62 ? 'vanished' : fresh);
    expect(decided({ vanishedUntil, known: 'served' })).toBe(
      refused && kind !== 62 ? 'vanished' : 'duplicate',
    );
  });

  it.each([
    [99, false],
    [100, true],
  ])('created at 100, with an author erased up to %i: refused is %s', (erasedUntil, refused) => {
    expect(decided({ erasedUntil })).toBe(refused ? 'erased' : fresh);
    expect(decided({ erasedUntil, known: 'served', idDeleted: true })).toBe(
      refused ? 'erased' : decided({ known: 'served', idDeleted: true }),
    );
    expect(decided({ erasedUntil, known: 'withheld' })).toBe(decided({ known: 'withheld' }));
  });

  it('is refused as erased, whatever else is known, while its author is being erased', () => {
    const facts = { erasedUntil: Number.MAX_SAFE_INTEGER, vanishedUntil: Number.MAX_SAFE_INTEGER } as const;
    for (const known of [undefined, 'served', 'withheld', 'deleted'] as const)
      expect(decided({ ...facts, known })).toBe('erased');
  });

  it('is refused from the second of its expiration on, known or not', () => {
    const tags = [['expiration', '1000']];
    expect(decided({}, 999, tags)).toBe(fresh);
    expect(decided({}, 1_000, tags)).toBe('expired');
    expect(decided({ known: 'served' }, 1_000, tags)).toBe('expired');
    expect(decided({ idDeleted: true, vanishedUntil: 100 }, 1_001, tags)).toBe('expired');
  });
});
