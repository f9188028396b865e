/** The query slots of one client, and its turns on the event loop. */
import type { Community } from '../communities/communities.js';
import type { LoopTurns, TurnClient } from '../limits/loop-turns.js';
import { isExempt } from '../port/rate.js';
import type { Client } from './input/incoming.js';
import type { QueryClient, QueryGate } from './query-gate.js';
import type { QuerySlots } from './stored.js';

interface Asker {
  readonly client: Client;
  readonly turnClient: TurnClient;
}

interface Shared {
  readonly gate: QueryGate;
  readonly turns: LoopTurns;
}

export function slotsOf(
  community: Community,
  { client, turnClient }: Asker,
  { gate, turns }: Shared,
  isGone: () => boolean,
): QuerySlots {
  const asker: QueryClient = {
    client,
    community: community.id,
    isExempt: isExempt(client, community.settings),
    isGone,
  };
  return {
    run: (cost, query) => gate.run(asker, cost, query),
    turn: (work) => turns.run(turnClient, work),
    isGreedy: () => turns.isGreedy(turnClient),
    charge: (ms) => gate.charge(asker, ms),
  };
}
