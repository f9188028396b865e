/**
 * Which rules an event meets. Pure, and in bounded time: patterns are RE2's, so a text costs its length times their steps, and both have
 * their limits; words are one automaton. Rules are asked from the highest priority down: every label rule that is met labels; the first
 * one that holds, hides or refuses decides, and none is asked after it.
 */
import { RE2JS } from 're2js';
import { foldText, WordMatcher } from './blocked-words.js';
import { isProtectedKind } from './deletion.js';
import type { NostrEvent } from './event.js';
import { isAmong } from './kinds.js';
import { type Conditions, RULE_TEXT_MAX, type Rule } from './moderation.js';
import type { Settings } from './settings.js';
import { textsIn } from './text.js';
import { allTopics, asMatched, impliedTopics, type MatchedEvent, UNBOUND } from './topic.js';

type MatchSettings = Pick<Settings, 'auth.privateKinds'>;

export interface CompiledRule {
  readonly rule: Rule;
  /** The cheap conditions: all but the patterns and the rate. */
  meets(event: MatchedEvent, texts: Texts): boolean;
  /** One of them is enough; nothing where the rule has none. */
  readonly patterns: readonly RE2JS[] | undefined;
}

/** The texts of one event, found once however many rules ask. What is encrypted holds none, only letters that may look like some. */
export class Texts {
  private found: readonly string[] | undefined;
  private compared: readonly string[] | undefined;

  constructor(
    private readonly event: NostrEvent,
    private readonly settings: MatchSettings,
  ) {}

  all(): readonly string[] {
    const isSealed = isAmong(this.event.kind, this.settings['auth.privateKinds']);
    this.found ??= isSealed ? [] : textsIn(this.event.content);
    return this.found;
  }

  /** As words are compared. */
  folded(): readonly string[] {
    this.compared ??= this.all().map(foldText);
    return this.compared;
  }

  /** As much as patterns look at. */
  *bounded(): Generator<string> {
    let left = RULE_TEXT_MAX;
    for (const text of this.all()) {
      if (left <= 0) return;
      yield text.slice(0, left);
      left -= text.length;
    }
  }
}

type Check = (event: MatchedEvent, texts: Texts) => boolean;

export function compileRule(rule: Rule): CompiledRule {
  const checks = checksOf(rule.conditions);
  return {
    rule,
    meets: (event, texts) => checks.every((check) => check(event, texts)),
    patterns: rule.conditions.patterns?.map((pattern) => RE2JS.compile(pattern)),
  };
}

function checksOf({ kinds, authors, topics, tags, words }: Conditions): Check[] {
  const checks: Check[] = [];
  if (kinds) checks.push(within(new Set(kinds), ({ kind }) => [kind]));
  if (authors) checks.push(within(new Set(authors), ({ pubkey }) => [pubkey]));
  if (topics) checks.push(within(new Set(topics), (event) => allTopics(event, event.bound ?? UNBOUND)));
  if (tags) checks.push(anyTag(tags));
  if (words) {
    const matcher = new WordMatcher(words);
    checks.push((_, texts) => texts.folded().some((text) => matcher.matchesFolded(text)));
  }
  return checks;
}

function within<T>(wanted: ReadonlySet<T>, valuesOf: (event: MatchedEvent) => readonly T[]): Check {
  return (event) => valuesOf(event).some((value) => wanted.has(value));
}

function anyTag(conditions: NonNullable<Conditions['tags']>): Check {
  const wanted = conditions.map(({ name, values }) => ({ name, values: values && new Set(values) }));
  return ({ tags }) =>
    tags.some(([name, value]) =>
      wanted.some((one) => one.name === name && (one.values?.has(value ?? '') ?? true)),
    );
}

/** The highest priority first; names are told apart, so the order is one. */
export function inOrder<T extends { readonly rule: Rule }>(rules: readonly T[]): T[] {
  return [...rules].sort(
    (one, other) => other.rule.priority - one.rule.priority || (one.rule.name < other.rule.name ? -1 : 1),
  );
}

/** Nothing: it is not known yet, and whoever asks may let others have their turn. */
export type Asked<T> = Generator<undefined, T>;

/** All at once, where nobody waits for a turn. */
export function answerOf<T>(asked: Asked<T>): T {
  for (;;) {
    const { done, value } = asked.next();
    if (done) return value;
  }
}

/**
 * Those that an event meets, apart from their rates, in their order, up to the first one that decides whatever the rates are. Requests to
 * delete and to vanish are nobody's to judge.
 */
export function* askRules(
  event: MatchedEvent,
  settings: MatchSettings,
  ordered: readonly CompiledRule[],
): Asked<CompiledRule[]> {
  const met: CompiledRule[] = [];
  if (isProtectedKind(event.kind)) return met;
  const texts = new Texts(event, settings);
  for (const compiled of ordered) {
    if (!compiled.meets(event, texts) || !(yield* meetsPattern(compiled, texts))) continue;
    met.push(compiled);
    const { action, conditions } = compiled.rule;
    if (action !== 'label' && conditions.rate === undefined) break;
  }
  return met;
}

/** One pattern is the longest that nobody else has a turn. */
function* meetsPattern({ patterns }: CompiledRule, texts: Texts): Asked<boolean> {
  if (patterns === undefined) return true;
  for (const pattern of patterns) {
    for (const text of texts.bounded()) if (pattern.test(text)) return true;
    yield;
  }
  return false;
}

export interface Verdict {
  readonly labels: readonly Rule[];
  readonly decides: Rule | undefined;
}

/** `isOver`: the author's rate of this rule is exceeded. */
export function verdictOf(met: readonly CompiledRule[], isOver: (rule: Rule) => boolean): Verdict {
  const labels: Rule[] = [];
  for (const { rule } of met) {
    if (rule.conditions.rate !== undefined && !isOver(rule)) continue;
    if (rule.action !== 'label') return { labels, decides: rule };
    labels.push(rule);
  }
  return { labels, decides: undefined };
}

// ── At the door ───────────────────────────────────────────────────────────────────────────────────────────────────

/** Rules that decide, in their order; those that hold or hide by a rate are asked after the event is stored. */
export interface DoorRules {
  readonly ordered: readonly CompiledRule[];
}

export const NO_RULES: DoorRules = { ordered: [] };

export function doorRules(rules: readonly CompiledRule[]): DoorRules {
  const deciding = rules.filter(
    ({ rule: { action, conditions } }) =>
      action === 'refuse' || (action !== 'label' && conditions.rate === undefined),
  );
  const ordered = inOrder(deciding);
  // What comes after the last one that refuses changes nothing at the door.
  return { ordered: ordered.slice(0, ordered.findLastIndex(({ rule }) => rule.action === 'refuse') + 1) };
}

export interface AtDoor {
  readonly refused: boolean;
  /** Whose rates decide, before that. */
  readonly rated: readonly Rule[];
}

const LET_IN: AtDoor = { refused: false, rated: [] };

export function* askAtDoor(
  event: NostrEvent,
  { settings, topics }: { readonly settings: Settings; readonly topics: ReadonlyMap<string, unknown> },
  { ordered }: DoorRules,
): Asked<AtDoor> {
  if (ordered.length === 0) return LET_IN;
  const matched = asMatched(event, impliedTopics(event, settings, topics));
  const met = (yield* askRules(matched, settings, ordered)).map(({ rule }) => rule);
  return {
    refused: met.some(({ action, conditions }) => action === 'refuse' && conditions.rate === undefined),
    rated: met.filter(({ conditions }) => conditions.rate !== undefined),
  };
}
