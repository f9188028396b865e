import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { addressOf, classify, isNewer, type Version } from './classify.js';
import { KIND_MAX, type NostrEvent } from './event.js';

const eventOf = (kind: number, tags: string[][] = []): NostrEvent => ({
  id: '1'.repeat(64),
  pubkey: 'a'.repeat(64),
  created_at: 0,
  kind,
  tags,
  content: '',
  sig: 'c'.repeat(128),
});

/** The table of classes, row by row. A kind that no row names is regular. */
const ROWS = [
  {
    name: 'regular',
    kinds: [
      [1, 2],
      [4, 44],
      [1_000, 9_999],
    ],
  },
  {
    name: 'replaceable',
    kinds: [
      [0, 0],
      [3, 3],
      [10_000, 19_999],
    ],
  },
  { name: 'ephemeral', kinds: [[20_000, 29_999]] },
  { name: 'addressable', kinds: [[30_000, 39_999]] },
] as const;

function classFromTable(kind: number): string {
  const row = ROWS.find(({ kinds }) => kinds.some(([from, to]) => kind >= from && kind <= to));
  return row?.name ?? 'regular';
}

describe('classify', () => {
  it('gives every one of the 65,536 kinds the class of the table', () => {
    for (let kind = 0; kind <= KIND_MAX; kind += 1) {
      if (classify(kind) !== classFromTable(kind)) expect.fail(`kind ${kind} is ${classify(kind)}`);
    }
    const counts = new Map<string, number>();
    for (let kind = 0; kind <= KIND_MAX; kind += 1) {
      counts.set(classify(kind), (counts.get(classify(kind)) ?? 0) + 1);
    }
    expect(Object.fromEntries(counts)).toEqual({
      replaceable: 10_002,
      ephemeral: 10_000,
      addressable: 10_000,
      regular: 35_534,
    });
  });
});

describe('addressOf', () => {
  it('every replaceable and addressable kind has an address, no other has', () => {
    for (let kind = 0; kind <= KIND_MAX; kind += 1) {
      const hasAddress = addressOf(eventOf(kind, [['d', 'x']])) !== undefined;
      const isKeyed = ['replaceable', 'addressable'].includes(classFromTable(kind));
      if (hasAddress !== isKeyed) expect.fail(`kind ${kind}`);
    }
  });

  it.each([
    [10_002, [['d', 'ignored']], `10002:${'a'.repeat(64)}:`],
    [0, [], `0:${'a'.repeat(64)}:`],
    [30_023, [['d', 'my:article']], `30023:${'a'.repeat(64)}:my:article`],
    [30_023, [['d', '']], `30023:${'a'.repeat(64)}:`],
    [30_023, [['d']], `30023:${'a'.repeat(64)}:`],
    [
      30_023,
      [
        ['t', 'x'],
        ['d', 'first'],
        ['d', 'second'],
      ],
      `30023:${'a'.repeat(64)}:first`,
    ],
    [30_023, [['d', '\u0000\n']], `30023:${'a'.repeat(64)}:\u0000\n`],
  ] as [number, string[][], string][])('of kind %i with tags %j', (kind, tags, address) => {
    expect(addressOf(eventOf(kind, tags))).toBe(address);
  });

  it('two different keys never share an address', () => {
    const key = fc.tuple(fc.constantFrom(30_000, 30_001), fc.string({ unit: 'binary' }));
    fc.assert(
      fc.property(key, key, ([kindA, a], [kindB, b]) => {
        const same = addressOf(eventOf(kindA, [['d', a]])) === addressOf(eventOf(kindB, [['d', b]]));
        expect(same).toBe(kindA === kindB && a === b);
      }),
      { seed: 7447, numRuns: 300 },
    );
  });
});

describe('isNewer', () => {
  const version: fc.Arbitrary<Version> = fc.record({
    created_at: fc.integer({ min: 0, max: 3 }),
    id: fc.constantFrom('0a', '0b', 'a0', 'ff').map((start) => start.padEnd(64, '0')),
  });

  it('the later wins whatever the ids; on a tie the lowest id', () => {
    const low = { created_at: 5, id: '0'.repeat(64) };
    const high = { created_at: 5, id: 'f'.repeat(64) };
    expect(isNewer(low, high)).toBe(true);
    expect(isNewer(high, low)).toBe(false);
    expect(isNewer({ ...high, created_at: 6 }, low)).toBe(true);
    expect(isNewer(low, { ...high, created_at: 6 })).toBe(false);
  });

  it('is a strict total order, so that there is always exactly one newest', () => {
    fc.assert(
      fc.property(version, version, version, (a, b, c) => {
        const same = a.created_at === b.created_at && a.id === b.id;
        expect(Number(isNewer(a, b)) + Number(isNewer(b, a))).toBe(same ? 0 : 1);
        if (isNewer(a, b) && isNewer(b, c)) expect(isNewer(a, c)).toBe(true);
      }),
      { seed: 7447, numRuns: 500 },
    );
  });
});
