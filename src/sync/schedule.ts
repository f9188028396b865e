/**
 * Syncs with the peers of all communities on their schedules (setting `sync.peers`), in the role worker, at
 * low priority. One instance syncs with a peer at a time. A few run at once, and each has a longest time
 * (I14).
 */
import type { Community } from '../communities/communities.js';
import { startPolling } from '../limits/poll-loop.js';
import type { Database } from '../postgres/database.js';
import { type Synced, type SyncParts, syncWithPeer } from './exchange.js';
import { isDue, type SyncPeer } from './rules-peers.js';
import { lockPeer, readRuns, recordRunEnd, recordRunStart } from './sync.sql.js';

const LOOK_MS = 5_000;
const AT_ONCE_MAX = 2;
const RUN_MS_MAX = 3_600_000;

export interface PeerScheduleOptions {
  readonly database: Pick<Database, 'connect' | 'pool'>;
  readonly parts: SyncParts;
  /** How often it looks which peers are due. */
  readonly lookMs?: number;
}

/** Returns a function that stops it, and what runs. */
export function startPeerSchedule({
  database,
  parts,
  lookMs = LOOK_MS,
}: PeerScheduleOptions): () => Promise<void> {
  const stopping = new AbortController();
  const running = new Map<string, Promise<void>>();
  const { log } = parts;

  const look = async (): Promise<void> => {
    try {
      for (const community of parts.communities.all()) await startDue(community);
    } catch (error) {
      log.warn({ error: String(error) }, 'the schedule of peers could not be read');
    }
  };
  const startDue = async (community: Community): Promise<void> => {
    const peers = community.settings['sync.peers'];
    if (peers.length === 0) return;
    const runs = new Map(
      (await readRuns(database.pool, community.id)).map((run) => [run.url, run.startedAt]),
    );
    for (const peer of peers) {
      const key = `${community.id} ${peer.url}`;
      if (running.has(key) || running.size >= AT_ONCE_MAX) continue;
      if (!isDue(peer, runs.get(peer.url), parts.now())) continue;
      const run = runOnce(community, peer, database, parts, stopping.signal)
        .catch((error: unknown) => log.warn({ peer: peer.url, error: String(error) }, 'a sync failed'))
        .finally(() => running.delete(key));
      running.set(key, run);
    }
  };
  const stop = startPolling(lookMs, look);
  return async () => {
    stopping.abort();
    await stop();
    await Promise.all(running.values());
  };
}

async function runOnce(
  { id }: Community,
  peer: SyncPeer,
  database: Pick<Database, 'connect' | 'pool'>,
  parts: SyncParts,
  signal: AbortSignal,
): Promise<void> {
  const session = await database.connect();
  try {
    if (!(await lockPeer(session, id, peer.url))) return;
    await recordRunStart(database.pool, id, peer.url, parts.now());
    const { url, direction, topics } = peer;
    const plan = { community: id, url, direction, topics: topics.length === 0 ? undefined : topics };
    const result = await syncWithPeer(plan, parts, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(RUN_MS_MAX)]),
      isLowPriority: true,
      allowsPrivate: parts.communities.node()['node.syncPrivatePeers'],
    });
    if (result.ended === 'failed')
      parts.log.warn({ peer: url, why: result.why }, 'a sync with a peer failed');
    await recordRunEnd(database.pool, id, { url, ...outcomeOf(result) }, parts.now());
  } finally {
    await session.end().catch(() => undefined);
  }
}

function outcomeOf({ ended, why, received, stored, sent, skipped, missing }: Synced) {
  return {
    outcome: why === '' ? ended : `${ended}: ${why}`.slice(0, 500),
    counts: { received, stored, sent, skipped, missing },
  };
}
