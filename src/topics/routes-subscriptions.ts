/** A member requests topics, and lists, pauses, resumes or ends their own subscriptions (I13). */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { pageOf, pageQuery, showPage } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { isRefusal } from '../events/rules/reply.js';
import { cancelRequest, listRequestsOf, readRequest, requestTopic } from './requests.sql.js';
import { badName, type TopicOptions } from './routes.js';
import { isTopic } from './rules.js';
import { isTopicId, normaliseName, topicId } from './rules-id.js';
import { REQUEST_STATUSES, requestRules, SUBSCRIPTION_STATUSES } from './rules-requests.js';
import {
  service,
  showRequest,
  showSubscription,
  topicIdText,
  topicIn,
  topicRequest,
  topicSubscription,
} from './schemas.js';
import {
  endSubscription,
  listSubscriptions,
  pauseSubscription,
  resumeSubscription,
  type Subscription,
  type SubscriptionRef,
} from './subscriptions.sql.js';

const REQUESTS = '/topic-subscription-requests';
const SUBSCRIPTIONS = '/topic-subscriptions';

export function subscriptionRoutes(options: TopicOptions): Route[] {
  return [requestRoute(options), ...requestRoutes(options), ...ownRoutes(options)];
}

const ask = z
  .strictObject({
    topic_id: topicIdText.optional(),
    name: z.string().min(1).max(4_096).optional().describe('The topic by name, instead of topic_id'),
    requested_services: z.array(service).max(service.options.length).default([]),
    invite: z.string().min(1).max(200).optional().describe('A code that approves the request at once'),
  })
  .refine(({ topic_id, name }) => (topic_id === undefined) !== (name === undefined), {
    error: 'set either topic_id or name, not both',
  });

function requestRoute({ pool, networkId }: TopicOptions): Route {
  return route({
    method: 'POST',
    url: REQUESTS,
    summary: 'Request a topic',
    description:
      'An operator reviews the request, or the community approves it at once by its settings. ' +
      'Once it is approved, the response includes the subscription.',
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
      const wanted = {
        ...named,
        community: community.id,
        pubkey,
        services: [...new Set(body.requested_services)],
        invite: body.invite,
      };
      const done = await requestTopic(pool, wanted, requestRules(community.settings), now);
      if (isDenial(done)) return done;
      const { request, subscription } = done;
      return {
        request: showRequest(request),
        ...(subscription === undefined ? {} : { subscription: showSubscription(subscription) }),
      };
    },
  });
}

/** By id or by name. A name is stored in its normalised form, so that one name is one topic. */
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
      summary: 'Your requests, newest first',
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
      summary: 'Cancel a pending request',
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
        // A member's subscription may have a namespace that the community no longer uses.
        if (!isTopic(topic_id)) return denial('NOT_FOUND');
        const changed = await change({ community: community.id, pubkey, topic: topic_id }, community, now);
        return isDenial(changed) ? changed : showSubscription(changed);
      },
    });
  return [
    route({
      method: 'GET',
      url: SUBSCRIPTIONS,
      summary: 'Your subscriptions, newest first',
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
        summary: 'Resume a paused subscription',
        errors: ['NOT_FOUND', 'TOPIC_BLOCKED', 'TOPIC_LIMIT_REACHED', 'QUOTA_EXCEEDED'],
        needsConsent: true,
      },
      (ref, { settings }, now) =>
        resumeSubscription(pool, ref, { enabledMax: settings['topic.enabledMax'] }, now),
    ),
  ];
}
