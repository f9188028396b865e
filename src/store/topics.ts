/** Topics that this node carries, with their rules (`node_subscriptions`). Every change raises the polled version. */
import type { ClientBase, Pool } from 'pg';
import { type IngestPolicy, ingestPolicySchema, type TopicSubscription } from '../core/retention.js';

export async function readTopics(
  db: ClientBase | Pool,
): Promise<Map<number, Map<string, TopicSubscription>>> {
  const { rows } = await db.query<{
    community: number;
    topic: string;
    enabled: boolean;
    priority: number;
    ingest_policy: unknown;
  }>(
    'SELECT community, topic, enabled, priority, ingest_policy FROM node_subscriptions ORDER BY community, topic',
  );
  const topics = new Map<number, Map<string, TopicSubscription>>();
  for (const { community, topic, enabled, priority, ingest_policy } of rows) {
    const policy = ingestPolicySchema.safeParse(ingest_policy).data ?? {};
    const ofCommunity = topics.get(community) ?? new Map();
    topics.set(community, ofCommunity.set(topic, { enabled, priority, policy }));
  }
  return topics;
}

export async function writeTopic(
  db: ClientBase | Pool,
  community: number,
  topic: string,
  { enabled, priority, policy }: { enabled: boolean; priority: number; policy: IngestPolicy },
  now: number,
): Promise<void> {
  await db.query(
    `WITH changed AS (UPDATE config_version SET version = version + 1)
     INSERT INTO node_subscriptions (community, topic, enabled, priority, ingest_policy, created_at, updated_at)
     VALUES ($1, $2, $3, $4, $5, $6, $6)
     ON CONFLICT (community, topic) DO UPDATE SET enabled = excluded.enabled, priority = excluded.priority,
       ingest_policy = excluded.ingest_policy, updated_at = excluded.updated_at`,
    [community, topic, enabled, priority, JSON.stringify(policy), now],
  );
}

export async function removeTopic(db: ClientBase | Pool, community: number, topic: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `WITH changed AS (UPDATE config_version SET version = version + 1)
     DELETE FROM node_subscriptions WHERE community = $1 AND topic = $2`,
    [community, topic],
  );
  return (rowCount ?? 0) > 0;
}
