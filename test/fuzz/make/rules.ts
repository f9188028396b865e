/** Moderation rules of every kind, to run against events. */
import { type ArrivalRules, arrivalRules } from '../../../src/moderation/arrival/rules.js';
import { compileRule } from '../../../src/moderation/rules-match.js';
import { ruleOf } from '../../support/domains/rules.js';

export function compileArrivalRules(): ArrivalRules {
  const rules = [
    ruleOf({ words: ['spam', 'script', '日本'] }, 'hold', 3),
    ruleOf({ patterns: ['(?i)drop\\s+table', '[a-f0-9]{64}', '(a|b)*c'] }, 'hide', 2),
    ruleOf({ kinds: [1, 7], tags: [{ name: 't', values: ['sea'] }] }, 'refuse', 1),
    ruleOf({ kinds: [1], rate: { count: 2, seconds: 60 } }, 'refuse', 0),
  ];
  return { ...arrivalRules(rules.map(compileRule)), version: 1, own: new Set() };
}
