/** Operators manage plans, the plans of members and the webhook secret, and see the usage. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import {
  assignPlan,
  changePlan,
  createPlan,
  deletePlan,
  listPlans,
  type MemberPlan,
  type Plan,
  readMemberPlan,
  readPlan,
} from './plans.sql.js';
import { DAILY_METRICS } from './rules.js';
import {
  limitsFrom,
  limitsGiven,
  limitsShown,
  memberPlan,
  planId,
  showLimits,
  showMemberPlan,
} from './schemas.js';
import { dayFrom, dayText, listUsage } from './usage.sql.js';
import { createWebhookSecret, deleteWebhookSecret, readWebhookSecret } from './webhook-secrets.sql.js';

const PLANS = '/admin/plans';
const SECRET = '/admin/webhook-secret';

interface Options {
  readonly pool: Pool;
}

export function planRoutes(options: Options): Route[] {
  return [
    ...readingRoutes(options),
    ...changingRoutes(options),
    ...assigningRoutes(options),
    usageRoute(options),
    ...secretRoutes(options),
  ];
}

const params = z.strictObject({ plan_id: planId });
const name = plainText(200).min(1);

const plan = z.strictObject({
  plan_id: planId,
  name: z.string(),
  limits: limitsShown,
  created_at: milliseconds.nullable().describe('null: the built-in free plan'),
  updated_at: milliseconds.nullable(),
});

function show({ planId: id, name: named, limits, createdAt, updatedAt }: Plan): z.output<typeof plan> {
  return {
    plan_id: id,
    name: named,
    limits: showLimits(limits),
    created_at: createdAt,
    updated_at: updatedAt,
  };
}

const shown = (one: Plan | Denial) => (isDenial(one) ? one : show(one));

function readingRoutes({ pool }: Options): Route[] {
  const tags = ['admin: plans'] as const;
  return [
    route({
      method: 'GET',
      url: PLANS,
      role: 'viewer',
      summary: 'Plans, by id',
      tags,
      who: 'operator',
      query: pageQuery,
      response: pageOf(plan),
      errors: [],
      handler: async ({ community, query }) => showPage(await listPlans(pool, community.id, query), show),
    }),
    route({
      method: 'GET',
      url: `${PLANS}/:plan_id`,
      role: 'viewer',
      summary: 'One plan',
      tags,
      who: 'operator',
      params,
      response: plan,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { plan_id } }) =>
        shown((await readPlan(pool, community.id, plan_id)) ?? denial('NOT_FOUND')),
    }),
  ];
}

function changingRoutes({ pool }: Options): Route[] {
  const tags = ['admin: plans'] as const;
  return [
    route({
      method: 'POST',
      url: PLANS,
      summary: 'Make a plan',
      description:
        'A missing or null limit means no limit. A plan with the id "free" overrides the built-in one.',
      tags,
      who: 'operator',
      body: z.strictObject({ plan_id: planId, name, limits: limitsGiven.default({}) }),
      status: 201,
      response: plan,
      errors: ['PLAN_EXISTS'],
      handler: async ({ community, pubkey: actor, body, now }) => {
        const limits = limitsFrom(body.limits);
        const write = { community: community.id, planId: body.plan_id, name: body.name, limits, actor };
        return shown(await createPlan(pool, write, now));
      },
    }),
    route({
      method: 'PATCH',
      url: `${PLANS}/:plan_id`,
      summary: 'Change a plan; takes effect at once for all its members',
      description: 'Missing fields keep their values; null removes a limit.',
      tags,
      who: 'operator',
      params,
      body: z.strictObject({ name: name.optional(), limits: limitsGiven.default({}) }),
      response: plan,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey: actor, params: { plan_id }, body, now }) => {
        const limits = limitsFrom(body.limits);
        const write = { community: community.id, planId: plan_id, name: body.name, limits, actor };
        return shown(await changePlan(pool, write, now));
      },
    }),
    route({
      method: 'DELETE',
      url: `${PLANS}/:plan_id`,
      summary: 'Remove a plan without members; for "free", restore the built-in plan',
      tags,
      who: 'operator',
      params,
      response: plan,
      errors: ['NOT_FOUND', 'PLAN_IN_USE'],
      handler: async ({ community, pubkey: actor, params: { plan_id }, now }) =>
        shown(await deletePlan(pool, { community: community.id, planId: plan_id, actor }, now)),
    }),
  ];
}

function assigningRoutes({ pool }: Options): Route[] {
  const tags = ['admin: members'] as const;
  const url = '/admin/members/:pubkey/plan';
  const byPubkey = z.strictObject({ pubkey });
  const response = memberPlan.extend({ pubkey });
  const answer = (key: string, one: MemberPlan | Denial) =>
    isDenial(one) ? one : { pubkey: key, ...showMemberPlan(one) };
  return [
    route({
      method: 'GET',
      url,
      role: 'viewer',
      summary: 'The current plan of a key',
      tags,
      who: 'operator',
      params: byPubkey,
      response,
      errors: [],
      handler: async ({ community, params: { pubkey: key }, now }) =>
        answer(key, await readMemberPlan(pool, { community: community.id, pubkey: key }, now)),
    }),
    route({
      method: 'PUT',
      url,
      summary: 'Give a member a plan; takes effect at once',
      description: 'Works also for a key that has requested nothing yet.',
      tags,
      who: 'operator',
      params: byPubkey,
      body: z.strictObject({
        plan_id: planId,
        until: milliseconds
          .min(0)
          .nullable()
          .optional()
          .describe('When the plan ends and "free" follows; default: never'),
      }),
      response,
      errors: ['NOT_FOUND', 'ACCOUNT_DELETED'],
      handler: async ({ community, pubkey: actor, params: { pubkey: key }, body, now }) => {
        const wanted = {
          community: community.id,
          pubkey: key,
          planId: body.plan_id,
          until: body.until,
          actor,
        };
        return answer(key, await assignPlan(pool, wanted, now));
      },
    }),
  ];
}

function usageRoute({ pool }: Options): Route {
  return route({
    method: 'GET',
    url: '/admin/usage',
    role: 'viewer',
    summary: 'What members used, by day, member and metric, newest day first',
    tags: ['admin: plans'],
    who: 'operator',
    query: pageQuery.extend({
      pubkey: pubkey.optional(),
      metric: z.enum(DAILY_METRICS).optional(),
      day: z.iso.date().optional().describe('Such as 2031-05-17, UTC'),
    }),
    response: pageOf(
      z.strictObject({
        pubkey,
        metric: z.enum(DAILY_METRICS),
        day: z.string().describe('UTC'),
        used: z.number().int(),
      }),
    ),
    errors: [],
    handler: async ({ community, query: { pubkey: key, metric, day, ...page } }) => {
      const chosen = day === undefined ? undefined : dayFrom(day);
      const choice = { community: community.id, pubkey: key, metric, day: chosen };
      return showPage(await listUsage(pool, choice, page), (row) => ({ ...row, day: dayText(row.day) }));
    },
  });
}

function secretRoutes({ pool }: Options): Route[] {
  const tags = ['admin: webhooks'] as const;
  const held = z.strictObject({
    is_set: z.boolean(),
    created_at: milliseconds.nullable(),
  });
  return [
    route({
      method: 'GET',
      url: SECRET,
      summary: 'Whether POST /v1/webhooks/plan has a secret, and since when',
      tags,
      who: 'operator',
      response: held,
      errors: [],
      handler: async ({ community }) => {
        const secret = await readWebhookSecret(pool, community.id);
        return { is_set: secret !== undefined, created_at: secret?.createdAt ?? null };
      },
    }),
    route({
      method: 'POST',
      url: SECRET,
      summary: 'Make a new secret, which replaces the previous one',
      description: 'Only this response shows the secret.',
      tags,
      who: 'operator',
      status: 201,
      response: z.strictObject({ secret: z.string(), created_at: milliseconds }),
      errors: [],
      handler: async ({ community, pubkey: actor, now }) => {
        const made = await createWebhookSecret(pool, { community: community.id, actor }, now);
        return isDenial(made) ? made : { secret: made.secret, created_at: made.createdAt };
      },
    }),
    route({
      method: 'DELETE',
      url: SECRET,
      summary: 'Remove the secret: no call is accepted any more',
      tags,
      who: 'operator',
      response: held,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey: actor, now }) => {
        const removed = await deleteWebhookSecret(pool, { community: community.id, actor }, now);
        return isDenial(removed) ? removed : { is_set: false, created_at: null };
      },
    }),
  ];
}
