/**
 * Changes of settings by operators: only over the version that they have read, and recorded in the audit log.
 */
import type { Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { fixKeptSince, isRetentionKey } from '../events/postgres/kept-since.js';
import type { Db } from '../postgres/values.js';
import { resetSetting, writeSetting } from './communities.sql.js';
import { type Change, changeConfig, type Within } from './config-change.sql.js';
import { readNodeSettings } from './node-settings.sql.js';
import { ceilingProblem } from './rules-node-settings.js';
import { type SettingKey, settingsAsSet } from './rules-settings.js';

/** A setting at its default has version 0. */
export interface StoredSetting {
  readonly value: unknown;
  readonly version: number;
  readonly updatedAt: number | null;
}

/** The settings that are not at their default. */
export async function readSettingVersions(db: Db, community: number): Promise<Map<string, StoredSetting>> {
  const { rows } = await db.query<StoredSetting & { key: string }>(
    'SELECT key, value, version, updated_at AS "updatedAt" FROM community_settings WHERE community = $1',
    [community],
  );
  return new Map(rows.map(({ key, ...stored }) => [key, stored]));
}

/**
 * The set value with its version; the effective value may be the lower ceiling of the node. A stored value
 * that is no longer valid has no effect but keeps its version.
 */
export async function readSetting(db: Db, community: number, key: SettingKey): Promise<StoredSetting> {
  const stored = (await readSettingVersions(db, community)).get(key);
  const value = settingsAsSet(new Map(stored === undefined ? [] : [[key, stored.value]]))[key];
  return { value, version: stored?.version ?? 0, updatedAt: stored?.updatedAt ?? null };
}

interface SettingRef {
  readonly community: number;
  readonly key: SettingKey;
  /** The version that the writer has read. Without it the change overwrites any version. */
  readonly seenVersion?: number | undefined;
  readonly actor?: string | undefined;
}

/** `value` was checked by `checkSetting`. A value above the ceiling of the node is refused. */
export function changeSetting(
  within: Within,
  ref: SettingRef & { readonly value: unknown },
  now: number,
): Promise<StoredSetting | Denial> {
  const { community, key, value } = ref;
  return withSetting(within, ref, now, async (change, before) => {
    const problem = ceilingProblem(key, value, await readNodeSettings(change.db));
    if (problem !== undefined) return aboveCeiling(problem);
    await writeSetting(change.db, community, key, value, now);
    await change.audit('setting.change', key, { from: before.value, to: value });
    return undefined;
  });
}

/** Resets a setting to its default. */
export function clearSetting(pool: Pool, ref: SettingRef, now: number): Promise<StoredSetting | Denial> {
  const { community, key } = ref;
  return withSetting(pool, ref, now, async (change, before) => {
    if (before.version === 0) return undefined;
    if (isRetentionKey(key)) await fixKeptSince(change.db, community, now);
    await resetSetting(change.db, community, key);
    await change.audit('setting.reset', key, { from: before.value });
    return undefined;
  });
}

const aboveCeiling = (message: string) =>
  denial('INVALID_REQUEST', { problems: [{ path: 'body/value', message }] });

function withSetting(
  within: Within,
  { community, key, seenVersion, actor }: SettingRef,
  now: number,
  work: (change: Change, before: StoredSetting) => Promise<Denial | undefined>,
): Promise<StoredSetting | Denial> {
  return changeConfig(within, { community, actor, now }, async (change) => {
    const before = await readSetting(change.db, community, key);
    if (seenVersion !== undefined && seenVersion !== before.version) {
      return denial('VERSION_MISMATCH', { value: before.value, version: before.version });
    }
    return (await work(change, before)) ?? readSetting(change.db, community, key);
  });
}
