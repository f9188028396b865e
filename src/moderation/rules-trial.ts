/**
 * Finds what a rule would have matched among stored events. A rule is enabled only after an operator has seen
 * this result. Pure.
 */

import type { Settings } from '../communities/rules-settings.js';
import { isAmong } from '../events/rules/kinds.js';
import type { MatchedEvent } from '../topics/rules.js';
import { type CompiledRule, matchRules, type Stepwise } from './rules-match.js';

const SAMPLES_MAX = 10;
const AUTHORS_MAX = 20;
const EXCERPT_LENGTH = 200;

export interface Sample {
  readonly id: string;
  readonly pubkey: string;
  readonly kind: number;
  readonly createdAt: number;
  readonly excerpt: string;
}

export interface TrialResult {
  readonly lookedAt: number;
  readonly met: number;
  /** The most frequent first. */
  readonly authors: readonly (readonly [pubkey: string, events: number])[];
  readonly kinds: readonly (readonly [kind: number, events: number])[];
  readonly samples: readonly Sample[];
}

export class Trial {
  private readonly met: Sample[] = [];
  private lookedAt = 0;

  constructor(
    private readonly rule: CompiledRule,
    private readonly settings: Settings,
  ) {}

  *look(event: MatchedEvent): Stepwise<void> {
    this.lookedAt += 1;
    if ((yield* matchRules(event, this.settings, [this.rule])).length === 0) return;
    const { id, pubkey, kind, created_at: createdAt } = event;
    this.met.push({ id, pubkey, kind, createdAt, excerpt: this.excerptOf(event) });
  }

  result(): TrialResult {
    const met = this.beyondRate();
    return {
      lookedAt: this.lookedAt,
      met: met.length,
      authors: counted(met.map(({ pubkey }) => pubkey)).slice(0, AUTHORS_MAX),
      kinds: counted(met.map(({ kind }) => kind)),
      samples: met.slice(0, SAMPLES_MAX),
    };
  }

  /** Counts rates by `created_at`, because the events of a trial may have arrived long ago. */
  private beyondRate(): readonly Sample[] {
    const { rate } = this.rule.rule.conditions;
    if (rate === undefined) return this.met;
    const byAuthor = new Map<string, Sample[]>();
    for (const sample of this.met) {
      const others = byAuthor.get(sample.pubkey);
      if (others === undefined) byAuthor.set(sample.pubkey, [sample]);
      else others.push(sample);
    }
    const over = new Set<Sample>();
    for (const samples of byAuthor.values()) {
      const ordered = [...samples].sort((one, other) => one.createdAt - other.createdAt);
      let first = 0;
      ordered.forEach((sample, at) => {
        while (ordered[first]!.createdAt <= sample.createdAt - rate.seconds) first += 1;
        if (at - first + 1 > rate.count) over.add(sample);
      });
    }
    return this.met.filter((sample) => over.has(sample));
  }

  private excerptOf({ kind, content }: MatchedEvent): string {
    if (isAmong(kind, this.settings['auth.privateKinds'])) return '';
    return content.slice(0, EXCERPT_LENGTH).toWellFormed();
  }
}

function counted<T>(values: readonly T[]): [T, number][] {
  const counts = new Map<T, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort(([, one], [, other]) => other - one);
}
