/** For the person who has the code of an invite: what it is for, and using it. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { denial, isDenial } from '../api/rules-errors.js';
import { milliseconds } from '../api/schemas.js';
import { joinWithInvite } from '../topics/requests.sql.js';
import { globalTopic } from '../topics/rules-id.js';
import { requestRules } from '../topics/rules-requests.js';
import {
  showRequest,
  showSubscription,
  topicIdText,
  topicIn,
  topicRequest,
  topicSubscription,
} from '../topics/schemas.js';
import { type Offer, readOffer } from './invites.sql.js';

const CODE_LENGTH_MAX = 200;
const STATUSES = ['valid', 'used', 'expired', 'revoked'] as const;

const offer = z.strictObject({
  topic_id: topicIdText.nullable().describe('The only topic that it approves; null: any topic'),
  name: z.string().nullable().describe('The name of that topic, if it has one'),
  status: z.enum(STATUSES),
  expires_at: milliseconds,
});

function statusAt({ usedAt, revokedAt, expiresAt }: Offer, now: number): (typeof STATUSES)[number] {
  if (usedAt !== null) return 'used';
  if (revokedAt !== null) return 'revoked';
  return expiresAt > now ? 'valid' : 'expired';
}

const params = z.strictObject({ code: z.string().min(1).max(CODE_LENGTH_MAX) });

export function inviteRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const tags = ['requests'] as const;
  return [
    route({
      method: 'GET',
      url: '/invites/:code',
      summary: 'What an invite is for',
      tags,
      who: 'public',
      params,
      response: offer,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { code }, now }) => {
        const found = await readOffer(pool, community.id, code);
        if (found === undefined) return denial('NOT_FOUND');
        const { topic, name, expiresAt } = found;
        return { topic_id: topic, name, status: statusAt(found, now), expires_at: expiresAt };
      },
    }),
    route({
      method: 'POST',
      url: '/invites/:code/redeem',
      summary: 'Use an invite: your subscription starts at once',
      description:
        'Like a request to join by an event (NIP-43). An invite for any topic starts a subscription to ' +
        '`topic_id`, or to the global topic. An invite works once.',
      tags,
      who: 'member',
      params,
      body: z.strictObject({ topic_id: topicIdText.optional() }),
      status: 201,
      response: z.strictObject({ request: topicRequest, subscription: topicSubscription.nullable() }),
      errors: [
        'INVALID_INVITE',
        'INVALID_TOPIC',
        'TOPIC_BLOCKED',
        'ALREADY_SUBSCRIBED',
        'REQUEST_PENDING',
        'PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED',
        'TOPIC_LIMIT_REACHED',
        'QUOTA_EXCEEDED',
      ],
      isSubscriptionRequest: true,
      needsConsent: true,
      handler: async ({ community, pubkey, params: { code }, body: { topic_id: wanted }, now }) => {
        const global = globalTopic(community.settings['topic.namespace']);
        const otherwise = wanted === undefined ? global : topicIn(community, wanted);
        if (isDenial(otherwise)) return otherwise;
        const claimed = { community: community.id, pubkey, claim: code, otherwise };
        const joined = await joinWithInvite(pool, claimed, requestRules(community.settings), now);
        if (isDenial(joined)) return joined;
        const { request, subscription } = joined;
        return {
          request: showRequest(request),
          subscription: subscription === undefined ? null : showSubscription(subscription),
        };
      },
    }),
  ];
}
