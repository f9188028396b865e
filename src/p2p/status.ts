/** What gossip does now, as the holder of the endpoint has written it: for commands, the API and doctor. */
import type { Pool } from 'pg';
import type { NodeSettings } from '../communities/rules-node-settings.js';
import { listMachines, type P2pMachine, readP2pLease } from './p2p.sql.js';
import { type KnownPeer, peersOf } from './peers.js';
import type { P2pState } from './rules-state.js';
import { MACHINE_MS_MAX } from './ticket.js';

export interface P2pStatus {
  readonly enabled: boolean;
  /** An instance holds the endpoint. */
  readonly isHeld: boolean;
  readonly machines: readonly P2pMachine[];
  /** Of the machine that holds the endpoint, or the last that did. */
  readonly state: P2pState | null;
  readonly peers: readonly KnownPeer[];
}

/** The holder writes its state at least every minute. */
const HELD_MS = 150_000;

/** The relay servers of iroh cannot be switched off in this binding. Said wherever gossip is shown. */
export const RELAY_NOTE =
  'iroh 0.35 also connects to a public relay server of its makers (*.relay.iroh.network), which this ' +
  'binding cannot switch off: it sees the address of this machine and the keys of its peers, never events';

export async function readP2pStatus(pool: Pool, node: NodeSettings, now: number): Promise<P2pStatus> {
  const [{ holder }, machines] = await Promise.all([
    readP2pLease(pool),
    listMachines(pool, now - MACHINE_MS_MAX),
  ]);
  return {
    enabled: node['p2p.enabled'],
    // A machine that was killed still has its name in the lease.
    isHeld: holder !== null && machines.some(({ state, seenAt }) => state !== null && now - seenAt < HELD_MS),
    machines,
    state: machines.find(({ state }) => state !== null)?.state ?? null,
    peers: peersOf(node['p2p.peers']),
  };
}
