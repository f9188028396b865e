/**
 * Which rules an event meets. Pure, and in time that grows with the text alone: patterns are RE2's, words one automaton. Rules are asked
 * from the highest priority down: every label rule that is met labels; the first one that holds, hides or refuses decides and ends.
 */
import { RE2JS } from 're2js';
import { WordMatcher } from './blocked-words.js';
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
  /** All of its conditions but the rate. */
  meets(event: MatchedEvent, texts: Texts): boolean;
}

/** The texts of one event, found once however many rules ask. What is encrypted holds none, only letters that may look like some. */
export class Texts {
  private found: readonly string[] | undefined;

  constructor(
    private readonly event: NostrEvent,
    private readonly settings: MatchSettings,
  ) {}

  all(): readonly string[] {
    const isSealed = isAmong(this.event.kind, this.settings['auth.privateKinds']);
    this.found ??= isSealed ? [] : textsIn(this.event.content);
    return this.found;
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
  return { rule, meets: (event, texts) => checks.every((check) => check(event, texts)) };
}

/** The cheap ones first. */
function checksOf({ kinds, authors, topics, tags, words, patterns }: Conditions): Check[] {
  const checks: Check[] = [];
  if (kinds) checks.push(within(new Set(kinds), ({ kind }) => [kind]));
  if (authors) checks.push(within(new Set(authors), ({ pubkey }) => [pubkey]));
  if (topics) checks.push(within(new Set(topics), (event) => allTopics(event, event.bound ?? UNBOUND)));
  if (tags) checks.push(anyTag(tags));
  if (words) {
    const matcher = new WordMatcher(words);
    checks.push((_, texts) => texts.all().some((text) => matcher.matches(text)));
  }
  if (patterns) {
    const compiled = patterns.map((pattern) => RE2JS.compile(pattern));
    checks.push((_, texts) => [...texts.bounded()].some((text) => compiled.some((one) => one.test(text))));
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

/** Those that an event meets, apart from their rates, in their order. Requests to delete and to vanish are nobody's to judge. */
export function metBy(
  event: MatchedEvent,
  settings: MatchSettings,
  ordered: readonly CompiledRule[],
): CompiledRule[] {
  if (isProtectedKind(event.kind)) return [];
  const texts = new Texts(event, settings);
  return ordered.filter((rule) => rule.meets(event, texts));
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
  return deciding.some(({ rule }) => rule.action === 'refuse') ? { ordered: inOrder(deciding) } : NO_RULES;
}

export interface AtDoor {
  readonly refused: boolean;
  /** Whose rates decide, before that. */
  readonly rated: readonly Rule[];
}

const LET_IN: AtDoor = { refused: false, rated: [] };

export function refusedAtDoor(event: NostrEvent, settings: Settings, { ordered }: DoorRules): AtDoor {
  if (ordered.length === 0) return LET_IN;
  const rated: Rule[] = [];
  for (const { rule } of metBy(asMatched(event, impliedTopics(event, settings)), settings, ordered)) {
    if (rule.conditions.rate !== undefined) rated.push(rule);
    else return { refused: rule.action === 'refuse', rated };
  }
  return { refused: false, rated };
}
