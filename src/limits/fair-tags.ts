/**
 * Fair queueing by cost (start-time fair queueing): each user has a tag that grows with its use, and
 * the lowest tag is served next. A user that returns after a while starts at the tag that was served last, so
 * that nobody can save up. Bounded (I14).
 */
const SHARES_MAX = 20_000;

export interface Share {
  readonly key: string;
  underWay: number;
  /** Use in milliseconds, counted from a common start. */
  tag: number;
}

export class FairTags {
  private readonly shares = new Map<string, Share>();
  private served = 0;

  of(key: string): Share {
    const known = this.shares.get(key);
    if (known !== undefined) {
      if (known.underWay === 0) known.tag = Math.max(known.tag, this.served);
      return known;
    }
    if (this.shares.size >= SHARES_MAX) this.forgetOne();
    const share = { key, underWay: 0, tag: this.served };
    this.shares.set(key, share);
    return share;
  }

  begin(share: Share, costMs: number): void {
    this.served = Math.max(this.served, share.tag);
    share.underWay += 1;
    share.tag += costMs;
  }

  /** `correctionMs`: what it took beyond the cost charged at the start. */
  end(share: Share, correctionMs: number): void {
    share.underWay -= 1;
    share.tag += correctionMs;
  }

  /** For use that begins and ends in one step. */
  use(share: Share, tookMs: number): void {
    this.begin(share, tookMs);
    share.underWay -= 1;
  }

  /** The oldest entry that has nothing in progress. */
  private forgetOne(): void {
    for (const [key, { underWay }] of this.shares)
      if (underWay === 0) {
        this.shares.delete(key);
        return;
      }
  }
}

/** The shares of a client: of its community, in it of its network, and in it of its address. */
export interface Shares {
  readonly community: Share;
  readonly network: Share;
  readonly address: Share;
}

/** The one with less use; on a tie neither, so that the one that waits longer stays first. */
export function isBefore(one: Shares, other: Shares): boolean {
  const difference =
    one.community.tag - other.community.tag ||
    one.network.tag - other.network.tag ||
    one.address.tag - other.address.tag;
  return difference < 0;
}
