/**
 * Fills gaps of a topic from a peer, at low priority: after this node joined the topic, or was away. It is
 * the engine of `minato sync` (sync/exchange.ts) with less at once, and it ends as soon as capacity is short:
 * backfill is what a node stops first (docs/capacity.md). What this node has deleted or erased does not come
 * back, because every event passes admission (I6).
 */
import type { Direction, Synced, SyncParts, SyncProgress } from './exchange.js';
import { syncWithPeer } from './exchange.js';

export interface Gap {
  /** The id of the community. */
  readonly community: number;
  readonly topic: string;
  /** The websocket address of the peer. */
  readonly url: string;
  readonly direction: Direction;
  /** Seconds: only events from then on. */
  readonly since?: number | undefined;
  readonly signal: AbortSignal;
  readonly onProgress?: ((progress: SyncProgress) => void) | undefined;
}

/** How it ended. It never rejects: a peer that fails is a result. */
export type Filled = Synced;

/**
 * `parts`: of the node. `allowsPrivate`: the peer may be on this machine or in a private network; by default
 * the setting `node.syncPrivatePeers`.
 */
export function fillFromPeer(
  gap: Gap,
  parts: SyncParts & { readonly allowsPrivate?: boolean },
): Promise<Filled> {
  const { community, topic, url, direction, since, signal, onProgress } = gap;
  return syncWithPeer({ community, url, direction, topics: [topic], since }, parts, {
    signal,
    onProgress,
    isLowPriority: true,
    allowsPrivate: parts.allowsPrivate ?? parts.communities.node()['node.syncPrivatePeers'],
  });
}
