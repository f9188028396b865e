/** What a member has used of the plan. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { DAILY_METRICS } from '../core/plan-limits.js';
import { readUsage } from '../store/usage.js';
import { type Route, route } from './contract.js';
import { memberPlan, showMemberPlan } from './plan-schemas.js';
import { milliseconds } from './schemas.js';

const limit = z.number().int().nullable().describe('null: none');

export function usageRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: '/usage',
      summary: 'Your plan, and what you have used of it',
      tags: ['usage'],
      who: 'member',
      response: z.strictObject({
        plan: memberPlan,
        topics: z.strictObject({
          current: z.number().int().describe('Active subscriptions'),
          pending: z.number().int().describe('Requests that wait: they count when you ask for more'),
          limit,
        }),
        metrics: z.array(
          z.strictObject({
            metric: z.enum(DAILY_METRICS),
            used: z.number().int().describe('Today, UTC'),
            limit,
            reset_at: milliseconds.describe('When the count begins anew'),
          }),
        ),
      }),
      errors: [],
      handler: async ({ community, pubkey, now }) => {
        const { plan, topics, metrics } = await readUsage(pool, { community: community.id, pubkey }, now);
        return {
          plan: showMemberPlan(plan),
          topics: { current: topics.active, pending: topics.pending, limit: topics.limit },
          metrics: metrics.map(({ resetAt, ...shown }) => ({ ...shown, reset_at: resetAt })),
        };
      },
    }),
  ];
}
