import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { NostrEvent } from '../events/rules/event.js';
import { HIDDEN_CODES } from '../events/rules/hidden.js';
import { isStorable } from '../events/rules/text.js';
import {
  commentOf,
  KIND_REPORT,
  REPORT_COMMENT_MAX,
  REPORT_REASONS,
  REPORT_TARGETS_MAX,
  reportedBy,
  WITHDRAWS,
} from './rules.js';

const hex = (digit: string) => digit.repeat(64);
const [NOTE, OTHER, ALICE, BOB] = [hex('1'), hex('2'), hex('a'), hex('b')] as const;

function report(tags: string[][], content = ''): NostrEvent {
  return { id: hex('0'), pubkey: hex('f'), created_at: 1, kind: KIND_REPORT, tags, content, sig: '' };
}
const of = (...tags: string[][]) => reportedBy(report(tags));

describe('an event of kind 1984 reports', () => {
  it.each([
    {
      rule: 'a person, by a p tag with a type',
      tags: [['p', ALICE, 'nudity']],
      says: [{ event: undefined, pubkey: ALICE, reason: 'nudity' }],
    },
    {
      rule: 'an event, with its author from the p tag beside it',
      tags: [
        ['e', NOTE, 'illegal'],
        ['p', ALICE],
      ],
      says: [{ event: NOTE, pubkey: ALICE, reason: 'illegal' }],
    },
    {
      rule: 'an event, with the p tag first',
      tags: [
        ['p', ALICE],
        ['e', NOTE, 'spam'],
      ],
      says: [{ event: NOTE, pubkey: ALICE, reason: 'spam' }],
    },
    {
      rule: 'an event alone',
      tags: [['e', NOTE, 'malware']],
      says: [{ event: NOTE, pubkey: undefined, reason: 'malware' }],
    },
    {
      rule: 'the impersonator, not the victim',
      tags: [
        ['p', ALICE, 'impersonation'],
        ['p', BOB],
      ],
      says: [{ event: undefined, pubkey: ALICE, reason: 'impersonation' }],
    },
    {
      rule: 'an event and its author, if both have a type',
      tags: [
        ['e', NOTE, 'profanity'],
        ['p', ALICE, 'spam'],
      ],
      says: [
        { event: NOTE, pubkey: ALICE, reason: 'profanity' },
        { event: undefined, pubkey: ALICE, reason: 'spam' },
      ],
    },
    {
      rule: 'several events, each with the p tag that follows it',
      tags: [
        ['e', NOTE, 'spam'],
        ['p', ALICE],
        ['e', OTHER, 'spam'],
        ['p', BOB],
      ],
      says: [
        { event: NOTE, pubkey: ALICE, reason: 'spam' },
        { event: OTHER, pubkey: BOB, reason: 'spam' },
      ],
    },
    {
      rule: 'an unknown or missing type as "other"',
      tags: [
        ['e', NOTE, 'rude'],
        ['e', OTHER],
        ['p', ALICE, 'Spam'],
      ],
      says: [
        { event: NOTE, pubkey: ALICE, reason: 'other' },
        { event: OTHER, pubkey: ALICE, reason: 'other' },
        { event: undefined, pubkey: ALICE, reason: 'other' },
      ],
    },
    {
      rule: 'persons without any type as "other"',
      tags: [
        ['p', ALICE],
        ['p', BOB, ''],
      ],
      says: [
        { event: undefined, pubkey: ALICE, reason: 'other' },
        { event: undefined, pubkey: BOB, reason: 'other' },
      ],
    },
    {
      rule: 'a target that is named twice only once, with the first type',
      tags: [
        ['p', ALICE, 'spam'],
        ['p', ALICE, 'nudity'],
      ],
      says: [{ event: undefined, pubkey: ALICE, reason: 'spam' }],
    },
    {
      rule: 'nothing for an invalid id, an invalid key or another tag',
      tags: [
        ['e', 'x', 'spam'],
        ['e', NOTE.slice(1), 'spam'],
        ['p', ALICE.toUpperCase(), 'spam'],
        ['e'],
        ['x', NOTE, 'malware'],
      ],
      says: [],
    },
  ])('$rule', ({ tags, says }) => {
    expect(of(...tags)).toEqual(says);
  });

  it.each(REPORT_REASONS)('%s is a type', (reason) => {
    expect(of(['p', ALICE, reason])[0]?.reason).toBe(reason);
  });

  it('has at most 20 targets', () => {
    const tags = Array.from({ length: 2_000 }, (_, at) => ['e', at.toString(16).padStart(64, '0'), 'spam']);
    const targets = of(...tags);
    expect(targets).toHaveLength(REPORT_TARGETS_MAX);
    expect(targets.map(({ event }) => event)).toEqual(tags.slice(0, 20).map(([, id]) => id));
  });

  it('never reports a target twice', () => {
    const tag = fc.tuple(
      fc.constantFrom('e', 'p'),
      fc.constantFrom(NOTE, OTHER, ALICE),
      fc.constantFrom('spam', 'x', ''),
    );
    fc.assert(
      fc.property(fc.array(tag, { maxLength: 40 }), (tags) => {
        const keys = of(...tags).map(({ event, pubkey }) => `${event} ${pubkey}`);
        expect(new Set(keys).size).toBe(keys.length);
      }),
    );
  });
});

describe('the comment', () => {
  it('is the content, cut to a length, and always storable in the database', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 3_000 }), (content) => {
        const comment = commentOf(report([], content));
        expect(comment.length).toBeLessThanOrEqual(REPORT_COMMENT_MAX);
        expect(isStorable(comment)).toBe(true);
      }),
    );
    expect(commentOf(report([], 'He insults the king!'))).toBe('He insults the king!');
    expect(commentOf(report([], 'a\u0000b\ud800c'))).toBe('a\ufffdb\ufffdc');
  });

  it('is not cut within a character', () => {
    const content = `${'x'.repeat(REPORT_COMMENT_MAX - 1)}😀`;
    expect(commentOf(report([], content))).toBe('x'.repeat(REPORT_COMMENT_MAX - 1));
    expect(commentOf(report([], `${'x'.repeat(REPORT_COMMENT_MAX - 2)}😀`))).toHaveLength(REPORT_COMMENT_MAX);
  });
});

it('a report is withdrawn when its event is deleted or removed, not when it is past retention', () => {
  const withdrawing = Object.keys(HIDDEN_CODES).filter(
    (hidden) => WITHDRAWS[hidden as keyof typeof WITHDRAWS],
  );
  expect(withdrawing.sort()).toEqual(['deleted', 'erased', 'expired', 'removed', 'vanished']);
});
