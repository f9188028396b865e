/**
 * Limits the open outbox streams of this process, per key and per community, so that none takes the share of
 * the others (I14).
 */
import type { Readable } from 'node:stream';
import type { Call } from '../api/contract.js';
import { Places } from '../api/places.js';
import { type Denial, denial } from '../api/rules-errors.js';
import type { Communities } from '../communities/communities.js';
import { DEFAULT_SLUG } from '../communities/communities.sql.js';

const STREAMS_PER_KEY_MAX = 4;
/** The part of all streams that is reserved for the default community, whose operators run the node. */
const DEFAULT_RESERVE = 0.25;
const RETRY_AFTER_SECONDS = 10;

export class Streams {
  private readonly places = new Places({ all: Number.POSITIVE_INFINITY, perKey: STREAMS_PER_KEY_MAX });

  constructor(private readonly communities: Pick<Communities, 'node'>) {}

  refuse({ pubkey, community }: Call<'operator'>): Denial | undefined {
    const { 'node.outboxStreamsMax': all, 'node.outboxStreamsPerCommunityMax': perCommunity } =
      this.communities.node();
    const { places } = this;
    const isDefault = community.slug === DEFAULT_SLUG;
    const others = Math.max(1, Math.floor(all * (1 - DEFAULT_RESERVE)));
    if (!places.hasRoom([keyOf(pubkey)]))
      return tooMany(`${STREAMS_PER_KEY_MAX} streams of this key are open`);
    if (places.heldBy(communityKey(community.id)) >= perCommunity)
      return tooMany(`${perCommunity} streams of this community are open`);
    if (places.heldBy(ALL) >= all || (!isDefault && places.heldBy(OTHERS) >= others))
      return tooMany('this node has its maximum number of open streams');
    return undefined;
  }

  /** Counts the stream until it ends. */
  hold({ pubkey, community }: Call<'operator'>, stream: Readable): void {
    const others = community.slug === DEFAULT_SLUG ? [] : [OTHERS];
    this.places.hold([keyOf(pubkey), communityKey(community.id), ALL, ...others], stream);
  }
}
const ALL = 'all';
/** All communities except the default one. */
const OTHERS = 'others';
const keyOf = (pubkey: string) => `key/${pubkey}`;
const communityKey = (id: number) => `community/${id}`;
const tooMany = (explanation: string) =>
  denial('RATE_LIMITED', { retry_after_seconds: RETRY_AFTER_SECONDS, explanation });
