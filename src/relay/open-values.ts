/**
 * Values in the filters of all open subscriptions of this process (I14). Each takes about 330 bytes, so 3,000,000 of them take
 * 1 GB; one address has a sixth of that, and so cannot keep the others out by itself.
 */
export const VALUES_MAX = 3_000_000;
export const VALUES_PER_ADDRESS_MAX = 500_000;

interface Holder {
  readonly rateKey: string;
  /** Clients on this machine, perhaps all behind one proxy, share what there is. */
  readonly isLoopback: boolean;
}

export class OpenValues {
  private total = 0;
  private readonly held = new Map<string, number>();

  /** False, and nothing taken, when there is no room. */
  take({ rateKey, isLoopback }: Holder, values: number): boolean {
    const held = (this.held.get(rateKey) ?? 0) + values;
    if (this.total + values > VALUES_MAX || (!isLoopback && held > VALUES_PER_ADDRESS_MAX)) return false;
    this.total += values;
    this.held.set(rateKey, held);
    return true;
  }

  giveBack({ rateKey }: Holder, values: number): void {
    this.total -= values;
    const left = (this.held.get(rateKey) ?? 0) - values;
    if (left > 0) this.held.set(rateKey, left);
    else this.held.delete(rateKey);
  }
}
