/**
 * The stored part of a subscription with a cursor, and its way into live delivery, without a gap or a double
 * (I10):
 *
 *   cursor ──changes up to the head──▶ filed at position p ──the rest, up to p──▶ EOSE ──▶ live: all after p
 *
 * An empty cursor gets stored events as any REQ does. It is filed before they are read.
 */
import type { Community } from '../../communities/communities.js';
import type { Access } from '../../events/rules/access.js';
import type { Filter } from '../../events/rules/filter.js';
import { changesCost, type QueryClass, sendingMs } from '../../events/rules/query-cost.js';
import { type Completeness, isRefusal, type Refusal } from '../../events/rules/reply.js';
import { type EventStore, OutboxBehind, type Position } from '../../events/store.js';
import type { Metrics } from '../../node/metrics.js';
import type { Fanout } from '../fanout.js';
import type { Outgoing } from '../outgoing.js';
import { goneReader } from '../rules-gone.js';
import type { QuerySlots } from '../stored.js';
import type { Following, Subscription } from '../subscription.js';
import { CatchUp, type ChangeEvents, type Portion } from './catch-up.js';
import { CHANGES_LOST, type CursorMaker, type Place, refusePlace } from './cursor.js';

export interface FollowContext {
  readonly events: ChangeEvents & Pick<EventStore, 'tagKey'>;
  readonly fanout: Fanout;
  readonly outgoing: Outgoing;
  readonly metrics: Metrics;
  /** The class of its queries. */
  readonly kind: QueryClass;
  readonly slots: (community: Community) => QuerySlots;
  /** Milliseconds. */
  readonly now: () => number;
}

interface FollowingFor {
  readonly cursors: CursorMaker;
  readonly events: Pick<EventStore, 'tagKey'>;
  readonly access: Access;
  readonly onLost: (subscription: Subscription) => void;
}

/** What a subscription needs to follow, or why its cursor is refused. */
export function followingOf(
  { cursors: maker, events, access, onLost }: FollowingFor,
  { id: community, settings }: Community,
  seen: readonly Filter[],
  cursor: string,
): Following | Refusal {
  const cursors = maker.cursorsOf(community, seen);
  const from = cursor === '' ? undefined : cursors.open(cursor);
  if (isRefusal(from)) return from;
  const tagKey = (letter: string, value: string) => events.tagKey(community, letter, value);
  return { from, cursors, reader: goneReader(access, settings['auth.privateKinds'], tagKey), onLost };
}

export interface SentFollowed {
  readonly hint: Completeness;
  /** For the client to save. */
  readonly cursor: string;
}

/** `sendFirst`: sends the stored events of an empty cursor. */
export async function sendFollowed(
  context: FollowContext,
  community: Community,
  subscription: Subscription,
  sendFirst: () => Promise<Completeness>,
): Promise<SentFollowed | Refusal> {
  const { fanout } = context;
  const following = subscription.following!;
  await fanout.follow();
  if (subscription.ended) {
    fanout.unfollow();
    return CHANGES_LOST;
  }
  subscription.isFollowing = true;
  const loading = new Loading(context, community, subscription);
  if (following.from === undefined) {
    const anchor = await loading.anchorOf(loading.file(0));
    return { hint: await sendFirst(), cursor: following.cursors.at(anchor.anchor) };
  }
  const refused = await loading.refuse(following.from);
  if (refused !== undefined) return refused;
  try {
    const anchor = await loading.catchUp(following.from.seq);
    return { hint: 'finish', cursor: following.cursors.at(anchor.anchor) };
  } catch (error) {
    if (error instanceof OutboxBehind) return CHANGES_LOST;
    throw error;
  }
}

export function leaveFanout(fanout: Fanout, community: number, subscription: Subscription): void {
  fanout.followersOf(community).remove(subscription);
  if (subscription.isFollowing) fanout.unfollow();
  subscription.isFollowing = false;
}

class Loading {
  private readonly slots: QuerySlots;

  constructor(
    private readonly context: FollowContext,
    private readonly community: Community,
    private readonly subscription: Subscription,
  ) {
    this.slots = context.slots(community);
  }

  private readonly ask: CatchUpAsk = (cost, query) =>
    this.slots.run({ ...cost, class: this.context.kind }, query);

  anchorOf(position: Position) {
    return this.ask(changesCost(1), (as) => this.context.events.anchor(position, as));
  }

  async refuse(place: Place): Promise<Refusal | undefined> {
    const keptDays = this.community.settings['retention.outboxDays'];
    return refusePlace(place, await this.anchorOf(place.seq), { keptDays, now: this.context.now() });
  }

  /** Files the subscription for what comes after the position that is returned, at least `from`. */
  file(from: Position): Position {
    const { fanout } = this.context;
    const { subscription, community } = this;
    const position = Math.max(from, fanout.head);
    if (subscription.ended) return position;
    subscription.startFrom(position);
    fanout.index(community.id).add(subscription, subscription.filters);
    fanout.followersOf(community.id).add(subscription, subscription.filters);
    return position;
  }

  async catchUp(from: Position) {
    const { filters, following } = this.subscription;
    const { events, now } = this.context;
    const missed = new CatchUp(
      { events, now, ask: this.ask },
      { community: this.community, filters, reader: following!.reader },
    );
    const caughtUp = await this.send(missed.portions(from), from);
    const position = this.file(caughtUp);
    if (position > caughtUp) await this.send(missed.portions(caughtUp, position), caughtUp);
    return this.anchorOf(position);
  }

  private async send(portions: AsyncIterable<Portion>, from: Position): Promise<Position> {
    const { outgoing, metrics } = this.context;
    let position = from;
    for await (const portion of portions) {
      if (this.subscription.ended) break;
      this.slots.charge(sendingMs(portion.rows));
      const sent = portion.rows === 0 ? 0 : await this.slots.turn(() => this.sendPortion(portion));
      metrics.rowsServed.inc(sent);
      position = portion.upTo;
      // The next portion is not read before the client has taken this one.
      if (outgoing.isFed) await outgoing.taken();
    }
    return position;
  }

  private sendPortion(portion: Portion): number {
    if (this.subscription.ended) return 0;
    const missed = portion.take();
    for (const each of missed) this.subscription.sendMissed(each);
    this.context.outgoing.flush();
    return missed.length;
  }
}

type CatchUpAsk = ConstructorParameters<typeof CatchUp>[0]['ask'];
