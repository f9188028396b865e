/** The faults of one round: pure. Most rounds have two or three, which overlap. */
import {
  INSTANCES,
  LINK_FAULTS,
  LINKS,
  NODES,
  PEER_LINKS,
  type PlannedFault,
  PROCESSES,
  ROUND_MS,
} from './plan.js';
import type { Random } from './random.js';

const KINDS = [
  'kill',
  'kill',
  'freeze',
  'freeze',
  'link',
  'link',
  'link',
  'clock',
  'client',
  'rare',
] as const;

export function planFaults(random: Random): PlannedFault[] {
  const faults = Array.from({ length: random.between(1, 4) }, () => planFault(random));
  return faults.sort((a, b) => a.atMs - b.atMs);
}

function planFault(random: Random): PlannedFault {
  const atMs = random.between(0, ROUND_MS);
  const forMs = random.between(200, 3_500);
  const process = random.pick(PROCESSES);
  switch (random.pick(KINDS)) {
    case 'kill': {
      const atOk = process === 'postgres' && random.chance(0.5);
      const times = (NODES as readonly string[]).includes(process) && random.chance(0.2) ? 3 : 1;
      return { fault: 'kill', process, times, atOk, atMs, forMs: Math.min(forMs, 1_500) };
    }
    case 'freeze':
      return { fault: 'freeze', process, atMs, forMs };
    case 'link':
      return { fault: 'link', link: random.pick(LINKS), how: random.pick(LINK_FAULTS), atMs, forMs };
    case 'clock': {
      const seconds = random.pick([-7_200, -600, -30, 30, 600, 7_200]);
      return { fault: 'clock', node: random.pick(NODES), seconds, atMs, forMs };
    }
    case 'client': {
      const how = random.pick(['slow', 'dead'] as const);
      return { fault: 'client', how, instance: random.between(0, INSTANCES - 1), atMs, forMs };
    }
    case 'rare':
      return random.chance(0.5)
        ? { fault: 'disk-full', atMs, forMs: Math.min(forMs, 2_000) }
        : { fault: 'lost-lease', process: random.pick(['b', 'worker'] as const), atMs: 0, forMs: 6_500 };
  }
}

/** In a world with a peer, most rounds break something of it besides. */
export function planPeerFaults(random: Random): PlannedFault[] {
  if (random.chance(0.3)) return [];
  const atMs = random.between(0, ROUND_MS);
  const forMs = random.between(200, 3_500);
  switch (random.pick(['kill', 'freeze', 'link', 'link', 'endpoint', 'endpoint'] as const)) {
    case 'kill':
      return [{ fault: 'kill', process: 'peer', times: random.chance(0.2) ? 3 : 1, atMs, forMs: forMs / 2 }];
    case 'freeze':
      return [{ fault: 'freeze', process: 'peer', atMs, forMs }];
    case 'link':
      return [{ fault: 'link', link: random.pick(PEER_LINKS), how: random.pick(LINK_FAULTS), atMs, forMs }];
    case 'endpoint': {
      const how = random.pick(['kill', 'freeze'] as const);
      return [{ fault: 'endpoint', of: random.pick(['node', 'peer'] as const), how, atMs, forMs }];
    }
  }
}
