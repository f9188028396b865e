/**
 * Finds the rules that an event matches. Pure, and in limited time: patterns use RE2, whose cost is the
 * length of the text times the steps of the pattern, and both are limited; words use one automaton. Rules are
 * tested from the highest priority down. Every label rule that matches adds its label; the first rule that
 * holds, hides or refuses decides, and no rule after it is tested.
 */
import { RE2JS } from 're2js';
import { WordMatcher } from '../blocks/rules-words.js';
import type { Settings } from '../communities/rules-settings.js';
import { isProtectedKind } from '../events/rules/deletion.js';
import { allTopics, type MatchedEvent, UNBOUND } from '../topics/rules.js';
import { type Conditions, compareRules, RULE_TEXT_MAX, type Rule } from './rules.js';
import { type PatternQuestion, type Stepwise, Texts } from './rules-texts.js';

export type { Stepwise } from './rules-texts.js';

/**
 * Characters times steps of a pattern that is matched on the event loop, about 1 ms. The longest match, 8,192
 * characters with 500 steps, takes up to 37 ms.
 */
export const PATTERN_WORK_MAX = 100_000;

type MatchSettings = Pick<Settings, 'auth.privateKinds'>;

export interface CompiledRule {
  readonly rule: Rule;
  /** The cheap conditions: all except words, patterns and rate. */
  meets(event: MatchedEvent): boolean;
  readonly words: WordMatcher | undefined;
  /** One match is enough. Undefined when the rule has no patterns. */
  readonly patterns: readonly RE2JS[] | undefined;
  /** Steps of its patterns: the cost of each character of a text. */
  readonly steps: number;
}

type Check = (event: MatchedEvent) => boolean;

export function compileRule(rule: Rule): CompiledRule {
  const { words, patterns } = rule.conditions;
  const checks = checksOf(rule.conditions);
  const compiled = patterns?.map((pattern) => RE2JS.compile(pattern));
  return {
    rule,
    meets: (event) => checks.every((check) => check(event)),
    words: words && new WordMatcher(words),
    patterns: compiled,
    steps: compiled?.reduce((sum, pattern) => sum + pattern.programSize(), 0) ?? 0,
  };
}

function checksOf({ kinds, authors, topics, tags }: Conditions): Check[] {
  const checks: Check[] = [];
  if (kinds) checks.push(among(new Set(kinds), ({ kind }) => [kind]));
  if (authors) checks.push(among(new Set(authors), ({ pubkey }) => [pubkey]));
  if (topics) checks.push(among(new Set(topics), (event) => allTopics(event, event.bound ?? UNBOUND)));
  if (tags) checks.push(anyTag(tags));
  return checks;
}

function among<T>(wanted: ReadonlySet<T>, valuesOf: (event: MatchedEvent) => readonly T[]): Check {
  return (event) => valuesOf(event).some((value) => wanted.has(value));
}

function anyTag(conditions: NonNullable<Conditions['tags']>): Check {
  const wanted = conditions.map(({ name, values }) => ({ name, values: values && new Set(values) }));
  return ({ tags }) =>
    tags.some(([name, value]) =>
      wanted.some((one) => one.name === name && (one.values?.has(value ?? '') ?? true)),
    );
}

export function inOrder<T extends { readonly rule: Rule }>(rules: readonly T[]): T[] {
  return [...rules].sort((one, other) => compareRules(one.rule, other.rule));
}

/**
 * Rules that the event matches, apart from rates, in order of priority, up to the first that decides without
 * a rate. Rules never match requests to delete or to vanish.
 */
export function* matchRules(
  event: MatchedEvent,
  settings: MatchSettings,
  ordered: readonly CompiledRule[],
  texts = new Texts(event, settings),
): Stepwise<CompiledRule[]> {
  const met: CompiledRule[] = [];
  if (isProtectedKind(event.kind)) return met;
  for (const compiled of ordered) {
    if (!compiled.meets(event)) continue;
    if (!(yield* meetsTexts(compiled, texts))) continue;
    met.push(compiled);
    const { action, conditions } = compiled.rule;
    if (action !== 'label' && conditions.rate === undefined) break;
  }
  return met;
}

/** The conditions on the text: words and patterns. */
export function* meetsTexts(compiled: CompiledRule, texts: Texts): Stepwise<boolean> {
  return (yield* meetsWord(compiled, texts)) && (yield* meetsPattern(compiled, texts));
}

function* meetsWord({ words }: CompiledRule, texts: Texts): Stepwise<boolean> {
  return words === undefined || (yield* texts.have(words));
}

/** Yields after each pattern, and asks for the result of a long match. */
function* meetsPattern({ patterns }: CompiledRule, texts: Texts): Stepwise<boolean> {
  if (patterns === undefined) return true;
  const bounded = [...within(yield* texts.all(), RULE_TEXT_MAX)];
  const characters = bounded.reduce((sum, text) => sum + text.length, 0);
  for (const pattern of patterns) {
    if (characters * pattern.programSize() > PATTERN_WORK_MAX) {
      if (yield { pattern: pattern.pattern(), texts: bounded }) return true;
    } else {
      if (bounded.some((text) => pattern.test(text))) return true;
      yield;
    }
  }
  return false;
}

export function matchesPattern(pattern: RE2JS, { texts }: PatternQuestion): boolean {
  return texts.some((text) => pattern.test(text));
}

/** Runs it to the end without a pause. */
export function answerOf<T>(steps: Stepwise<T>): T {
  let reply: boolean | undefined;
  for (;;) {
    const { done, value } = steps.next(reply);
    if (done) return value;
    reply = value && matchesPattern(RE2JS.compile(value.pattern), value);
  }
}

/** The texts, cut to `lengthMax` characters in total. */
function* within(texts: readonly string[], lengthMax: number): Generator<string> {
  let left = lengthMax;
  for (const text of texts) {
    if (left <= 0) return;
    yield text.slice(0, left);
    left -= text.length;
  }
}

export interface Verdict {
  readonly labels: readonly Rule[];
  readonly decides: Rule | undefined;
}

/** `isOver` says whether the author has exceeded the rate of a rule. */
export function verdictOf(met: readonly CompiledRule[], isOver: (rule: Rule) => boolean): Verdict {
  const labels: Rule[] = [];
  for (const { rule } of met) {
    if (rule.conditions.rate !== undefined && !isOver(rule)) continue;
    if (rule.action !== 'label') return { labels, decides: rule };
    labels.push(rule);
  }
  return { labels, decides: undefined };
}
