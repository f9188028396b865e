/** What was done about one's own events and oneself, and the appeal against it; also for those who are banned or disabled. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { isDenial } from '../core/errors.js';
import {
  APPEALS_PER_DAY,
  appeal,
  DECISIONS,
  type Decision,
  listDecisions,
} from '../store/moderation-appeals.js';
import { type Route, route } from './contract.js';
import { eventId } from './reports.js';
import { milliseconds, pageOf, pageQuery, plainText, showPage } from './schemas.js';

const APPEAL_MAX = 2_000;

const decision = z.strictObject({
  action: z.enum(DECISIONS),
  event_id: eventId.nullable().describe('Null: it is about you'),
  at: milliseconds,
  by_a_rule: z.boolean(),
  held: z.boolean().describe('Out of view until a moderator decides'),
  appeal: z
    .strictObject({
      text: z.string(),
      appealed_at: milliseconds,
      waiting: z.boolean().describe('False: moderators have settled it; newer decisions say how'),
    })
    .nullable(),
});

function show(found: Decision): z.output<typeof decision> {
  const { appeal: text, appealedAt, appealStatus } = found;
  return {
    action: found.action,
    event_id: found.event,
    at: found.at,
    by_a_rule: found.byRule,
    held: found.held,
    appeal:
      text === null || appealedAt === null
        ? null
        : { text, appealed_at: appealedAt, waiting: appealStatus === 'open' || appealStatus === 'held' },
  };
}

export function ownModerationRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const shared = { tags: ['moderation'], who: 'member', allowsDisabled: true } as const;
  return [
    route({
      ...shared,
      method: 'GET',
      url: '/moderation',
      summary: 'What rules and moderators did about you and your events, the newest first',
      description: 'Not who decided, not who reported, and not what moderators wrote for one another.',
      query: pageQuery,
      response: pageOf(decision),
      errors: [],
      handler: async ({ community, pubkey, query }) =>
        showPage(await listDecisions(pool, { community: community.id, pubkey }, query), show),
    }),
    route({
      ...shared,
      method: 'POST',
      url: '/moderation/appeals',
      summary: 'Appeal against what was done',
      description: `Against the removal, the holding or the label of your event, or without \`event_id\` against your ban; once for each decision
that stands, and ${APPEALS_PER_DAY} times a day. Moderators see it; what is held or removed stays so until they decide.`,
      body: z.strictObject({
        event_id: eventId.optional(),
        text: plainText(APPEAL_MAX).refine((text) => text.trim() !== '', 'a reason is needed'),
      }),
      status: 201,
      response: z.strictObject({ appealed_at: milliseconds }),
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey, body: { event_id: event, text }, now }) => {
        const made = await appeal(pool, { community: community.id, pubkey, event, text }, now);
        return isDenial(made) ? made : { appealed_at: made.appealedAt };
      },
    }),
  ];
}
