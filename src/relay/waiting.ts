/**
 * Live events and deletions that are not sent yet: those that a subscription keeps until its EOSE, and those
 * that a reader who is behind gets later.
 *
 * Those of one connection are bounded together, and counted in the memory for all readers (I14). An event has
 * one mark for all who hold it, so that a deletion takes one step, however many wait (I6, I18).
 */

/** Of all subscriptions of one connection, until EOSE. */
const WAITING_MAX = 5_000;
/** What one of them takes: its place in a list. The event itself is shared by all who wait for it. */
export const WAITING_BYTES = 64;

/** A subscription that keeps changes until its EOSE. */
export interface Waiter {
  readonly waitingChanges: number;
  /** It is to end: its connection keeps too many. */
  overflow(): void;
}

/** What the subscriptions of one connection keep until their EOSE. */
export class WaitingChanges {
  private readonly waiters = new Set<Waiter>();
  private changes = 0;

  constructor(private readonly onChange: () => void) {}

  get count(): number {
    return this.changes;
  }

  /** The waiter has one more. When there are too many, the one with the most ends. */
  add(waiter: Waiter): void {
    this.waiters.add(waiter);
    this.changes += 1;
    if (this.changes > WAITING_MAX) this.largest().overflow();
    else this.onChange();
  }

  /** The waiter has none any more. */
  leave(waiter: Waiter): void {
    if (!this.waiters.delete(waiter)) return;
    this.changes -= waiter.waitingChanges;
    this.onChange();
  }

  private largest(): Waiter {
    let largest: Waiter | undefined;
    for (const waiter of this.waiters)
      if (largest === undefined || waiter.waitingChanges > largest.waitingChanges) largest = waiter;
    return largest!;
  }
}

/** The events of one community that wait anywhere, by id. */
export class WaitingEvents {
  private readonly byId = new Map<string, WaitingEvent>();

  get size(): number {
    return this.byId.size;
  }

  of(id: string): WaitingEvent {
    return this.byId.get(id) ?? new WaitingEvent(id, this.byId);
  }

  /** The event was hidden: whoever still holds it does not send it (I6). */
  withdraw(id: string): void {
    this.byId.get(id)?.withdraw();
  }
}

/** An event that may wait in many places. */
export class WaitingEvent {
  private places = 0;
  private withdrawn = false;

  constructor(
    private readonly id: string,
    private readonly byId: Map<string, WaitingEvent>,
  ) {}

  get isWithdrawn(): boolean {
    return this.withdrawn;
  }

  hold(): void {
    if (this.places === 0 && !this.withdrawn) this.byId.set(this.id, this);
    this.places += 1;
  }

  release(): void {
    this.places -= 1;
    if (this.places === 0 && this.byId.get(this.id) === this) this.byId.delete(this.id);
  }

  withdraw(): void {
    this.withdrawn = true;
    this.byId.delete(this.id);
  }
}
