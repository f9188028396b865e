/**
 * One REQ: stored events, EOSE, then live ones, each exactly once (I10).
 *
 *   loading ──stored rows sent, EOSE──▶ live ──CLOSE, CLOSED, socket gone──▶ ended
 *      │ live events that match wait in a bounded buffer
 *
 * No gap: it is filed in the live index before the query starts, and the query sees every event up to
 * `startSeq`; the fan-out brings all that comes after. No double: rows of the answer after `startSeq` are
 * remembered until it does.
 */

import { isExpired } from '../events/rules/expiration.js';
import { type Filter, valuesIn } from '../events/rules/filter.js';
import { eventFrameHead } from '../events/rules/reply.js';
import type { LiveEvent, LiveReader } from './fanout.js';
import type { Outgoing } from './outgoing.js';

const WAITING_EVENTS_MAX = 5_000;

export class Subscription implements LiveReader {
  private state: 'loading' | 'live' | 'ended' = 'loading';
  /** By id, in order of arrival. */
  private readonly waiting = new Map<string, LiveEvent>();
  private readonly sentAhead = new Set<string>();
  private sentAheadSeq = 0;
  private readonly head: Buffer;
  /** How many values its filters hold. */
  readonly values: number;

  constructor(
    readonly id: string,
    /** With what its client may see of them; changes with the client's rights. */
    public filters: readonly Filter[],
    readonly asked: readonly Filter[],
    /** The fan-out's head when this was filed in the live index. */
    private readonly startSeq: number,
    private readonly outgoing: Outgoing,
    /** More live events came while loading than may wait. */
    private readonly onOverflow: (subscription: Subscription) => void,
  ) {
    this.head = Buffer.from(eventFrameHead(id));
    this.values = valuesIn(asked);
  }

  get loading(): boolean {
    return this.state === 'loading';
  }
  get ended(): boolean {
    return this.state === 'ended';
  }

  end(): void {
    this.state = 'ended';
    this.waiting.clear();
    this.sentAhead.clear();
  }

  sendStored(row: { readonly seq: number; readonly id: string }, payload: Buffer): void {
    if (row.seq > this.startSeq) {
      this.sentAhead.add(row.id);
      this.sentAheadSeq = Math.max(this.sentAheadSeq, row.seq);
    }
    this.outgoing.sendEvent(this.head, payload);
  }

  /** After EOSE: what arrived meanwhile and has not expired since (I7), then live. */
  goLive(nowSeconds: number): void {
    if (this.state === 'ended') return;
    this.state = 'live';
    for (const live of this.waiting.values()) if (!isExpired(live.event, nowSeconds)) this.deliver(live);
    this.waiting.clear();
  }

  /** What is gone before it was sent is not sent any more (I6). */
  withdraw(id: string): void {
    this.waiting.delete(id);
  }

  deliver(live: LiveEvent): void {
    if (this.state === 'ended' || (live.seq !== undefined && live.seq <= this.startSeq)) return;
    if (this.state === 'loading') {
      this.waiting.set(live.event.id, live);
      if (this.waiting.size > WAITING_EVENTS_MAX) this.onOverflow(this);
      return;
    }
    if (this.sentAhead.size > 0 && this.wasSent(live)) return;
    this.outgoing.sendLive(this.head, live.payload);
  }

  private wasSent({ seq, event }: LiveEvent): boolean {
    const sent = this.sentAhead.delete(event.id);
    if (seq !== undefined && seq > this.sentAheadSeq) this.sentAhead.clear();
    return sent;
  }
}
