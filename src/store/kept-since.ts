/**
 * Before a rule of retention changes: what is past its days by the rules as they are stays hidden by those that follow (I8). Nothing
 * that is served is hidden by this, so it can be written at any time, any number of times.
 */
import { DAY_MS, defaultSince, historySince } from '../core/retention.js';
import { type SettingKey, settingsFrom } from '../core/settings.js';
import type { Db } from './config-change.js';

const RETENTION_KEYS: readonly SettingKey[] = ['retention.regularDays', 'retention.historyDays'];

export function isRetentionKey(key: SettingKey): boolean {
  return RETENTION_KEYS.includes(key);
}

/** The caller holds the row of `config_version`. */
export async function fixKeptSince(db: Db, community: number, now: number): Promise<void> {
  const { rows } = await db.query<{ keptSince: number; historyKeptSince: number; settings: object }>(
    `SELECT c.kept_since AS "keptSince", c.history_kept_since AS "historyKeptSince",
       coalesce((SELECT jsonb_object_agg(s.key, s.value) FROM community_settings s
         WHERE s.community = c.id AND s.key = ANY ($2)), '{}') AS settings
     FROM communities c WHERE c.id = $1`,
    [community, RETENTION_KEYS],
  );
  const [row] = rows;
  if (row === undefined) return;
  const settings = settingsFrom(new Map(Object.entries(row.settings)));
  const byDefault = defaultSince({ settings, topics: new Map(), keptSince: row.keptSince }, now);
  // A version that is superseded at this moment is kept by the rules that follow.
  const ofHistory = Math.min(now, historySince({ settings, historyKeptSince: row.historyKeptSince }, now));
  await db.query(
    `WITH fixed AS (UPDATE communities SET kept_since = $2::bigint, history_kept_since = $3 WHERE id = $1)
     UPDATE node_subscriptions SET kept_since = CASE
       WHEN NOT ingest_policy ? 'retentionDays' THEN greatest(coalesce(kept_since, $4::bigint), $5::bigint)
       ELSE greatest(kept_since, CASE (ingest_policy ->> 'retentionDays')::int WHEN 0 THEN 0
         ELSE $6::bigint - (ingest_policy ->> 'retentionDays')::int * ${DAY_MS}::bigint END) END
     WHERE community = $1`,
    [community, byDefault, ofHistory, row.keptSince, defaultSince({ settings, topics: new Map() }, now), now],
  );
}
