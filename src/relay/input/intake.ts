/**
 * Processes the waiting frames of all clients round-robin: by community, within it by network, within that by
 * connection. So a hundred connections of one address get no more than one connection of another. Networks
 * share by weight: each turn is worth one small frame, and a large one waits for several turns, so that large
 * frames of many addresses do not delay small ones (I18).
 *
 * Work goes in short slices, so that a flood of frames never delays the rest of the event loop:
 * answers of the database to the lane, deliveries, other clients. The slices of greedy clients
 * (limits/work.ts) are shorter, come after those of the others, and have rests between them
 * (limits/greedy-share.ts): an answer takes several passes of the event loop, and each of them is as long as
 * its slices. How much may wait is bounded by each client's connection, which then stops reading its socket.
 */
import { weightOf } from '../../events/rules/weight.js';
import { GreedyShare, RestAlarm } from '../../limits/greedy-share.js';

/**
 * Without slices a full read of eight sockets took 20 ms, and the lane waited as long for each answer of the
 * database.
 */
const SLICE_MS = 1;
/** Of all greedy clients together. */
const GREEDY_SLICE_MS = 0.25;
/** Entries already passed that a queue may keep before it is shortened. */
const LEFT_MAX = 1_024;

export interface FrameSource {
  /** Bytes of the next frame; 0 when there is none. */
  readonly nextBytes: number;
  /** Its client uses the event loop much: see limits/work.ts. */
  readonly isGreedy: boolean;
  /** Processes the next frame. True when there is another. */
  takeFrame(): boolean;
}

export class Intake {
  private readonly modest = new Rounds();
  private readonly greedy = new Rounds();
  private scheduled = false;
  private readonly alarm: RestAlarm;

  /** `now`: a monotonic clock in milliseconds. */
  constructor(
    private readonly share = new GreedyShare(),
    private readonly now: () => number = () => performance.now(),
  ) {
    this.alarm = new RestAlarm(share, () => this.schedule());
  }

  /** `network`: connections that share one place in the round-robin. */
  join(source: FrameSource, community: number, network: string): Place {
    const networks = {
      modest: this.modest.join(community, network),
      greedy: this.greedy.join(community, network),
    };
    return new Place(this, networks, source);
  }

  leave({ networks }: Place): void {
    this.modest.leave(networks.modest);
    this.greedy.leave(networks.greedy);
  }

  add(place: Place): void {
    if (place.source.isGreedy) this.greedy.add(place, place.networks.greedy);
    else {
      this.modest.add(place, place.networks.modest);
      this.share.noteOther();
    }
    this.schedule();
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    setImmediate(() => {
      this.scheduled = false;
      this.work();
    });
  }

  private work(): void {
    this.serve(this.modest, SLICE_MS);
    if (this.greedy.isWaiting && this.share.restMs() === 0) {
      const begunMs = this.now();
      this.serve(this.greedy, GREEDY_SLICE_MS);
      this.share.use(this.now() - begunMs);
    }
    if (this.modest.isWaiting) this.schedule();
    else if (this.greedy.isWaiting) this.alarm.set();
  }

  /** At least one frame, if there is one. */
  private serve(rounds: Rounds, sliceMs: number): void {
    const end = this.now() + sliceMs;
    while (rounds.isWaiting) {
      const place = rounds.next();
      if (place?.source.takeFrame()) this.add(place);
      if (this.now() >= end) return;
    }
  }
}

/** A round-robin of communities, in each of networks, and in each of connections. */
class Rounds {
  private readonly communities = new Line<Community>();
  private readonly known = new Map<number, Community>();

  get isWaiting(): boolean {
    return this.communities.size > 0;
  }

  join(community: number, network: string): Network {
    const its = this.known.get(community) ?? new Community(community);
    this.known.set(community, its);
    const group = its.networks.get(network) ?? new Network(network, its);
    its.networks.set(network, group);
    group.places += 1;
    return group;
  }

  leave(network: Network): void {
    network.places -= 1;
    if (network.places > 0) return;
    const { community } = network;
    community.networks.delete(network.key);
    if (community.networks.size === 0) this.known.delete(community.id);
  }

  add(place: Place, network: Network): void {
    network.line.push(place);
    network.community.line.push(network);
    this.communities.push(network.community);
  }

  /** Whose frame is next. Undefined if a network has to save turns for its next frame. */
  next(): Place | undefined {
    const community = this.communities.shift();
    const network = community?.line.shift();
    const place = network?.line.first;
    if (community === undefined || network === undefined || place === undefined) return undefined;
    const isAlone = community.line.size + this.communities.size === 0;
    const mayGo = network.maySend(place.source.nextBytes) || isAlone;
    if (mayGo) network.line.shift();
    if (network.line.size > 0) community.line.push(network);
    else network.credit = 0;
    if (community.line.size > 0) this.communities.push(community);
    return mayGo ? place : undefined;
  }
}

/** Where the frames of one connection wait. */
export class Place {
  inLine = false;

  constructor(
    private readonly intake: Intake,
    readonly networks: { readonly modest: Network; readonly greedy: Network },
    readonly source: FrameSource,
  ) {}

  /** The connection has frames. */
  add(): void {
    if (!this.inLine) this.intake.add(this);
  }

  leave(): void {
    this.intake.leave(this);
  }
}

class Community {
  inLine = false;
  readonly line = new Line<Network>();
  readonly networks = new Map<string, Network>();
  constructor(readonly id: number) {}
}

class Network {
  inLine = false;
  places = 0;
  /** Turns that it has saved for a large frame. */
  credit = 0;
  readonly line = new Line<Place>();
  constructor(
    readonly key: string,
    readonly community: Community,
  ) {}

  /** Its turn: do the turns that it has saved cover the next frame? */
  maySend(bytes: number): boolean {
    const weight = weightOf(0, bytes);
    this.credit += 1;
    if (this.credit < weight) return false;
    this.credit -= weight;
    return true;
  }
}

/** First in, first out; each entry is in it once. */
class Line<T extends { inLine: boolean }> {
  private waiting: T[] = [];
  private left = 0;

  get size(): number {
    return this.waiting.length - this.left;
  }

  get first(): T | undefined {
    return this.waiting[this.left];
  }

  push(one: T): void {
    if (one.inLine) return;
    one.inLine = true;
    this.waiting.push(one);
  }

  shift(): T | undefined {
    const first = this.waiting[this.left];
    if (first === undefined) return undefined;
    first.inLine = false;
    this.left += 1;
    if (this.left === this.waiting.length || this.left === LEFT_MAX) {
      this.waiting.splice(0, this.left);
      this.left = 0;
    }
    return first;
  }
}
