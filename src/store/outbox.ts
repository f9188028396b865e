/** Reading the outbox and the live bus. Rows come in commit order: a reader of `seq > last` never skips one (I8). */
import type { ClientBase, Pool } from 'pg';
import type { NostrEvent } from '../core/event.js';
import { topicsOf } from '../core/topic.js';

export interface OutboxEntry {
  readonly seq: number;
  readonly community: number;
  readonly op: 'upsert' | 'delete';
  readonly id: string;
}

export async function readHead(db: ClientBase | Pool): Promise<number> {
  const { rows } = await db.query<{ last_seq: number }>('SELECT last_seq FROM lane_state');
  return rows[0]!.last_seq;
}

export async function readOutbox(
  db: ClientBase | Pool,
  after: number,
  limit: number,
): Promise<OutboxEntry[]> {
  const { rows } = await db.query<OutboxEntry>({
    name: 'outbox',
    text: `SELECT seq, community, op, encode(event_id, 'hex') AS id
      FROM events_outbox WHERE seq > $1 ORDER BY seq LIMIT $2`,
    values: [after, limit],
  });
  return rows;
}

/** The topics of the latest events of a community, most used first; looks at a bounded number of its events. */
export async function readRecentTopics(db: Pool, community: number, limit: number): Promise<string[]> {
  const { rows } = await db.query<{ payload: string }>({
    name: 'recent-events',
    text: `SELECT payload FROM events WHERE community = $1 AND hidden IS NULL ORDER BY created_at DESC LIMIT 300`,
    values: [community],
  });
  const uses = new Map<string, number>();
  for (const { payload } of rows) {
    for (const topic of topicsOf(JSON.parse(payload) as NostrEvent))
      uses.set(topic, (uses.get(topic) ?? 0) + 1);
  }
  const byUse = [...uses].sort(([a, usesA], [b, usesB]) => usesB - usesA || (a < b ? -1 : 1));
  return byUse.slice(0, limit).map(([topic]) => topic);
}

export interface BusEntry {
  readonly position: number;
  readonly community: number;
  readonly payload: string;
}

export async function readBusHead(db: ClientBase | Pool): Promise<number> {
  const { rows } = await db.query<{ position: number }>(
    'SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS position FROM live_bus_position',
  );
  return rows[0]!.position;
}

export async function readBus(db: ClientBase | Pool, after: number, limit: number): Promise<BusEntry[]> {
  const { rows } = await db.query<BusEntry>({
    name: 'bus',
    text: 'SELECT position, community, payload FROM live_bus WHERE position > $1 ORDER BY position LIMIT $2',
    values: [after, limit],
  });
  return rows;
}

/** Ephemeral events that every instance has long seen. */
export async function trimBus(db: ClientBase | Pool, sentBefore: number): Promise<void> {
  await db.query('DELETE FROM live_bus WHERE sent_at < $1', [sentBefore]);
}
