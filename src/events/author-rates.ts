/**
 * The rates of authors: that of the community's settings, and those of its moderation rules. They are checked
 * after the signature; otherwise anybody could use up an author's rate. Anybody can send what an author has
 * signed before, as often as they like: an event that is not newly accepted costs the author nothing.
 */
import type { Community } from '../communities/communities.js';
import { rateKey } from '../limits/keys.js';
import type { Rates } from '../limits/rates.js';
import type { Rule } from '../moderation/rules.js';
import type { NostrEvent } from './rules/event.js';
import { type Outcome, REFUSED_BY_RULE, type Refusal, tooMany } from './rules/reply.js';

export class AuthorRates {
  /** Without rates, for an import, no author is limited. */
  constructor(
    private readonly rates: Rates | undefined,
    private readonly now: () => number,
  ) {}

  /** Takes the weight of an event from the rate with this key. */
  async refuse({ settings }: Community, key: string, weight: number): Promise<Refusal | undefined> {
    const { 'rate.eventsPerSecond': perSecond, 'rate.eventsBurst': burst } = settings;
    const verdict = await this.rates?.take(key, perSecond, burst, this.now(), weight);
    return verdict === undefined || verdict.allowed
      ? undefined
      : tooMany('events by this author', verdict.retryAfterMs);
  }

  giveBack(key: string, weight: number): void {
    this.rates?.giveBack(key, weight);
  }

  /**
   * Submits an event within the rates of moderation rules. They are the community's, so they also apply to
   * senders whom the operator exempts from the rates that protect the node.
   */
  async withinRules(
    { id }: Community,
    { pubkey }: NostrEvent,
    rated: readonly Rule[],
    submit: () => Promise<Outcome | Refusal>,
  ): Promise<Outcome | Refusal> {
    const taken: string[] = [];
    let outcome: Outcome | Refusal | undefined;
    try {
      for (const { ruleId, version, conditions } of rated) {
        const { count, seconds } = conditions.rate!;
        const key = rateKey(id, `rule/${ruleId}/${version}`, pubkey);
        const verdict = await this.rates?.take(key, count / seconds, count, this.now());
        if (verdict?.allowed === false) return REFUSED_BY_RULE;
        taken.push(key);
      }
      outcome = await submit();
      return outcome;
    } finally {
      if (outcome !== 'stored' && outcome !== 'broadcast') for (const key of taken) this.rates?.giveBack(key);
    }
  }
}
