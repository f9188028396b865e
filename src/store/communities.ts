/** Communities and their settings. Every change raises one number, which all instances poll. */
import type { ClientBase, Pool } from 'pg';
import type { SettingKey } from '../core/settings.js';

export interface CommunityRow {
  readonly id: number;
  readonly slug: string;
  readonly host: string | null;
  readonly settings: ReadonlyMap<string, unknown>;
}

export const DEFAULT_SLUG = 'default';
const SLUG = /^[a-z0-9][a-z0-9-]{0,62}$/;
const HOST = /^[a-z0-9.-]{1,253}$/;
const UNIQUE_VIOLATION = '23505';

type Db = ClientBase | Pool;

export async function readConfigVersion(db: Db): Promise<number> {
  const { rows } = await db.query<{ version: number }>({
    name: 'config-version',
    text: 'SELECT version FROM config_version',
  });
  return rows[0]!.version;
}

export async function readCommunities(db: Db): Promise<CommunityRow[]> {
  const { rows } = await db.query<{
    id: number;
    slug: string;
    host: string | null;
    settings: Record<string, unknown>;
  }>(
    `SELECT c.id, c.slug, c.host, coalesce(jsonb_object_agg(s.key, s.value) FILTER (WHERE s.key IS NOT NULL), '{}') AS settings
     FROM communities c LEFT JOIN community_settings s ON s.community = c.id GROUP BY c.id ORDER BY c.id`,
  );
  return rows.map((row) => ({ ...row, settings: new Map(Object.entries(row.settings)) }));
}

/** Adds a community; a taken or malformed name is an Error with a sentence. */
export async function addCommunity(
  db: Db,
  slug: string,
  givenHost: string | undefined,
  now: number,
): Promise<number> {
  const host = givenHost?.toLowerCase();
  if (!SLUG.test(slug)) {
    throw new Error(
      `"${slug}" is no community name: use 1 to 63 of a–z, 0–9 and -, starting with a letter or digit`,
    );
  }
  if (host !== undefined && !HOST.test(host)) throw new Error(`"${host}" is no host name`);
  try {
    const { rows } = await db.query<{ id: number }>(
      `WITH changed AS (UPDATE config_version SET version = version + 1)
       INSERT INTO communities (slug, host, created_at) VALUES ($1, $2, $3) RETURNING id`,
      [slug, host ?? null, now],
    );
    return rows[0]!.id;
  } catch (error) {
    if ((error as { code?: string }).code !== UNIQUE_VIOLATION) throw error;
    throw new Error(
      `a community with the name "${slug}"${host ? ` or the host "${host}"` : ''} exists already`,
    );
  }
}

/** Makes the default community with its first settings, once, whichever instance comes first. */
export async function ensureDefaultCommunity(
  db: Db,
  first: Partial<Record<SettingKey, unknown>>,
  now: number,
): Promise<void> {
  await db.query(
    `WITH made AS (
       INSERT INTO communities (slug, created_at) VALUES ($1, $3) ON CONFLICT (slug) DO NOTHING RETURNING id)
     INSERT INTO community_settings (community, key, value, updated_at)
     SELECT made.id, s.key, s.value, $3 FROM made, jsonb_each($2) AS s (key, value)`,
    [DEFAULT_SLUG, JSON.stringify(first), now],
  );
}

export async function writeSetting(
  db: Db,
  community: number,
  key: SettingKey,
  value: unknown,
  now: number,
): Promise<void> {
  await db.query(
    `WITH changed AS (UPDATE config_version SET version = version + 1)
     INSERT INTO community_settings AS s (community, key, value, updated_at) VALUES ($1, $2, $3, $4)
     ON CONFLICT (community, key) DO UPDATE
     SET value = excluded.value, version = s.version + 1, updated_at = excluded.updated_at`,
    [community, key, JSON.stringify(value), now],
  );
}

export async function resetSetting(db: Db, community: number, key: SettingKey): Promise<void> {
  await db.query(
    `WITH changed AS (UPDATE config_version SET version = version + 1)
     DELETE FROM community_settings WHERE community = $1 AND key = $2`,
    [community, key],
  );
}

export interface CommunityTotals {
  readonly events: number;
  readonly bytes: number;
}

export async function readTotals(db: Db, community: number): Promise<CommunityTotals> {
  const { rows } = await db.query<CommunityTotals>(
    'SELECT events, bytes FROM community_totals WHERE community = $1',
    [community],
  );
  return rows[0] ?? { events: 0, bytes: 0 };
}
