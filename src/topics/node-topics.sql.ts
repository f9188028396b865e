/**
 * The topics of this node, as operators see and change them. The view `node_topics` derives who uses a topic
 * and whether it is carried. A change that makes another topic carried must fit under the cap.
 */
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { type Change, changeConfig, type Within } from '../communities/config-change.sql.js';
import { fixKeptSince } from '../events/postgres/kept-since.js';
import type { Step } from '../events/rules/capacity.js';
import { type IngestPolicy, ingestPolicySchema } from '../events/rules/retention.js';
import { BY_TOPIC, type Page, type PageOf, readPage } from '../postgres/page.js';
import type { Db } from '../postgres/values.js';

export interface NodeTopic {
  readonly topic: string;
  readonly name: string | null;
  readonly pinned: boolean;
  readonly public: boolean;
  readonly priority: number;
  readonly policy: IngestPolicy;
  /** Active subscriptions of active members. */
  readonly refCount: number;
  readonly blocked: boolean;
  readonly enabled: boolean;
  readonly events: number;
  readonly bytes: number;
  /** Of these, what its limits count. */
  readonly countedEvents: number;
  readonly countedBytes: number;
  /**
   * The capacity step of this topic by its own limits (events/rules/capacity.ts), and since when; 0 when
   * everything is accepted.
   */
  readonly step: Step;
  readonly stepSince: number | null;
  readonly full: boolean;
  readonly createdAt: number;
  readonly updatedAt: number;
}

interface TopicRef {
  readonly community: number;
  readonly topic: string;
  readonly actor?: string | undefined;
}

const COLUMNS = `n.topic, n.name, n.pinned, n.public, n.priority, n.ingest_policy AS policy,
  n.ref_count AS "refCount",
  n.blocked, n.enabled, coalesce(t.events, 0) AS events, coalesce(t.bytes, 0) AS bytes,
  coalesce(t.events - t.requests, 0) AS "countedEvents",
  coalesce(t.bytes - t.request_bytes, 0) AS "countedBytes",
  coalesce(s.step, 0) AS step, s.since AS "stepSince", coalesce(s."full", false) AS full,
  n.created_at AS "createdAt", n.updated_at AS "updatedAt"
  FROM node_topics n LEFT JOIN topic_totals t ON t.community = n.community AND t.topic = n.topic
  LEFT JOIN capacity_steps s ON s.community = n.community AND s.topic = n.topic AND s.cause = 'space'`;

type Row = Omit<NodeTopic, 'policy'> & { readonly policy: unknown };

/** A stored policy that no longer fits its schema has no effect and is shown as empty. */
function topicOf(row: Row): NodeTopic {
  return { ...row, policy: ingestPolicySchema.safeParse(row.policy).data ?? {} };
}

export async function readNodeTopic(
  db: Db,
  community: number,
  topic: string,
): Promise<NodeTopic | undefined> {
  const { rows } = await db.query<Row>(`SELECT ${COLUMNS} WHERE n.community = $1 AND n.topic = $2`, [
    community,
    topic,
  ]);
  return rows[0] && topicOf(rows[0]);
}

export function listNodeTopics(db: Db, community: number, page: PageOf): Promise<Page<NodeTopic> | Denial> {
  return readPage(
    page,
    BY_TOPIC,
    ({ topic }: NodeTopic) => [topic],
    async ([after], limit) => {
      const { rows } = await db.query<Row>(
        `SELECT ${COLUMNS} WHERE n.community = $1 AND n.topic > $2 ORDER BY n.topic LIMIT $3`,
        [community, after, limit],
      );
      return rows.map(topicOf);
    },
  );
}

export interface OwnRetention {
  readonly topic: string;
  readonly name: string | null;
  readonly days: number;
  readonly events: number;
  readonly bytes: number;
}

/** The topics with retention days of their own. */
export async function listOwnRetention(db: Db, community: number, limit: number): Promise<OwnRetention[]> {
  const { rows } = await db.query<OwnRetention>(
    `SELECT n.topic, n.name, (n.ingest_policy ->> 'retentionDays')::int AS days,
       coalesce(t.events, 0) AS events, coalesce(t.bytes, 0) AS bytes
     FROM node_subscriptions n LEFT JOIN topic_totals t ON t.community = n.community AND t.topic = n.topic
     WHERE n.community = $1 AND n.ingest_policy ? 'retentionDays' ORDER BY n.topic LIMIT $2`,
    [community, limit],
  );
  return rows;
}

/** The public facts about a carried topic. */
export interface DirectoryEntry {
  readonly topic: string;
  readonly name: string | null;
  readonly public: boolean;
  readonly subscribers: number;
  readonly events: number;
}

const DIRECTORY_COLUMNS = `n.topic, n.name, n.public, n.ref_count AS subscribers,
  coalesce(t.events, 0) AS events
  FROM node_topics n LEFT JOIN topic_totals t ON t.community = n.community AND t.topic = n.topic`;

export function readDirectory(
  db: Db,
  { community, publicOnly }: { readonly community: number; readonly publicOnly: boolean },
  page: PageOf,
): Promise<Page<DirectoryEntry> | Denial> {
  return readPage(
    page,
    BY_TOPIC,
    ({ topic }: DirectoryEntry) => [topic],
    async ([after], limit) => {
      const { rows } = await db.query<DirectoryEntry>(
        `SELECT ${DIRECTORY_COLUMNS}
         WHERE n.community = $1 AND n.topic > $2 AND n.enabled AND (n.public OR NOT $4)
         ORDER BY n.topic LIMIT $3`,
        [community, after, limit, publicOnly],
      );
      return rows;
    },
  );
}

/** The public facts about one carried topic. */
export async function readDirectoryEntry(
  db: Db,
  community: number,
  topic: string,
): Promise<DirectoryEntry | undefined> {
  const { rows } = await db.query<DirectoryEntry>(
    `SELECT ${DIRECTORY_COLUMNS} WHERE n.community = $1 AND n.topic = $2 AND n.enabled`,
    [community, topic],
  );
  return rows[0];
}

// ─── Carried topics and their cap ──────────────────────────────────────────────────────────────────────────

/** Whether the topic is carried, public and blocked. A topic without a row is neither carried nor public. */
export async function readCarriage(
  db: Db,
  community: number,
  topic: string,
): Promise<{ readonly enabled: boolean; readonly public: boolean; readonly blocked: boolean }> {
  const { rows } = await db.query<{ enabled: boolean; public: boolean; blocked: boolean }>(
    `SELECT coalesce(n.enabled, false) AS enabled, coalesce(n.public, false) AS public,
       b.topic IS NOT NULL AS blocked
     FROM (SELECT $1::integer AS community, $2::text AS topic) asked
     LEFT JOIN node_topics n ON n.community = asked.community AND n.topic = asked.topic
     LEFT JOIN blocked_topics b ON b.community = asked.community AND b.topic = asked.topic`,
    [community, topic],
  );
  return rows[0]!;
}

async function countEnabled(db: Db, community: number): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    'SELECT count(*) AS count FROM node_topics WHERE community = $1 AND enabled',
    [community],
  );
  return rows[0]!.count;
}

/** Whether this topic fits under the cap. A topic that is carried already always does. */
export async function hasRoom(
  db: Db,
  community: number,
  topic: string,
  enabledMax: number,
): Promise<boolean> {
  return (
    (await readCarriage(db, community, topic)).enabled || (await countEnabled(db, community)) < enabledMax
  );
}

/**
 * Does the work on one topic. If the topic becomes carried by it, it must fit under the cap, if one is given.
 * When the topic starts or stops being carried, every instance reloads.
 */
export async function mindingCarriage<T>(
  change: Change,
  topic: string,
  enabledMax: number | undefined,
  work: () => Promise<T | Denial>,
): Promise<T | Denial> {
  const { db, community } = change;
  const before = await readCarriage(db, community, topic);
  const result = await work();
  if (isDenial(result)) return result;
  const after = await readCarriage(db, community, topic);
  if (before.enabled === after.enabled) return result;
  if (after.enabled && enabledMax !== undefined && (await countEnabled(db, community)) > enabledMax) {
    return denial('TOPIC_LIMIT_REACHED', { limit: enabledMax });
  }
  change.raiseVersion();
  return result;
}

/** Makes the row of a topic that a member subscribes to. The name comes from the first request. */
export async function ensureNodeTopic(
  { db, community, now }: Change,
  topic: string,
  name: string | null,
): Promise<void> {
  await db.query(
    `INSERT INTO node_subscriptions AS n (community, topic, name, created_at, updated_at)
     VALUES ($1, $2, $3, $4, $4)
     ON CONFLICT (community, topic) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at
     WHERE n.name IS NULL AND excluded.name IS NOT NULL`,
    [community, topic, name, now],
  );
}

// ─── Changes by operators ──────────────────────────────────────────────────────────────────────────────────

export interface TopicFields {
  readonly pinned: boolean;
  readonly public: boolean;
  readonly name: string | null;
  readonly priority: number;
  readonly policy: IngestPolicy;
}

export interface Cap {
  readonly enabledMax: number;
}

export function createNodeTopic(
  within: Within,
  { community, topic, actor, ...given }: TopicRef & Partial<TopicFields>,
  { enabledMax }: Cap,
  now: number,
): Promise<NodeTopic | Denial> {
  return changeConfig(within, { community, actor, now }, (change) =>
    mindingCarriage(change, topic, enabledMax, async () => {
      if ((await readNodeTopic(change.db, community, topic)) !== undefined) return denial('TOPIC_EXISTS');
      const fields = { pinned: true, public: false, name: null, priority: 0, policy: {}, ...given };
      // Its own retention days must not bring back events that the default has already dropped.
      const hasDays = fields.policy.retentionDays !== undefined;
      if (hasDays) await fixKeptSince(change.db, community, now);
      await change.db.query(
        `INSERT INTO node_subscriptions
           (community, topic, pinned, public, name, priority, ingest_policy, created_at,
            updated_at, kept_since)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $8, CASE WHEN $9 THEN c.kept_since END
         FROM communities c WHERE c.id = $1`,
        [community, topic, ...columnsOf(fields), now, hasDays],
      );
      await change.audit('topic.create', topic, fields);
      change.raiseVersion();
      return (await readNodeTopic(change.db, community, topic))!;
    }),
  );
}

export type TopicChanges = Partial<TopicFields> & {
  /** Like `pinned`, but setting it to false is refused while members use the topic. */
  readonly enabled?: boolean | undefined;
};

export function changeNodeTopic(
  pool: Pool,
  { community, topic, actor, changes }: TopicRef & { readonly changes: TopicChanges },
  { enabledMax }: Cap,
  now: number,
): Promise<NodeTopic | Denial> {
  return changeConfig(pool, { community, actor, now }, (change) =>
    mindingCarriage(change, topic, enabledMax, async () => {
      const before = await readNodeTopic(change.db, community, topic);
      if (before === undefined) return denial('NOT_FOUND');
      const { enabled, ...given } = changes;
      if (enabled === false && before.refCount > 0)
        return denial('TOPIC_IN_USE', { ref_count: before.refCount });
      const wanted = enabled === undefined ? given : { ...given, pinned: enabled };
      const changed = differences(before, wanted);
      if (Object.keys(changed).length === 0) return before;
      const changesDays = changed.policy && changed.policy.retentionDays !== before.policy.retentionDays;
      if (changesDays) await fixKeptSince(change.db, community, now);
      await change.db.query(
        `UPDATE node_subscriptions SET pinned = $3, public = $4, name = $5, priority = $6, ingest_policy = $7,
           updated_at = $8
         WHERE community = $1 AND topic = $2`,
        [community, topic, ...columnsOf({ ...before, ...changed }), now],
      );
      await change.audit('topic.change', topic, changed);
      change.raiseVersion();
      // Making a topic public or private changes everyone's rights.
      if ('public' in changed) change.raiseRights();
      return (await readNodeTopic(change.db, community, topic))!;
    }),
  );
}

/** Only a topic without subscriptions, paused ones included. */
export function deleteNodeTopic(
  pool: Pool,
  { community, topic, actor }: TopicRef,
  now: number,
): Promise<NodeTopic | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readNodeTopic(change.db, community, topic);
    if (before === undefined) return denial('NOT_FOUND');
    const { rows } = await change.db.query<{ open: number }>(
      `SELECT count(*) AS open FROM topic_subscriptions
       WHERE community = $1 AND topic = $2 AND status <> 'ended'`,
      [community, topic],
    );
    const { open } = rows[0]!;
    if (open > 0) return denial('TOPIC_IN_USE', { subscriptions: open });
    await change.db.query('DELETE FROM node_subscriptions WHERE community = $1 AND topic = $2', [
      community,
      topic,
    ]);
    await change.audit('topic.delete', topic);
    change.raiseVersion();
    if (before.public) change.raiseRights();
    return before;
  });
}

function columnsOf({ pinned, public: isPublic, name, priority, policy }: TopicFields): unknown[] {
  return [pinned, isPublic, name, priority, JSON.stringify(policy)];
}

function differences(before: TopicFields, wanted: Partial<TopicFields>): Partial<TopicFields> {
  const keys = Object.keys(wanted) as (keyof TopicFields)[];
  const differs = (key: keyof TopicFields) =>
    wanted[key] !== undefined && canonical(wanted[key]) !== canonical(before[key]);
  return Object.fromEntries(keys.filter(differs).map((key) => [key, wanted[key]]));
}

/** JSON with sorted keys, so that equal policies give equal text. */
function canonical(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
