/**
 * How moderation rules decide about an event before it is stored (I16). Pure. The texts are judged before the
 * lane's lock. Here, in the lane's order, rates are counted and the deciding rule is found; each event sees
 * those before it in the batch.
 */
import { compareRules, type Rule } from '../../../moderation/rules.js';
import { factKey, type Submission } from '../facts.js';

export interface MetRule {
  readonly rule: Rule;
  /**
   * The text could not be judged within the work limit of one post. Then the event is held, whatever the
   * action of the rule is.
   */
  readonly unfinished: boolean;
}

/** What an event matches by one version of the rules, apart from rates. */
export interface Judgement {
  readonly version: number;
  /** Deciding rules, the highest priority first, up to the first one that decides without a rate. */
  readonly met: readonly MetRule[];
  /** Labelling rules of a higher priority than that one; filled only where the event may be held. */
  readonly labels: readonly Rule[];
}

/** What the store knows about the events of a batch that meet rules. */
export interface ArrivalFacts {
  readonly judgements: ReadonlyMap<Submission, Judgement>;
  /** By `rateKey`: how many events count now, up to the number that the rule needs. */
  readonly counts: ReadonlyMap<string, number>;
  /** By `factKey`: events that a moderator has restored are not judged again. */
  readonly restored: ReadonlySet<string>;
}

/** An event that is stored out of view, and the rule that did it. */
export interface HeldEvent {
  readonly submission: Submission;
  readonly keep: number;
  readonly bound: readonly string[];
  readonly by: MetRule;
  readonly labels: readonly Rule[];
}

/** An accepted event that counts for the rate of a rule. */
export interface CountedEvent {
  readonly submission: Submission;
  readonly rule: Rule;
}

export function rateKey({ ruleId }: Pick<Rule, 'ruleId'>, pubkey: string): string {
  return `${ruleId}/${pubkey}`;
}

/** Rules with a rate that the lane counts. The rate of a rule that refuses is counted before the lane. */
export function ratedRules({ met }: Judgement): Rule[] {
  return met
    .map(({ rule }) => rule)
    .filter(({ action, conditions }) => conditions.rate !== undefined && action !== 'refuse');
}

export class Rulings {
  readonly counted: CountedEvent[] = [];
  private readonly counts: Map<string, number>;

  constructor(private readonly facts: ArrivalFacts | undefined) {
    this.counts = new Map(facts?.counts);
  }

  /** The rule that decides about an event that would otherwise be accepted. */
  of(submission: Submission): MetRule | undefined {
    const judgement = this.facts?.judgements.get(submission);
    const { community, event } = submission;
    if (judgement === undefined || this.facts!.restored.has(factKey(community, event.id))) return undefined;
    return judgement.met.find((met) => met.unfinished || this.decides(met.rule, event.pubkey));
  }

  /** Labelling rules of a higher priority than the deciding rule. */
  labelsOf(submission: Submission, { rule }: MetRule): readonly Rule[] {
    const labels = this.facts?.judgements.get(submission)?.labels ?? [];
    return labels.filter((label) => compareRules(label, rule) < 0);
  }

  /** Counts an accepted event, in view or held. */
  count(submission: Submission): void {
    const judgement = this.facts?.judgements.get(submission);
    if (judgement === undefined) return;
    for (const rule of ratedRules(judgement)) {
      const key = rateKey(rule, submission.event.pubkey);
      this.counts.set(key, (this.counts.get(key) ?? 0) + 1);
      this.counted.push({ submission, rule });
    }
  }

  private decides(rule: Rule, pubkey: string): boolean {
    const { rate } = rule.conditions;
    if (rate === undefined) return true;
    return rule.action !== 'refuse' && (this.counts.get(rateKey(rule, pubkey)) ?? 0) >= rate.count;
  }
}
