/**
 * One budget of memory for what all clients make this process hold, shared fairly by community, and within
 * one by address (I14). When it is used up, addresses that hold more than a fair share, in communities that
 * do, lose what they hold, the largest first. Nobody below the fair share loses anything.
 */

/**
 * Unfinished messages and unprocessed frames. One client holds 0.3 MB of them at most, with one
 * large message 1.3 MB.
 */
export const INPUT_BYTES_MAX = 128 * 1_048_576;
/** What clients have not read yet. */
export const OUTPUT_BYTES_MAX = 256 * 1_048_576;
/**
 * Room is made down to this part of the budget, so that this is needed once in a while, not at every change.
 */
const ROOM_MADE = 0.75;
/** From this part on, and for an address from this part of it, clients are asked to hold less. */
const SHORT = 0.5;
const SHORT_FOR_ONE = 1 / 16;
/** The same for a community, where others have clients here. */
const SHORT_FOR_COMMUNITY = 1 / 4;

export class HeldBytes {
  private total = 0;
  private readonly communities = new Map<number, CommunityShare>();

  constructor(private readonly max: number) {}

  get bytes(): number {
    return this.total;
  }

  /** Addresses with clients here. */
  get addresses(): number {
    return [...this.communities.values()].reduce((sum, { shares }) => sum + shares.size, 0);
  }

  /** `giveUp` is called when this client must release what it holds, and be disconnected. */
  join(community: number, key: string, giveUp: () => void): Held {
    const of = this.communities.get(community) ?? new CommunityShare(community);
    this.communities.set(community, of);
    const share = of.shares.get(key) ?? new Share(key, of);
    of.shares.set(key, share);
    const held = new Held(this, share, giveUp);
    share.members.add(held);
    return held;
  }

  change(held: Held, by: number): void {
    held.bytes += by;
    held.share.bytes += by;
    held.share.community.bytes += by;
    this.total += by;
    if (by > 0 && this.total > this.max) this.makeRoom();
  }

  isShortFor({ share }: Held): boolean {
    const isAlone = this.communities.size === 1;
    return (
      this.total > this.max * SHORT ||
      share.bytes > this.max * SHORT_FOR_ONE ||
      (!isAlone && share.community.bytes > this.max * SHORT_FOR_COMMUNITY)
    );
  }

  leave(held: Held): void {
    if (held.left) return;
    this.change(held, -held.bytes);
    held.left = true;
    const { share } = held;
    share.members.delete(held);
    if (share.members.size > 0) return;
    share.community.shares.delete(share.key);
    if (share.community.shares.size === 0) this.communities.delete(share.community.id);
  }

  private makeRoom(): void {
    const enough = this.max * ROOM_MADE;
    const communities = [...this.communities.values()].filter(({ bytes }) => bytes > 0);
    const fair = enough / communities.length;
    for (const community of communities.sort(byBytes)) this.makeRoomIn(community, fair, enough);
  }

  private makeRoomIn(community: CommunityShare, fair: number, enough: number): void {
    const shares = [...community.shares.values()].filter(({ bytes }) => bytes > 0);
    const fairForOne = fair / shares.length;
    for (const share of shares.sort(byBytes)) {
      for (const member of [...share.members].sort(byBytes)) {
        if (this.total <= enough || community.bytes <= fair) return;
        if (share.bytes <= fairForOne) break;
        this.leave(member);
        member.giveUp();
      }
    }
  }
}

/** What the clients of one community hold. */
class CommunityShare {
  bytes = 0;
  readonly shares = new Map<string, Share>();
  constructor(readonly id: number) {}
}

/** What the clients of one address in one community hold. */
class Share {
  bytes = 0;
  readonly members = new Set<Held>();
  constructor(
    readonly key: string,
    readonly community: CommunityShare,
  ) {}
}

/** What one client holds. */
export class Held {
  bytes = 0;
  left = false;

  constructor(
    private readonly of: HeldBytes,
    readonly share: Share,
    readonly giveUp: () => void,
  ) {}

  set(bytes: number): void {
    if (bytes !== this.bytes && !this.left) this.of.change(this, bytes - this.bytes);
  }

  /** It should hold less: memory is short, or its address has more than its share. */
  get isShort(): boolean {
    return this.of.isShortFor(this);
  }

  leave(): void {
    this.of.leave(this);
  }
}

function byBytes(left: { readonly bytes: number }, right: { readonly bytes: number }): number {
  return right.bytes - left.bytes;
}
