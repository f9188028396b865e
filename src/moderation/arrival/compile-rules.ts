/**
 * Compiles rule rows into matchers and caches them by community. Rules that did not change are not compiled
 * again, because settings change more often than rules.
 */
import type { Rule } from '../rules.js';
import { compileRule } from '../rules-match.js';
import { arrivalRules, type CompiledSet } from './rules.js';

interface Compiled {
  /** Identifies the rules with their versions and priorities. */
  readonly key: string;
  readonly rules: CompiledSet;
}

export class CompiledRules {
  private readonly known = new Map<number, Compiled>();

  of(community: number, rules: readonly Rule[]): CompiledSet {
    const key = JSON.stringify(
      rules.map(({ ruleId, version, priority, name, conditions }) => [
        ruleId,
        version,
        priority,
        name,
        conditions.authors,
      ]),
    );
    const before = this.known.get(community);
    if (before?.key === key) return before.rules;
    const compiled = { key, rules: arrivalRules(rules.map(compileRule)) };
    this.known.set(community, compiled);
    return compiled.rules;
  }
}
