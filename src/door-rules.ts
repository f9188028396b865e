/** Rules as rows become matchers. What did not change is not compiled anew: settings change more often than rules. */
import type { Rule } from './core/moderation.js';
import { compileRule, type DoorRules, doorRules } from './core/rule-match.js';

interface Compiled {
  /** Which rules, in which version and of which priority. */
  readonly key: string;
  readonly rules: DoorRules;
}

export class CompiledRules {
  private readonly known = new Map<number, Compiled>();

  of(community: number, rules: readonly Rule[]): DoorRules {
    const key = JSON.stringify(
      rules.map(({ ruleId, version, priority, name }) => [ruleId, version, priority, name]),
    );
    const before = this.known.get(community);
    if (before?.key === key) return before.rules;
    const compiled = { key, rules: doorRules(rules.map(compileRule)) };
    this.known.set(community, compiled);
    return compiled.rules;
  }
}
