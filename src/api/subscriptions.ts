/** What a member does: asks for topics, and keeps, pauses or ends the subscriptions. Everything is the member's own (I13). */
import type { Pool } from 'pg';
import { z } from 'zod';
import type { Community } from '../communities.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { REQUEST_STATUSES, requestRules, SUBSCRIPTION_STATUSES } from '../core/membership.js';
import { isRefusal } from '../core/reply.js';
import { isTopic } from '../core/topic.js';
import { isTopicId, normaliseName, topicId } from '../core/topic-id.js';
import {
  endSubscription,
  listSubscriptions,
  pauseSubscription,
  resumeSubscription,
  type Subscription,
  type SubscriptionRef,
} from '../store/subscriptions.js';
import { cancelRequest, listRequestsOf, readRequest, requestTopic } from '../store/topic-requests.js';
import { type Route, route } from './contract.js';
import {
  pageOf,
  pageQuery,
  service,
  showPage,
  showRequest,
  showSubscription,
  topicIdText,
  topicIn,
  topicRequest,
  topicSubscription,
} from './schemas.js';
import { badName, type TopicOptions } from './topics.js';

const REQUESTS = '/topic-subscription-requests';
const SUBSCRIPTIONS = '/topic-subscriptions';

export function subscriptionRoutes(options: TopicOptions): Route[] {
  return [askRoute(options), ...requestRoutes(options), ...ownRoutes(options)];
}

const ask = z
  .strictObject({
    topic_id: topicIdText.optional(),
    name: z.string().min(1).max(4_096).optional().describe('What people call it, instead of topic_id'),
    requested_services: z.array(service).max(service.options.length).default([]),
    invite: z
      .string()
      .min(1)
      .max(200)
      .optional()
      .describe('A code that lets the request be approved at once'),
  })
  .refine(({ topic_id, name }) => (topic_id === undefined) !== (name === undefined), {
    error: 'either topic_id or name, and not both',
  });

function askRoute({ pool, networkId }: TopicOptions): Route {
  return route({
    method: 'POST',
    url: REQUESTS,
    summary: 'Ask for a topic',
    description:
      'The request waits for an operator, or is approved at once where the community is set up so; then the subscription comes with it.',
    tags: ['requests'],
    who: 'member',
    body: ask,
    status: 201,
    response: z.strictObject({ request: topicRequest, subscription: topicSubscription.optional() }),
    errors: [
      'INVALID_TOPIC',
      'TOPIC_BLOCKED',
      'ALREADY_SUBSCRIBED',
      'REQUEST_PENDING',
      'INVALID_INVITE',
      'PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED',
      'TOPIC_LIMIT_REACHED',
      'QUOTA_EXCEEDED',
    ],
    isSubscriptionRequest: true,
    needsConsent: true,
    handler: async ({ community, pubkey, body, now }) => {
      const named = nameTopic(community, body, networkId);
      if (isDenial(named)) return named;
      const asked = {
        ...named,
        community: community.id,
        pubkey,
        services: [...new Set(body.requested_services)],
        invite: body.invite,
      };
      const done = await requestTopic(pool, asked, requestRules(community.settings), now);
      if (isDenial(done)) return done;
      const { request, subscription } = done;
      return {
        request: showRequest(request),
        ...(subscription === undefined ? {} : { subscription: showSubscription(subscription) }),
      };
    },
  });
}

/** By its id, or by a name, which is then kept in its normalised form: one name, one topic. */
function nameTopic(
  community: Community,
  { topic_id, name }: { readonly topic_id?: string | undefined; readonly name?: string | undefined },
  networkId: string,
): { readonly topic: string; readonly name?: string } | Denial {
  const namespace = community.settings['topic.namespace'];
  if (name === undefined) {
    const topic = topicIn(community, topic_id ?? '');
    return isDenial(topic) ? topic : { topic };
  }
  const topic = topicId(name, { networkId, namespace });
  const normalised = normaliseName(name);
  if (isRefusal(topic) || isRefusal(normalised)) return badName('body/name', topic);
  return isTopicId(normalised, namespace) ? { topic } : { topic, name: normalised };
}

function requestRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const params = z.strictObject({ request_id: z.uuid() });
  return [
    route({
      method: 'GET',
      url: REQUESTS,
      summary: 'Your requests, the newest first',
      tags: ['requests'],
      who: 'member',
      query: pageQuery.extend({ status: z.enum(REQUEST_STATUSES).optional() }),
      response: pageOf(topicRequest),
      errors: [],
      handler: async ({ community, pubkey, query: { status, ...page } }) =>
        showPage(await listRequestsOf(pool, { community: community.id, pubkey, status }, page), showRequest),
    }),
    route({
      method: 'GET',
      url: `${REQUESTS}/:request_id`,
      summary: 'One of your requests',
      tags: ['requests'],
      who: 'member',
      params,
      response: topicRequest,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey, params: { request_id } }) => {
        const request = await readRequest(pool, community.id, request_id);
        return request?.pubkey === pubkey ? showRequest(request) : denial('NOT_FOUND');
      },
    }),
    route({
      method: 'POST',
      url: `${REQUESTS}/:request_id/cancel`,
      summary: 'Take back a request that waits',
      tags: ['requests'],
      who: 'member',
      params,
      response: topicRequest,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey, params: { request_id }, now }) => {
        const request = await cancelRequest(
          pool,
          { community: community.id, pubkey, requestId: request_id },
          now,
        );
        return isDenial(request) ? request : showRequest(request);
      },
    }),
  ];
}

function ownRoutes({ pool }: { readonly pool: Pool }): Route[] {
  type Change = (ref: SubscriptionRef, community: Community, now: number) => Promise<Subscription | Denial>;
  type Described = Pick<Route, 'method' | 'url' | 'summary' | 'errors' | 'needsConsent'>;
  const changing = (described: Described, change: Change): Route =>
    route({
      ...described,
      tags: ['subscriptions'],
      who: 'member',
      params: z.strictObject({ topic_id: topicIdText }),
      response: topicSubscription,
      handler: async ({ community, pubkey, params: { topic_id }, now }) => {
        // Whatever is theirs, also of a namespace that the community has left.
        if (!isTopic(topic_id)) return denial('NOT_FOUND');
        const changed = await change({ community: community.id, pubkey, topic: topic_id }, community, now);
        return isDenial(changed) ? changed : showSubscription(changed);
      },
    });
  return [
    route({
      method: 'GET',
      url: SUBSCRIPTIONS,
      summary: 'Your subscriptions, the newest first',
      tags: ['subscriptions'],
      who: 'member',
      query: pageQuery.extend({ status: z.enum(SUBSCRIPTION_STATUSES).optional() }),
      response: pageOf(topicSubscription),
      errors: [],
      handler: async ({ community, pubkey, query: { status, ...page } }) =>
        showPage(
          await listSubscriptions(pool, { community: community.id, pubkey, status }, page),
          showSubscription,
        ),
    }),
    changing(
      {
        method: 'DELETE',
        url: `${SUBSCRIPTIONS}/:topic_id`,
        summary: 'End a subscription',
        errors: ['NOT_FOUND'],
      },
      (ref, _community, now) => endSubscription(pool, ref, now),
    ),
    changing(
      {
        method: 'POST',
        url: `${SUBSCRIPTIONS}/:topic_id/pause`,
        summary: 'Pause a subscription',
        errors: ['NOT_FOUND'],
      },
      (ref, _community, now) => pauseSubscription(pool, ref, now),
    ),
    changing(
      {
        method: 'POST',
        url: `${SUBSCRIPTIONS}/:topic_id/resume`,
        summary: 'Resume a subscription that is paused',
        errors: ['NOT_FOUND', 'TOPIC_BLOCKED', 'TOPIC_LIMIT_REACHED', 'QUOTA_EXCEEDED'],
        needsConsent: true,
      },
      (ref, { settings }, now) =>
        resumeSubscription(pool, ref, { enabledMax: settings['topic.enabledMax'] }, now),
    ),
  ];
}
