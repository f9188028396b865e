/**
 * Settings of the whole node. Their changes are in the audit log of the default community, which belongs to
 * the node's operators.
 */
import type { Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import type { Db } from '../postgres/values.js';
import { readDefaultCommunity } from './communities.sql.js';
import { type Change, changeConfig } from './config-change.sql.js';
import { type NodeSettingKey, type NodeSettings, nodeSettingsFrom } from './rules-node-settings.js';
import type { StoredSetting } from './settings.sql.js';

/** The settings that are not at their default. */
export async function readNodeSettingVersions(db: Db): Promise<Map<string, StoredSetting>> {
  const { rows } = await db.query<StoredSetting & { key: string }>(
    'SELECT key, value, version, updated_at AS "updatedAt" FROM node_settings',
  );
  return new Map(rows.map(({ key, ...stored }) => [key, stored]));
}

export async function readNodeSettings(db: Db): Promise<NodeSettings> {
  const stored = await readNodeSettingVersions(db);
  return nodeSettingsFrom(new Map([...stored].map(([key, { value }]) => [key, value])));
}

/** The effective value with its version; the version of a default is 0. */
export async function readNodeSetting(db: Db, key: NodeSettingKey): Promise<StoredSetting> {
  const stored = (await readNodeSettingVersions(db)).get(key);
  const value = nodeSettingsFrom(new Map(stored === undefined ? [] : [[key, stored.value]]))[key];
  return { value, version: stored?.version ?? 0, updatedAt: stored?.updatedAt ?? null };
}

interface NodeSettingRef {
  readonly key: NodeSettingKey;
  /** The version that the writer has read. Without it the change overwrites any version. */
  readonly seenVersion?: number | undefined;
  readonly actor?: string | undefined;
}

/** `value` has passed `checkNodeSetting`. */
export function changeNodeSetting(
  pool: Pool,
  ref: NodeSettingRef & { readonly value: unknown },
  now: number,
): Promise<StoredSetting | Denial> {
  const { key, value } = ref;
  return withNodeSetting(pool, ref, now, async (change, before) => {
    await change.db.query(
      `INSERT INTO node_settings AS s (key, value, version, updated_at)
       SELECT $1, $2, version + 1, $3 FROM config_version
       ON CONFLICT (key) DO UPDATE
       SET value = excluded.value, version = excluded.version, updated_at = excluded.updated_at`,
      [key, JSON.stringify(value), now],
    );
    change.raiseVersion();
    await change.audit('setting.change', key, { from: before.value, to: value });
  });
}

/** Resets a setting to its default. */
export function clearNodeSetting(
  pool: Pool,
  ref: NodeSettingRef,
  now: number,
): Promise<StoredSetting | Denial> {
  return withNodeSetting(pool, ref, now, async (change, before) => {
    if (before.version === 0) return;
    await change.db.query('DELETE FROM node_settings WHERE key = $1', [ref.key]);
    change.raiseVersion();
    await change.audit('setting.reset', ref.key, { from: before.value });
  });
}

async function withNodeSetting(
  pool: Pool,
  { key, seenVersion, actor }: NodeSettingRef,
  now: number,
  work: (change: Change, before: StoredSetting) => Promise<void>,
): Promise<StoredSetting | Denial> {
  const community = await readDefaultCommunity(pool);
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readNodeSetting(change.db, key);
    if (seenVersion !== undefined && seenVersion !== before.version)
      return denial('VERSION_MISMATCH', { value: before.value, version: before.version });
    await work(change, before);
    return readNodeSetting(change.db, key);
  });
}
