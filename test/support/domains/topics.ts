/**
 * Writes a topic as a test needs it, whatever it was before. It skips the cap and the audit log, which belong
 * to the commands and the API.
 */
import type { ClientBase, Pool } from 'pg';
import { fixKeptSince } from '../../../src/events/postgres/kept-since.js';
import type { IngestPolicy } from '../../../src/events/rules/retention.js';

export interface TopicRules {
  readonly pinned: boolean;
  readonly public: boolean;
  readonly name?: string;
  readonly priority: number;
  readonly policy: IngestPolicy;
}

export async function writeTopic(
  db: ClientBase | Pool,
  community: number,
  topic: string,
  rules: TopicRules,
  now: number,
): Promise<void> {
  const { pinned, name, priority, policy } = rules;
  const ownDays = policy.retentionDays !== undefined;
  if (ownDays) await fixKeptSince(db, community, now);
  await db.query(
    `WITH changed AS (UPDATE config_version SET version = version + 1 RETURNING version)
     INSERT INTO node_subscriptions AS n
       (community, topic, pinned, public, name, priority, ingest_policy, created_at, updated_at, kept_since)
     SELECT $1, $2, $3, $4, $5, $6, $7::jsonb, $8::bigint, $8, CASE WHEN $9 THEN c.kept_since END
     FROM changed, communities c WHERE c.id = $1
     ON CONFLICT (community, topic) DO UPDATE SET pinned = excluded.pinned, public = excluded.public,
       name = coalesce(excluded.name, n.name), priority = excluded.priority,
       ingest_policy = excluded.ingest_policy,
       updated_at = excluded.updated_at`,
    [community, topic, pinned, rules.public, name ?? null, priority, JSON.stringify(policy), now, ownDays],
  );
}
