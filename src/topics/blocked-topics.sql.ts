/**
 * Blocked topics: no member may request them, and the node does not carry them, however many members
 * subscribe. Subscriptions to them have no effect until the block is lifted.
 */
import type { Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { changeConfig } from '../communities/config-change.sql.js';
import { BY_TOPIC, type Page, type PageOf, readPage } from '../postgres/page.js';
import type { Db } from '../postgres/values.js';

export interface BlockedTopic {
  readonly topic: string;
  readonly reason: string | null;
  readonly createdAt: number;
}

interface BlockedRef {
  readonly community: number;
  readonly topic: string;
  readonly actor?: string | undefined;
}

const COLUMNS = 'topic, reason, created_at AS "createdAt"';

export async function readBlockedTopic(
  db: Db,
  community: number,
  topic: string,
): Promise<BlockedTopic | undefined> {
  const { rows } = await db.query<BlockedTopic>(
    `SELECT ${COLUMNS} FROM blocked_topics WHERE community = $1 AND topic = $2`,
    [community, topic],
  );
  return rows[0];
}

export function listBlockedTopics(
  db: Db,
  community: number,
  page: PageOf,
): Promise<Page<BlockedTopic> | Denial> {
  return readPage(
    page,
    BY_TOPIC,
    ({ topic }: BlockedTopic) => [topic],
    async ([after], limit) => {
      const { rows } = await db.query<BlockedTopic>(
        `SELECT ${COLUMNS} FROM blocked_topics WHERE community = $1 AND topic > $2 ORDER BY topic LIMIT $3`,
        [community, after, limit],
      );
      return rows;
    },
  );
}

/** Blocking again may change the reason; without a reason the old one stays. */
export function blockTopic(
  pool: Pool,
  { community, topic, actor, reason }: BlockedRef & { readonly reason?: string | undefined },
  now: number,
): Promise<BlockedTopic | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readBlockedTopic(change.db, community, topic);
    const reasonAfter = reason ?? before?.reason ?? null;
    if (before !== undefined && before.reason === reasonAfter) return before;
    await change.db.query(
      `INSERT INTO blocked_topics (community, topic, reason, created_at) VALUES ($1, $2, $3, $4)
       ON CONFLICT (community, topic) DO UPDATE SET reason = excluded.reason`,
      [community, topic, reasonAfter, now],
    );
    await change.audit('topic.block', topic, { reason: reasonAfter });
    if (before === undefined) {
      change.raiseVersion();
      change.raiseRights();
    }
    return (await readBlockedTopic(change.db, community, topic))!;
  });
}

/**
 * A topic that is pinned or used is carried again, even above the cap: a member's right must not depend on
 * when a block is lifted.
 */
export function unblockTopic(
  pool: Pool,
  { community, topic, actor }: BlockedRef,
  now: number,
): Promise<BlockedTopic | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readBlockedTopic(change.db, community, topic);
    if (before === undefined) return denial('NOT_FOUND');
    await change.db.query('DELETE FROM blocked_topics WHERE community = $1 AND topic = $2', [
      community,
      topic,
    ]);
    await change.audit('topic.unblock', topic);
    change.raiseVersion();
    change.raiseRights();
    return before;
  });
}
