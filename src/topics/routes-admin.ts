/** Operators decide which topics are carried, how their events are kept, and which topics are blocked. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, showPage } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { percent, percentOf, stepNumber } from '../communities/routes-capacity.js';
import { topicLimits } from '../events/rules/capacity.js';
import { ingestPolicyInput, ingestPolicySchema, PRIORITY_MAX } from '../events/rules/retention.js';
import { type BlockedTopic, blockTopic, listBlockedTopics, unblockTopic } from './blocked-topics.sql.js';
import {
  changeNodeTopic,
  createNodeTopic,
  deleteNodeTopic,
  listNodeTopics,
  type NodeTopic,
  readNodeTopic,
  type TopicChanges,
} from './node-topics.sql.js';
import { isTopic } from './rules.js';
import { topicIdText, topicIn } from './schemas.js';

const TOPICS = '/admin/node-subscriptions';
const BLOCKED = '/admin/blocked-topics';
/** The range of smallint. */

export function nodeTopicRoutes(options: { readonly pool: Pool }): Route[] {
  return [...readingRoutes(options), ...changingRoutes(options), ...blockedRoutes(options)];
}

/** An existing topic may have another namespace, from an earlier setting or the command line. */
const params = z.strictObject({ topic_id: topicIdText.refine(isTopic, 'not a topic') });

const nodeTopic = z.strictObject({
  topic_id: topicIdText,
  name: z.string().nullable(),
  enabled: z.boolean().describe('Carried: pinned or in use, and not blocked'),
  pinned: z.boolean().describe('Carried even without subscribers'),
  public: z.boolean().describe('True when it needs no subscription'),
  blocked: z.boolean(),
  ref_count: z.number().int().describe('Active subscriptions of active members'),
  priority: z.number().int().describe('Topics with a higher priority are kept longer when space runs out'),
  ingest_policy: ingestPolicySchema,
  events: z.number().int().describe('Served, with deletion requests'),
  bytes: z.number().int().describe('Of these events, as JSON'),
  capacity: z
    .strictObject({ step: stepNumber, since: milliseconds.nullable(), percent, full: z.boolean() })
    .describe(
      'By its own limits, which do not count deletion requests. full: nothing in it can be purged, so it ' +
        'accepts no posts',
    ),
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
  countedEvents,
  countedBytes,
  createdAt,
  updatedAt,
  ...same
}: NodeTopic): z.output<typeof nodeTopic> {
  const counted = { events: countedEvents, bytes: countedBytes };
  return {
    topic_id: topic,
    ...same,
    ingest_policy: policy,
    ref_count: refCount,
    capacity: { step, since: stepSince, percent: percentOf(counted, topicLimits(policy)), full },
    created_at: createdAt,
    updated_at: updatedAt,
  };
}

const fields = {
  name: plainText(256).min(1).nullable().optional().describe('The name to show'),
  enabled: z
    .boolean()
    .optional()
    .describe('true: same as pinned; false: unpinned, refused while members use it'),
  pinned: z.boolean().optional(),
  public: z.boolean().optional(),
  priority: z.number().int().min(-PRIORITY_MAX).max(PRIORITY_MAX).optional(),
  ingest_policy: ingestPolicyInput
    .optional()
    .describe('Replaces the whole policy; null is the same as leaving it out'),
};
const oneOfBoth = ({ enabled, pinned }: { enabled?: boolean | undefined; pinned?: boolean | undefined }) =>
  enabled === undefined || pinned === undefined;
const BOTH = { error: 'set either enabled or pinned, not both' };
const creation = z.strictObject({ topic_id: topicIdText, ...fields }).refine(oneOfBoth, BOTH);
const change = z.strictObject(fields).refine(oneOfBoth, BOTH);

/** Fields that were not given must be absent, not undefined. */
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
      role: 'viewer',
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
      role: 'viewer',
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
      summary: 'Add a topic; it is carried at once unless enabled or pinned is false',
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
      summary: 'Change a topic; missing fields keep their values',
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
      summary: 'Remove a topic without subscriptions',
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
      role: 'viewer',
      summary: 'Blocked topics',
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
      summary: 'Block a topic: nobody may request it, and it is not carried',
      description: 'Subscriptions to it stay but have no effect. Blocking again may change the reason.',
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
      summary: 'Unblock a topic; its subscriptions take effect again',
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
