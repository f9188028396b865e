/** Rules against events: all conditions hold, lists are any-of, priorities decide, and no pattern is slow. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { author, eventOf, ruleOf, openSettings as settings } from '../../test/support/domains/rules.js';
import type { NostrEvent } from '../events/rules/event.js';
import { type Conditions, conditionsSchema, type Rule } from './rules.js';
import { answerOf, compileRule, inOrder, matchRules, verdictOf } from './rules-match.js';

const meets = (conditions: unknown, draft: Partial<NostrEvent>) =>
  answerOf(matchRules(eventOf(draft), settings, [compileRule(ruleOf(conditions))])).length === 1;

describe('the conditions of a rule', () => {
  it.each<[Conditions, Partial<NostrEvent>, boolean]>([
    [{ kinds: [1, 7] }, { kind: 7 }, true],
    [{ kinds: [1, 7] }, { kind: 6 }, false],
    [{ authors: [author] }, {}, true],
    [{ authors: ['b'.repeat(64)] }, {}, false],
    [{ topics: ['x', 'y'] }, { tags: [['t', 'y']] }, true],
    [{ topics: ['x'] }, { tags: [['r', 'x']] }, false],
    [{ words: ['Free  MONEY'] }, { content: 'f\u200bree money!' }, true],
    [{ words: ['spam'] }, { content: 'spammer' }, false],
    [{ words: ['about'] }, { kind: 0, content: '{"\\u0061bout":"x"}' }, true],
    [{ patterns: ['(?i)^buy'] }, { content: 'BUY' }, true],
    [{ patterns: ['^x', 'y$'] }, { content: 'a y' }, true],
    [{ patterns: ['^x'] }, { content: 'a x' }, false],
    [{ tags: [{ name: 'g' }] }, { tags: [['g']] }, true],
    [{ tags: [{ name: 'g', values: ['1'] }] }, { tags: [['g', '2']] }, false],
    [{ tags: [{ name: 'g', values: ['1'] }, { name: 'h' }] }, { tags: [['h', '2']] }, true],
    [{ kinds: [1], words: ['x'] }, { content: 'x' }, true],
    [{ kinds: [2], words: ['x'] }, { content: 'x' }, false],
    [{ kinds: [1], words: ['x'] }, { content: 'y' }, false],
  ])('%j of %j: %s', (conditions, draft, expected) => {
    expect(meets(conditions, draft)).toBe(expected);
  });

  it('read no text of encrypted events, and never match requests to delete or to vanish', () => {
    expect(meets({ words: ['x'] }, { kind: 4, content: 'x' })).toBe(false);
    expect(meets({ patterns: ['x'] }, { kind: 1_059, content: 'x' })).toBe(false);
    expect(meets({ kinds: [4] }, { kind: 4 })).toBe(true);
    expect(meets({ kinds: [5, 62] }, { kind: 5 })).toBe(false);
    expect(meets({ kinds: [5, 62] }, { kind: 62 })).toBe(false);
  });

  it('are at least one, and within their limits', () => {
    const problem = (conditions: unknown) => conditionsSchema.safeParse(conditions).error?.issues[0]?.message;
    expect(problem({})).toBe('at least one condition');
    expect(problem({ kinds: [] })).toBeDefined();
    expect(problem({ patterns: ['(['] })).toMatch(/^the pattern cannot be read: /);
    expect(problem({ patterns: ['(?=a)b'] })).toMatch(/^the pattern cannot be read: /);
    expect(problem({ patterns: ['((a{100}){9}b){9}'] })).toBeDefined();
    expect(problem({ patterns: ['(a{100}){5}'] })).toMatch(/^the pattern is too large/);
    expect(problem({ words: ['\u200b'] })).toBe('a word must have at least one visible character');
    expect(problem({ rate: { count: 0, seconds: 1 } })).toBeDefined();
    expect(problem({ rate: { count: 1_000, seconds: 1 } })).toBeUndefined();
    expect(problem({ rate: { count: 1_001, seconds: 1 } })).toBeDefined();
    expect(problem({ unknown: 1 })).toBeDefined();
  });

  it('finish on patterns and texts that are made to be slow', () => {
    const nasty = ['(a+)+$', '(a|aa)+$', '(.*a){12}b', '(x+x+)+y'];
    for (const pattern of nasty)
      for (const letter of ['a', 'x'])
        expect(meets({ patterns: [pattern] }, { content: `${letter.repeat(8_000)}!` })).toBe(false);
    expect(meets({ patterns: ['(a+)+!$'] }, { content: `${'a'.repeat(8_000)}!` })).toBe(true);
  });

  it('match patterns against the first 8,192 characters of the text', () => {
    expect(meets({ patterns: ['!'] }, { content: `${'a'.repeat(8_191)}!` })).toBe(true);
    expect(meets({ patterns: ['!'] }, { content: `${'a'.repeat(8_192)}!` })).toBe(false);
  });

  it('agree with JavaScript on patterns that both engines read alike', () => {
    const atom = fc.constantFrom('a', 'b', '.', '[ab]', 'a*', 'b+', '(a|b)', 'c?', '^', '$');
    const pattern = fc.array(atom, { minLength: 1, maxLength: 5 }).map((atoms) => atoms.join(''));
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 12 });
    fc.assert(
      fc.property(pattern, text, (source, content) => {
        expect(meets({ patterns: [source] }, { content })).toBe(new RegExp(source).test(content));
      }),
      { numRuns: 300 },
    );
  });
});

describe('several rules', () => {
  const verdict = (rules: readonly Rule[], over: readonly Rule[] = []) => {
    const met = answerOf(matchRules(eventOf(), settings, inOrder(rules.map(compileRule))));
    const { labels, decides } = verdictOf(met, (rule) => over.includes(rule));
    return { labels: labels.map(({ ruleId }) => ruleId), decides: decides?.ruleId };
  };
  const any = { kinds: [1] };

  it('label until one decides, and no rule after that one applies', () => {
    const [one, two, hold, late, hide] = [
      ruleOf(any, 'label', 9),
      ruleOf(any, 'label', 8),
      ruleOf(any, 'hold', 7),
      ruleOf(any, 'label', 6),
      ruleOf(any, 'hide', 5),
    ];
    expect(verdict([hide, late, hold, two, one])).toEqual({
      labels: [one.ruleId, two.ruleId],
      decides: hold.ruleId,
    });
    expect(verdict([hide, late])).toEqual({ labels: [late.ruleId], decides: hide.ruleId });
  });

  it('with a rate decide only when it is exceeded', () => {
    const rated = ruleOf({ ...any, rate: { count: 1, seconds: 1 } }, 'hold', 1);
    const hide = ruleOf(any, 'hide');
    expect(verdict([rated, hide]).decides).toBe(hide.ruleId);
    expect(verdict([rated, hide], [rated]).decides).toBe(rated.ruleId);
  });

  it('yield after each pattern', () => {
    const rules = [ruleOf({ patterns: ['x', 'y'] }), ruleOf({ patterns: ['z'] })].map(compileRule);
    expect([...matchRules(eventOf({ content: 'a' }), settings, rules)]).toHaveLength(3);
  });
});
