/**
 * Topics that this node carries, with their rules (`node_subscriptions`). Every change raises the polled version, whose row is
 * taken before the topic's: all changes take locks in this order.
 */
import type { ClientBase, Pool } from 'pg';
import { type IngestPolicy, ingestPolicySchema, type TopicSubscription } from '../core/retention.js';

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

/** What the operator decides about a topic. */
export interface TopicRules {
  readonly pinned: boolean;
  readonly public: boolean;
  readonly name?: string;
  readonly priority: number;
  readonly policy: IngestPolicy;
}

export async function writeTopic(
  db: Db,
  community: number,
  topic: string,
  rules: TopicRules,
  now: number,
): Promise<void> {
  const { pinned, name, priority, policy } = rules;
  await db.query(
    `WITH changed AS (UPDATE config_version SET version = version + 1 RETURNING version)
     INSERT INTO node_subscriptions AS n
       (community, topic, pinned, public, name, priority, ingest_policy, created_at, updated_at)
     SELECT $1, $2, $3, $4, $5, $6, $7::jsonb, $8::bigint, $8 FROM changed
     ON CONFLICT (community, topic) DO UPDATE SET pinned = excluded.pinned, public = excluded.public,
       name = coalesce(excluded.name, n.name), priority = excluded.priority, ingest_policy = excluded.ingest_policy,
       updated_at = excluded.updated_at`,
    [community, topic, pinned, rules.public, name ?? null, priority, JSON.stringify(policy), now],
  );
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
