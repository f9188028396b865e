/**
 * The time in which this instance holds the lease and has an endpoint: joins and leaves topics as the
 * subscriptions of the node change, takes events in, sends events out, and fills gaps. It ends when the lease
 * is lost, gossip is switched off, its address changes, or the endpoint breaks.
 *
 *   settings and topics ─▶ reconcile ─▶ join / leave
 *   outbox, live bus ────▶ outgoing ──▶ endpoint ──▶ peers
 *   peers ───────────────▶ endpoint ──▶ incoming ─▶ admission, lane
 *   lost, rejoined ──────▶ catch-up ──▶ relays of known nodes
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { Communities, Community } from '../communities/communities.js';
import type { NodeSettings } from '../communities/rules-node-settings.js';
import type { Admission } from '../events/admission.js';
import type { EventStore } from '../events/store.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { CatchUp, type Compared, type Fill } from './catch-up.js';
import { Endpoint, type EndpointEvent } from './endpoint.js';
import { Incoming } from './incoming.js';
import type { MachineKey } from './machine-key.js';
import { LeaseLost, Outgoing } from './outgoing.js';
import { listMachines, readP2pLease, renewP2pLease, writeP2pState } from './p2p.sql.js';
import type { Opened, PeerAddress } from './protocol.js';
import { countTopics, type JoinedTopic, type JoinedTopics, keyOf, topicsToJoin } from './rules.js';
import { ClockWatch } from './rules-clock.js';
import type { P2pState } from './rules-state.js';
import { readTicket, type Ticket } from './rules-ticket.js';
import { type Reached, UNREACHED_MS } from './rules-unreached.js';

const BEAT_MS = 1_000;
const POLL_MS = 1_000;
const STATE_MS = 2_000;
const SEEN_MS = 60_000;
/**
 * After a start events wait for neighbours, because nobody would get them: until every topic has one, for
 * this time if only some topics have one, and at most for the second. Later, peers that come up fill their
 * gaps.
 */
const SETTLE_MS = 10_000;
const SETTLE_MS_MAX = 60_000;
/** Known nodes that are not neighbours are dialled again: iroh does not dial a peer again that was down. */
const REJOIN_MS = 2_000;
const REJOIN_MS_MAX = 60_000;
const REJOINS_AT_ONCE = 20;
/** A lost topic is joined again at most so often. */
const LOST_MS = 5_000;
const PEERS_PER_TOPIC_MAX = 16;
/** Failures in a row of the database; then the session starts again. */
const FAILURES_MAX = 30;

export interface SessionOptions {
  readonly admission: Admission;
  readonly store: EventStore;
  readonly pool: Pool;
  readonly communities: Communities;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  readonly fill: Fill | undefined;
  readonly holder: string;
  readonly key: MachineKey;
  /** An earlier session of this process had neighbours. */
  readonly hadNeighbours: boolean;
  /** How long no known node may be a neighbour while the relay of one answers, until the first is one. */
  readonly unreachedMs: number;
  /** Ends the session. */
  readonly signal: AbortSignal;
  /** The endpoint is open. */
  readonly onOpened: (opened: Opened) => Promise<void>;
}

/** How a session ended. */
export interface Ended extends Reached {
  /** Why it broke. */
  readonly problem: string | undefined;
  readonly hadNeighbours: boolean;
}

interface TopicState {
  joined: readonly JoinedTopic[];
  readonly neighbours: Set<string>;
  /** When it is joined again if it has no neighbour, and after which pause the next time. */
  rejoinAt: number;
  rejoinMs: number;
  lostAt: number;
  isLost: boolean;
}

export class Session {
  private readonly ending = new AbortController();
  private readonly signal: AbortSignal;
  private readonly topics = new Map<string, TopicState>();
  private joined: JoinedTopics = new Map();
  /** The communities and tickets that the joined topics follow. */
  private planned: Plan | undefined;
  /** This is not the first session: gossip was away before it. */
  private wasAway = false;
  /** This session or one before it, of any machine, had neighbours. */
  private hadNeighbours: boolean;
  /** When a known node was last among the neighbours. */
  private reachedAt = performance.now();
  private hasReached = false;
  private isUnreached = false;
  private hasSettled = false;
  private readonly incoming: Incoming;
  private readonly outgoing: Outgoing;
  private readonly catchUp: CatchUp;
  private readonly clock = new ClockWatch();
  private readonly startedAt = performance.now();
  private readonly counts = { discarded: 0, lagged: 0 };
  private endpoint!: Endpoint;
  private opened!: Opened;
  private awake: (() => void) | undefined;
  private isWanted = true;
  private problem: string | undefined;
  private readonly binding: string;
  private readonly since: number;

  private constructor(private readonly options: SessionOptions) {
    const { admission, communities, metrics, log, now, store, pool, holder, fill } = options;
    this.signal = AbortSignal.any([options.signal, this.ending.signal]);
    this.signal.addEventListener('abort', () => this.wake(), { once: true });
    this.binding = this.wantedBinding();
    this.hadNeighbours = options.hadNeighbours;
    this.since = now();
    const joined = () => this.joined;
    this.incoming = new Incoming({
      admission,
      communities,
      metrics,
      log,
      now,
      joined,
      ignore: (peer, ms) => this.endpoint.ignore(peer, ms),
      onMissed: (hex) => this.missed(hex),
    });
    this.outgoing = new Outgoing({
      store,
      pool,
      communities,
      metrics,
      log,
      now,
      holder,
      joined,
      send: (topic, contents) => this.endpoint.send(topic, contents),
      hasCome: (id, topic) => this.incoming.hasCome(id, topic),
      signal: this.signal,
    });
    const { signal } = this;
    this.catchUp = new CatchUp({
      fill,
      communities,
      tickets: () => this.tickets(),
      metrics,
      log,
      now,
      signal,
    });
  }

  /** Runs until it ends. `wakeBy` gets a function that wakes it. */
  static async run(options: SessionOptions, wakeBy: (wake: () => void) => void): Promise<Ended> {
    const session = new Session(options);
    wakeBy(() => session.wake());
    try {
      await session.open();
      await Promise.all([session.work(), session.beat(), session.report(), session.catchUp.running]);
    } finally {
      session.ending.abort();
      await session.endpoint?.close();
      session.forgetPeers();
    }
    return {
      problem: session.problem,
      hadNeighbours: session.hadNeighbours,
      hasReached: session.hasReached,
      isUnreached: session.isUnreached,
    };
  }

  private async open(): Promise<void> {
    const { communities, key, pool } = this.options;
    const node = communities.node();
    const { endpoint, opened } = await Endpoint.open({
      secret: key.secret,
      bind: node['p2p.bind'],
      port: node['p2p.port'],
      discovery: node['p2p.discovery'],
      limits: this.limits(),
      onEvent: (event) => this.onEvent(event),
      onBroken: (why) => this.end(why),
    });
    this.endpoint = endpoint;
    this.opened = opened;
    await this.options.onOpened(opened);
    const { lastSeq } = await readP2pLease(pool);
    this.wasAway = lastSeq !== null;
    this.hadNeighbours ||= (await listMachines(pool, 0)).some(({ state }) => state?.neighbours.length);
    await this.outgoing.start(lastSeq);
  }

  wake(): void {
    this.isWanted = true;
    this.awake?.();
  }

  private end(problem?: string): void {
    this.problem ??= problem;
    this.ending.abort();
  }

  private limits() {
    return { messagesPerSecond: this.options.communities.node()['p2p.messagesPerSecond'] };
  }

  /** What needs another endpoint when it changes. */
  private wantedBinding(): string {
    const node = this.options.communities.node();
    return JSON.stringify([node['p2p.enabled'], node['p2p.bind'], node['p2p.port'], node['p2p.discovery']]);
  }

  private tickets(): Ticket[] {
    return this.options.communities.node()['p2p.peers'].flatMap((text) => readTicket(text) ?? []);
  }

  // ── The loop ─────────────────────────────────────────────────────────────────────────────────────────────

  private async work(): Promise<void> {
    let failures = 0;
    while (!this.signal.aborted) {
      this.isWanted = false;
      try {
        if (this.wantedBinding() !== this.binding) return this.end();
        await this.reconcile();
        const hasMore = this.isSettled() && (await this.outgoing.step());
        failures = 0;
        if (hasMore) continue;
      } catch (error) {
        if (this.signal.aborted) return;
        if (error instanceof LeaseLost) return this.end();
        failures += 1;
        this.options.log.warn({ error: String(error) }, 'gossip: a step failed, it is tried again');
        if (failures >= FAILURES_MAX) return this.end(String(error));
        await delay(POLL_MS, undefined, { signal: this.signal }).catch(() => undefined);
      }
      if (!this.isWanted) await this.sleep();
    }
  }

  private sleep(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, POLL_MS);
      this.awake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  private isSettled(): boolean {
    if (this.hasSettled) return true;
    const waitedMs = performance.now() - this.startedAt;
    const topics = [...this.topics.values()];
    const alone = topics.filter(({ neighbours }) => neighbours.size === 0).length;
    const mayHavePeers = this.hadNeighbours || this.tickets().length > 0;
    this.hasSettled =
      !mayHavePeers ||
      alone === 0 ||
      waitedMs >= SETTLE_MS_MAX ||
      (alone < topics.length && waitedMs >= SETTLE_MS);
    return this.hasSettled;
  }

  /** Keeps the lease. If the database does not answer, another instance that reaches it may take over. */
  private async beat(): Promise<void> {
    while (!this.signal.aborted) {
      const isHeld = await renewP2pLease(this.options.pool, this.options.holder).catch(() => true);
      if (!isHeld) return this.end();
      await delay(BEAT_MS, undefined, { signal: this.signal }).catch(() => undefined);
    }
  }

  // ── Topics ───────────────────────────────────────────────────────────────────────────────────────────────

  /** Joins and leaves topics so that the joined ones are those of the node, with its peers. */
  private async reconcile(): Promise<void> {
    const { communities } = this.options;
    const node = communities.node();
    const plan: Plan = { communities: communities.all(), node };
    if (this.planned === undefined || !isSamePlan(this.planned, plan)) {
      const before = this.planned?.node['p2p.peers'] ?? node['p2p.peers'];
      // iroh cannot part from one peer, so the node begins again without it.
      if (before.some((ticket) => !node['p2p.peers'].includes(ticket))) return this.end();
      const hasNewPeers = node['p2p.peers'].some((ticket) => !before.includes(ticket));
      await this.follow(topicsToJoin(plan.communities, node['p2p.topicsMax']), hasNewPeers);
      this.endpoint.limit(this.limits());
      this.planned = plan;
    }
    await this.rejoin();
    this.fillReturned();
    this.fillAfterClock();
    this.catchUp.compare(this.compared());
    if (this.hasUnreached()) {
      this.isUnreached = true;
      this.options.log.info('gossip: relays of known nodes answer, but iroh reaches none of them');
      this.end();
    }
  }

  private *compared(): Iterable<Compared> {
    for (const { joined, neighbours } of this.topics.values())
      yield { joined, isApart: this.bootstrap(neighbours).length > 0 };
  }

  /** No known node has had a machine among the neighbours for too long, though the relay of one answers. */
  private hasUnreached(): boolean {
    const now = performance.now();
    const known = this.tickets().filter(
      ({ machines }) => !machines.some(({ id }) => id === this.options.key.id),
    );
    const isReached = known.some(({ machines }) => machines.some(({ id }) => this.isNeighbour(id)));
    this.hasReached ||= isReached;
    if (isReached || known.length === 0 || this.topics.size === 0) this.reachedAt = now;
    const unreachedMs = this.hasReached ? UNREACHED_MS : this.options.unreachedMs;
    if (now - this.reachedAt < unreachedMs) return false;
    return known.some(({ urls }) => this.catchUp.hasAnswered(urls, this.reachedAt));
  }

  private isNeighbour(peer: string): boolean {
    for (const { neighbours } of this.topics.values()) if (neighbours.has(peer)) return true;
    return false;
  }

  private async follow(wanted: JoinedTopics, hasNewPeers: boolean): Promise<void> {
    this.joined = wanted;
    for (const hex of this.topics.keys()) if (!wanted.has(hex)) await this.leave(hex);
    const reason = this.planned === undefined && this.wasAway ? 'gap' : 'joined';
    for (const [hex, joined] of wanted) {
      const known = this.topics.get(hex);
      this.catchUp.want(added(known?.joined ?? [], joined), reason);
      if (known === undefined) await this.join(hex, joined);
      else known.joined = joined;
      if (known !== undefined && hasNewPeers) await this.endpoint.join(hex, this.bootstrap());
    }
    const kept = new Set([...wanted.values()].flat().map(keyOf));
    this.catchUp.keep((one) => kept.has(keyOf(one)));
    this.options.metrics.gossipTopics.set(this.topics.size);
  }

  private async join(hex: string, joined: readonly JoinedTopic[]): Promise<void> {
    const rejoinAt = performance.now() + REJOIN_MS;
    const state = {
      joined,
      neighbours: new Set<string>(),
      rejoinAt,
      rejoinMs: REJOIN_MS,
      lostAt: 0,
      isLost: false,
    };
    this.topics.set(hex, state);
    await this.endpoint.join(hex, this.bootstrap());
  }

  private async leave(hex: string): Promise<void> {
    this.topics.delete(hex);
    await this.endpoint.leave(hex);
  }

  /** Joins again where messages were lost, and dials known nodes that are not neighbours. */
  private async rejoin(): Promise<void> {
    const now = performance.now();
    let left = REJOINS_AT_ONCE;
    for (const [hex, topic] of this.topics) {
      if (left === 0) return;
      const isLost = topic.isLost && now - topic.lostAt >= LOST_MS;
      const missing = now >= topic.rejoinAt || isLost ? this.bootstrap(topic.neighbours) : [];
      if (missing.length === 0 && !isLost) continue;
      left -= 1;
      topic.rejoinAt = now + topic.rejoinMs;
      topic.rejoinMs = Math.min(REJOIN_MS_MAX, topic.rejoinMs * 2);
      if (isLost) {
        topic.isLost = false;
        topic.lostAt = now;
      }
      await this.endpoint.join(hex, missing);
      if (isLost) this.catchUp.want(topic.joined, 'gap');
    }
  }

  /** The machines of known nodes of which none is among the neighbours. */
  private bootstrap(neighbours: ReadonlySet<string> = new Set()): PeerAddress[] {
    const { id: own } = this.options.key;
    return this.tickets()
      .filter(({ machines }) => !machines.some(({ id }) => id === own || neighbours.has(id)))
      .flatMap(({ machines }) => machines)
      .slice(0, PEERS_PER_TOPIC_MAX);
  }

  /** Events of this topic may be missing here. */
  private missed(hex: string): void {
    this.catchUp.want(this.topics.get(hex)?.joined ?? [], 'gap');
  }

  /** Peers that were ignored are heard again: what they sent meanwhile is missing. */
  private fillReturned(): void {
    if (this.incoming.peers.takeReturned(performance.now()).length === 0) return;
    for (const hex of this.topics.keys()) this.missed(hex);
  }

  /** The clock was set: what it made this node refuse, as too old or as of the future, is missing. */
  private fillAfterClock(): void {
    if (!this.clock.wasSet(this.options.now(), performance.now())) return;
    for (const hex of this.topics.keys()) this.missed(hex);
  }

  // ── Events of the endpoint ───────────────────────────────────────────────────────────────────────────────

  private onEvent(event: EndpointEvent): void {
    switch (event.type) {
      case 'message': {
        const { topic, peer, content } = event;
        this.incoming.receive(topic, peer, content).finally(() => this.endpoint.took(peer));
        return;
      }
      case 'up':
        this.onUp(event.topic, event.peer);
        return;
      case 'down':
        this.topics.get(event.topic)?.neighbours.delete(event.peer);
        this.countPeers();
        return;
      case 'lost': {
        const topic = this.topics.get(event.topic);
        if (event.why === 'lagged') this.counts.lagged += 1;
        if (topic !== undefined) topic.isLost = true;
        this.options.metrics.gossipLost.inc({ why: event.why });
        this.wake();
        return;
      }
      case 'discarded':
        this.counts.discarded += event.messages;
        this.options.metrics.gossipLost.inc({ why: 'discarded' }, event.messages);
        for (const hex of event.topics) this.missed(hex);
        return;
    }
  }

  private onUp(hex: string, peer: string): void {
    const topic = this.topics.get(hex);
    if (topic === undefined || topic.neighbours.has(peer)) return;
    topic.neighbours.add(peer);
    topic.rejoinMs = REJOIN_MS;
    this.hadNeighbours = true;
    this.countPeers();
    const isKnown = this.tickets().some(({ machines }) => machines.some(({ id }) => id === peer));
    if (isKnown) this.catchUp.wantNow(topic.joined);
    this.wake();
  }

  private countPeers(): void {
    const peers = new Set([...this.topics.values()].flatMap(({ neighbours }) => [...neighbours]));
    this.options.metrics.gossipPeers.set(peers.size);
  }

  private forgetPeers(): void {
    this.options.metrics.gossipPeers.set(0);
    this.options.metrics.gossipTopics.set(0);
  }

  // ── State ────────────────────────────────────────────────────────────────────────────────────────────────

  private async report(): Promise<void> {
    const { pool, key, now } = this.options;
    let written = '';
    let writtenAt = 0;
    while (!this.signal.aborted) {
      const state = this.state();
      const text = JSON.stringify(state);
      // Also while nothing changes: a machine that is not seen for days is left out of the ticket.
      if (text !== written || now() - writtenAt >= SEEN_MS) {
        const isWritten = await writeP2pState(pool, key.id, state, now()).then(
          () => true,
          () => false,
        );
        if (isWritten) {
          written = text;
          writtenAt = now();
        }
      }
      await delay(STATE_MS, undefined, { signal: this.signal }).catch(() => undefined);
    }
  }

  private state(): P2pState {
    const { communities } = this.options;
    const { counts } = this.incoming;
    const port = communities.node()['p2p.port'];
    const byPeer = new Map<string, number>();
    for (const { neighbours } of this.topics.values())
      for (const peer of neighbours) byPeer.set(peer, (byPeer.get(peer) ?? 0) + 1);
    return {
      problem: null,
      since: this.since,
      isPortTaken: port !== 0 && !this.opened.addresses.some((address) => address.endsWith(`:${port}`)),
      relay: this.opened.relay,
      topics: this.topics.size,
      topicsWanted: countTopics(communities.all()),
      neighbours: [...byPeer].map(([machine, topics]) => ({ machine, topics })),
      dropped: this.incoming.peers.dropped(performance.now()),
      counts: {
        sentEvents: this.outgoing.counts.events,
        sentMessages: this.outgoing.counts.messages,
        receivedMessages: this.incoming.received,
        accepted: counts.accepted,
        duplicates: counts.duplicate,
        refused: counts.refused,
        invalid: counts.invalid,
        ...this.counts,
      },
      offset: this.outgoing.offset,
      catchUp: this.catchUp.state,
    };
  }
}

interface Plan {
  readonly communities: readonly Community[];
  readonly node: NodeSettings;
}

/** Both are replaced as a whole when anything in them changes. */
function isSamePlan(one: Plan, other: Plan): boolean {
  if (one.node !== other.node || one.communities.length !== other.communities.length) return false;
  return one.communities.every((community, at) => community === other.communities[at]);
}

function added(before: readonly JoinedTopic[], after: readonly JoinedTopic[]): JoinedTopic[] {
  const known = new Set(before.map(keyOf));
  return after.filter((one) => !known.has(keyOf(one)));
}
