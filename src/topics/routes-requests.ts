/** Operators review the requests of members for topics. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import {
  approveRequest,
  listRequests,
  listRequestsOf,
  readRequest,
  rejectRequest,
  type TopicRequest,
} from './requests.sql.js';
import { REQUEST_STATUSES, SUBSCRIPTION_STATUSES } from './rules-requests.js';
import { showRequest, showSubscription, topicRequest, topicSubscription } from './schemas.js';
import { listSubscriptions } from './subscriptions.sql.js';

const REQUESTS = '/admin/topic-subscription-requests';
const TAGS = ['admin: requests'] as const;

const reviewed = topicRequest.extend({ reviewed_by: pubkey.nullable() });
const params = z.strictObject({ request_id: z.uuid() });
const review = z.strictObject({ note: plainText(1_000).optional().describe('The member sees it') });

/** Why a request cannot be approved, or rejected. */
const REVIEW_ERRORS = [
  'NOT_FOUND',
  'STATUS_CONFLICT',
  'ALREADY_SUBSCRIBED',
  'TOPIC_BLOCKED',
  'TOPIC_LIMIT_REACHED',
  'QUOTA_EXCEEDED',
  'ACCOUNT_DISABLED',
  'ACCOUNT_DELETED',
  'BEING_ERASED',
] as const;
type ReviewError = (typeof REVIEW_ERRORS)[number];

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
      description:
        'With `pubkey`, the requests of this member, newest first, and by default in every status. ' +
        'Otherwise the status is `pending` by default.',
      tags: TAGS,
      who: 'operator',
      query: pageQuery.extend({
        status: z.enum(REQUEST_STATUSES).optional(),
        pubkey: pubkey.optional().describe('Who requests'),
      }),
      response: pageOf(reviewed),
      errors: [],
      handler: async ({ community: { id: community }, query: { status, pubkey: by, ...page } }) =>
        showPage(
          by === undefined
            ? await listRequests(pool, { community, status: status ?? 'pending' }, page)
            : await listRequestsOf(pool, { community, pubkey: by, status }, page),
          showReviewed,
        ),
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
      errors: REVIEW_ERRORS,
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
    reviewManyRoute({ pool }),
    route({
      method: 'GET',
      url: '/admin/members/:pubkey/topic-subscriptions',
      role: 'viewer',
      summary: 'The subscriptions of a member, newest first',
      tags: ['admin: members'],
      who: 'operator',
      params: z.strictObject({ pubkey }),
      query: pageQuery.extend({ status: z.enum(SUBSCRIPTION_STATUSES).optional() }),
      response: pageOf(topicSubscription),
      errors: [],
      handler: async ({ community, params: { pubkey: by }, query: { status, ...page } }) =>
        showPage(
          await listSubscriptions(pool, { community: community.id, pubkey: by, status }, page),
          showSubscription,
        ),
    }),
  ];
}

const REVIEWED_MAX = 100;

/** Reviews the requests one after another; a refusal of one does not stop the others. */
function reviewManyRoute({ pool }: { readonly pool: Pool }): Route {
  return route({
    method: 'POST',
    url: `${REQUESTS}/reviews`,
    summary: 'Approve or reject many requests, with the same note',
    description:
      'Each request has its own result: the request as it is now, or the error code that a single review ' +
      'would return. An id that is given twice is reviewed once.',
    tags: TAGS,
    who: 'operator',
    body: review.extend({
      decision: z.enum(['approve', 'reject']),
      request_ids: z.array(z.uuid()).min(1).max(REVIEWED_MAX),
    }),
    response: z.strictObject({
      items: z.array(
        z.strictObject({
          request_id: z.uuid(),
          request: reviewed.nullable(),
          refused: z.enum(REVIEW_ERRORS).nullable().describe('Why this one was refused'),
        }),
      ),
    }),
    errors: [],
    handler: async ({ community, pubkey: actor, body: { decision, request_ids, note }, now }) => {
      const cap = { enabledMax: community.settings['topic.enabledMax'] };
      const items = [];
      for (const request_id of new Set(request_ids)) {
        const decided = { community: community.id, requestId: request_id, note, actor };
        const done =
          decision === 'approve'
            ? await approveRequest(pool, decided, cap, now)
            : await rejectRequest(pool, decided, now);
        if (isDenial(done)) items.push({ request_id, request: null, refused: refusalOf(done) });
        else {
          const request = showReviewed('request' in done ? done.request : done);
          items.push({ request_id, request, refused: null });
        }
      }
      return { items };
    },
  });
}

function refusalOf({ denied }: Denial): ReviewError {
  const named = REVIEW_ERRORS.find((code) => code === denied);
  if (named === undefined) throw new Error(`a review was refused with ${denied}, which is not named`);
  return named;
}
