/** How short space is in a community, for its operators: the step in force, by which marks it begins and ends, and what is held. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { communityLimits, fullness, type Limits, MARKS, type Size } from '../core/capacity.js';
import { readCommunitySteps, readSize, WHOLE } from '../store/capacity.js';
import { type Route, route } from './contract.js';
import { milliseconds } from './schemas.js';

export const stepNumber = z
  .union([z.literal(0), z.literal(1), z.literal(2), z.literal(3)])
  .describe('0 all is taken in, 1 no backfill, 2 no posts of low priority, 3 the oldest events are purged');
export const percent = z
  .number()
  .int()
  .describe('How full, by the nearest limit, rounded down; 0 without limits');

export const percentOf = (size: Size, limits: Limits): number => Math.floor(fullness(size, limits));

const mark = z.strictObject({ from: z.number().int(), until: z.number().int() });
const capacity = z.strictObject({
  space: z.strictObject({
    step: stepNumber,
    since: milliseconds.nullable().describe('When the step began; null in step 0'),
    percent,
    events: z.number().int(),
    bytes: z.number().int(),
    max_events: z.number().int().describe('capacity.maxEvents; 0: no limit'),
    max_bytes: z.number().int().describe('capacity.maxBytes; 0: no limit'),
  }),
  lag: z.strictObject({
    step: z.union([z.literal(0), z.literal(1), z.literal(2)]).describe('By how far consumers are behind'),
    since: milliseconds.nullable(),
  }),
  marks: z
    .strictObject({ 1: mark, 2: mark, 3: mark })
    .describe('In percent of a limit: a step begins at from and ends below until'),
});

export function capacityRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: '/admin/capacity',
      summary: 'How short space is in this community, and the step against it that is in force',
      tags: ['admin: capacity'],
      who: 'operator',
      response: capacity,
      errors: [],
      handler: async ({ community: { id, settings } }) => {
        const { maxEvents, maxBytes } = communityLimits(settings);
        const { events, bytes } = await readSize(pool, { community: id, topic: WHOLE });
        const steps = await readCommunitySteps(pool, id);
        const space = steps.find(({ cause }) => cause === 'space');
        const lag = steps.find(({ cause }) => cause === 'lag');
        return {
          space: {
            step: space?.step ?? 0,
            since: space?.since ?? null,
            percent: percentOf({ events, bytes }, { maxEvents, maxBytes }),
            events,
            bytes,
            max_events: maxEvents,
            max_bytes: maxBytes,
          },
          lag: { step: lag?.step === 3 ? 2 : (lag?.step ?? 0), since: lag?.since ?? null },
          marks: MARKS,
        };
      },
    }),
  ];
}
