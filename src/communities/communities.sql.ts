/** Communities and their settings. Every change raises one version number, which all instances poll. */
import { fixKeptSince, isRetentionKey } from '../events/postgres/kept-since.js';
import type { RefusedAs } from '../members/rules.js';
import type { Role } from '../members/rules-roles.js';
import { SUBJECT_FINGERPRINT } from '../node/state.sql.js';
import type { PolicyRef } from '../policies/rules.js';
import { errorCode, SQLSTATE } from '../postgres/rules-error-code.js';
import type { Db } from '../postgres/values.js';
import { globalTopic } from '../topics/rules-id.js';
import { pinGlobalTopic } from '../topics/topics.sql.js';
import { type SettingKey, settingDefinitions } from './rules-settings.js';

export interface CommunityRow {
  readonly id: number;
  readonly slug: string;
  readonly host: string | null;
  readonly settings: ReadonlyMap<string, unknown>;
  /** When auth.mode was set, in milliseconds. */
  readonly authModeAt: number;
  /** Keys of members who are disabled, deleted or being erased. */
  readonly refused: Readonly<Record<string, RefusedAs>>;
  /** Seconds. Events up to this time are refused: they belong to an erased community of the same name. */
  readonly refusedUntil: number | null;
  /** Operators besides those of MINATO_ADMIN_PUBKEYS. */
  readonly operators: Readonly<Record<string, Role>>;
  /** The current versions of the texts that members agree to. */
  readonly policies: readonly PolicyRef[];
  /**
   * Milliseconds. Events that arrived before this were already past retention when the rules last changed.
   * `historyKeptSince` is the same for superseded versions, by when they were superseded.
   */
  readonly keptSince: number;
  readonly historyKeptSince: number;
  /** Public keys by NIP-05 name. */
  readonly names: Readonly<Record<string, string>>;
  /** The relay's own public key, once it exists. */
  readonly self: string | null;
}

export interface ConfigVersions {
  readonly version: number;
  readonly rightsVersion: number;
  /** Fingerprint of the erasure key, once it exists. */
  readonly subjectFingerprint: string | null;
  /** Version of the enabled moderation rules. */
  readonly rulesVersion: number;
}

export const DEFAULT_SLUG = 'default';
export const SLUG = /^[a-z0-9][a-z0-9-]{0,62}$/;
export const HOST = /^[a-z0-9.-]{1,253}$/;

/** The end of an erased community of this name: its events are refused for ever (I6). */
const ERASED_UNTIL = `(SELECT max(e.until) FROM erasures e
  WHERE e.type = 'community' AND e.stage = 'completed' AND e.slug = $1)`;
/** Part of the statement that creates a community: the global topic is carried from the start. */
const PIN_GLOBAL_SQL = `INSERT INTO node_subscriptions (
  community, topic, pinned, public, created_at, updated_at)
  SELECT id, $4::text, true, true, $3, $3 FROM made`;
const GLOBAL_TOPIC = globalTopic(settingDefinitions['topic.namespace'].default);

/** Triggers notify it when `readConfigVersions` would see a change, and for requests for keys. */
export const CONFIG_CHANNEL = 'minato_config';

export async function readConfigVersions(db: Db): Promise<ConfigVersions> {
  const { rows } = await db.query<ConfigVersions>({
    name: 'config-version',
    text: `SELECT version, rights_version AS "rightsVersion",
      (SELECT value FROM node_state WHERE key = '${SUBJECT_FINGERPRINT}') AS "subjectFingerprint",
      (SELECT version FROM moderation_version) AS "rulesVersion" FROM config_version`,
  });
  return rows[0]!;
}

/** The open communities, or those that are being erased, which no client can reach any more. */
export async function readCommunities(db: Db, { closing = false } = {}): Promise<CommunityRow[]> {
  const { rows } = await db.query<{
    id: number;
    slug: string;
    host: string | null;
    settings: Record<string, unknown>;
    authModeAt: number;
    refused: Record<string, RefusedAs>;
    refusedUntil: number | null;
    operators: Record<string, Role>;
    policies: PolicyRef[];
    keptSince: number;
    historyKeptSince: number;
    names: Record<string, string>;
    self: string | null;
  }>(
    `SELECT c.id, c.slug, c.host, c.refused_until AS "refusedUntil", c.kept_since AS "keptSince",
       c.history_kept_since AS "historyKeptSince",
       coalesce(jsonb_object_agg(s.key, s.value) FILTER (WHERE s.key IS NOT NULL), '{}') AS settings,
       coalesce(max(s.updated_at) FILTER (WHERE s.key = 'auth.mode'), 0) AS "authModeAt",
       coalesce((SELECT jsonb_object_agg(encode(r.pubkey, 'hex'), r.why) FROM (
         SELECT m.pubkey, m.status AS why FROM members m WHERE m.community = c.id AND m.status <> 'active'
           AND NOT is_fenced(c.id, m.pubkey)
         UNION SELECT e.pubkey, 'erasing' FROM erasures e WHERE e.community = c.id
           AND e.stage IN ('fenced', 'counted', 'deleting', 'verifying')
           AND is_fenced(c.id, e.pubkey)) r), '{}') AS refused,
       coalesce((SELECT jsonb_object_agg(encode(o.pubkey, 'hex'), o.role) FROM operators o
         WHERE o.community = c.id), '{}') AS operators,
       coalesce((SELECT jsonb_agg(jsonb_build_object('type', p.type, 'version', p.version) ORDER BY p.type)
         FROM policy_versions p WHERE p.community = c.id AND p.status = 'current'), '[]') AS policies,
       coalesce((SELECT jsonb_object_agg(m.name, encode(m.pubkey, 'hex')) FROM members m
         WHERE m.community = c.id AND m.name IS NOT NULL AND m.status = 'active'), '{}') AS names,
       (SELECT encode(k.pubkey, 'hex') FROM node_keys k
         WHERE k.community = c.id AND k.purpose = 'relay' AND k.retired_at IS NULL) AS self
     FROM communities c LEFT JOIN community_settings s ON s.community = c.id
     WHERE (c.closed_at IS NULL) = $1 GROUP BY c.id ORDER BY c.id`,
    [!closing],
  );
  return rows.map((row) => ({ ...row, settings: new Map(Object.entries(row.settings)) }));
}

/** The default community, which every node has. */
export async function readDefaultCommunity(db: Db): Promise<number> {
  const { rows } = await db.query<{ id: number }>('SELECT id FROM communities WHERE slug = $1', [
    DEFAULT_SLUG,
  ]);
  return rows[0]!.id;
}

/** When this database was created, in milliseconds. A restored backup keeps the time of its original. */
export async function readMadeAt(db: Db): Promise<number> {
  const { rows } = await db.query<{ at: number }>(
    'SELECT created_at AS at FROM communities WHERE slug = $1',
    [DEFAULT_SLUG],
  );
  return rows[0]!.at;
}

/** Adds a community. Throws an Error with a sentence if the name is invalid or taken. */
export async function addCommunity(
  db: Db,
  slug: string,
  givenHost: string | undefined,
  now: number,
): Promise<number> {
  const host = givenHost?.toLowerCase();
  if (!SLUG.test(slug)) {
    throw new Error(
      `"${slug}" is not a valid community name: ` +
        'use 1 to 63 of a–z, 0–9 and -, starting with a letter or digit',
    );
  }
  if (host !== undefined && !HOST.test(host)) throw new Error(`"${host}" is not a host name`);
  const made = await insertCommunity(db, slug, host, now);
  if (made !== undefined) return made;
  throw new Error(
    `a community with the name "${slug}"${host ? ` or the host "${host}"` : ''} already exists`,
  );
}

/** Name and host were checked. Undefined when one of them is taken; an open transaction has failed then. */
export async function insertCommunity(
  db: Db,
  slug: string,
  host: string | undefined,
  now: number,
): Promise<number | undefined> {
  try {
    const { rows } = await db.query<{ id: number }>(
      `WITH changed AS (UPDATE config_version SET version = version + 1), made AS (
         INSERT INTO communities (slug, host, created_at, refused_until)
         VALUES ($1, $2, $3, ${ERASED_UNTIL}) RETURNING id
       ), pinned AS (${PIN_GLOBAL_SQL})
       SELECT id FROM made`,
      [slug, host ?? null, now, GLOBAL_TOPIC],
    );
    return rows[0]!.id;
  } catch (error) {
    if (errorCode(error) !== SQLSTATE.uniqueViolation) throw error;
    return undefined;
  }
}

/** Creates the default community with its first settings. Only the first instance does it. */
export async function ensureDefaultCommunity(
  db: Db,
  first: Partial<Record<SettingKey, unknown>>,
  now: number,
): Promise<void> {
  await db.query(
    `WITH made AS (
       INSERT INTO communities (slug, created_at) VALUES ($1, $3) ON CONFLICT (slug) DO NOTHING RETURNING id
     ), pinned AS (${PIN_GLOBAL_SQL})
     INSERT INTO community_settings (community, key, value, updated_at)
     SELECT made.id, s.key, s.value, $3 FROM made, jsonb_each($2) AS s (key, value)`,
    [DEFAULT_SLUG, JSON.stringify(first), now, GLOBAL_TOPIC],
  );
}

/**
 * Returns the new version of the setting. Versions come from the one version of all configuration, so no
 * version repeats; a setting at its default has version 0. `updated_at` is when the value last changed:
 * saving the same value is not a change.
 */
export async function writeSetting(
  db: Db,
  community: number,
  key: SettingKey,
  value: unknown,
  now: number,
): Promise<number> {
  if (isRetentionKey(key)) await fixKeptSince(db, community, now);
  const { rows } = await db.query<{ version: number }>(
    `WITH changed AS (UPDATE config_version SET version = version + 1 RETURNING version)
     INSERT INTO community_settings AS s (community, key, value, version, updated_at)
     SELECT $1, $2, $3, changed.version, $4 FROM changed
     ON CONFLICT (community, key) DO UPDATE
     SET value = excluded.value, version = excluded.version,
       updated_at = CASE WHEN s.value = excluded.value THEN s.updated_at ELSE excluded.updated_at END
     RETURNING version`,
    [community, key, JSON.stringify(value), now],
  );
  if (key === 'topic.namespace') await pinGlobalTopic(db, community, String(value), now);
  return rows[0]!.version;
}

export async function resetSetting(db: Db, community: number, key: SettingKey): Promise<void> {
  await db.query(
    `WITH changed AS (UPDATE config_version SET version = version + 1 RETURNING version)
     DELETE FROM community_settings USING changed WHERE community = $1 AND key = $2`,
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
