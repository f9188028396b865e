/**
 * Routes for members: decisions about themselves and their events, and appeals. Banned and disabled members
 * can use them too.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, showPage } from '../api/schemas.js';
import type { EventStore } from '../events/store.js';
import { eventId } from '../reports/routes.js';
import { APPEALS_PER_DAY, appeal, DECISIONS, type Decision, listDecisions } from './appeals.sql.js';

const APPEAL_MAX = 2_000;

const decision = z.strictObject({
  action: z.enum(DECISIONS),
  event_id: eventId.nullable().describe('Null when the decision is about you'),
  at: milliseconds,
  by_a_rule: z.boolean(),
  held: z.boolean().describe('Hidden until a moderator decides'),
  appeal: z
    .strictObject({
      text: z.string(),
      appealed_at: milliseconds,
      waiting: z.boolean().describe('False: moderators have settled it; see the newer decisions'),
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

export function ownModerationRoutes({
  pool,
  events,
}: {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'stored'>;
}): Route[] {
  const shared = { tags: ['moderation'], who: 'member', allowsDisabled: true } as const;
  return [
    route({
      ...shared,
      method: 'GET',
      url: '/moderation',
      summary: 'What rules and moderators did about you and your events, the newest first',
      description: 'It does not say who decided, who reported, or what moderators wrote to one another.',
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
      summary: 'Appeal against a decision',
      description: `Against the removal, the holding or the label of your event, or without \`event_id\`
against your ban. You can appeal once against each decision that is in force, and at most ${APPEALS_PER_DAY}
times a day. Moderators see the appeal. The event stays held or removed until they decide.`,
      body: z.strictObject({
        event_id: eventId.optional(),
        text: plainText(APPEAL_MAX).refine((text) => text.trim() !== '', 'a reason is needed'),
      }),
      status: 201,
      response: z.strictObject({ appealed_at: milliseconds }),
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey, body: { event_id: event, text }, now }) => {
        const made = await appeal(pool, events.stored, { community: community.id, pubkey, event, text }, now);
        return isDenial(made) ? made : { appealed_at: made.appealedAt };
      },
    }),
  ];
}
