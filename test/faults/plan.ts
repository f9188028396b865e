/**
 * What happens in a world: the operations of clients and the faults, round by round. It is a pure function of
 * the seed and of the number of the world, so a failure is replayed by its seed.
 */
import { planFaults, planPeerFaults } from './plan-faults.js';
import { planShared } from './plan-gossip.js';
import { createRandom, type Random } from './random.js';

/** A world starts with an empty database. So a failure is replayed with this many rounds at most. */
export const ROUNDS_PER_WORLD = 8;
/** Operations begin within this time of a round, and so do the faults. */
export const ROUND_MS = 4_000;
export const COMMUNITIES = ['default', 'art'] as const;
/** The community that gossips with the peer, in the worlds that have one. */
export const SHARED = COMMUNITIES.length;
/** All communities, by their number. */
export const SLUGS = [...COMMUNITIES, 'coast'] as const;
/** A peer makes a world dearer: it has to converge at the end. */
export const hasPeer = (world: number) => world % 4 === 3;
export const TOPICS = ['sea', 'wind', 'sand'] as const;
/** These post for the whole world. */
export const AUTHORS = 10;
/** After them come those who are erased on the way. */
export const LEAVERS = 4;
export const INSTANCES = 2;
/** Where shared events are posted besides the instances. */
export const PEER = INSTANCES;
/** A rule holds posts with this word. */
export const HELD_WORD = 'contraband';
const EPHEMERAL = 20_001;

/** An event that will be signed. It is known by its number in the world. */
export interface PlannedEvent {
  readonly number: number;
  readonly community: number;
  readonly author: number;
  readonly kind: number;
  /** Seconds after the start of the time of the world, which lies in the past. */
  readonly createdAt: number;
  readonly topic: string;
  /** Of an addressable event. */
  readonly d?: string;
  /** Seconds after its signing. */
  readonly expiresIn?: number;
  /** What a deletion request names: numbers of events, and addresses by the number of a version. */
  readonly deletes?: { readonly ids: readonly number[]; readonly addresses: readonly number[] };
  /** Its text has the word of the rule. */
  readonly isHeld?: boolean;
  /** Its signature is wrong. */
  readonly isForged?: boolean;
}

export type Operation = { readonly atMs: number } & (
  | { readonly do: 'post'; readonly event: number; readonly instances: readonly number[] }
  | { readonly do: 'remove' | 'restore'; readonly event: number; readonly instance: number }
  | { readonly do: 'erase'; readonly author: number; readonly instance: number }
  | {
      readonly do: 'request-topic';
      readonly member: number;
      readonly topic: number;
      readonly approve: boolean;
      readonly instance: number;
    }
  | { readonly do: 'import'; readonly events: readonly number[]; readonly killAfterMs?: number }
);

/** A process, or a link between two processes. */
export type Process = 'a' | 'b' | 'worker' | 'postgres' | 'redis' | 'dynamodb' | 'peer';
/** Those of every world. */
export const PROCESSES: readonly Process[] = ['a', 'b', 'worker', 'postgres', 'redis', 'dynamodb'];
export const NODES = ['a', 'b', 'worker'] as const;
export type LinkName =
  | `${(typeof NODES)[number]}-${'postgres' | 'redis' | 'dynamodb'}`
  | 'clients-a'
  | 'clients-b'
  | (typeof PEER_LINKS)[number];
/** `fill-peer`: what the node uses to fill gaps. Gossip itself is UDP and breaks with its endpoint. */
export const PEER_LINKS = ['peer-postgres', 'clients-peer', 'fill-peer'] as const;
/** The link through which clients reach an instance or the peer. */
export const clientLinkOf = (place: number) => (['clients-a', 'clients-b', 'clients-peer'] as const)[place]!;
/** Those of every world. */
export const LINKS: readonly LinkName[] = [
  ...NODES.flatMap((node) =>
    (['postgres', 'redis', 'dynamodb'] as const).map((to) => `${node}-${to}` as const),
  ),
  'clients-a',
  'clients-b',
];

export type PlannedFault = {
  readonly atMs: number;
  readonly forMs: number;
} /** SIGKILL; started again after `forMs`. `times` for a restart loop: killed again while it starts. */ & (
  | {
      readonly fault: 'kill';
      readonly process: Process;
      readonly times: number;
      /** At the moment when a client gets an OK. */
      readonly atOk?: boolean;
    }
  /** SIGSTOP, then SIGCONT. */
  | { readonly fault: 'freeze'; readonly process: Process }
  | { readonly fault: 'link'; readonly link: LinkName; readonly how: LinkFault }
  | { readonly fault: 'disk-full' }
  /** The clock of an instance jumps by so many seconds, and back. */
  | { readonly fault: 'clock'; readonly node: (typeof NODES)[number]; readonly seconds: number }
  /** A client that asks for everything and does not read; one that sends half a message. */
  | { readonly fault: 'client'; readonly how: 'slow' | 'dead'; readonly instance: number }
  /** A worker is frozen until another one has taken its leases. */
  | { readonly fault: 'lost-lease'; readonly process: 'b' | 'worker' }
  /** The process of iroh at one end of gossip. */
  | { readonly fault: 'endpoint'; readonly of: 'node' | 'peer'; readonly how: 'kill' | 'freeze' }
);
export const LINK_FAULTS = ['cut', 'refuse', 'stall', 'slow', 'half-open', 'lose-answers'] as const;
export type LinkFault = (typeof LINK_FAULTS)[number];

export interface Round {
  readonly operations: readonly Operation[];
  readonly faults: readonly PlannedFault[];
}
export interface World {
  readonly events: readonly PlannedEvent[];
  readonly rounds: readonly Round[];
}

const D_VALUES = ['', 'a', 'a:b'];
const POSTS = 48;
const VERSIONS = 22;
const REQUESTS = 12;
const IMPORTED = 12;

export function planWorld(seed: number, world: number): World {
  const events: PlannedEvent[] = [];
  const rounds: Round[] = [];
  const removed: number[] = [];
  for (let round = 0; round < ROUNDS_PER_WORLD; round += 1) {
    const random = createRandom('round', seed, world, round);
    const operations = planOperations(random, round, events, removed);
    const faults = planFaults(createRandom('faults', seed, world, round));
    if (hasPeer(world)) {
      operations.push(...planShared(createRandom('shared', seed, world, round), round, events));
      faults.push(...planPeerFaults(createRandom('peer', seed, world, round)));
    }
    rounds.push({ operations: operations.sort((a, b) => a.atMs - b.atMs), faults });
  }
  return { events, rounds };
}

/** Which leaver is erased in a round. */
const leaverOf = (round: number) => (round % 2 === 1 ? AUTHORS + (round - 1) / 2 : undefined);
export const isGone = (author: number, round: number) =>
  author >= AUTHORS && (author - AUTHORS) * 2 + 1 < round;

function planOperations(
  random: Random,
  round: number,
  events: PlannedEvent[],
  removed: number[],
): Operation[] {
  const operations: Operation[] = [];
  const isPresent = (author: number) => !isGone(author, round);
  const present = Array.from({ length: AUTHORS + LEAVERS }, (_, author) => author).filter(isPresent);
  const soon = () => random.between(0, ROUND_MS);
  const instance = () => random.between(0, INSTANCES - 1);
  const instances = () => (random.chance(0.15) ? [0, 1] : [instance()]);
  const add = (event: Omit<PlannedEvent, 'number'>): number => {
    events.push({ ...event, number: events.length });
    return events.length - 1;
  };
  const first = events.length;
  const draft = () => ({
    community: random.chance(0.2) ? 1 : 0,
    author: random.pick(present),
    createdAt: round * 60 + random.between(0, 59),
    topic: random.pick(TOPICS),
  });

  for (let at = 0; at < POSTS; at += 1) {
    const kind = random.chance(0.08) ? EPHEMERAL : 1;
    const special =
      kind === 1
        ? random.pick([
            {},
            {},
            {},
            {},
            {},
            { isHeld: true },
            { isForged: true },
            { expiresIn: random.between(1, 8) },
          ])
        : {};
    const number = add({ ...draft(), kind, ...special });
    operations.push({ do: 'post', event: number, instances: instances(), atMs: soon() });
  }
  for (let at = 0; at < VERSIONS; at += 1) {
    const kind = random.pick([0, 10_002, 30_023, 30_023]);
    const number = add({
      ...draft(),
      author: random.pick(present.slice(0, 4)),
      kind,
      // Few times, so that versions tie.
      createdAt: random.between(0, round * 20 + 20),
      ...(kind === 30_023 ? { d: random.pick(D_VALUES) } : {}),
    });
    operations.push({ do: 'post', event: number, instances: instances(), atMs: soon() });
  }
  planDeletions(random, round, { events, first, add, operations, soon, instances });
  planModeration(random, { events, removed, operations, soon, instance, round });
  const leaver = leaverOf(round);
  if (leaver !== undefined && leaver < AUTHORS + LEAVERS)
    operations.push({ do: 'erase', author: leaver, instance: instance(), atMs: soon() });
  if (random.chance(0.5))
    operations.push({
      do: 'request-topic',
      member: random.between(0, AUTHORS - 1),
      topic: random.between(0, 5),
      approve: random.chance(0.7),
      instance: instance(),
      atMs: soon(),
    });
  if (random.chance(0.3)) {
    const imported = Array.from({ length: IMPORTED }, () =>
      add({ ...draft(), author: random.between(0, AUTHORS - 1), kind: 1 }),
    );
    const killed = random.chance(0.5) ? { killAfterMs: random.between(300, 3_000) } : {};
    operations.push({ do: 'import', events: imported, atMs: soon() / 2, ...killed });
  }
  return operations;
}

interface Planning {
  readonly events: PlannedEvent[];
  readonly operations: Operation[];
  readonly soon: () => number;
}

/** Requests by the author and by strangers; half of the targets are of this round, before and after it. */
function planDeletions(
  random: Random,
  round: number,
  {
    events,
    first,
    add,
    operations,
    soon,
    instances,
  }: Planning & {
    readonly first: number;
    readonly add: (event: Omit<PlannedEvent, 'number'>) => number;
    readonly instances: () => number[];
  },
): void {
  const targets = events.filter(
    ({ community, kind, isForged }) => community !== SHARED && kind !== 5 && kind !== EPHEMERAL && !isForged,
  );
  const fresh = targets.filter(({ number }) => number >= first);
  for (let at = 0; at < REQUESTS; at += 1) {
    const target = random.pick(random.chance(0.5) ? fresh : targets);
    if (isGone(target.author, round)) continue;
    const isStranger = random.chance(0.2);
    const author = isStranger ? (target.author + 1) % 4 : target.author;
    const byAddress = target.kind !== 1 && random.chance(0.7);
    const others = random.chance(0.3) ? [random.pick(targets).number] : [];
    const number = add({
      community: target.community,
      author,
      kind: 5,
      createdAt: Math.max(0, target.createdAt + random.pick([-1, 0, 0, 1, 5])),
      topic: target.topic,
      deletes: byAddress
        ? { ids: others, addresses: [target.number] }
        : { ids: [target.number, ...others], addresses: [] },
    });
    operations.push({ do: 'post', event: number, instances: instances(), atMs: soon() });
  }
}

/** Posts of earlier rounds are removed; some of them are restored later. */
function planModeration(
  random: Random,
  {
    events,
    removed,
    operations,
    soon,
    instance,
    round,
  }: Planning & { readonly removed: number[]; readonly instance: () => number; readonly round: number },
): void {
  if (round === 0) return;
  if (removed.length > 0 && random.chance(0.4)) {
    const at = random.between(0, removed.length - 1);
    const [event] = removed.splice(at, 1);
    operations.push({ do: 'restore', event: event!, instance: instance(), atMs: soon() });
  }
  const posts = events.filter(
    ({ kind, community, author, isHeld, isForged, expiresIn, createdAt }) =>
      kind === 1 &&
      community === 0 &&
      author < AUTHORS &&
      !isHeld &&
      !isForged &&
      expiresIn === undefined &&
      createdAt < round * 60,
  );
  for (let at = 0; at < 2; at += 1) {
    const { number } = random.pick(posts);
    if (removed.includes(number)) continue;
    removed.push(number);
    operations.push({ do: 'remove', event: number, instance: instance(), atMs: soon() });
  }
}
