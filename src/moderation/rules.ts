/**
 * Schemas and limits of rules (I14), batches, and the statuses and actions of cases. Pure. Matching is in
 * rules-match.ts.
 */
import { RE2JS } from 're2js';
import { z } from 'zod';
import { checkWord } from '../blocks/rules-words.js';
import { KIND_MAX } from '../events/rules/event.js';
import { isStorable } from '../events/rules/text.js';
import { type LabelSpec, labelSchema } from '../labels/rules.js';
import { SEARCH_LENGTH_MAX } from '../search/rules.js';

export const RULE_ACTIONS = ['label', 'hold', 'hide', 'refuse'] as const;
export type RuleAction = (typeof RULE_ACTIONS)[number];

export const RULES_MAX = 100;
export const RULE_PATTERNS_MAX = 20;
export const RULE_PATTERN_LENGTH_MAX = 500;
/** Steps of a compiled pattern: matching takes the length of the text times its steps. */
export const RULE_PATTERN_STEPS_MAX = 500;
/** Steps of all enabled patterns of a community: with RULE_TEXT_MAX this limits the cost of one event. */
export const RULE_STEPS_MAX = 3_000;
/** Characters of an event's text that patterns are matched against. */
export const RULE_TEXT_MAX = 8_192;
export const RATE_SECONDS_MAX = 86_400;
export const RATE_COUNT_MAX = 1_000;
/** Maximum number of events in a trial of a rule. */
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

/** The reason why the pattern cannot be used. */
function patternProblem(given: string): string | undefined {
  try {
    const steps = RE2JS.compile(given).programSize();
    return steps > RULE_PATTERN_STEPS_MAX
      ? `the pattern is too large: ${steps} steps, and ${RULE_PATTERN_STEPS_MAX} are allowed`
      : undefined;
  } catch (error) {
    return `the pattern cannot be read: ${error instanceof Error ? error.message : 'it is not RE2 syntax'}`;
  }
}

/** The cost of the patterns for each character of a text. */
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
      .describe('More than `count` events of one author in `seconds` that match the other conditions'),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), 'at least one condition');
export type Conditions = z.output<typeof conditionsSchema>;

export const ruleFields = {
  name: text(100),
  priority: z.number().int().min(-1_000).max(1_000).describe('The highest applies first'),
  conditions: conditionsSchema,
  action: z.enum(RULE_ACTIONS),
  label: labelSchema.describe('Only for the action label'),
};

/** What an operator writes. */
export const ruleSchema = z
  .strictObject({
    ...ruleFields,
    priority: ruleFields.priority.default(0),
    label: ruleFields.label.optional(),
  })
  .refine(({ action, label }) => (action === 'label') === (label !== undefined), {
    error: 'a rule with the action label needs a label; other rules do not take one',
    path: ['label'],
  });
export type RuleSpec = z.output<typeof ruleSchema>;

export interface Rule extends Omit<RuleSpec, 'label'> {
  readonly ruleId: string;
  readonly version: number;
  readonly label: LabelSpec | null;
  /** Milliseconds: it applies to events that arrived since then. Null while it is disabled. */
  readonly enabledAt: number | null;
}

/** The highest priority first, then by name; names are unique, so the order is total. */
export function compareRules(one: Rule, other: Rule): number {
  return other.priority - one.priority || (one.name < other.name ? -1 : 1);
}

// ── Batches ────────────────────────────────────────────────────────────────────────────────────────────────

export const BATCH_ACTIONS = ['remove', 'hold', 'label'] as const;
export type BatchAction = (typeof BATCH_ACTIONS)[number];
export const BATCH_STATUSES = ['running', 'done', 'undoing', 'undone'] as const;
export type BatchStatus = (typeof BATCH_STATUSES)[number];
/** Running batches of a community. */
export const BATCHES_OPEN_MAX = 5;
/** Maximum number of events that one batch acts on. */
export const BATCH_EVENTS_MAX = 100_000;

/** Maximum number of events that a search selects for a batch. */
export const BATCH_SEARCH_MAX = 10_000;

/** The conditions of a rule, and a search. */
export const selectionSchema = conditionsSchema.safeExtend({
  search: text(SEARCH_LENGTH_MAX)
    .optional()
    .describe('As in a search of members (NIP-50): words, "phrases", -excluded; in every topic'),
});
export type Selection = z.output<typeof selectionSchema>;

/** The ids of events that a search has found, the newest first. */
export interface SearchResult {
  readonly ids: readonly string[];
  /** The search finds more than BATCH_SEARCH_MAX. */
  readonly isMore: boolean;
  /** Number of changes that the index is behind. */
  readonly behind: number;
  /** The index is being rebuilt with new rules: older posts may be missing. */
  readonly isRebuilding: boolean;
}

/** The action of a batch and the stored events that it selects. */
export interface BatchSpec {
  readonly action: BatchAction;
  readonly conditions: Selection;
  /** The result of `conditions.search`: only these events are selected. */
  readonly found?: SearchResult | undefined;
  /** Milliseconds: events that arrived later are not part of it. Default: the start of the batch. */
  readonly asOf?: number | undefined;
  readonly label?: LabelSpec | undefined;
  /** The conditions are those of a rule. */
  readonly byRule: boolean;
  /** `since` and `until` limit `created_at`, in seconds. */
  readonly since?: number | undefined;
  readonly until?: number | undefined;
  readonly note: string;
}

/** The batch action that does to stored events what the rule does on arrival. Undefined for a rate. */
export function batchOfRule({
  action,
  label,
  conditions,
}: Rule): Pick<BatchSpec, 'action' | 'label'> | undefined {
  if (conditions.rate !== undefined) return undefined;
  if (action === 'label') return { action, label: label ?? undefined };
  return { action: action === 'hold' ? 'hold' : 'remove' };
}

// ── Cases ──────────────────────────────────────────────────────────────────────────────────────────────────

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

/** Outcomes that mean success; with any other outcome the action had no effect. */
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

/** The next status of a case, by action and current status; `undefined` where the action is not allowed. */
export const CASE_STEPS: Record<CaseAction, Record<CaseStatus, CaseStatus | undefined>> = {
  label: everywhere(),
  unlabel: everywhere(),
  ban: everywhere(),
  unban: everywhere(),
  remove: everywhere('resolved'),
  restore: everywhere('resolved'),
  // A held event must be removed or restored: if its case were dismissed, it would stay hidden unnoticed.
  dismiss: { open: 'dismissed', held: undefined, resolved: undefined, dismissed: undefined },
  reopen: { open: undefined, held: undefined, resolved: 'open', dismissed: 'open' },
};
