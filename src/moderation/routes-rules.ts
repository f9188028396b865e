/**
 * Routes for moderation rules: write one, try it on stored events, then enable it. Every instance judges
 * events that are stored after the response by the changed rules (I16).
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Call, type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import type { EventStore } from '../events/store.js';
import { LABELS } from '../labels/rules.js';
import { RULE_ACTIONS, type Rule, type RuleSpec, ruleFields, ruleSchema, TRY_EVENTS_MAX } from './rules.js';
import { compileRule } from './rules-match.js';
import type { TrialResult } from './rules-trial.js';
import {
  changeRule,
  createRule,
  deleteRule,
  findRule,
  type KeptRule,
  listRules,
  noteTried,
} from './stored-rules.sql.js';
import { tryRule } from './trial.js';

const RULES = '/admin/moderation/rules';
const ONE = `${RULES}/:rule_id`;
const TRY_EVENTS = 1_000;
/** Trials that run at the same time in this process: each reads thousands of events. */
const TRIALS_MAX = 4;
/** Of one community, so that one does not take them all. */
const TRIALS_PER_COMMUNITY_MAX = 2;
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
  enabled_at: milliseconds.nullable().describe('It applies to events that arrived since then'),
  conditions: z.record(z.string(), z.unknown()),
  action: z.enum(RULE_ACTIONS),
  label: label.nullable(),
  version: count,
  tried_version: count.nullable().describe('Must equal `version` before the rule can be enabled'),
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
  tried_version: count.nullable().describe('The version that was tried; null for a rule that is not stored'),
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
  label: ruleFields.label.nullable().optional().describe('Null removes it'),
  enabled: z.boolean().optional(),
});
type Changes = z.output<typeof changes>;

/** The whole rule after the change, checked like a new one. */
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

/** Only the fields that the request has. */
function given({ label: put, ...rest }: Changes) {
  const named = Object.entries(rest).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(named), ...(put === undefined ? {} : { label: put ?? undefined }) };
}

export interface RuleOptions {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'stored'>;
}

export function moderationRuleRoutes(options: RuleOptions): Route[] {
  const { pool } = options;
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
      role: 'moderator',
      summary: 'The rules, in the order in which they apply',
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
        'A change of conditions, action or label makes a new version. Try it before you enable it.',
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
      description: `Restores what the rule holds and nobody has decided about, and withdraws its labels, as
one batch that can be undone. \`keep=true\` leaves it held; \`hidden=true\` also restores what the rule has
hidden.`,
      params,
      query: z.strictObject({ keep: z.stringbool().default(false), hidden: z.stringbool().default(false) }),
      response: rule.extend({
        released: z.uuid().nullable().describe('The batch; null: nothing to release'),
      }),
      errors: ['NOT_FOUND'],
      handler: async (call) => {
        const deleted = await deleteRule(pool, refOf(call), call.now, call.query);
        return isDenial(deleted) ? deleted : { ...show(deleted), released: deleted.released ?? null };
      },
    }),
    tryRoute(options),
  ];
}

/** A rule that is not stored, in the form of a stored one, so that it can be tried. */
function asRule(spec: RuleSpec): Rule {
  return { ...spec, ruleId: '', version: 0, enabledAt: null, label: spec.label ?? null };
}

function tryRoute({ pool, events }: RuleOptions): Route {
  /** The community of each trial that runs. */
  const underWay: number[] = [];
  const attempt = async (community: Community, kept: KeptRule | undefined, tried: Rule, last: number) => {
    const ofCommunity = underWay.filter((id) => id === community.id).length;
    if (underWay.length >= TRIALS_MAX || ofCommunity >= TRIALS_PER_COMMUNITY_MAX)
      return denial('RATE_LIMITED', { retry_after_seconds: 1 });
    underWay.push(community.id);
    try {
      const result = await tryRule(pool, events.stored, community, compileRule(tried), last);
      if (kept !== undefined) await noteTried(pool, kept);
      return showTrial(result, kept?.version ?? null);
    } finally {
      underWay.splice(underWay.indexOf(community.id), 1);
    }
  };
  return route({
    tags: ['admin: moderation'],
    who: 'operator',
    method: 'POST',
    url: `${RULES}/try`,
    role: 'moderator',
    summary: 'Try a rule: what it would have matched among the newest events; nothing is done',
    description: 'A trial counts rates by `created_at`.',
    body: z
      .strictObject({
        rule: ruleSchema.optional().describe('One that is not stored yet'),
        rule_id: z.uuid().optional().describe('A stored one: it can be enabled afterwards'),
        last: z.number().int().min(1).max(TRY_EVENTS_MAX).default(TRY_EVENTS).describe('How many events'),
      })
      .refine((body) => (body.rule === undefined) !== (body.rule_id === undefined), {
        error: 'give either rule or rule_id',
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
