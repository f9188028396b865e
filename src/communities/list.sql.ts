/** The communities of the node with their sizes, for its operators, and adding one with its audit row. */
import type { Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { BY_TOPIC, type Page, type PageOf, readPage } from '../postgres/page.js';
import type { Db } from '../postgres/values.js';
import { insertCommunity, readDefaultCommunity } from './communities.sql.js';
import { changeConfig } from './config-change.sql.js';

/** I14: members and topics of one community are counted up to here. */
export const LISTED_COUNT_MAX = 1_000;

export interface ListedCommunity {
  readonly slug: string;
  readonly host: string | null;
  /** The setting relay.name, if it is set. */
  readonly name: string | null;
  readonly createdAt: number;
  /** It is being erased. */
  readonly closedAt: number | null;
  readonly members: number;
  readonly topics: number;
  readonly events: number;
  readonly bytes: number;
}

const counted = (table: string) =>
  `(SELECT count(*) FROM (
    SELECT 1 FROM ${table} t WHERE t.community = c.id LIMIT ${LISTED_COUNT_MAX + 1}) x)`;
const LISTED = `SELECT c.slug, c.host, c.created_at AS "createdAt", c.closed_at AS "closedAt",
    s.value #>> '{}' AS name, ${counted('members')} AS members, ${counted('node_subscriptions')} AS topics,
    coalesce(t.events, 0) AS events, coalesce(t.bytes, 0) AS bytes
  FROM communities c LEFT JOIN community_totals t ON t.community = c.id
  LEFT JOIN community_settings s ON s.community = c.id AND s.key = 'relay.name'`;

export function listCommunities(db: Db, page: PageOf): Promise<Page<ListedCommunity> | Denial> {
  return readPage(
    page,
    BY_TOPIC,
    ({ slug }: ListedCommunity) => [slug],
    async ([after], limit) => {
      const { rows } = await db.query<ListedCommunity>(
        `${LISTED} WHERE c.slug > $1 ORDER BY c.slug LIMIT $2`,
        [after, limit],
      );
      return rows;
    },
  );
}

/** Its audit row is in the log of the default community, which belongs to the operators of the node. */
export async function createCommunity(
  pool: Pool,
  {
    slug,
    host,
    actor,
  }: { readonly slug: string; readonly host?: string | undefined; readonly actor: string },
  now: number,
): Promise<ListedCommunity | Denial> {
  const community = await readDefaultCommunity(pool);
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const made = await insertCommunity(change.db, slug, host, now);
    if (made === undefined) return denial('COMMUNITY_EXISTS');
    await change.audit('community.create', slug, host === undefined ? {} : { host });
    const { rows } = await change.db.query<ListedCommunity>(`${LISTED} WHERE c.id = $1`, [made]);
    return rows[0]!;
  });
}
