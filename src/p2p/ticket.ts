/** The ticket of this database: all its machines, with the websocket addresses of one community. */
import type { Pool } from 'pg';
import { addressesOf } from '../communities/addresses.js';
import type { Communities, Community } from '../communities/communities.js';
import { listMachines, type P2pMachine } from './p2p.sql.js';
import type { P2pState } from './rules-state.js';
import { writeTicket } from './rules-ticket.js';

/** A machine that was not seen for so long is no longer in the ticket. */
export const MACHINE_MS_MAX = 7 * 86_400_000;
const REFRESH_MS = 5_000;

/** Undefined until a machine has taken part in gossip. */
export function ticketOf(
  community: Pick<Community, 'slug' | 'host' | 'settings'>,
  machines: readonly P2pMachine[],
): string | undefined {
  if (machines.length === 0) return undefined;
  // The address to show of each machine; mostly all have the same.
  const urls = machines.flatMap(({ bases }) => addressesOf(community, bases.slice(0, 1)).slice(0, 1));
  return writeTicket({
    machines: machines.map(({ machine, addresses }) => ({ id: machine, addresses: [...addresses] })),
    urls: [...new Set(urls)],
  });
}

/** The state while no endpoint is open. */
export function noState(problem: string | null, now: number): P2pState {
  return {
    problem,
    since: now,
    isPortTaken: false,
    relay: null,
    topics: 0,
    topicsWanted: 0,
    neighbours: [],
    dropped: [],
    counts: {
      sentEvents: 0,
      sentMessages: 0,
      receivedMessages: 0,
      accepted: 0,
      duplicates: 0,
      refused: 0,
      invalid: 0,
      discarded: 0,
      lagged: 0,
    },
    offset: 0,
    catchUp: { available: false, waiting: 0, done: 0, failed: 0, lastError: null },
  };
}

export interface Tickets {
  /** Undefined while gossip is off, in the node or in the community. */
  of(community: Community): string | undefined;
}

/** Keeps the machines at hand for NIP-11, which must not ask the database for each client. */
export function watchTickets(pool: Pool, communities: Communities, now: () => number): Tickets {
  let machines: readonly P2pMachine[] = [];
  let readAt = Number.NEGATIVE_INFINITY;
  communities.afterPoll(async () => {
    if (!communities.node()['p2p.enabled'] || now() - readAt < REFRESH_MS) return;
    readAt = now();
    machines = await listMachines(pool, now() - MACHINE_MS_MAX);
  });
  return {
    of: (community) =>
      communities.node()['p2p.enabled'] && community.settings['p2p.gossip']
        ? ticketOf(community, machines)
        : undefined,
  };
}
