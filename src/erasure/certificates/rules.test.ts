import { describe, expect, it } from 'vitest';
import type { NostrEvent } from '../../events/rules/event.js';
import { type Certificate, certificateProblems, KIND_CERTIFICATE, rowsOf } from './rules.js';

const HASH = 'ab'.repeat(32);
const COMMON = {
  type: 'minato-erasure-certificate',
  erasure_id: '0190c5a4-0000-4000-8000-000000000000',
  software: { name: 'minato', version: '0.1.0' },
  community: 'default',
  subject: { type: 'member', hash: HASH, key: HASH },
  cause: 'member',
  requested_at: 1_000,
  fenced_at: 2_000,
  counted_at: 3_000,
  completed_at: 4_000,
  until: 4,
  banned: false,
  kept: [{ name: 'postgres:audit_log', rows: 1, until: 9_000, why: 'erasure.auditLog = keep' }],
  previous: null,
} as const;
const WHOLE: Certificate & { version: 2 } = {
  ...COMMON,
  kept: [...COMMON.kept],
  version: 2,
  stores: [
    { name: 'postgres:events', before: 5, added: 1, deleted: 3, otherwise: 2, after: 0 },
    { name: 'redis:sessions', before: 0, added: 0, deleted: 0, otherwise: 0, after: 0 },
  ],
  unacknowledged: [{ name: 'index', acknowledged: 5, needed: 9, limit_seconds: 60 }],
};
/** As they were signed before rows had to add up. */
const OLD: Certificate & { version: 1 } = {
  ...COMMON,
  kept: [...COMMON.kept],
  version: 1,
  stores: [
    { name: 'postgres:events', before: 8, deleted: 18, after: 0 },
    { name: 'redis:sessions', before: null, deleted: 0, after: 0 },
  ],
};

function eventOf(content: unknown, kind = KIND_CERTIFICATE): NostrEvent {
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  return { id: HASH, pubkey: HASH, created_at: 4, kind, tags: [], content: text, sig: HASH + HASH };
}
const problemsOf = (content: unknown, kind?: number) => certificateProblems(eventOf(content, kind)).problems;

describe('a certificate', () => {
  it('that is whole has no problem, and is read', () => {
    expect(certificateProblems(eventOf(WHOLE))).toEqual({ problems: [], certificate: WHOLE });
    expect(problemsOf({ ...WHOLE, previous: HASH, until: null, kept: [] })).toEqual([]);
  });

  it('of the first form holds as it did, though its rows need not add up', () => {
    expect(certificateProblems(eventOf(OLD))).toEqual({ problems: [], certificate: OLD });
    expect(rowsOf(OLD)[0]).toEqual({
      name: 'postgres:events',
      before: 8,
      deleted: 18,
      otherwise: null,
      after: 0,
    });
    // Nor does it become one of the second form by what is written into it.
    expect(problemsOf({ ...OLD, unacknowledged: [] })).toEqual([expect.stringMatching(/^content: /)]);
  });

  it.each([{ before: 6 }, { deleted: 4 }, { otherwise: 1 }, { added: 6 }])(
    'in which the rows of a store do not add up does not hold: %o',
    (changed) => {
      const [first, second] = WHOLE.stores;
      const stores = [{ ...first!, ...changed }, second!];
      expect(problemsOf({ ...WHOLE, stores })).toEqual(['the rows of postgres:events do not add up']);
    },
  );

  it('of another kind of event is none', () => {
    expect(problemsOf(WHOLE, 1)).toEqual(['the event is of kind 1, and a certificate of 8062']);
  });

  it('names each store in which something was left', () => {
    const stores = WHOLE.stores.map((store) => ({ ...store, before: store.before + 2, after: 2 }));
    expect(problemsOf({ ...WHOLE, stores })).toEqual([
      'postgres:events still counts 2',
      'redis:sessions still counts 2',
    ]);
  });

  it.each([{ requested_at: 2_001 }, { fenced_at: 3_001 }, { counted_at: 4_001 }, { completed_at: 2_999 }])(
    'whose times are not in order does not hold: %o',
    (changed) => {
      expect(problemsOf({ ...WHOLE, ...changed })).toEqual(['its times are not in order']);
    },
  );

  it.each<[string, unknown, RegExp]>([
    ['no JSON', '{', /^content: /],
    ['a list', [], /^content: /],
    ['no store', { ...WHOLE, stores: [] }, /^stores: /],
    [
      'a subject that is no hash',
      { ...WHOLE, subject: { ...WHOLE.subject, hash: 'npub1' } },
      /^subject\.hash: /,
    ],
    ['more about the person', { ...WHOLE, pubkey: HASH }, /^content: /],
    [
      'a negative count',
      { ...WHOLE, stores: [{ ...WHOLE.stores[0], deleted: -1 }] },
      /^stores\.0\.deleted: /,
    ],
    ['a later form', { ...WHOLE, version: 3 }, /^version: /],
  ])('with %s is refused by the field', (_what, content, problem) => {
    expect(problemsOf(content)).toEqual([expect.stringMatching(problem)]);
  });
});
