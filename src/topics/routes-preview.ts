/** What a changed policy of a topic would purge, in numbers, before an operator saves it. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { denial, isDenial } from '../api/rules-errors.js';
import { topicLimits } from '../events/rules/capacity.js';
import { withPolicy } from '../events/rules/policy-preview.js';
import { ingestPolicyInput } from '../events/rules/retention.js';
import type { EventStore } from '../events/store.js';
import { readNodeTopic } from './node-topics.sql.js';
import { isTopic } from './rules.js';
import { topicIdText } from './schemas.js';

export interface TopicPreviewOptions {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'stored'>;
}

/** A preview may read for seconds on a connection that changes wait for. */
const AT_ONCE_MAX = 1;
const RETRY_AFTER_SECONDS = 3;

const count = z.number().int();
const size = z.strictObject({ events: count, bytes: count });

export function topicPreviewRoute({ pool, events: store }: TopicPreviewOptions): Route {
  let running = 0;
  return route({
    method: 'POST',
    url: '/admin/node-subscriptions/:topic_id/preview',
    summary: 'What a changed policy of a topic would purge',
    description:
      'Changes nothing. It looks at up to 100,000 events, the oldest first, for at most five seconds.',
    tags: ['admin: topics'],
    who: 'operator',
    params: z.strictObject({ topic_id: topicIdText.refine(isTopic, 'not a topic') }),
    body: z.strictObject({ ingest_policy: ingestPolicyInput.describe('The whole policy, as in a change') }),
    response: z.strictObject({
      retention: size.describe('Past the new days'),
      capacity: size.describe('The oldest of the others, purged to fit below the new limits'),
      due: size.describe('Past the current days: purged soon, also without the change'),
      leaving: count.describe('No longer found under this topic, but kept under another one'),
      total: size.describe('What the topic holds now'),
      complete: z
        .boolean()
        .describe('False: there are more events than it looked at; each count is "at least"'),
    }),
    errors: ['NOT_FOUND'],
    handler: async ({ community, params: { topic_id: topic }, body: { ingest_policy: policy }, now }) => {
      const found = await readNodeTopic(pool, community.id, topic);
      if (found === undefined) return denial('NOT_FOUND');
      if (running >= AT_ONCE_MAX) return denial('RATE_LIMITED', { retry_after_seconds: RETRY_AFTER_SECONDS });
      const { events, bytes, countedEvents, countedBytes, step } = found;
      const change = {
        community: community.id,
        topic,
        before: community,
        after: withPolicy(community, topic, policy, now),
        limits: topicLimits(policy),
        step,
        size: { events: countedEvents, bytes: countedBytes },
        now,
      };
      running += 1;
      try {
        const preview = await store.stored.previewPolicy(pool, change);
        return isDenial(preview) ? preview : { ...preview, total: { events, bytes } };
      } finally {
        running -= 1;
      }
    },
  });
}
