import { describe, expect, it } from 'vitest';
import { type Decision, decide, type Facts } from './decide.js';
import type { NostrEvent } from './event.js';

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

/** Everything that the store can know about the event of `eventOf`. */
const SITUATIONS: Record<string, Facts> = {
  'nothing is known': { known: false, head: undefined },
  'the id is known': { known: true, head: undefined },
  'the id is known and is the head': { known: true, head: { created_at: 100, id: id('5') } },
  'the id is known and was superseded': { known: true, head: { created_at: 101, id: id('0') } },
  'the id is known and the head is older': { known: true, head: { created_at: 99, id: id('0') } },
  'the head is older': { known: false, head: { created_at: 99, id: id('0') } },
  'the head is newer': { known: false, head: { created_at: 101, id: id('f') } },
  'the head ties with a lower id': { known: false, head: { created_at: 100, id: id('4') } },
  'the head ties with a higher id': { known: false, head: { created_at: 100, id: id('6') } },
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
/** An event without a key has no head: what is said about one plays no part. */
const without = (decision: Decision) =>
  Object.fromEntries(
    Object.entries(SITUATIONS).map(([name, { known }]) => [name, known ? 'duplicate' : decision]),
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
      expect(decide(eventOf(kind), SITUATIONS[situation]!), `kind ${kind}`).toBe(table[situation]);
    }
  });
});
