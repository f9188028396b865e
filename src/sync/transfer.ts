/**
 * Carries events between a peer and this node during a sync. From the peer: by their ids, through admission,
 * with a bounded number in progress; while it is full, the peer is not read. To the peer: what it may have,
 * with a bounded number waiting for its OK. Forged events and events that are promised and never delivered
 * end the sync (I14).
 */
import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { Community } from '../communities/communities.js';
import { ANONYMOUS, publicView, rulesFor, sees, type View } from '../events/rules/access.js';
import { highestStep } from '../events/rules/capacity.js';
import { addressOf, KIND_DELETION } from '../events/rules/classify.js';
import { isHex64, isProtected, type NostrEvent } from '../events/rules/event.js';
import { CAME_BY_SYNC, factKey } from '../events/rules/facts.js';
import { isForged, isRefusal, type Outcome, type Refusal } from '../events/rules/reply.js';
import { asMatched } from '../topics/rules.js';
import type { Direction, SyncOptions, SyncParts, SyncPlan } from './exchange.js';
import type { Peer } from './peer.js';
import { PeerFailure } from './peer-failure.js';
import type { WireFilter } from './rules-filters.js';
import type { Differences } from './rules-negentropy.js';

export interface TransferCounts {
  /** Events that the peer sent. */
  received: number;
  /** Of these: new here. */
  stored: number;
  /** Of these: already here, or superseded here. */
  duplicates: number;
  /** Of these: refused here, by the prefix of the reason. */
  refused: Record<string, number>;
  /** Not fetched, because their ids are known here: deleted, purged, superseded. */
  skipped: number;
  /** Promised by the peer and not delivered. */
  missing: number;
  /** Accepted by the peer, or already there. */
  sent: number;
  /** Refused by the peer, by the prefix of its reason. */
  sentRefused: Record<string, number>;
  /** Not offered to the peer: not everybody may see them. */
  keptBack: number;
  /** Messages of negentropy from the peer. */
  rounds: number;
  /** Seconds with more events than the peer sends at once, where some may be missing. */
  incompleteSeconds: number;
}

/** This side ends the sync. */
export class Stopped extends Error {}

export interface TransferOptions extends Pick<SyncOptions, 'signal' | 'isLowPriority'> {
  readonly community: () => Community;
  readonly onProgress: () => void;
}

const IN_PROGRESS = { usual: 64, low: 8 };
const IN_PROGRESS_BYTES_MAX = 4 * 1_048_576;
/** Events that are asked for by id at once. */
const IDS_MAX = 200;
/** Own events that are looked at together: to be sent, or perhaps deleted at the peer. */
const HAVE_MAX = 100;
/** Events of one sync for which deletion requests are asked. */
const TARGETS_OF_SYNC_MAX = 50_000;
const REQUESTS_OF_TARGETS_MAX = 5_000;
/** Events that wait for the OK of the peer. */
const SENDING_MAX = 20;
/** Ids that came from the peer. */
const RECENT_MAX = 10_000;
const FORGED_MAX = 20;
const MISSING_MAX = 10_000;
const BUSY_TRIES_MAX = 20;
const ERROR_TRIES_MAX = 3;
const RETRY_MS_MAX = 1_000;
const PEER_BUSY_TRIES_MAX = 6;
/** At low priority: how many events of others may wait for the lane, and for how long. */
const LANE_DEPTH_MAX = 100;
const CALM_MS_MAX = 60_000;
const CALM_LOOK_MS = 200;

export class Transfer {
  readonly counts: TransferCounts = {
    received: 0,
    stored: 0,
    duplicates: 0,
    refused: {},
    skipped: 0,
    missing: 0,
    sent: 0,
    sentRefused: {},
    keptBack: 0,
    rounds: 0,
    incompleteSeconds: 0,
  };
  private peer: Peer | undefined;
  private idsMax = IDS_MAX;
  private filter: WireFilter = {};
  private readonly inProgress = new Set<Promise<void>>();
  private bytesInProgress = 0;
  private failure: Error | undefined;
  private readonly recent = new LRUCache<string, true>({ max: RECENT_MAX });
  private forged = 0;
  private targetsAsked = 0;
  private haves = 0;
  /** Topics that the operator named. */
  private readonly named: ReadonlySet<string>;
  private view: { readonly of: Community; readonly view: View } | undefined;

  constructor(
    private readonly plan: SyncPlan,
    private readonly parts: SyncParts,
    private readonly options: TransferOptions,
  ) {
    this.named = new Set(plan.topics);
  }

  /** The filter whose differences are found next: a peer may refuse ids without a topic. */
  begin(filter: WireFilter): void {
    this.filter = filter;
  }

  use(peer: Peer, limitMax: number | undefined): void {
    this.peer = peer;
    this.idsMax = Math.min(IDS_MAX, limitMax ?? IDS_MAX);
  }

  get connected(): Peer {
    if (this.peer === undefined) throw new Error('the transfer has no peer');
    return this.peer;
  }

  /** Grows with everything that a next session need not do again. */
  get progress(): number {
    return this.counts.stored + this.counts.sent;
  }

  /** How many differences a session has really found; a peer can invent the rest. */
  learnedOf(ownRecords: number): number {
    const { received, skipped } = this.counts;
    return received + skipped + Math.min(this.haves, ownRecords);
  }

  get goesDown(): boolean {
    return this.goes('down');
  }

  private goes(direction: Exclude<Direction, 'both'>): boolean {
    return this.plan.direction === 'both' || this.plan.direction === direction;
  }

  readonly found: Differences = {
    have: (ids) => this.have(ids),
    need: (ids) => this.need(ids),
  };

  // ── From the peer ────────────────────────────────────────────────────────────────────────────────────────

  /** Fetches events that the peer has and this node lacks. */
  private async need(ids: readonly string[]): Promise<void> {
    if (!this.goes('down')) return;
    for (let from = 0; from < ids.length; from += this.idsMax) {
      const some = ids.slice(from, from + this.idsMax);
      await this.mayGoOn();
      const known = await this.parts.store.known(this.plan.community, some);
      this.counts.skipped += known.size;
      const asked = new Set(some.filter((id) => !known.has(id)));
      if (asked.size > 0) await this.fetch(asked);
    }
  }

  private async fetch(asked: Set<string>): Promise<void> {
    const { since: _since, ...named } = this.filter;
    const filter = { ...named, ids: [...asked], limit: asked.size };
    await this.connected.request(filter, (event) => {
      const id = idOf(event);
      if (id === undefined || !asked.delete(id)) return false;
      this.take(event);
      return true;
    });
    await this.settled();
    this.counts.missing += asked.size;
    if (this.counts.missing > MISSING_MAX)
      throw new PeerFailure('misbehaved', 'the peer misbehaves: it does not deliver what it promises');
    this.options.onProgress();
  }

  /** Admits those whose ids are not known here, and waits for them. */
  async takeNew(events: readonly NostrEvent[]): Promise<void> {
    const ids = events.map(({ id }) => id);
    const known = ids.length === 0 ? new Set() : await this.parts.store.known(this.plan.community, ids);
    this.counts.skipped += known.size;
    for (const event of events) {
      if (known.has(event.id)) continue;
      if (this.isFull) await Promise.race(this.inProgress);
      this.take(event);
    }
    await this.settled();
    this.options.onProgress();
  }

  /** Admits an event. The peer is not read while too much is in progress. */
  take(event: unknown): void {
    const bytes = JSON.stringify(event)?.length ?? 0;
    this.counts.received += 1;
    const id = idOf(event);
    if (id !== undefined) this.recent.set(id, true);
    this.bytesInProgress += bytes;
    const work: Promise<void> = this.admit(event)
      .catch((error: unknown) => {
        this.failure ??= error instanceof Error ? error : new Error(String(error));
      })
      .finally(() => {
        this.inProgress.delete(work);
        this.bytesInProgress -= bytes;
        if (!this.isFull) this.peer?.resume();
      });
    this.inProgress.add(work);
    if (this.isFull) this.peer?.pause();
  }

  private get isFull(): boolean {
    const max = this.options.isLowPriority ? IN_PROGRESS.low : IN_PROGRESS.usual;
    return this.inProgress.size >= max || this.bytesInProgress >= IN_PROGRESS_BYTES_MAX;
  }

  /** Waits until all that was received is stored or refused. */
  async settled(): Promise<void> {
    while (this.inProgress.size > 0) await Promise.all(this.inProgress);
    if (this.failure !== undefined) throw this.failure;
  }

  private async admit(event: unknown): Promise<void> {
    const outcome = await this.admitWithPatience(event);
    if (!isRefusal(outcome)) {
      if (outcome === 'stored' || outcome === 'broadcast') this.counts.stored += 1;
      else this.counts.duplicates += 1;
      return;
    }
    const { refused } = this.counts;
    refused[outcome.refused] = (refused[outcome.refused] ?? 0) + 1;
    if (!isForged(outcome)) return;
    this.forged += 1;
    if (this.forged > FORGED_MAX)
      throw new PeerFailure('misbehaved', 'the peer misbehaves: it sends forged events');
  }

  private async admitWithPatience(event: unknown): Promise<Outcome | Refusal> {
    for (let tries = 1; ; tries += 1) {
      // As from a client without a key: what is blocked here and protected events (NIP-70) are refused. The
      // access to topics is the decision of the operator who named the peer.
      const sender = { access: ANONYMOUS, exempt: true, cameBy: CAME_BY_SYNC };
      const outcome = await this.parts.admission.admit(this.options.community(), event, sender);
      const isBusy = isRefusal(outcome) && outcome.refused === 'rate-limited';
      const isError = isRefusal(outcome) && outcome.refused === 'error';
      if (!isBusy && !isError) return outcome;
      if (isError && this.parts.diskLevel(this.plan.community) > 0)
        throw new Stopped('the disk of the node is nearly full (node.diskFreeMinPercent)');
      if (tries >= (isBusy ? BUSY_TRIES_MAX : ERROR_TRIES_MAX)) {
        if (isBusy) return outcome;
        throw new Stopped('events cannot be stored now; run it again later');
      }
      await delay(Math.min(RETRY_MS_MAX, 20 * 2 ** tries), undefined, { signal: this.options.signal });
    }
  }

  /** Low priority stops first when capacity is short, and waits while the lane is busy. */
  async mayGoOn(): Promise<void> {
    const { signal, isLowPriority, community } = this.options;
    signal.throwIfAborted();
    if (!isLowPriority) return;
    if (highestStep(community().capacity) > 0 || this.parts.diskLevel(this.plan.community) > 0)
      throw new Stopped('capacity is short: backfill stops first');
    for (let waitedMs = 0; this.parts.store.depth > LANE_DEPTH_MAX; waitedMs += CALM_LOOK_MS) {
      if (waitedMs >= CALM_MS_MAX) throw new Stopped('the node is busy: backfill stops first');
      await delay(CALM_LOOK_MS, undefined, { signal });
    }
  }

  // ── To the peer ──────────────────────────────────────────────────────────────────────────────────────────

  /** Events that only this node has: perhaps deleted at the peer, otherwise new to it. */
  private async have(ids: readonly string[]): Promise<void> {
    this.haves += ids.length;
    for (let from = 0; from < ids.length; from += HAVE_MAX) {
      const some = ids.slice(from, from + HAVE_MAX);
      await this.mayGoOn();
      if (this.goes('down')) await this.askForDeletions(await this.served(some));
      if (this.goes('up')) await this.sendAll(await this.served(some));
      this.options.onProgress();
    }
  }

  private async sendAll(events: readonly Served[]): Promise<void> {
    for (let from = 0; from < events.length; from += SENDING_MAX) {
      await this.mayGoOn();
      await Promise.all(events.slice(from, from + SENDING_MAX).map((event) => this.offer(event)));
    }
  }

  private async served(ids: readonly string[]): Promise<Served[]> {
    const { community } = this.plan;
    const found = await this.parts.store.byIds(
      ids.map((id) => ({ community, id })),
      'heavy',
    );
    return ids.flatMap((id) => {
      const row = found.get(factKey(community, id));
      return row === undefined ? [] : [{ ...row, event: JSON.parse(row.payload) as NostrEvent }];
    });
  }

  /** Other relays do not find these requests by the topics of their targets, so the targets are named. */
  private async askForDeletions(events: readonly Served[]): Promise<void> {
    if (events.length === 0 || this.targetsAsked >= TARGETS_OF_SYNC_MAX) return;
    this.targetsAsked += events.length;
    const addresses = events.flatMap(({ event }) => addressOf(event) ?? []);
    await this.askForRequests('e', new Set(events.map(({ event }) => event.id)));
    if (addresses.length > 0) await this.askForRequests('a', new Set(addresses));
  }

  private async askForRequests(name: 'e' | 'a', targets: ReadonlySet<string>): Promise<void> {
    let left = REQUESTS_OF_TARGETS_MAX;
    const filter = { kinds: [KIND_DELETION], [`#${name}`]: [...targets] };
    await this.connected.request(filter, (event) => {
      left -= 1;
      if (left < 0 || !isRequestFor(event, name, targets)) return false;
      this.take(event);
      return true;
    });
    await this.settled();
  }

  /** Whether an event came from the peer lately, so that it is not sent back. */
  isFromPeer(id: string): boolean {
    return this.recent.has(id);
  }

  /** Sends one event, if it may leave. */
  async offer(served: Served): Promise<void> {
    if (!this.mayLeave(served)) {
      this.counts.keptBack += 1;
      return;
    }
    for (let tries = 1; ; tries += 1) {
      const why = await this.connected.publish(served.event, served.payload);
      if (why === undefined) {
        this.counts.sent += 1;
        return;
      }
      const prefix = /^([a-z-]{1,20}):/.exec(why)?.[1] ?? 'other';
      if (prefix !== 'rate-limited' || tries === PEER_BUSY_TRIES_MAX) {
        this.counts.sentRefused[prefix] = (this.counts.sentRefused[prefix] ?? 0) + 1;
        return;
      }
      await delay(250 * 2 ** tries, undefined, { signal: this.options.signal });
    }
  }

  /** What anybody may see here, and what is in the topics that the operator named. Never private kinds. */
  mayLeave({ event, bound }: Pick<Served, 'event' | 'bound'>): boolean {
    const community = this.options.community();
    if (this.view?.of !== community)
      this.view = { of: community, view: publicView(rulesFor(community, this.named)) };
    return !isProtected(event) && sees(this.view.view, asMatched(event, bound));
  }
}

export interface Served {
  readonly event: NostrEvent;
  readonly payload: string;
  readonly bound: readonly string[];
}

function idOf(event: unknown): string | undefined {
  const id = typeof event === 'object' && event !== null ? (event as { id?: unknown }).id : undefined;
  return isHex64(id) ? id : undefined;
}

function isRequestFor(event: unknown, name: string, targets: ReadonlySet<string>): boolean {
  const { kind, tags } = (event ?? {}) as { kind?: unknown; tags?: unknown };
  if (kind !== KIND_DELETION || !Array.isArray(tags)) return false;
  return tags.some((tag) => Array.isArray(tag) && tag[0] === name && targets.has(String(tag[1])));
}
