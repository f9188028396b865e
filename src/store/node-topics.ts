/**
 * The topics of this node as the operator sees and changes them. Who uses a topic and whether it is carried is derived by the
 * view `node_topics`; a change that makes one more carried must fit under the cap.
 */
import type { Pool } from 'pg';
import type { Step } from '../core/capacity.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { type IngestPolicy, ingestPolicySchema } from '../core/retention.js';
import { type Change, changeConfig, type Db } from './config-change.js';
import { fixKeptSince } from './kept-since.js';
import { BY_TOPIC, type Page, type PageOf, readPage } from './page.js';

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
  /** The step against short space by its own limits (core/capacity.ts), and since when; 0 when all is taken in. */
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

const COLUMNS = `n.topic, n.name, n.pinned, n.public, n.priority, n.ingest_policy AS policy, n.ref_count AS "refCount",
  n.blocked, n.enabled, coalesce(t.events, 0) AS events, coalesce(t.bytes, 0) AS bytes,
  coalesce(s.step, 0) AS step, s.since AS "stepSince", coalesce(s."full", false) AS full,
  n.created_at AS "createdAt", n.updated_at AS "updatedAt"
  FROM node_topics n LEFT JOIN topic_totals t ON t.community = n.community AND t.topic = n.topic
  LEFT JOIN capacity_steps s ON s.community = n.community AND s.topic = n.topic AND s.cause = 'space'`;

type Row = Omit<NodeTopic, 'policy'> & { readonly policy: unknown };

/** A stored policy that no longer fits its schema has no effect, and is shown as none. */
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

/** What everyone may know of a topic that is carried. */
export interface DirectoryEntry {
  readonly topic: string;
  readonly name: string | null;
  readonly public: boolean;
  readonly subscribers: number;
  readonly events: number;
}

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
        `SELECT n.topic, n.name, n.public, n.ref_count AS subscribers, coalesce(t.events, 0) AS events
         FROM node_topics n LEFT JOIN topic_totals t ON t.community = n.community AND t.topic = n.topic
         WHERE n.community = $1 AND n.topic > $2 AND n.enabled AND (n.public OR NOT $4) ORDER BY n.topic LIMIT $3`,
        [community, after, limit, publicOnly],
      );
      return rows;
    },
  );
}

// ─── What is carried, and the cap on it ────────────────────────────────────────────────────────────────────────

/** Whether the topic is carried, open to everyone, blocked; a topic without a row is neither carried nor open. */
export async function readCarriage(
  db: Db,
  community: number,
  topic: string,
): Promise<{ readonly enabled: boolean; readonly public: boolean; readonly blocked: boolean }> {
  const { rows } = await db.query<{ enabled: boolean; public: boolean; blocked: boolean }>(
    `SELECT coalesce(n.enabled, false) AS enabled, coalesce(n.public, false) AS public, b.topic IS NOT NULL AS blocked
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

/** Could this topic be carried under the cap? One that is carried already takes no more room. */
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
 * Does the work on one topic. When it is carried afterwards and was not before, it must fit under the cap, if one is given;
 * when that has changed at all, every instance is told.
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

/** A topic that a member subscribes to has a row, named as the first who asked called it. */
export async function ensureNodeTopic(
  { db, community, now }: Change,
  topic: string,
  name: string | null,
): Promise<void> {
  await db.query(
    `INSERT INTO node_subscriptions AS n (community, topic, name, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
     ON CONFLICT (community, topic) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at
     WHERE n.name IS NULL AND excluded.name IS NOT NULL`,
    [community, topic, name, now],
  );
}

// ─── What the operator changes ─────────────────────────────────────────────────────────────────────────────────

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
  pool: Pool,
  { community, topic, actor, ...given }: TopicRef & Partial<TopicFields>,
  { enabledMax }: Cap,
  now: number,
): Promise<NodeTopic | Denial> {
  return changeConfig(pool, { community, actor, now }, (change) =>
    mindingCarriage(change, topic, enabledMax, async () => {
      if ((await readNodeTopic(change.db, community, topic)) !== undefined) return denial('TOPIC_EXISTS');
      const fields = { pinned: true, public: false, name: null, priority: 0, policy: {}, ...given };
      // What the default does not keep any more at this moment is not brought back by days of its own.
      const hasDays = fields.policy.retentionDays !== undefined;
      if (hasDays) await fixKeptSince(change.db, community, now);
      await change.db.query(
        `INSERT INTO node_subscriptions
           (community, topic, pinned, public, name, priority, ingest_policy, created_at, updated_at, kept_since)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $8, CASE WHEN $9 THEN c.kept_since END FROM communities c WHERE c.id = $1`,
        [community, topic, ...columnsOf(fields), now, hasDays],
      );
      await change.audit('topic.create', topic, fields);
      change.raiseVersion();
      return (await readNodeTopic(change.db, community, topic))!;
    }),
  );
}

export type TopicChanges = Partial<TopicFields> & {
  /** The same as `pinned`, but a topic that members use cannot be switched off by it. */
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
        `UPDATE node_subscriptions SET pinned = $3, public = $4, name = $5, priority = $6, ingest_policy = $7, updated_at = $8
         WHERE community = $1 AND topic = $2`,
        [community, topic, ...columnsOf({ ...before, ...changed }), now],
      );
      await change.audit('topic.change', topic, changed);
      change.raiseVersion();
      // Whether a topic is public is a right of everyone.
      if ('public' in changed) change.raiseRights();
      return (await readNodeTopic(change.db, community, topic))!;
    }),
  );
}

/** Only one that nobody subscribes to, paused ones included. */
export function deleteNodeTopic(
  pool: Pool,
  { community, topic, actor }: TopicRef,
  now: number,
): Promise<NodeTopic | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readNodeTopic(change.db, community, topic);
    if (before === undefined) return denial('NOT_FOUND');
    const { rows } = await change.db.query<{ open: number }>(
      "SELECT count(*) AS open FROM topic_subscriptions WHERE community = $1 AND topic = $2 AND status <> 'ended'",
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

/** As JSON, its keys in order: a policy is the same however it was written down. */
function canonical(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
