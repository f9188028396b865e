/**
 * Topics that this node carries, with their rules (`node_subscriptions`). Every change raises the polled version, whose row is
 * taken before the topic's: all changes take locks in this order.
 */
import type { ClientBase, Pool } from 'pg';
import { ingestPolicySchema, type TopicSubscription } from '../core/retention.js';

type Db = ClientBase | Pool;

export async function readTopics(db: Db): Promise<Map<number, Map<string, TopicSubscription>>> {
  const { rows } = await db.query<{
    community: number;
    topic: string;
    enabled: boolean;
    blocked: boolean;
    public: boolean;
    priority: number;
    ingest_policy: unknown;
  }>(
    `SELECT community, topic, enabled, blocked, public, priority, ingest_policy FROM node_topics
     UNION ALL
     SELECT community, topic, false, true, false, 0, '{}' FROM blocked_topics b WHERE NOT EXISTS (
       SELECT 1 FROM node_subscriptions n WHERE n.community = b.community AND n.topic = b.topic)
     ORDER BY community, topic`,
  );
  const topics = new Map<number, Map<string, TopicSubscription>>();
  for (const { community, topic, enabled, blocked, public: isPublic, priority, ingest_policy } of rows) {
    const policy = ingestPolicySchema.safeParse(ingest_policy).data ?? {};
    const ofCommunity = topics.get(community) ?? new Map();
    topics.set(community, ofCommunity.set(topic, { enabled, blocked, public: isPublic, priority, policy }));
  }
  return topics;
}

/** The topic of a newcomer's first post is carried from the start, for everyone. */
export async function pinGlobalTopic(
  db: Db,
  community: number,
  namespace: string,
  now: number,
): Promise<void> {
  await db.query(
    `WITH changed AS (UPDATE config_version SET version = version + 1 RETURNING version)
     INSERT INTO node_subscriptions (community, topic, pinned, public, created_at, updated_at)
     SELECT $1, $2, true, true, $3::bigint, $3 FROM changed ON CONFLICT (community, topic) DO NOTHING`,
    [community, `${namespace}:global`, now],
  );
}
