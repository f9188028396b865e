/** Shapes that several routes share: pages of a list, topics, and the rows of a membership as the API shows them. */
import { z } from 'zod';
import type { Community } from '../communities.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { FOLLOWER_NAME, FOLLOWER_NAME_RULE } from '../core/follower.js';
import { REQUEST_STATUSES, SUBSCRIPTION_STATUSES } from '../core/membership.js';
import { isStorable } from '../core/text.js';
import { isTopicId } from '../core/topic-id.js';
import type { Page } from '../store/page.js';
import type { Subscription } from '../store/subscriptions.js';
import type { TopicRequest } from '../store/topic-requests.js';

const PAGE_ITEMS_MAX = 200;
const PAGE_ITEMS = 50;

/** Query of a list. A list with a choice of its own extends it. */
export const pageQuery = z.strictObject({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(PAGE_ITEMS_MAX)
    .default(PAGE_ITEMS)
    .describe('Most items of a page'),
  cursor: z.string().max(2_000).optional().describe('next_cursor of the page before'),
});

export function pageOf<T extends z.ZodType>(item: T) {
  return z.strictObject({
    items: z.array(item),
    next_cursor: z.string().nullable().describe('Where the next page begins; null after the last'),
  });
}

export function showPage<T, S>(
  page: Page<T> | Denial,
  show: (item: T) => S,
): { items: S[]; next_cursor: string | null } | Denial {
  return isDenial(page) ? page : { items: page.items.map(show), next_cursor: page.cursor ?? null };
}

export const pubkey = z
  .string()
  .regex(/^[0-9a-f]{64}$/, '64 lowercase hex characters')
  .describe('A public key, hex');
export const followerName = z
  .string()
  .regex(FOLLOWER_NAME, FOLLOWER_NAME_RULE)
  .describe('The name of a follower of the outbox');
export const flag = z.enum(['true', 'false']);
export const milliseconds = z.number().int().describe('Milliseconds since 1970');
export const topicIdText = z.string().min(1).max(256).describe('A topic id, such as kukuri:global');

/** Words of a person, as the database can keep them. */
export const plainText = (max: number) =>
  z.string().max(max).refine(isStorable, 'neither NUL nor lone surrogates');

/** The topic as it is: an id of this community's namespace, or what the operator has made a topic. */
export function topicIn({ settings, topics }: Community, topic: string): string | Denial {
  return isTopicId(topic, settings['topic.namespace']) || topics.has(topic)
    ? topic
    : denial('INVALID_TOPIC', { topic_id: topic });
}

/** What a member may ask to have of a topic, beside reading and posting. */
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
    services: [...subscription.services],
    plan_id: subscription.plan,
    status: subscription.status,
    started_at: subscription.startedAt,
    ended_at: subscription.endedAt,
  };
}
