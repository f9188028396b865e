/**
 * What moderation knows, pure: the shape of a rule with its bounds (I14), what can be done about a case, and in which status. How a rule is
 * matched stands in rule-match.ts.
 */
import { RE2JS } from 're2js';
import { z } from 'zod';
import { checkWord } from './blocked-words.js';
import { KIND_MAX } from './event.js';
import { type LabelSpec, labelSchema } from './labels.js';
import { isStorable } from './text.js';

export const RULE_ACTIONS = ['label', 'hold', 'hide', 'refuse'] as const;
export type RuleAction = (typeof RULE_ACTIONS)[number];

export const RULES_MAX = 100;
export const RULE_PATTERNS_MAX = 20;
export const RULE_PATTERN_LENGTH_MAX = 500;
/** Steps of a compiled pattern: the time for a text is its length times these. */
export const RULE_PATTERN_STEPS_MAX = 500;
/** Of all patterns that are in force in a community: with the length of the text they bound what one event costs. */
export const RULE_STEPS_MAX = 3_000;
/** Characters of an event's text that patterns look at. */
export const RULE_TEXT_MAX = 8_192;
export const RATE_SECONDS_MAX = 86_400;
export const RATE_COUNT_MAX = 1_000;
/** Events that a rule is tried with at most. */
export const TRY_EVENTS_MAX = 10_000;

const some = <T extends z.ZodType>(item: T, max: number) => z.array(item).min(1).max(max).optional();
const text = (max: number) =>
  z.string().min(1).max(max).refine(isStorable, 'neither NUL nor lone surrogates');
const pubkey = z.string().regex(/^[0-9a-f]{64}$/, '64 lowercase hex characters');

const word = text(1_000).transform((given, context) => {
  const checked = checkWord(given);
  if ('word' in checked) return checked.word;
  context.addIssue(checked.problem);
  return z.NEVER;
});

const pattern = text(RULE_PATTERN_LENGTH_MAX).superRefine((given, context) => {
  const problem = patternProblem(given);
  if (problem !== undefined) context.addIssue(problem);
});

/** Why it cannot be used, in a sentence. */
function patternProblem(given: string): string | undefined {
  try {
    const steps = RE2JS.compile(given).programSize();
    return steps > RULE_PATTERN_STEPS_MAX
      ? `the pattern is too large: ${steps} steps, and ${RULE_PATTERN_STEPS_MAX} are allowed`
      : undefined;
  } catch (error) {
    return `the pattern cannot be read: ${error instanceof Error ? error.message : 'it is no RE2 syntax'}`;
  }
}

/** What its patterns cost for each character of a text. */
export function patternSteps({ patterns = [] }: Conditions): number {
  return patterns.reduce((sum, one) => sum + RE2JS.compile(one).programSize(), 0);
}

export const conditionsSchema = z
  .strictObject({
    kinds: some(z.number().int().min(0).max(KIND_MAX), 100),
    authors: some(pubkey, 1_000),
    topics: some(text(256), 100),
    words: some(word, 100).describe('In the content; compared as blocked words are'),
    patterns: some(pattern, RULE_PATTERNS_MAX).describe('In the content; RE2 syntax, (?i) for any case'),
    tags: some(z.strictObject({ name: text(64), values: some(text(1_000), 100) }), 20),
    rate: z
      .strictObject({
        count: z.number().int().min(1).max(RATE_COUNT_MAX),
        seconds: z.number().int().min(1).max(RATE_SECONDS_MAX),
      })
      .optional()
      .describe('More than so many events by one author in so many seconds, of those that meet the rest'),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), 'at least one condition');
export type Conditions = z.output<typeof conditionsSchema>;

export const ruleFields = {
  name: text(100),
  priority: z.number().int().min(-1_000).max(1_000).describe('The highest is asked first'),
  conditions: conditionsSchema,
  action: z.enum(RULE_ACTIONS),
  label: labelSchema.describe('Of the action label, and of no other'),
};

/** What an operator writes. */
export const ruleSchema = z
  .strictObject({
    ...ruleFields,
    priority: ruleFields.priority.default(0),
    label: ruleFields.label.optional(),
  })
  .refine(({ action, label }) => (action === 'label') === (label !== undefined), {
    error: 'a rule that labels has a label, and no other rule has one',
    path: ['label'],
  });
export type RuleSpec = z.output<typeof ruleSchema>;

export interface Rule extends Omit<RuleSpec, 'label'> {
  readonly ruleId: string;
  readonly version: number;
  readonly label: LabelSpec | null;
  /** Milliseconds: it judges what came in since. Null while it is not enabled. */
  readonly enabledAt: number | null;
}

// ── Batches ───────────────────────────────────────────────────────────────────────────────────────────────────────

export const BATCH_ACTIONS = ['remove', 'hold', 'label'] as const;
export type BatchAction = (typeof BATCH_ACTIONS)[number];
export const BATCH_STATUSES = ['running', 'done', 'undoing', 'undone'] as const;
export type BatchStatus = (typeof BATCH_STATUSES)[number];
/** Under way at a time, of a community. */
export const BATCHES_OPEN_MAX = 5;
/** Events that one batch acts on, at most. */
export const BATCH_EVENTS_MAX = 100_000;

/** What is done to which stored events. */
export interface BatchSpec {
  readonly action: BatchAction;
  readonly conditions: Conditions;
  readonly label?: LabelSpec | undefined;
  /** They are those of a rule. */
  readonly byRule: boolean;
  /** Of `created_at`, in seconds. */
  readonly since?: number | undefined;
  readonly until?: number | undefined;
  readonly note: string;
}

/** What a rule does to what comes in, done to what is stored; nothing where it cannot be. */
export function batchOfRule({
  action,
  label,
  conditions,
}: Rule): Pick<BatchSpec, 'action' | 'label'> | undefined {
  if (conditions.rate !== undefined) return undefined;
  if (action === 'label') return { action, label: label ?? undefined };
  return { action: action === 'hold' ? 'hold' : 'remove' };
}

// ── Cases ─────────────────────────────────────────────────────────────────────────────────────────────────────────

export const CASE_STATUSES = ['open', 'held', 'resolved', 'dismissed'] as const;
export type CaseStatus = (typeof CASE_STATUSES)[number];
export const CASE_ACTIONS = [
  'label',
  'unlabel',
  'remove',
  'restore',
  'ban',
  'unban',
  'dismiss',
  'reopen',
] as const;
export type CaseAction = (typeof CASE_ACTIONS)[number];

/** Outcomes of an order that are what was asked for; by any other it had no effect. */
export const HAD_EFFECT: Record<'remove' | 'restore', readonly string[]> = {
  remove: ['removed'],
  restore: ['restored', 'served'],
};

const everywhere = (to?: CaseStatus) =>
  ({
    open: to ?? 'open',
    held: to ?? 'held',
    resolved: to ?? 'resolved',
    dismissed: to ?? 'dismissed',
  }) as const;

/** From the status at the left, by an action, to the next; `undefined` where it is not possible. */
export const CASE_STEPS: Record<CaseAction, Record<CaseStatus, CaseStatus | undefined>> = {
  label: everywhere(),
  unlabel: everywhere(),
  ban: everywhere(),
  unban: everywhere(),
  remove: everywhere('resolved'),
  restore: everywhere('resolved'),
  // What a rule holds back is decided by removing or restoring it: dismissed, it would stay away for ever, unseen.
  dismiss: { open: 'dismissed', held: undefined, resolved: undefined, dismissed: undefined },
  reopen: { open: undefined, held: undefined, resolved: 'open', dismissed: 'open' },
};
