/**
 * Topics that this node carries, with their rules (`node_subscriptions`). Every change raises the polled
 * version. It locks that row before the row of the topic: all changes take locks in this order.
 */
import { ingestPolicySchema, type TopicRule } from '../events/rules/retention.js';
import type { Db } from '../postgres/values.js';

export async function readTopics(db: Db): Promise<Map<number, Map<string, TopicRule>>> {
  const { rows } = await db.query<{
    community: number;
    topic: string;
    enabled: boolean;
    blocked: boolean;
    public: boolean;
    priority: number;
    ingest_policy: unknown;
    kept_since: number | null;
  }>(
    `SELECT t.community, t.topic, t.enabled, t.blocked, t.public, t.priority, t.ingest_policy, n.kept_since
     FROM node_topics t JOIN node_subscriptions n ON n.community = t.community AND n.topic = t.topic
     UNION ALL
     SELECT community, topic, false, true, false, 0, '{}', NULL FROM blocked_topics b WHERE NOT EXISTS (
       SELECT 1 FROM node_subscriptions n WHERE n.community = b.community AND n.topic = b.topic)
     ORDER BY community, topic`,
  );
  const topics = new Map<number, Map<string, TopicRule>>();
  for (const { community, topic, enabled, blocked, public: isPublic, priority, ...row } of rows) {
    const policy = ingestPolicySchema.safeParse(row.ingest_policy).data ?? {};
    const keptSince = row.kept_since ?? undefined;
    const rules = { enabled, blocked, public: isPublic, priority, policy, keptSince };
    topics.set(community, (topics.get(community) ?? new Map()).set(topic, rules));
  }
  return topics;
}

/** Carries the global topic from the start, public for everyone. */
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
