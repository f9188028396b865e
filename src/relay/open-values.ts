/**
 * Values in the filters of all open subscriptions and waiting COUNTs of this process (I14). Each takes about
 * 330 bytes, so 3,000,000 of them take 1 GB. One address has a sixth of that, one network (an IPv6 /48) a
 * third, and one community its share (node.communitySharePercent). The last sixth is for networks that hold
 * little, so that a few that hold much cannot keep the others out (I18).
 */
import { type Filter, valuesIn } from '../events/rules/filter.js';
import { Counts } from '../limits/counts.js';

export const VALUES_MAX = 3_000_000;
export const VALUES_PER_ADDRESS_MAX = 500_000;
export const VALUES_PER_NETWORK_MAX = 1_000_000;
/** Only for networks that hold at most `VALUES_LITTLE`: a few timelines. */
export const VALUES_RESERVED = 500_000;
export const VALUES_LITTLE = 10_000;

/** What a filter counts as besides its values: it may be compared with each new event. */
const VALUES_OF_FILTER = 20;

/** What the filters count as here. */
export function weightOf(filters: readonly Filter[]): number {
  return valuesIn(filters) + filters.length * VALUES_OF_FILTER;
}

interface Holder {
  readonly community: number;
  readonly rateKey: string;
  readonly networkKey: string;
  /** Clients on this machine, perhaps all behind one proxy, have no limit per address. */
  readonly isLoopback: boolean;
}

export class OpenValues {
  private total = 0;
  private readonly byAddress = new Counts<string>();
  private readonly byNetwork = new Counts<string>();
  private readonly byCommunity = new Counts<number>();

  /** `share`: how much one community may hold, between 0 and 1. */
  constructor(private readonly share: () => number = () => 1) {}

  /** Returns false and takes nothing when there is no room. */
  take(holder: Holder, values: number): boolean {
    const { rateKey, networkKey, isLoopback, community } = holder;
    const ofNetwork = this.byNetwork.of(networkKey) + values;
    const max = ofNetwork > VALUES_LITTLE ? VALUES_MAX - VALUES_RESERVED : VALUES_MAX;
    if (this.total + values > max) return false;
    if (this.byCommunity.of(community) + values > VALUES_MAX * this.share()) return false;
    if (!isLoopback && this.byAddress.of(rateKey) + values > VALUES_PER_ADDRESS_MAX) return false;
    if (!isLoopback && ofNetwork > VALUES_PER_NETWORK_MAX) return false;
    this.add(holder, values);
    return true;
  }

  giveBack(holder: Holder, values: number): void {
    this.add(holder, -values);
  }

  private add({ rateKey, networkKey, community }: Holder, values: number): void {
    this.total += values;
    this.byAddress.add(rateKey, values);
    this.byNetwork.add(networkKey, values);
    this.byCommunity.add(community, values);
  }
}
