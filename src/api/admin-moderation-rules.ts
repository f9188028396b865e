/** Rules of moderation over HTTP: write one, try it against what is here, then enable it. They hold on every instance within a second. */
import type { Pool } from 'pg';
import { z } from 'zod';
import type { Community } from '../communities.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { LABELS } from '../core/labels.js';
import {
  RULE_ACTIONS,
  type Rule,
  type RuleSpec,
  ruleFields,
  ruleSchema,
  TRY_EVENTS_MAX,
} from '../core/moderation.js';
import { compileRule } from '../core/rule-match.js';
import type { TrialResult } from '../core/rule-trial.js';
import {
  changeRule,
  createRule,
  deleteRule,
  findRule,
  type KeptRule,
  listRules,
  noteTried,
} from '../store/moderation-rules.js';
import { tryRule } from '../store/moderation-try.js';
import { type Call, type Route, route } from './contract.js';
import { milliseconds, pubkey } from './schemas.js';

const RULES = '/admin/moderation/rules';
const ONE = `${RULES}/:rule_id`;
const TRY_EVENTS = 1_000;
/** Trials of this process at a time: each reads thousands of events. */
const TRIALS_MAX = 2;
const count = z.number().int();
const params = z.strictObject({ rule_id: z.uuid() });

const label = z.strictObject({
  label: z.enum(LABELS),
  confidence: z.number(),
  days: count,
  policy: z.string(),
});

const rule = z.strictObject({
  rule_id: z.uuid(),
  name: z.string(),
  priority: count,
  enabled: z.boolean(),
  enabled_at: milliseconds.nullable().describe('It judges what came in since'),
  conditions: z.record(z.string(), z.unknown()),
  action: z.enum(RULE_ACTIONS),
  label: label.nullable(),
  version: count,
  tried_version: count.nullable().describe('Has to be `version` before it is enabled'),
  created_at: milliseconds,
  updated_at: milliseconds,
});

function show(kept: KeptRule): z.output<typeof rule> {
  const { ruleId, name, priority, enabled, enabledAt, conditions, action, version, triedVersion } = kept;
  return {
    rule_id: ruleId,
    name,
    priority,
    enabled,
    enabled_at: enabledAt,
    conditions,
    action,
    label: kept.label,
    version,
    tried_version: triedVersion,
    created_at: kept.createdAt,
    updated_at: kept.updatedAt,
  };
}

const shown = (found: KeptRule | Denial) => (isDenial(found) ? found : show(found));

const trial = z.strictObject({
  looked_at: count,
  met: count,
  authors: z.array(z.strictObject({ pubkey, events: count })).describe('The most frequent first'),
  kinds: z.array(z.strictObject({ kind: count, events: count })),
  samples: z.array(
    z.strictObject({ event_id: z.string(), pubkey, kind: count, created_at: count, excerpt: z.string() }),
  ),
  tried_version: count.nullable().describe('Of the rule that was tried, when it is a kept one'),
});

function showTrial(
  { lookedAt, met, authors, kinds, samples }: TrialResult,
  triedVersion: number | null,
): z.output<typeof trial> {
  return {
    looked_at: lookedAt,
    met,
    authors: authors.map(([author, events]) => ({ pubkey: author, events })),
    kinds: kinds.map(([kind, events]) => ({ kind, events })),
    samples: samples.map(({ id, createdAt, ...same }) => ({ event_id: id, created_at: createdAt, ...same })),
    tried_version: triedVersion,
  };
}

const changes = z.strictObject({
  name: ruleFields.name.optional(),
  priority: ruleFields.priority.optional(),
  conditions: ruleFields.conditions.optional(),
  action: ruleFields.action.optional(),
  label: ruleFields.label.nullable().optional().describe('Null: none any more'),
  enabled: z.boolean().optional(),
});
type Changes = z.output<typeof changes>;

/** The whole rule as it would be, checked as a new one is. */
export function mergeRule(
  before: KeptRule,
  { name, priority, conditions, action, label: put }: Changes,
): RuleSpec | Denial {
  const label = put === undefined ? before.label : put;
  const checked = ruleSchema.safeParse({
    name: name ?? before.name,
    priority: priority ?? before.priority,
    conditions: conditions ?? before.conditions,
    action: action ?? before.action,
    ...(label === null ? {} : { label }),
  });
  if (checked.success) return checked.data;
  const problems = checked.error.issues.map(({ path, message }) => ({
    path: `body/${path.join('/')}`,
    message,
  }));
  return denial('INVALID_REQUEST', { problems });
}

/** Only what is given. */
function given({ label: put, ...rest }: Changes) {
  const named = Object.entries(rest).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(named), ...(put === undefined ? {} : { label: put ?? undefined }) };
}

export function moderationRuleRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const shared = { tags: ['admin: moderation'], who: 'operator' } as const;
  const refOf = ({
    community,
    pubkey: actor,
    params: { rule_id: ruleId },
  }: Call<'operator', z.output<typeof params>>) => ({
    community: community.id,
    ruleId,
    actor,
  });
  return [
    route({
      ...shared,
      method: 'GET',
      url: RULES,
      summary: 'The rules, in the order in which they are asked',
      response: z.strictObject({ items: z.array(rule) }),
      errors: [],
      handler: async ({ community }) => ({ items: (await listRules(pool, community.id)).map(show) }),
    }),
    route({
      ...shared,
      method: 'POST',
      url: RULES,
      summary: 'Write a rule; it is not enabled yet',
      body: ruleSchema,
      status: 201,
      response: rule,
      errors: ['RULE_EXISTS', 'RULE_LIMIT_REACHED'],
      handler: async ({ community, pubkey: actor, body, now }) =>
        shown(await createRule(pool, { community: community.id, actor }, body, now)),
    }),
    route({
      ...shared,
      method: 'PATCH',
      url: ONE,
      summary: 'Change a rule, enable or disable it',
      description:
        'Other conditions, another action or label make another version, which is not enabled until it was tried.',
      params,
      body: changes,
      response: rule,
      errors: ['NOT_FOUND', 'RULE_EXISTS', 'RULE_NOT_TRIED', 'RULE_STEPS_EXCEEDED'],
      handler: async (call) =>
        shown(
          await changeRule(
            pool,
            refOf(call),
            given(call.body),
            (before) => mergeRule(before, call.body),
            call.now,
          ),
        ),
    }),
    route({
      ...shared,
      method: 'DELETE',
      url: ONE,
      summary: 'Delete a rule; what it holds is released',
      description: `What it holds and nobody has decided about is restored, and its labels are withdrawn, as one batch that can be undone.
\`keep=true\` keeps it held; \`hidden=true\` brings back what the rule has hidden too.`,
      params,
      query: z.strictObject({ keep: z.stringbool().default(false), hidden: z.stringbool().default(false) }),
      response: rule.extend({ released: z.uuid().nullable().describe('The batch; null: there was nothing') }),
      errors: ['NOT_FOUND'],
      handler: async (call) => {
        const gone = await deleteRule(pool, refOf(call), call.now, call.query);
        return isDenial(gone) ? gone : { ...show(gone), released: gone.released ?? null };
      },
    }),
    tryRoute(pool),
  ];
}

/** A rule that is not kept is tried as if it were. */
function asRule(spec: RuleSpec): Rule {
  return { ...spec, ruleId: '', version: 0, enabledAt: null, label: spec.label ?? null };
}

function tryRoute(pool: Pool): Route {
  let underWay = 0;
  const attempt = async (community: Community, kept: KeptRule | undefined, tried: Rule, last: number) => {
    if (underWay >= TRIALS_MAX) return denial('RATE_LIMITED', { retry_after_seconds: 1 });
    underWay += 1;
    try {
      const result = await tryRule(pool, community, compileRule(tried), last);
      if (kept !== undefined) await noteTried(pool, kept);
      return showTrial(result, kept?.version ?? null);
    } finally {
      underWay -= 1;
    }
  };
  return route({
    tags: ['admin: moderation'],
    who: 'operator',
    method: 'POST',
    url: `${RULES}/try`,
    summary: 'What a rule would have met among the newest events; nothing is done',
    description: 'A rate is counted by `created_at` here.',
    body: z
      .strictObject({
        rule: ruleSchema.optional().describe('One that is not kept yet'),
        rule_id: z.uuid().optional().describe('A kept one: it can be enabled afterwards'),
        last: z.number().int().min(1).max(TRY_EVENTS_MAX).default(TRY_EVENTS).describe('How many events'),
      })
      .refine((body) => (body.rule === undefined) !== (body.rule_id === undefined), {
        error: 'either rule or rule_id',
      }),
    response: trial,
    errors: ['NOT_FOUND'],
    handler: async ({ community, body }) => {
      if (body.rule !== undefined) return attempt(community, undefined, asRule(body.rule), body.last);
      const kept = await findRule(pool, community.id, body.rule_id ?? '');
      return isDenial(kept) ? kept : attempt(community, kept, kept, body.last);
    },
  });
}
