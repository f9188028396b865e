/** Rules on arrival: which rule decides, and that an event past the work limit is held. */
import { describe, expect, it } from 'vitest';
import { author, eventOf, ruleOf, openSettings as settings } from '../../../test/support/domains/rules.js';
import { type ArrivalFacts, Rulings, rateKey } from '../../events/rules/batch/judged.js';
import type { NostrEvent } from '../../events/rules/event.js';
import { WORD_CHARACTER_MS } from '../../limits/costs.js';
import { RULE_STEPS_MAX, RULE_TEXT_MAX, type Rule } from '../rules.js';
import { answerOf, type CompiledRule, compileRule } from '../rules-match.js';
import { TEXT_LENGTH_MAX, Texts } from '../rules-texts.js';
import {
  ARRIVAL_WORK_MAX,
  arrivalRules,
  judgeArrival,
  ratedRefusals,
  refusesAtOnce,
  ruleWork,
} from './rules.js';

const judgeBy = (
  compiled: readonly CompiledRule[],
  draft: Partial<NostrEvent> = {},
  { workMax, own = [] }: { workMax?: number; own?: readonly string[] } = {},
) => {
  const rules = { ...arrivalRules(compiled), version: 7, own: new Set(own) };
  const event = eventOf(draft);
  const texts = new Texts(event, settings);
  return answerOf(judgeArrival(event, { settings, topics: new Map(), rules }, texts, workMax));
};
const judge = (
  rules: readonly Rule[],
  draft: Partial<NostrEvent> = {},
  more: Parameters<typeof judgeBy>[2] = {},
) => judgeBy(rules.map(compileRule), draft, more);

const any = { kinds: [1] };
const rate = { count: 2, seconds: 60 };

describe('rules that decide', () => {
  it('are tested by priority, and none after the first that decides', () => {
    const tested: number[] = [];
    const spied = (rule: Rule) => ({
      ...compileRule(rule),
      meets: () => {
        tested.push(rule.priority);
        return true;
      },
    });
    const rated = ruleOf({ ...any, rate }, 'refuse', 4);
    const rules = [ruleOf(any, 'refuse', 1), ruleOf(any, 'hold', 2), ruleOf(any, 'refuse', 3), rated];
    expect(refusesAtOnce(judgeBy(rules.map(spied)))).toBe(true);
    expect(tested).toEqual([4, 3]);
  });

  it('refuse before the lane only where nothing of a higher priority may hold', () => {
    const before = (...rules: Rule[]) => {
      const judgement = judge(rules);
      return { refused: refusesAtOnce(judgement), rated: ratedRefusals(judgement).length };
    };
    const refuse = ruleOf(any, 'refuse', 5);
    expect(before(refuse)).toEqual({ refused: true, rated: 0 });
    expect(before(refuse, ruleOf(any, 'hold', 6))).toEqual({ refused: false, rated: 0 });
    expect(before(refuse, ruleOf(any, 'hold', 4))).toEqual({ refused: true, rated: 0 });
    expect(before(refuse, ruleOf({ kinds: [2] }, 'hold', 6))).toEqual({ refused: true, rated: 0 });
    expect(before(refuse, ruleOf(any, 'label', 6))).toEqual({ refused: true, rated: 0 });
    expect(before(refuse, ruleOf({ ...any, rate }, 'hold', 6))).toEqual({ refused: false, rated: 0 });
    expect(before(ruleOf({ ...any, rate }, 'refuse', 6), ruleOf(any, 'hold', 5))).toEqual({
      refused: false,
      rated: 1,
    });
    expect(before(ruleOf({ ...any, rate }, 'refuse', 4), ruleOf(any, 'hold', 5))).toEqual({
      refused: false,
      rated: 0,
    });
    expect(before(ruleOf(any, 'hide'))).toEqual({ refused: false, rated: 0 });
  });

  it('never match requests to delete or to vanish, or events that the node signs itself', () => {
    const hold = ruleOf({ authors: [author] }, 'hold');
    expect(judge([hold]).met).toHaveLength(1);
    expect(judge([hold], {}, { own: [author] }).met).toEqual([]);
    expect([judge([hold], { kind: 5 }).met, judge([hold], { kind: 62 }).met]).toEqual([[], []]);
  });

  it('of labels label a held event only when they come before the holding rule, and no private kind', () => {
    const [above, hold, below] = [ruleOf(any, 'label', 3), ruleOf(any, 'hold', 2), ruleOf(any, 'label', 1)];
    expect(judge([below, hold, above]).labels).toEqual([above]);
    expect(judge([ruleOf(any, 'refuse', 2), above]).labels).toEqual([]);
    const sealed = { kinds: [4] };
    expect(judge([ruleOf(sealed, 'label', 1), ruleOf(sealed, 'hold')], { kind: 4 }).labels).toEqual([]);
  });
});

describe('an event past the work limit', () => {
  const words = { words: ['casino'] };

  it('is held by the rule that could not be finished, whatever the action of that rule', () => {
    const rules = [ruleOf(words, 'refuse', 2), ruleOf(words, 'hide', 1)];
    const long = { content: 'a'.repeat(1_000) };
    expect(judge(rules, long).met).toEqual([]);
    expect(judge(rules, long, { workMax: 1_999 }).met).toEqual([{ rule: rules[0], unfinished: true }]);
    expect(judge(rules, long, { workMax: 2_000 }).met).toEqual([{ rule: rules[1], unfinished: true }]);
    expect(judge(rules, long, { workMax: 4_000 }).met).toEqual([]);
    expect(refusesAtOnce(judge(rules, long, { workMax: 0 }))).toBe(false);
  });

  it('counts patterns by their steps, and nothing for rules whose cheap conditions fail', () => {
    const rules = [ruleOf({ kinds: [2], ...words }), ruleOf({ patterns: ['a+b'] })];
    const steps = compileRule(rules[1]!).steps;
    const text = { content: 'x'.repeat(100) };
    expect(judge(rules, text, { workMax: 200 * steps }).met).toEqual([]);
    expect(judge(rules, text, { workMax: 200 * steps - 1 }).met).toMatchObject([{ unfinished: true }]);
  });

  it('is held by a rule with words when its text is longer than the maximum', () => {
    const [word, pattern] = [ruleOf(words, 'hold'), ruleOf({ patterns: ['casino'] }, 'hold')];
    const beyond = { content: `${'a '.repeat(TEXT_LENGTH_MAX / 2)}casino` };
    expect(judge([word], beyond).met).toMatchObject([{ unfinished: true }]);
    expect(judge([word], { content: `casino ${beyond.content}` }).met).toMatchObject([{ unfinished: false }]);
    expect(judge([word], { tags: [['title', beyond.content]] }).met).toMatchObject([{ unfinished: true }]);
    // Patterns are matched only against the beginning of a text.
    expect(judge([pattern], beyond).met).toEqual([]);
    expect(judge([word], { ...beyond, kind: 4 }).met).toEqual([]);
  });

  it('cannot be caused by rules within their own limits and a long post', () => {
    expect(ARRIVAL_WORK_MAX).toBeGreaterThan(RULE_STEPS_MAX * RULE_TEXT_MAX);
    const rules = Array.from({ length: 100 }, () => ruleOf(words, 'hold'));
    expect(judge(rules, { content: 'a '.repeat(40_000) }).met).toEqual([]);
  });
});

describe('the work of rules, which the sender is charged for', () => {
  const workFor = (rules: readonly Rule[], draft: Partial<NostrEvent> = {}) => {
    const event = eventOf(draft);
    const compiled = { ...arrivalRules(rules.map(compileRule)), version: 7, own: new Set<string>() };
    return ruleWork(event, { settings, topics: new Map(), rules: compiled }, new Texts(event, settings));
  };
  const rule = ruleOf({ patterns: ['a+b', 'c+d'] });
  const { steps } = compileRule(rule);

  it('is the length of the text times the steps, of label rules too', () => {
    expect(workFor([rule], { content: 'x'.repeat(100) }).steps).toBe(200 * steps);
    const label = ruleOf({ patterns: ['a+b', 'c+d'] }, 'label');
    expect(workFor([rule, label], { content: 'x'.repeat(100) }).steps).toBe(400 * steps);
  });

  it('is bounded by the text that patterns read', () => {
    expect(workFor([rule], { content: 'x'.repeat(100_000) }).steps).toBe(RULE_TEXT_MAX * steps);
  });

  it('is the length of the text for each rule that has words', () => {
    const content = 'x'.repeat(100_000);
    const rules = Array.from({ length: 100 }, () => ruleOf({ words: ['casino'] }));
    expect(workFor(rules, { content })).toEqual({ steps: 0, words: 100 * 200_000 });
    // The bytes alone, which are charged in any case, would be 10 ms.
    expect(workFor(rules, { content }).words * WORD_CHARACTER_MS).toBeGreaterThan(200);
  });

  it('is nothing for rules without texts, other kinds, encrypted events and requests to delete', () => {
    const content = 'x'.repeat(100);
    const nothing = { steps: 0, words: 0 };
    expect(workFor([ruleOf({ kinds: [1] })], { content })).toEqual(nothing);
    expect(workFor([ruleOf({ kinds: [2], patterns: ['a+b'] })], { content })).toEqual(nothing);
    expect(workFor([ruleOf({ kinds: [2], words: ['a'] })], { content })).toEqual(nothing);
    expect(workFor([rule], { content, kind: 4 })).toEqual(nothing);
    expect(workFor([rule], { content, kind: 5 })).toEqual(nothing);
  });
});

describe('rates, in the order of the lane', () => {
  const rated = ruleOf({ ...any, rate }, 'hold', 1);
  const submissionOf = (at: number, pubkey = author) => {
    const event = eventOf({ id: `${at}`.padStart(64, '0'), pubkey });
    return { community: 1, event, payload: '' };
  };
  const factsOf = (
    submissions: readonly ReturnType<typeof submissionOf>[],
    rules: readonly Rule[],
    before = 0,
  ): ArrivalFacts => ({
    judgements: new Map(submissions.map((one) => [one, judge(rules)])),
    counts: new Map([[rateKey(rated, author), before]]),
    restored: new Set(),
  });

  it('count each accepted event by author, including earlier ones of the same batch', () => {
    const other = 'b'.repeat(64);
    const all = [1, 2, 3, 4].map((at) => submissionOf(at, at === 2 ? other : author));
    const rulings = new Rulings(factsOf(all, [rated], 1));
    const held = all.map((one) => {
      const by = rulings.of(one);
      rulings.count(one);
      return by?.rule === rated;
    });
    expect(held).toEqual([false, false, true, true]);
    expect(rulings.counted.map(({ submission }) => submission)).toEqual(all);
  });

  it('leave the decision to the next rule until they are exceeded', () => {
    const hide = ruleOf(any, 'hide');
    const one = submissionOf(1);
    expect(new Rulings(factsOf([one], [rated, hide])).of(one)?.rule).toBe(hide);
    expect(new Rulings(factsOf([one], [rated, hide], 2)).of(one)?.rule).toBe(rated);
  });

  it('do not apply to an event that a moderator has restored', () => {
    const one = submissionOf(1);
    const facts = factsOf([one], [ruleOf(any, 'hide')]);
    expect(new Rulings(facts).of(one)).toBeDefined();
    expect(new Rulings({ ...facts, restored: new Set([`1/${one.event.id}`]) }).of(one)).toBeUndefined();
  });
});
