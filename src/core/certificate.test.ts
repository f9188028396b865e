import { describe, expect, it } from 'vitest';
import { type Certificate, certificateProblems, KIND_CERTIFICATE } from './certificate.js';
import type { NostrEvent } from './event.js';

const HASH = 'ab'.repeat(32);
const WHOLE: Certificate = {
  type: 'minato-erasure-certificate',
  version: 1,
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
  stores: [
    { name: 'postgres:events', before: 3, deleted: 3, after: 0 },
    { name: 'redis:sessions', before: null, deleted: 0, after: 0 },
  ],
  kept: [{ name: 'postgres:audit_log', rows: 1, until: 9_000, why: 'erasure.auditLog = keep' }],
  previous: null,
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

  it('of another kind of event is none', () => {
    expect(problemsOf(WHOLE, 1)).toEqual(['the event is of kind 1, and a certificate of 8062']);
  });

  it('names each store in which something was left', () => {
    const stores = WHOLE.stores.map((store) => ({ ...store, after: 2 }));
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
    ['a later form', { ...WHOLE, version: 2 }, /^version: /],
  ])('with %s is refused by the field', (_what, content, problem) => {
    expect(problemsOf(content)).toEqual([expect.stringMatching(problem)]);
  });
});
