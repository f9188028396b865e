/** The usage of a member's plan. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { milliseconds } from '../api/schemas.js';
import { DAILY_METRICS } from './rules.js';
import { memberPlan, showMemberPlan } from './schemas.js';
import { readUsage } from './usage.sql.js';

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
          pending: z.number().int().describe('Pending requests: they count when you request another topic'),
          limit,
        }),
        metrics: z.array(
          z.strictObject({
            metric: z.enum(DAILY_METRICS),
            used: z.number().int().describe('Today, UTC'),
            limit,
            reset_at: milliseconds.describe('When the count starts again at 0'),
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
