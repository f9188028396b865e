/** Rules against events: all conditions hold, lists are any-of, priorities decide, and no pattern is slow. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { NostrEvent } from './event.js';
import { type Conditions, conditionsSchema, type Rule, type RuleAction, ruleSchema } from './moderation.js';
import { answerOf, askAtDoor, askRules, compileRule, doorRules, inOrder, verdictOf } from './rule-match.js';
import { settingsFrom } from './settings.js';

const settings = settingsFrom(new Map<string, unknown>([['topic.mode', 'open']]));
const author = 'a'.repeat(64);
const eventOf = (draft: Partial<NostrEvent> = {}): NostrEvent => ({
  id: 'e'.repeat(64),
  pubkey: author,
  created_at: 1,
  kind: 1,
  tags: [],
  content: '',
  sig: 'c'.repeat(128),
  ...draft,
});
let made = 0;
const ruleOf = (conditions: unknown, action: RuleAction = 'hide', priority = 0): Rule => {
  made += 1;
  const label = action === 'label' ? { label: 'spam', confidence: 1, days: 1, policy: '' } : undefined;
  const spec = ruleSchema.parse({ name: `rule ${made}`, conditions, action, priority, label });
  return { ...spec, ruleId: `${made}`, version: 1, label: spec.label ?? null, enabledAt: 0 };
};
const meets = (conditions: unknown, draft: Partial<NostrEvent>) =>
  answerOf(askRules(eventOf(draft), settings, [compileRule(ruleOf(conditions))])).length === 1;

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

  it('look at no words of what is encrypted, and never at requests to delete or to vanish', () => {
    expect(meets({ words: ['x'] }, { kind: 4, content: 'x' })).toBe(false);
    expect(meets({ patterns: ['x'] }, { kind: 1_059, content: 'x' })).toBe(false);
    expect(meets({ kinds: [4] }, { kind: 4 })).toBe(true);
    expect(meets({ kinds: [5, 62] }, { kind: 5 })).toBe(false);
    expect(meets({ kinds: [5, 62] }, { kind: 62 })).toBe(false);
  });

  it('are at least one, and within their bounds', () => {
    const problem = (conditions: unknown) => conditionsSchema.safeParse(conditions).error?.issues[0]?.message;
    expect(problem({})).toBe('at least one condition');
    expect(problem({ kinds: [] })).toBeDefined();
    expect(problem({ patterns: ['(['] })).toMatch(/^the pattern cannot be read: /);
    expect(problem({ patterns: ['(?=a)b'] })).toMatch(/^the pattern cannot be read: /);
    expect(problem({ patterns: ['((a{100}){9}b){9}'] })).toBeDefined();
    expect(problem({ patterns: ['(a{100}){5}'] })).toMatch(/^the pattern is too large/);
    expect(problem({ words: ['\u200b'] })).toBe('a word has at least one character that can be seen');
    expect(problem({ rate: { count: 0, seconds: 1 } })).toBeDefined();
    expect(problem({ rate: { count: 1_000, seconds: 1 } })).toBeUndefined();
    expect(problem({ rate: { count: 1_001, seconds: 1 } })).toBeDefined();
    expect(problem({ unknown: 1 })).toBeDefined();
  });

  it('end on patterns and texts that are made to be slow', () => {
    const nasty = ['(a+)+$', '(a|aa)+$', '(.*a){12}b', '(x+x+)+y'];
    for (const pattern of nasty)
      for (const letter of ['a', 'x'])
        expect(meets({ patterns: [pattern] }, { content: `${letter.repeat(8_000)}!` })).toBe(false);
    expect(meets({ patterns: ['(a+)+!$'] }, { content: `${'a'.repeat(8_000)}!` })).toBe(true);
  });

  it('look with patterns at so many characters of the text, over all of it', () => {
    expect(meets({ patterns: ['!'] }, { content: `${'a'.repeat(8_191)}!` })).toBe(true);
    expect(meets({ patterns: ['!'] }, { content: `${'a'.repeat(8_192)}!` })).toBe(false);
  });

  it('agree with what JavaScript finds, on patterns that both read alike', () => {
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

describe('rules together', () => {
  const verdict = (rules: readonly Rule[], over: readonly Rule[] = []) => {
    const met = answerOf(askRules(eventOf(), settings, inOrder(rules.map(compileRule))));
    const { labels, decides } = verdictOf(met, (rule) => over.includes(rule));
    return { labels: labels.map(({ ruleId }) => ruleId), decides: decides?.ruleId };
  };
  const any = { kinds: [1] };

  it('label as long as nothing has decided, and the first one that decides ends it', () => {
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

  it('of which one has a rate wait for it to be exceeded', () => {
    const rated = ruleOf({ ...any, rate: { count: 1, seconds: 1 } }, 'hold', 1);
    const hide = ruleOf(any, 'hide');
    expect(verdict([rated, hide]).decides).toBe(hide.ruleId);
    expect(verdict([rated, hide], [rated]).decides).toBe(rated.ruleId);
  });

  it('are asked in their order, and none after the first that decides', () => {
    const asked: number[] = [];
    const spied = (rule: Rule) => ({
      ...compileRule(rule),
      meets: () => {
        asked.push(rule.priority);
        return true;
      },
    });
    const rated = ruleOf({ ...any, rate: { count: 1, seconds: 1 } }, 'refuse', 4);
    const rules = [ruleOf(any, 'refuse', 1), ruleOf(any, 'hold', 2), ruleOf(any, 'refuse', 3), rated];
    expect(
      answerOf(askAtDoor(eventOf(), { settings, topics: new Map() }, doorRules(rules.map(spied)))).refused,
    ).toBe(true);
    expect(asked).toEqual([4, 3]);
  });

  it('give others a turn after each pattern', () => {
    const rules = [ruleOf({ patterns: ['x', 'y'] }), ruleOf({ patterns: ['z'] })].map(compileRule);
    expect([...askRules(eventOf({ content: 'a' }), settings, rules)]).toHaveLength(3);
  });

  it('refuse at the door only where nothing of a higher priority decides', () => {
    const door = (...rules: Rule[]) => {
      const asked = askAtDoor(eventOf(), { settings, topics: new Map() }, doorRules(rules.map(compileRule)));
      const { refused, rated } = answerOf(asked);
      return { refused, rated: rated.length };
    };
    const rate = { count: 1, seconds: 1 };
    const refuse = ruleOf(any, 'refuse', 5);
    expect(door(refuse)).toEqual({ refused: true, rated: 0 });
    expect(door(refuse, ruleOf(any, 'hold', 6))).toEqual({ refused: false, rated: 0 });
    expect(door(refuse, ruleOf(any, 'hold', 4))).toEqual({ refused: true, rated: 0 });
    expect(door(refuse, ruleOf({ kinds: [2] }, 'hold', 6))).toEqual({ refused: true, rated: 0 });
    expect(door(refuse, ruleOf(any, 'label', 6))).toEqual({ refused: true, rated: 0 });
    expect(door(ruleOf({ ...any, rate }, 'refuse', 6), ruleOf(any, 'hold', 5))).toEqual({
      refused: false,
      rated: 1,
    });
    expect(door(ruleOf({ ...any, rate }, 'refuse', 4), ruleOf(any, 'hold', 5))).toEqual({
      refused: false,
      rated: 0,
    });
    expect(door(ruleOf(any, 'hide'))).toEqual({ refused: false, rated: 0 });
  });
});
