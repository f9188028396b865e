/**
 * Finds which rules an event matches before it is stored (I16), apart from rates, within a limited amount of
 * work. An event that needs more work is held, not let through. Work is counted in characters and pattern
 * steps, not in time, so that every instance decides the same. Pure.
 */
import type { Settings } from '../../communities/rules-settings.js';
import type { Judgement, MetRule } from '../../events/rules/batch/judged.js';
import { isProtectedKind } from '../../events/rules/deletion.js';
import type { NostrEvent } from '../../events/rules/event.js';
import { isAmong } from '../../events/rules/kinds.js';
import { asMatched, impliedTopics, type MatchedEvent } from '../../topics/rules.js';
import { RULE_TEXT_MAX, type Rule } from '../rules.js';
import { type CompiledRule, inOrder, matchRules, meetsTexts } from '../rules-match.js';
import { type Stepwise, Texts } from '../rules-texts.js';

/**
 * Work for one event. It allows all the patterns that a community may have (RULE_STEPS_MAX) on the longest
 * text that patterns read, and a hundred rules with words on a text of 140,000 characters. Two thirds of it
 * took 0.18 s of one core.
 */
export const ARRIVAL_WORK_MAX = 30_000_000;

/** The enabled rules of a community, of one version of all rules. */
export interface ArrivalRules {
  readonly version: number;
  /** Those that hold, hide or refuse, the highest priority first. */
  readonly deciding: readonly CompiledRule[];
  /** All of them, the highest priority first. */
  readonly ordered: readonly CompiledRule[];
  /** Public keys that the node signs with: its own events are not judged. */
  readonly own: ReadonlySet<string>;
}

export type CompiledSet = Pick<ArrivalRules, 'deciding' | 'ordered'>;

export function arrivalRules(rules: readonly CompiledRule[]): CompiledSet {
  const ordered = inOrder(rules);
  return { ordered, deciding: ordered.filter(({ rule }) => rule.action !== 'label') };
}

export interface JudgingCommunity {
  readonly settings: Settings;
  readonly topics: ReadonlyMap<string, unknown>;
  readonly rules: ArrivalRules;
}

export function* judgeArrival(
  event: NostrEvent,
  { settings, topics, rules }: JudgingCommunity,
  texts = new Texts(event, settings),
  workMax = ARRIVAL_WORK_MAX,
): Stepwise<Judgement> {
  const { version, deciding, own } = rules;
  if (deciding.length === 0 || isProtectedKind(event.kind) || own.has(event.pubkey))
    return { version, met: [], labels: [] };
  const matched = asMatched(event, impliedTopics(event, settings, topics));
  const met = yield* meet(matched, deciding, texts, workMax);
  const mayHold = met.some(({ rule, unfinished }) => unfinished || rule.action !== 'refuse');
  return { version, met, labels: mayHold ? yield* labelsOf(matched, settings, rules, met, texts) : [] };
}

function* meet(
  event: MatchedEvent,
  deciding: readonly CompiledRule[],
  texts: Texts,
  workMax: number,
): Stepwise<MetRule[]> {
  const met: MetRule[] = [];
  const extent = texts.extent;
  let left = workMax;
  for (const compiled of deciding) {
    if (!compiled.meets(event)) continue;
    const { rule, words } = compiled;
    left -= workOf(compiled, extent.characters);
    const isFound = left >= 0 && (yield* meetsTexts(compiled, texts));
    const unfinished = left < 0 || (!isFound && words !== undefined && extent.isCut);
    if (!isFound && !unfinished) continue;
    met.push({ rule, unfinished });
    if (unfinished || rule.conditions.rate === undefined) break;
  }
  return met;
}

/** The work of all rules for one event, in characters that are read. */
export interface RuleWork {
  /** Characters times the steps of patterns. */
  readonly steps: number;
  /** Characters that words are looked for in, of every rule that has words. */
  readonly words: number;
}

const NO_WORK: RuleWork = { steps: 0, words: 0 };

/**
 * What the rules of a community cost for one event. Label rules count too, because the consumer tests them
 * later.
 */
export function ruleWork(
  event: NostrEvent,
  { settings, topics, rules }: JudgingCommunity,
  texts: Texts,
): RuleWork {
  const reading = rules.ordered.filter(({ steps, words }) => steps > 0 || words !== undefined);
  if (reading.length === 0 || isProtectedKind(event.kind) || rules.own.has(event.pubkey)) return NO_WORK;
  const matched = asMatched(event, impliedTopics(event, settings, topics));
  const { characters } = texts.extent;
  let [steps, worded] = [0, 0];
  for (const rule of reading) {
    if (!rule.meets(matched)) continue;
    steps += rule.steps;
    if (rule.words !== undefined) worded += 1;
  }
  return { steps: Math.min(characters, RULE_TEXT_MAX) * steps, words: characters * worded };
}

function workOf({ words, steps }: CompiledRule, characters: number): number {
  return (words === undefined ? 0 : characters) + Math.min(characters, RULE_TEXT_MAX) * steps;
}

/**
 * Label rules that match and come before the rule that certainly decides. Events of private kinds get no
 * label: a label is public and would reveal that the event exists.
 */
function* labelsOf(
  event: MatchedEvent,
  settings: Settings,
  { ordered }: ArrivalRules,
  met: readonly MetRule[],
  texts: Texts,
): Stepwise<Rule[]> {
  if (isAmong(event.kind, settings['auth.privateKinds'])) return [];
  const last = met.at(-1)!;
  const isCertain = last.unfinished || last.rule.conditions.rate === undefined;
  const end = isCertain ? ordered.findIndex(({ rule }) => rule === last.rule) : ordered.length;
  const labelling = ordered.slice(0, end).filter(({ rule }) => rule.action === 'label');
  return (yield* matchRules(event, settings, labelling, texts)).map(({ rule }) => rule);
}

/** True when a rule refuses and no earlier rule may hold the event: it need not enter the lane. */
export function refusesAtOnce({ met }: Judgement): boolean {
  const first = met.find(({ rule, unfinished }) => unfinished || !isRatedRefusal(rule));
  return first !== undefined && !first.unfinished && first.rule.action === 'refuse';
}

/** Rules that refuse by a rate: admission counts their rate before the lane. */
export function ratedRefusals({ met }: Judgement): Rule[] {
  return met
    .filter(({ unfinished }) => !unfinished)
    .flatMap(({ rule }) => (isRatedRefusal(rule) ? [rule] : []));
}

const isRatedRefusal = ({ action, conditions }: Rule) => action === 'refuse' && conditions.rate !== undefined;
