/**
 * Live events and deletions that are not sent yet: those that a subscription keeps until its EOSE, and those
 * that a reader who is behind gets later.
 *
 * Those of one connection are bounded together, and counted in the memory for all readers (I14). An event has
 * one mark for all who hold it, so that a deletion takes one step, however many wait (I6, I18).
 */
import type { NostrEvent } from '../../events/rules/event.js';

/** Of all subscriptions of one connection, until EOSE. */
const WAITING_MAX = 5_000;
/** Of their payloads: as much as a reader who is behind may have waiting. */
const WAITING_PAYLOADS_MAX = 4 * 1_048_576;
/** What one of them takes: its place in a list. The event itself is shared by all who wait for it. */
export const WAITING_BYTES = 64;

/** A subscription that keeps changes until its EOSE. */
export interface Waiter {
  readonly waitingChanges: number;
  /** Of payloads. */
  readonly waitingBytes: number;
  /** Its connection keeps too many: it gives up what it need not keep, or ends. */
  overflow(): void;
}

/** What the subscriptions of one connection keep until their EOSE. */
export class WaitingChanges {
  private readonly waiters = new Set<Waiter>();
  private changes = 0;
  private bytes = 0;

  constructor(private readonly onChange: () => void) {}

  get count(): number {
    return this.changes;
  }

  /** The waiter has one more, of so many bytes. When there are too many, the one with the most gives way. */
  add(waiter: Waiter, bytes: number): void {
    this.waiters.add(waiter);
    this.changes += 1;
    this.bytes += bytes;
    if (this.changes > WAITING_MAX || this.bytes > WAITING_PAYLOADS_MAX) this.largest().overflow();
    else this.onChange();
  }

  /** The waiter has none any more. */
  leave(waiter: Waiter): void {
    if (this.waiters.delete(waiter)) this.remove(waiter.waitingChanges, waiter.waitingBytes);
  }

  /** A waiter has so many fewer. */
  remove(changes: number, bytes: number): void {
    this.changes -= changes;
    this.bytes -= bytes;
    this.onChange();
  }

  private largest(): Waiter {
    const sizeOf = ({ waitingChanges, waitingBytes }: Waiter) =>
      waitingChanges / WAITING_MAX + waitingBytes / WAITING_PAYLOADS_MAX;
    return [...this.waiters].reduce((largest, each) => (sizeOf(each) > sizeOf(largest) ? each : largest));
  }
}

/** The events of one community that wait anywhere, by id. */
export class WaitingEvents {
  private readonly byId = new Map<string, WaitingEvent>();

  get size(): number {
    return this.byId.size;
  }

  of(event: NostrEvent): WaitingEvent {
    return this.byId.get(event.id) ?? new WaitingEvent(event, this.byId);
  }

  /** The event was hidden: whoever still holds it does not send it (I6). */
  withdraw(id: string): void {
    this.byId.get(id)?.withdraw();
  }

  /** Those that are hidden by something that does not name them. */
  withdrawWhere(isHidden: (event: NostrEvent) => boolean): void {
    for (const waiting of [...this.byId.values()]) if (isHidden(waiting.event)) waiting.withdraw();
  }
}

/** An event that may wait in many places. */
export class WaitingEvent {
  private places = 0;
  private withdrawn = false;

  constructor(
    readonly event: NostrEvent,
    private readonly byId: Map<string, WaitingEvent>,
  ) {}

  get isWithdrawn(): boolean {
    return this.withdrawn;
  }

  hold(): void {
    if (this.places === 0 && !this.withdrawn) this.byId.set(this.event.id, this);
    this.places += 1;
  }

  release(): void {
    this.places -= 1;
    if (this.places === 0 && this.byId.get(this.event.id) === this) this.byId.delete(this.event.id);
  }

  withdraw(): void {
    this.withdrawn = true;
    this.byId.delete(this.event.id);
  }
}
