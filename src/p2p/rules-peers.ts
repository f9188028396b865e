/**
 * What a peer may do before it is dropped for a while. Pure; the caller passes the time. The peer that
 * delivers a message is often not its author, and iroh-gossip forwards messages before anybody has checked
 * them. So a peer is not blocked for ever: it is ignored for a while, and then the gap is filled.
 */

export interface PeerLimits {
  /** Invalid messages of one peer in a minute. */
  readonly invalidPerMinute: number;
  readonly dropMs: number;
}

const MINUTE_MS = 60_000;
/** I14: peers that are remembered. The one that was quiet longest is forgotten. */
const PEERS_MAX = 1_000;

interface Record {
  invalid: number;
  since: number;
  droppedUntil: number;
}

export class PeerRecords {
  private readonly records = new Map<string, Record>();

  /** True if the peer has to be dropped now. */
  noteInvalid(peer: string, { invalidPerMinute, dropMs }: PeerLimits, now: number): boolean {
    const record = this.records.get(peer) ?? { invalid: 0, since: now, droppedUntil: 0 };
    this.records.delete(peer);
    this.records.set(peer, record);
    const [quietest] = this.records.keys();
    if (this.records.size > PEERS_MAX && quietest !== undefined) this.records.delete(quietest);
    if (now - record.since >= MINUTE_MS) {
      record.invalid = 0;
      record.since = now;
    }
    record.invalid += 1;
    if (record.invalid <= invalidPerMinute || now < record.droppedUntil) return false;
    record.invalid = 0;
    record.since = now;
    record.droppedUntil = now + dropMs;
    return true;
  }

  isDropped(peer: string, now: number): boolean {
    return now < (this.records.get(peer)?.droppedUntil ?? 0);
  }

  dropped(now: number): string[] {
    return [...this.records].flatMap(([peer, { droppedUntil }]) => (now < droppedUntil ? [peer] : []));
  }

  /** Peers whose time has ended since the last call. */
  takeReturned(now: number): string[] {
    const returned = [...this.records].filter(
      ([, { droppedUntil }]) => droppedUntil !== 0 && now >= droppedUntil,
    );
    for (const [, record] of returned) record.droppedUntil = 0;
    return returned.map(([peer]) => peer);
  }
}
