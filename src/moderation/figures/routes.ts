/** Routes for the numbers that pages of moderators show: what waits, and what deleting a rule releases. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../../api/contract.js';
import { countReleases, countWaiting, RELEASED_MAX, WAITING_MAX } from './figures.sql.js';

const countedTo = (max: number) =>
  z.strictObject({
    count: z.number().int().describe(`At most ${max}`),
    more: z.boolean().describe('There are more than `count`'),
  });

const waiting = countedTo(WAITING_MAX);
const released = countedTo(RELEASED_MAX);
const shared = { tags: ['admin: moderation'], who: 'operator', role: 'moderator' } as const;

export function moderationFigureRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      ...shared,
      method: 'GET',
      url: '/admin/moderation/waiting',
      summary: 'How much waits for moderators',
      response: z.strictObject({
        open: waiting.describe('Open cases'),
        held: waiting.describe('Held cases'),
        appealed: waiting.describe('Open and held cases with an appeal'),
        batches: waiting.describe('Batches that run or are being undone'),
      }),
      errors: [],
      handler: ({ community }) => countWaiting(pool, community.id),
    }),
    route({
      ...shared,
      method: 'GET',
      url: '/admin/moderation/rules/:rule_id/releases',
      summary: 'What deleting a rule would release; nothing is done',
      params: z.strictObject({ rule_id: z.uuid() }),
      response: z.strictObject({
        held: released.describe('Events that it holds: restored, unless the rule is deleted with `keep`'),
        hidden: released.describe('Events that it has hidden: restored only with `hidden`'),
        labels: released.describe('Labels of the rule that are in force: withdrawn, unless with `keep`'),
      }),
      errors: ['NOT_FOUND'],
      handler: ({ community, params: { rule_id: ruleId }, now }) =>
        countReleases(pool, community.id, ruleId, now),
    }),
  ];
}
