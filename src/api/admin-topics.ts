/** Operators decide which topics are carried, how each is kept, and which are blocked. */
import type { Pool } from 'pg';
import { z } from 'zod';
import type { Community } from '../communities.js';
import { topicLimits } from '../core/capacity.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { ingestPolicyInput, ingestPolicySchema, PRIORITY_MAX } from '../core/retention.js';
import { isTopic } from '../core/topic.js';
import { type BlockedTopic, blockTopic, listBlockedTopics, unblockTopic } from '../store/blocked-topics.js';
import {
  changeNodeTopic,
  createNodeTopic,
  deleteNodeTopic,
  listNodeTopics,
  type NodeTopic,
  readNodeTopic,
  type TopicChanges,
} from '../store/node-topics.js';
import { percent, percentOf, stepNumber } from './admin-capacity.js';
import { type Route, route } from './contract.js';
import { milliseconds, pageOf, pageQuery, plainText, showPage, topicIdText, topicIn } from './schemas.js';

const TOPICS = '/admin/node-subscriptions';
const BLOCKED = '/admin/blocked-topics';
/** What a smallint holds. */

export function nodeTopicRoutes(options: { readonly pool: Pool }): Route[] {
  return [...readingRoutes(options), ...changingRoutes(options), ...blockedRoutes(options)];
}

/** A topic that is set up already may be of another namespace, from before or by the command line. */
const params = z.strictObject({ topic_id: topicIdText.refine(isTopic, 'no topic') });

const nodeTopic = z.strictObject({
  topic_id: topicIdText,
  name: z.string().nullable(),
  enabled: z.boolean().describe('Carried: pinned or in use, and not blocked'),
  pinned: z.boolean().describe('Carried by the will of the operator, also while nobody subscribes'),
  public: z.boolean().describe('Whether it needs no subscription'),
  blocked: z.boolean(),
  ref_count: z.number().int().describe('Active subscriptions of active members'),
  priority: z.number().int().describe('Higher is kept longer when space runs out'),
  ingest_policy: ingestPolicySchema,
  events: z.number().int(),
  bytes: z.number().int(),
  capacity: z
    .strictObject({ step: stepNumber, since: milliseconds.nullable(), percent, full: z.boolean() })
    .describe('By its own limits. full: it holds only what is never purged, and takes no posts'),
  created_at: milliseconds,
  updated_at: milliseconds,
});

function show({
  topic,
  policy,
  refCount,
  step,
  stepSince,
  full,
  createdAt,
  updatedAt,
  ...same
}: NodeTopic): z.output<typeof nodeTopic> {
  return {
    topic_id: topic,
    ...same,
    ingest_policy: policy,
    ref_count: refCount,
    capacity: { step, since: stepSince, percent: percentOf(same, topicLimits(policy)), full },
    created_at: createdAt,
    updated_at: updatedAt,
  };
}

const fields = {
  name: plainText(256).min(1).nullable().optional().describe('What people call it'),
  enabled: z
    .boolean()
    .optional()
    .describe('true: the same as pinned; false: unpinned, which is refused while members use it'),
  pinned: z.boolean().optional(),
  public: z.boolean().optional(),
  priority: z.number().int().min(-PRIORITY_MAX).max(PRIORITY_MAX).optional(),
  ingest_policy: ingestPolicyInput
    .optional()
    .describe('Replaces the whole policy; null is as good as not given'),
};
const oneOfBoth = ({ enabled, pinned }: { enabled?: boolean | undefined; pinned?: boolean | undefined }) =>
  enabled === undefined || pinned === undefined;
const BOTH = { error: 'either enabled or pinned, and not both' };
const creation = z.strictObject({ topic_id: topicIdText, ...fields }).refine(oneOfBoth, BOTH);
const change = z.strictObject(fields).refine(oneOfBoth, BOTH);

/** What is not given is not there at all. */
function changesOf(body: z.output<typeof change>): TopicChanges {
  const { ingest_policy: policy, ...rest } = body;
  const given = Object.entries({ ...rest, policy }).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given);
}

const capOf = ({ settings }: Community) => ({ enabledMax: settings['topic.enabledMax'] });
const shown = (topic: NodeTopic | Denial) => (isDenial(topic) ? topic : show(topic));

function readingRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const tags = ['admin: topics'] as const;
  return [
    route({
      method: 'GET',
      url: TOPICS,
      summary: 'Topics of this node, with their use',
      tags,
      who: 'operator',
      query: pageQuery,
      response: pageOf(nodeTopic),
      errors: [],
      handler: async ({ community, query }) =>
        showPage(await listNodeTopics(pool, community.id, query), show),
    }),
    route({
      method: 'GET',
      url: `${TOPICS}/:topic_id`,
      summary: 'One topic of this node',
      tags,
      who: 'operator',
      params,
      response: nodeTopic,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { topic_id } }) =>
        shown((await readNodeTopic(pool, community.id, topic_id)) ?? denial('NOT_FOUND')),
    }),
  ];
}

function changingRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const tags = ['admin: topics'] as const;
  return [
    route({
      method: 'POST',
      url: TOPICS,
      summary: 'Set up a topic; it is carried at once unless enabled or pinned is false',
      tags,
      who: 'operator',
      body: creation,
      status: 201,
      response: nodeTopic,
      errors: ['INVALID_TOPIC', 'TOPIC_EXISTS', 'TOPIC_LIMIT_REACHED'],
      handler: async ({ community, pubkey: actor, body: { topic_id, ...body }, now }) => {
        const topic = topicIn(community, topic_id);
        if (isDenial(topic)) return topic;
        const { enabled, ...given } = changesOf(body);
        const pinned = given.pinned ?? enabled ?? true;
        const wanted = { community: community.id, topic, actor, ...given, pinned };
        return shown(await createNodeTopic(pool, wanted, capOf(community), now));
      },
    }),
    route({
      method: 'PATCH',
      url: `${TOPICS}/:topic_id`,
      summary: 'Change a topic; what is not given stays',
      tags,
      who: 'operator',
      params,
      body: change,
      response: nodeTopic,
      errors: ['NOT_FOUND', 'TOPIC_IN_USE', 'TOPIC_LIMIT_REACHED'],
      handler: async ({ community, pubkey: actor, params: { topic_id: topic }, body, now }) => {
        const wanted = { community: community.id, topic, actor, changes: changesOf(body) };
        return shown(await changeNodeTopic(pool, wanted, capOf(community), now));
      },
    }),
    route({
      method: 'DELETE',
      url: `${TOPICS}/:topic_id`,
      summary: 'Take a topic away that nobody subscribes to',
      tags,
      who: 'operator',
      params,
      response: nodeTopic,
      errors: ['NOT_FOUND', 'TOPIC_IN_USE'],
      handler: async ({ community, pubkey: actor, params: { topic_id: topic }, now }) =>
        shown(await deleteNodeTopic(pool, { community: community.id, topic, actor }, now)),
    }),
  ];
}

const blockedTopic = z.strictObject({
  topic_id: topicIdText,
  reason: z.string().nullable(),
  created_at: milliseconds,
});

function showBlocked({ topic, reason, createdAt }: BlockedTopic): z.output<typeof blockedTopic> {
  return { topic_id: topic, reason, created_at: createdAt };
}

function blockedRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const tags = ['admin: blocked topics'] as const;
  return [
    route({
      method: 'GET',
      url: BLOCKED,
      summary: 'Topics that are blocked',
      tags,
      who: 'operator',
      query: pageQuery,
      response: pageOf(blockedTopic),
      errors: [],
      handler: async ({ community, query }) =>
        showPage(await listBlockedTopics(pool, community.id, query), showBlocked),
    }),
    route({
      method: 'PUT',
      url: `${BLOCKED}/:topic_id`,
      summary: 'Block a topic: nobody may ask for it, and it is not carried',
      description: 'Subscriptions to it stay and wait. Blocking again may give another reason.',
      tags,
      who: 'operator',
      params,
      body: z.strictObject({ reason: plainText(1_000).optional() }),
      response: blockedTopic,
      errors: ['INVALID_TOPIC'],
      handler: async ({ community, pubkey: actor, params: { topic_id }, body: { reason }, now }) => {
        const topic = community.topics.has(topic_id) ? topic_id : topicIn(community, topic_id);
        if (isDenial(topic)) return topic;
        const blocked = await blockTopic(pool, { community: community.id, topic, reason, actor }, now);
        return isDenial(blocked) ? blocked : showBlocked(blocked);
      },
    }),
    route({
      method: 'DELETE',
      url: `${BLOCKED}/:topic_id`,
      summary: 'Unblock a topic; who subscribes to it has it again',
      tags,
      who: 'operator',
      params,
      response: blockedTopic,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey: actor, params: { topic_id: topic }, now }) => {
        const unblocked = await unblockTopic(pool, { community: community.id, topic, actor }, now);
        return isDenial(unblocked) ? unblocked : showBlocked(unblocked);
      },
    }),
  ];
}
