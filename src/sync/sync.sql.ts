/** Reads and writes what is known about syncs with peers. */
import type { Client } from 'pg';
import type { Db } from '../postgres/values.js';

/** Where pages were interrupted, in seconds of Nostr. */
export interface Position {
  /** Older events are not done. */
  readonly until: number;
  /** Newer ones are not done either. */
  readonly begunAt: number;
}

export interface PositionKey {
  readonly community: number;
  readonly url: string;
  readonly filter: Buffer;
}

export async function readPosition(
  db: Db,
  { community, url, filter }: PositionKey,
): Promise<Position | undefined> {
  const { rows } = await db.query<Position>(
    `SELECT until, begun_at AS "begunAt" FROM sync_positions
     WHERE community = $1 AND url = $2 AND filter = $3`,
    [community, url, filter],
  );
  return rows[0];
}

export async function writePosition(db: Db, key: PositionKey, { until, begunAt }: Position): Promise<void> {
  await db.query(
    `INSERT INTO sync_positions (community, url, filter, until, begun_at) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (community, url, filter) DO UPDATE SET until = $4, begun_at = $5`,
    [key.community, key.url, key.filter, until, begunAt],
  );
}

export async function deletePosition(db: Db, { community, url, filter }: PositionKey): Promise<void> {
  await db.query('DELETE FROM sync_positions WHERE community = $1 AND url = $2 AND filter = $3', [
    community,
    url,
    filter,
  ]);
}

// ── Peers ──────────────────────────────────────────────────────────────────────────────────────────────────

export interface SyncRun {
  readonly url: string;
  /** Milliseconds. */
  readonly startedAt: number;
  readonly finishedAt: number | null;
  readonly outcome: string;
  readonly counts: Readonly<Record<string, number>>;
}

export async function readRuns(db: Db, community: number): Promise<SyncRun[]> {
  const { rows } = await db.query<SyncRun>(
    `SELECT url, started_at AS "startedAt", finished_at AS "finishedAt", outcome, counts
     FROM sync_runs WHERE community = $1 ORDER BY url`,
    [community],
  );
  return rows;
}

export async function recordRunStart(db: Db, community: number, url: string, now: number): Promise<void> {
  await db.query(
    `INSERT INTO sync_runs (community, url, started_at) VALUES ($1, $2, $3)
     ON CONFLICT (community, url) DO UPDATE SET started_at = $3, finished_at = NULL`,
    [community, url, now],
  );
}

export async function recordRunEnd(
  db: Db,
  community: number,
  run: Pick<SyncRun, 'url' | 'outcome' | 'counts'>,
  now: number,
): Promise<void> {
  await db.query(
    `UPDATE sync_runs SET finished_at = $3, outcome = $4, counts = $5
     WHERE community = $1 AND url = $2`,
    [community, run.url, now, run.outcome, JSON.stringify(run.counts)],
  );
}

export async function deleteRun(db: Db, community: number, url: string): Promise<void> {
  await db.query('DELETE FROM sync_runs WHERE community = $1 AND url = $2', [community, url]);
  await db.query('DELETE FROM sync_positions WHERE community = $1 AND url = $2', [community, url]);
}

/**
 * One instance syncs with a peer at a time. The lock belongs to the session, so it ends with the process that
 * holds it.
 */
const PEER_LOCK = 7_447_077;

export async function lockPeer(session: Client, community: number, url: string): Promise<boolean> {
  const { rows } = await session.query<{ got: boolean }>(
    'SELECT pg_try_advisory_lock($1::int, hashtext($2)) AS got',
    [PEER_LOCK, `${community} ${url}`],
  );
  return rows[0]!.got;
}
