/**
 * Puts the parts of large events together. Pure; the caller passes the time. Anyone can send a part with any
 * id, so a place may have different bytes from different peers: a few of them are kept, and the caller checks
 * which ones give the id. I14: the bytes and the events of each peer, of all peers, and the time are bounded.
 */
import type { Part } from './rules-envelope.js';

export interface PartBounds {
  readonly bytesPerPeerMax: number;
  readonly eventsPerPeerMax: number;
  readonly bytesMax: number;
  readonly keptMs: number;
}

export const PART_BOUNDS: PartBounds = {
  bytesPerPeerMax: 4 * 1_048_576,
  eventsPerPeerMax: 64,
  bytesMax: 16 * 1_048_576,
  keptMs: 30_000,
};

/** Different bytes for one place of an event. */
const VARIANTS_MAX = 3;
/** Ways of choosing among them that are tried. */
const TRIES_MAX = 16;

interface Variant {
  readonly bytes: Uint8Array;
  readonly peer: string;
}

interface Gathering {
  readonly count: number;
  readonly since: number;
  readonly openedBy: string;
  readonly places: Variant[][];
  filled: number;
}

/** What the parts of one event may be together. The first one mostly is right. */
export interface Candidate {
  readonly bytes: Uint8Array;
  readonly peers: readonly string[];
}

export type Added = 'waiting' | 'refused' | readonly Candidate[];

export class Parts {
  /** By id and count, the oldest first. */
  private readonly gatherings = new Map<string, Gathering>();
  private readonly used = new Map<string, { bytes: number; events: number }>();
  private total = 0;

  constructor(private readonly bounds: PartBounds = PART_BOUNDS) {}

  get bytes(): number {
    return this.total;
  }

  /** Events that were given up since the last call: not all of their parts came in time. */
  expire(now: number): number {
    let given = 0;
    for (const [key, { since }] of this.gatherings) {
      if (now - since < this.bounds.keptMs) break;
      this.drop(key);
      given += 1;
    }
    return given;
  }

  add(peer: string, part: Part, now: number): Added {
    const key = `${part.id}/${part.count}`;
    const use = this.used.get(peer) ?? { bytes: 0, events: 0 };
    const known = this.gatherings.get(key);
    const { bytesPerPeerMax, eventsPerPeerMax, bytesMax } = this.bounds;
    const size = part.bytes.length;
    if (use.bytes + size > bytesPerPeerMax || this.total + size > bytesMax) return 'refused';
    if (known === undefined && use.events >= eventsPerPeerMax) return 'refused';
    const gathering = known ?? this.open(key, part.count, peer, now);
    const place = gathering.places[part.index]!;
    if (place.some(({ bytes }) => isSame(bytes, part.bytes))) return 'waiting';
    if (place.length >= VARIANTS_MAX) return 'refused';
    if (place.length === 0) gathering.filled += 1;
    place.push({ bytes: part.bytes, peer });
    this.charge(peer, size, known === undefined ? 1 : 0);
    return gathering.filled < gathering.count ? 'waiting' : [...candidates(gathering.places)];
  }

  /** The event is complete, or cannot become so. */
  done(part: Pick<Part, 'id' | 'count'>): void {
    this.drop(`${part.id}/${part.count}`);
  }

  private open(key: string, count: number, openedBy: string, since: number): Gathering {
    const places = Array.from({ length: count }, (): Variant[] => []);
    const gathering = { count, since, openedBy, places, filled: 0 };
    this.gatherings.set(key, gathering);
    return gathering;
  }

  private drop(key: string): void {
    const gathering = this.gatherings.get(key);
    if (gathering === undefined) return;
    this.gatherings.delete(key);
    for (const { bytes, peer } of gathering.places.flat()) this.charge(peer, -bytes.length, 0);
    this.charge(gathering.openedBy, 0, -1);
  }

  private charge(peer: string, bytes: number, events: number): void {
    const before = this.used.get(peer) ?? { bytes: 0, events: 0 };
    const use = { bytes: before.bytes + bytes, events: before.events + events };
    this.total += bytes;
    if (use.bytes === 0 && use.events === 0) this.used.delete(peer);
    else this.used.set(peer, use);
  }
}

/** Each way of choosing one variant per place, in the order of arrival, up to a bound. */
function* candidates(places: readonly (readonly Variant[])[]): Generator<Candidate> {
  const choice = places.map(() => 0);
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const chosen = places.map((variants, at) => variants[choice[at]!]!);
    const bytes = new Uint8Array(chosen.reduce((sum, variant) => sum + variant.bytes.length, 0));
    let at = 0;
    for (const variant of chosen) {
      bytes.set(variant.bytes, at);
      at += variant.bytes.length;
    }
    yield { bytes, peers: [...new Set(chosen.map(({ peer }) => peer))] };
    // Counts up, as an odometer does.
    const turned = choice.findIndex((number, place) => number + 1 < places[place]!.length);
    if (turned === -1) return;
    choice[turned]! += 1;
    choice.fill(0, 0, turned);
  }
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, at) => byte === other[at]);
}
