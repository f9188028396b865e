/**
 * Called before a retention rule changes. Events past their days by the old rules stay hidden by the new ones
 * (I8). It hides no served event, so it can be written at any time, any number of times.
 */

import { type SettingKey, settingsFrom } from '../../communities/rules-settings.js';
import type { Db } from '../../postgres/values.js';
import { DAY_MS, defaultSince, historySince } from '../rules/retention.js';

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
  // A version that is superseded at this very moment is kept by the new rules.
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
