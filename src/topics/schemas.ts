/** Schemas of topics, requests and subscriptions in the API. */
import { z } from 'zod';
import { type Denial, denial } from '../api/rules-errors.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import type { TopicRequest } from './requests.sql.js';
import { isTopicId } from './rules-id.js';
import { REQUEST_STATUSES, SUBSCRIPTION_STATUSES } from './rules-requests.js';
import type { Subscription } from './subscriptions.sql.js';

export const topicIdText = z.string().min(1).max(256).describe('A topic id, such as kukuri:global');

/** Checks a topic: an id of this community's namespace, or a topic that the operator has added. */
export function topicIn({ settings, topics }: Community, topic: string): string | Denial {
  return isTopicId(topic, settings['topic.namespace']) || topics.has(topic)
    ? topic
    : denial('INVALID_TOPIC', { topic_id: topic });
}

/** Services that a member may request for a topic, besides reading and posting. */
export const service = z.enum(['index', 'moderation', 'trust']);

export const topicRequest = z.strictObject({
  request_id: z.uuid(),
  requester_pubkey: pubkey,
  topic_id: topicIdText,
  name: z.string().nullable(),
  requested_services: z.array(z.string()),
  status: z.enum(REQUEST_STATUSES),
  review_note: z.string().nullable(),
  created_at: milliseconds,
  reviewed_at: milliseconds.nullable(),
});

export function showRequest(request: TopicRequest): z.output<typeof topicRequest> {
  return {
    request_id: request.requestId,
    requester_pubkey: request.pubkey,
    topic_id: request.topic,
    name: request.name,
    requested_services: [...request.services],
    status: request.status,
    review_note: request.reviewNote,
    created_at: request.createdAt,
    reviewed_at: request.reviewedAt,
  };
}

export const topicSubscription = z.strictObject({
  subscription_id: z.uuid(),
  request_id: z.uuid().nullable(),
  subscriber_pubkey: pubkey,
  topic_id: topicIdText,
  name: z.string().nullable().describe('The name of the topic, if it has one'),
  services: z.array(z.string()),
  plan_id: z.string(),
  status: z.enum(SUBSCRIPTION_STATUSES),
  started_at: milliseconds,
  ended_at: milliseconds.nullable(),
});

export function showSubscription(subscription: Subscription): z.output<typeof topicSubscription> {
  return {
    subscription_id: subscription.subscriptionId,
    request_id: subscription.requestId,
    subscriber_pubkey: subscription.pubkey,
    topic_id: subscription.topic,
    name: subscription.name,
    services: [...subscription.services],
    plan_id: subscription.plan,
    status: subscription.status,
    started_at: subscription.startedAt,
    ended_at: subscription.endedAt,
  };
}
