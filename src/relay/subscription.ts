/**
 * One REQ: stored events, EOSE, then live ones, each exactly once (I10). A subscription with a cursor also
 * gets deletions, as GONE, and each of its frames after the first answer carries the cursor up to it.
 *
 *   loading ──stored rows sent, EOSE──▶ live ──CLOSE, CLOSED, socket gone──▶ ended
 *      │ live events that match wait, within the bound of the connection (live/waiting.ts)
 *
 * No gap: it is filed in the live index before the query starts, and the query sees every event up to
 * `startSeq`; the fan-out brings all that comes after. No double: rows of the answer after `startSeq` are
 * remembered until it does.
 */

import { isExpired } from '../events/rules/expiration.js';
import { type Filter, matchFilter, valuesIn } from '../events/rules/filter.js';
import { cursorFrameEnd, eventFrameHead, goneFrameHead } from '../events/rules/reply.js';
import type { Anchor } from '../events/store.js';
import type { Missed } from './cursors/catch-up.js';
import type { Cursors, Place } from './cursors/cursor.js';
import type { LiveDeletion, LiveEvent, LiveFollower, LiveReader } from './fanout.js';
import type { Waiter } from './live/waiting.js';
import { weightOf } from './open-values.js';
import type { LiveSource, Outgoing } from './outgoing.js';
import type { GoneReader } from './rules-gone.js';

/** What a subscription with a cursor has in addition. */
export interface Following {
  /** The place of the client's cursor; undefined for an empty one, which gets stored events first. */
  readonly from: Place | undefined;
  readonly cursors: Cursors;
  readonly reader: GoneReader;
  readonly onLost: (subscription: Subscription) => void;
}

/** Of what waits: below that, letting go of it again and again would take longer than it is worth. */
const FREED_MIN = 0.1;

export class Subscription implements LiveReader, LiveFollower, LiveSource, Waiter {
  private state: 'loading' | 'live' | 'ended' = 'loading';
  /** In order of arrival: events by their id, deletions by `-` and the id. */
  private readonly waiting = new Map<string, LiveEvent | LiveDeletion>();
  waitingBytes = 0;
  private readonly sentAhead = new Set<string>();
  private sentAheadSeq = 0;
  private readonly head: Buffer;
  /** How many values its filters hold. */
  readonly values: number;
  /** What they count as among all open filters. */
  readonly weight: number;
  /** It is counted among the followers of the fan-out. */
  isFollowing = false;

  constructor(
    readonly id: string,
    /** With what its client may see of them; changes with the client's rights. */
    public filters: readonly Filter[],
    public asked: readonly Filter[],
    /** The fan-out's head when this was filed in the live index. */
    private startSeq: number,
    private readonly outgoing: Outgoing,
    /** While it was loading more changes came than may wait for one connection, and it has most of them. */
    private readonly onOverflow: (subscription: Subscription) => void,
    readonly following?: Following,
  ) {
    this.head = Buffer.from(eventFrameHead(id));
    this.values = valuesIn(asked);
    this.weight = weightOf(asked);
  }

  get loading(): boolean {
    return this.state === 'loading';
  }
  get ended(): boolean {
    return this.state === 'ended';
  }

  get reader(): GoneReader | undefined {
    return this.following?.reader;
  }

  /** With a cursor: it is filed only now. What comes up to this position is sent as stored. */
  startFrom(seq: number): void {
    this.startSeq = seq;
  }

  end(): void {
    this.state = 'ended';
    this.takeWaiting();
    this.sentAhead.clear();
    // Its query may still wait behind others of its client: large filters do not wait with it (I14).
    this.filters = [];
    this.asked = [];
  }

  get waitingChanges(): number {
    return this.waiting.size;
  }

  /** What was hidden need not wait. If that is not a good part of it, the subscription ends. */
  overflow(): void {
    const { size } = this.waiting;
    for (const [key, change] of this.waiting) {
      if (!('event' in change) || !change.waits.isWithdrawn) continue;
      this.waiting.delete(key);
      this.outgoing.waiting.remove(1, change.payload.length);
      this.waitingBytes -= change.payload.length;
      change.waits.release();
    }
    if (size - this.waiting.size < size * FREED_MIN) this.onOverflow(this);
  }

  sendStored(row: { readonly seq: number; readonly id: string }, payload: Buffer): void {
    if (row.seq > this.startSeq) {
      this.sentAhead.add(row.id);
      this.sentAheadSeq = Math.max(this.sentAheadSeq, row.seq);
    }
    this.outgoing.sendEvent(this.head, payload);
  }

  /** A change since the cursor of the client. */
  sendMissed({ at, id, payload }: Missed): void {
    const [head, body] = payload === undefined ? this.goneFrame(id) : [this.head, Buffer.from(payload)];
    this.outgoing.sendEvent(head, body, this.endAt(at));
  }

  private goneFrame(id: string): [Buffer, Buffer] {
    return [Buffer.from(goneFrameHead(this.id)), Buffer.from(JSON.stringify(id))];
  }

  private endAt(change: Anchor): Buffer | undefined {
    const cursors = this.following?.cursors;
    return cursors && Buffer.from(cursorFrameEnd(cursors.at(change)));
  }

  /** After EOSE: what arrived meanwhile and has not expired since (I7), then live. */
  goLive(nowSeconds: number): void {
    if (this.state === 'ended') return;
    this.state = 'live';
    for (const live of this.takeWaiting()) {
      if (!('event' in live)) this.announce(live);
      else if (!live.waits.isWithdrawn && !isExpired(live.event, nowSeconds)) this.deliver(live);
    }
  }

  deliver(live: LiveEvent): number {
    if (this.state === 'ended' || (live.seq !== undefined && live.seq <= this.startSeq)) return 0;
    if (this.state === 'loading') {
      this.wait(live.event.id, live);
      return 0;
    }
    if (this.sentAhead.size > 0 && this.wasSent(live)) return 0;
    const { seq, ingestedAt: at, payload } = live;
    const end = this.following === undefined || seq === undefined ? undefined : this.endAt({ seq, at });
    return this.outgoing.sendLive({ source: this, live, head: this.head, payload, end });
  }

  announce(deletion: LiveDeletion): number {
    const { seq, id, ingestedAt: at } = deletion;
    if (this.state === 'ended' || seq <= this.startSeq) return 0;
    if (this.state === 'loading') {
      this.wait(`-${id}`, deletion);
      return 0;
    }
    const [head, payload] = this.goneFrame(id);
    const end = this.endAt({ seq, at });
    return this.outgoing.sendLive({ source: this, live: undefined, head, payload, end });
  }

  /**
   * Some time after it matched: the subscription is open, what its client may see has not changed for this
   * event, and the event is neither hidden nor expired (I6, I7).
   */
  isDue(live: LiveEvent | undefined): boolean {
    if (this.state === 'ended') return false;
    return live === undefined || (!live.isOver() && this.filters.some((of) => matchFilter(of, live.matched)));
  }

  lose(): void {
    this.following?.onLost(this);
  }

  /** At the end of what waits, also if it has waited before: cursors only grow. */
  private wait(key: string, change: LiveEvent | LiveDeletion): void {
    const before = this.waiting.get(key);
    if (before !== undefined) this.waiting.delete(key);
    this.waiting.set(key, change);
    if ('event' in change) change.waits.hold();
    if (before === undefined) {
      const bytes = 'event' in change ? change.payload.length : 0;
      this.waitingBytes += bytes;
      this.outgoing.waiting.add(this, bytes);
    } else if ('event' in before) before.waits.release();
  }

  /** What waits, in order. It waits here no more. */
  private takeWaiting(): readonly (LiveEvent | LiveDeletion)[] {
    if (this.waiting.size === 0) return [];
    this.outgoing.waiting.leave(this);
    const taken = [...this.waiting.values()];
    this.waiting.clear();
    this.waitingBytes = 0;
    for (const change of taken) if ('event' in change) change.waits.release();
    return taken;
  }

  private wasSent({ seq, event }: LiveEvent): boolean {
    const sent = this.sentAhead.delete(event.id);
    if (seq !== undefined && seq > this.sentAheadSeq) this.sentAhead.clear();
    return sent;
  }
}
