/**
 * Which kinds, topics and authors the newest events of a community have. Nothing is stored for this: it reads
 * the newest rows of the outbox, at most ROWS_MAX of all communities together. An erasure deletes those rows.
 */
import type { Db } from '../postgres/values.js';

export const ROWS_MAX = 20_000;

export interface Share {
  readonly name: string;
  readonly events: number;
}

export interface Activity {
  readonly events: number;
  /** When the oldest of them arrived; null without any. */
  readonly since: number | null;
  readonly kinds: readonly Share[];
  readonly topics: readonly Share[];
  readonly authors: readonly Share[];
}

/** The most frequent of each, `limit` at most. */
export async function readActivity(db: Db, community: number, limit: number): Promise<Activity> {
  const top = (select: string) =>
    `(SELECT coalesce(json_agg(json_build_object('name', name, 'events', events)), '[]')
      FROM (SELECT name, count(*) AS events FROM (${select}) x GROUP BY name
        ORDER BY events DESC, name LIMIT $2) t)`;
  const { rows } = await db.query<Activity>(
    `WITH newest AS MATERIALIZED (
       SELECT kind, topics, author, ingested_at FROM events_outbox
       WHERE seq > (SELECT last_seq FROM lane_state) - ${ROWS_MAX}
         AND community = $1 AND op = 'upsert' AND ingested_at >= 0)
     SELECT (SELECT count(*) FROM newest) AS events, (SELECT min(ingested_at) FROM newest) AS since,
       ${top('SELECT kind::text AS name FROM newest')} AS kinds,
       ${top('SELECT unnest(topics) AS name FROM newest')} AS topics,
       ${top("SELECT encode(author, 'hex') AS name FROM newest")} AS authors`,
    [community, limit],
  );
  return rows[0]!;
}
