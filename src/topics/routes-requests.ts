/** Operators review the requests of members for topics. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { denial, isDenial } from '../api/rules-errors.js';
import { pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import {
  approveRequest,
  listRequests,
  readRequest,
  rejectRequest,
  type TopicRequest,
} from './requests.sql.js';
import { REQUEST_STATUSES } from './rules-requests.js';
import { showRequest, showSubscription, topicRequest, topicSubscription } from './schemas.js';

const REQUESTS = '/admin/topic-subscription-requests';
const TAGS = ['admin: requests'] as const;

const reviewed = topicRequest.extend({ reviewed_by: pubkey.nullable() });
const params = z.strictObject({ request_id: z.uuid() });
const review = z.strictObject({ note: plainText(1_000).optional().describe('The member sees it') });

function showReviewed(request: TopicRequest): z.output<typeof reviewed> {
  return { ...showRequest(request), reviewed_by: request.reviewedBy };
}

export function reviewRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: REQUESTS,
      role: 'viewer',
      summary: 'Requests by status: pending ones oldest first, others newest first',
      tags: TAGS,
      who: 'operator',
      query: pageQuery.extend({ status: z.enum(REQUEST_STATUSES).default('pending') }),
      response: pageOf(reviewed),
      errors: [],
      handler: async ({ community, query: { status, ...page } }) =>
        showPage(await listRequests(pool, { community: community.id, status }, page), showReviewed),
    }),
    route({
      method: 'GET',
      url: `${REQUESTS}/:request_id`,
      role: 'viewer',
      summary: 'One request',
      tags: TAGS,
      who: 'operator',
      params,
      response: reviewed,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { request_id } }) => {
        const request = await readRequest(pool, community.id, request_id);
        return request === undefined ? denial('NOT_FOUND') : showReviewed(request);
      },
    }),
    route({
      method: 'POST',
      url: `${REQUESTS}/:request_id/approve`,
      summary: 'Approve a request: its subscription starts, and its topic is carried',
      description: 'Approving twice gives the same response and changes nothing.',
      tags: TAGS,
      who: 'operator',
      params,
      body: review,
      response: z.strictObject({ request: reviewed, subscription: topicSubscription.nullable() }),
      errors: [
        'NOT_FOUND',
        'STATUS_CONFLICT',
        'ALREADY_SUBSCRIBED',
        'TOPIC_BLOCKED',
        'TOPIC_LIMIT_REACHED',
        'QUOTA_EXCEEDED',
        'ACCOUNT_DISABLED',
        'ACCOUNT_DELETED',
      ],
      handler: async ({ community, pubkey: actor, params: { request_id }, body: { note }, now }) => {
        const decided = { community: community.id, requestId: request_id, note, actor };
        const cap = { enabledMax: community.settings['topic.enabledMax'] };
        const done = await approveRequest(pool, decided, cap, now);
        if (isDenial(done)) return done;
        const { request, subscription } = done;
        return {
          request: showReviewed(request),
          subscription: subscription === undefined ? null : showSubscription(subscription),
        };
      },
    }),
    route({
      method: 'POST',
      url: `${REQUESTS}/:request_id/reject`,
      summary: 'Reject a request',
      description: 'Rejecting twice changes nothing. The member may request it again.',
      tags: TAGS,
      who: 'operator',
      params,
      body: review,
      response: reviewed,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey: actor, params: { request_id }, body: { note }, now }) => {
        const decided = { community: community.id, requestId: request_id, note, actor };
        const request = await rejectRequest(pool, decided, now);
        return isDenial(request) ? request : showReviewed(request);
      },
    }),
  ];
}
