/** Settings as operators change them: only over the version that they have seen, and noted in the audit log. */
import type { Pool } from 'pg';
import { type Denial, denial } from '../core/errors.js';
import { type SettingKey, settingsFrom } from '../core/settings.js';
import { resetSetting, writeSetting } from './communities.js';
import { type Change, changeConfig, type Db } from './config-change.js';
import { fixKeptSince, isRetentionKey } from './kept-since.js';

/** A setting at its default has version 0. */
export interface StoredSetting {
  readonly value: unknown;
  readonly version: number;
  readonly updatedAt: number | null;
}

/** Those that are not at their default. */
export async function readSettingVersions(db: Db, community: number): Promise<Map<string, StoredSetting>> {
  const { rows } = await db.query<StoredSetting & { key: string }>(
    'SELECT key, value, version, updated_at AS "updatedAt" FROM community_settings WHERE community = $1',
    [community],
  );
  return new Map(rows.map(({ key, ...stored }) => [key, stored]));
}

/** The value in force with its version. A stored value that is no longer valid has no effect, but has its version. */
export async function readSetting(db: Db, community: number, key: SettingKey): Promise<StoredSetting> {
  const stored = (await readSettingVersions(db, community)).get(key);
  const value = settingsFrom(new Map(stored === undefined ? [] : [[key, stored.value]]))[key];
  return { value, version: stored?.version ?? 0, updatedAt: stored?.updatedAt ?? null };
}

interface SettingRef {
  readonly community: number;
  readonly key: SettingKey;
  /** What the writer has read; left out, the change is made over whatever is there. */
  readonly seenVersion?: number | undefined;
  readonly actor?: string | undefined;
}

/** `value` has passed `checkSetting`. */
export function changeSetting(
  pool: Pool,
  ref: SettingRef & { readonly value: unknown },
  now: number,
): Promise<StoredSetting | Denial> {
  const { community, key, value } = ref;
  return withSetting(pool, ref, now, async (change, before) => {
    await writeSetting(change.db, community, key, value, now);
    await change.audit('setting.change', key, { from: before.value, to: value });
  });
}

/** Back to the default. */
export function clearSetting(pool: Pool, ref: SettingRef, now: number): Promise<StoredSetting | Denial> {
  const { community, key } = ref;
  return withSetting(pool, ref, now, async (change, before) => {
    if (before.version === 0) return;
    if (isRetentionKey(key)) await fixKeptSince(change.db, community, now);
    await resetSetting(change.db, community, key);
    await change.audit('setting.reset', key, { from: before.value });
  });
}

function withSetting(
  pool: Pool,
  { community, key, seenVersion, actor }: SettingRef,
  now: number,
  work: (change: Change, before: StoredSetting) => Promise<void>,
): Promise<StoredSetting | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readSetting(change.db, community, key);
    if (seenVersion !== undefined && seenVersion !== before.version) {
      return denial('VERSION_MISMATCH', { value: before.value, version: before.version });
    }
    await work(change, before);
    return readSetting(change.db, community, key);
  });
}
