/**
 * Events of this node on their way out: read from the outbox after the commit, in order, and sent once into
 * each of their gossip topics. The offset is saved after each page, by the holder of the lease only. So a
 * restart skips nothing, and sends again at most the page that a crash has interrupted; peers know an event
 * by its id. Ephemeral events are read from the live bus, from now on.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { Communities } from '../communities/communities.js';
import type { NostrEvent } from '../events/rules/event.js';
import { isExpired } from '../events/rules/expiration.js';
import { CAME_BY_SYNC, factKey } from '../events/rules/facts.js';
import { type EventStore, type NamedChange, OutboxBehind } from '../events/store.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { saveP2pOffset } from './p2p.sql.js';
import { boundOfEphemeral, type JoinedTopics, topicsToSend } from './rules.js';
import { messagesOf } from './rules-envelope.js';

const PAGE_MAX = 50;
const BUS_PAGE_MAX = 200;
const BUS_CHECK_MS = 5_000;
const SECOND_MS = 1_000;

export interface OutgoingOptions {
  readonly store: Pick<EventStore, 'head' | 'changes' | 'byIds' | 'broadcastHead' | 'broadcasts' | 'stored'>;
  readonly pool: Pool;
  readonly communities: Communities;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  readonly holder: string;
  readonly joined: () => JoinedTopics;
  readonly send: (topic: string, contents: readonly Uint8Array[]) => Promise<void>;
  /** The event has come through this gossip topic. */
  readonly hasCome: (id: string, topic: string) => boolean;
  readonly signal: AbortSignal;
}

/** Another instance holds the lease. */
export class LeaseLost extends Error {}

interface Outbound {
  readonly community: number;
  readonly payload: string;
  readonly bound: readonly string[] | undefined;
  readonly cameBy: string | undefined;
}

export class Outgoing {
  readonly counts = { events: 0, messages: 0 };
  private position = 0;
  private saved = 0;
  private busPosition = 0;
  private busCheckedAt = 0;
  /** Messages that may be sent at once, and when that was. */
  private pace = { tokens: 0, at: 0 };

  constructor(private readonly options: OutgoingOptions) {}

  get offset(): number {
    return this.position;
  }

  /** `from`: the saved offset; null to begin with what comes next. */
  async start(from: number | null): Promise<void> {
    const { store } = this.options;
    this.position = from ?? (await store.head());
    this.saved = from ?? -1;
    this.busPosition = await store.broadcastHead();
    if (from === null) await this.save();
  }

  /** Sends what is there; true if there may be more. */
  async step(): Promise<boolean> {
    const hasMore = await this.sendChanges();
    return (await this.sendEphemeral()) || hasMore;
  }

  // ── The outbox ───────────────────────────────────────────────────────────────────────────────────────────

  private async sendChanges(): Promise<boolean> {
    const { store, pool, signal } = this.options;
    const page = await store.changes(this.position, PAGE_MAX).catch((error: unknown) => {
      if (error instanceof OutboxBehind) return this.skipTo(error.floor - 1);
      throw error;
    });
    if (page === undefined) return true;
    const last = page.changes.at(-1)?.seq ?? this.position;
    const named = page.changes.filter((change): change is NamedChange => this.mayGo(change));
    const found = named.length === 0 ? new Map() : await store.byIds(named);
    const hasMarks = page.changes.some(({ op }) => op === 'unnamed');
    const requests = hasMarks ? await store.stored.vanishRequests(pool, this.position, last) : [];
    const outbound: (Outbound & { readonly seq: number })[] = requests.map((request) => ({
      ...request,
      bound: [],
      cameBy: undefined,
    }));
    for (const { seq, community, id, cameBy } of named) {
      const event = found.get(factKey(community, id));
      if (event !== undefined)
        outbound.push({ seq, community, payload: event.payload, bound: event.bound, cameBy });
    }
    for (const each of outbound.sort((one, other) => one.seq - other.seq)) {
      if (signal.aborted) break;
      await this.broadcast(each);
      this.position = each.seq;
    }
    if (!signal.aborted) this.position = last;
    await this.save();
    return page.changes.length > 0 && last < page.head;
  }

  /** What other nodes have sent by sync is not ours to send. */
  private mayGo(change: { readonly op: string; readonly cameBy?: string | undefined }): boolean {
    return change.op === 'upsert' && change.cameBy !== CAME_BY_SYNC && this.options.joined().size > 0;
  }

  private skipTo(position: number): undefined {
    const { log } = this.options;
    log.warn(
      { from: this.position, to: position },
      'gossip was away longer than the outbox is kept: peers get what is between by sync',
    );
    this.position = position;
    return undefined;
  }

  private async save(): Promise<void> {
    if (this.position === this.saved) return;
    const { pool, holder, now } = this.options;
    if (!(await saveP2pOffset(pool, holder, this.position, now()))) throw new LeaseLost();
    this.saved = this.position;
  }

  // ── The live bus ─────────────────────────────────────────────────────────────────────────────────────────

  private async sendEphemeral(): Promise<boolean> {
    const { store } = this.options;
    const events = await store.broadcasts(this.busPosition, BUS_PAGE_MAX);
    // Ephemeral batches do not wait for the disk: after a crash the bus may have fallen behind this reader.
    if (events.length === 0 && performance.now() - this.busCheckedAt >= BUS_CHECK_MS) {
      this.busCheckedAt = performance.now();
      this.busPosition = Math.min(this.busPosition, await store.broadcastHead());
    }
    for (const { position, community, payload, cameBy } of events) {
      this.busPosition = position;
      if (cameBy !== CAME_BY_SYNC) await this.broadcast({ community, payload, cameBy, bound: undefined });
    }
    return events.length === BUS_PAGE_MAX;
  }

  // ── Sending ──────────────────────────────────────────────────────────────────────────────────────────────

  private async broadcast({ community: id, payload, bound, cameBy }: Outbound): Promise<void> {
    const { communities, joined, hasCome, now, send, metrics } = this.options;
    const community = communities.get(id);
    if (community === undefined) return;
    const event = JSON.parse(payload) as NostrEvent;
    if (isExpired(event, Math.floor(now() / SECOND_MS))) return;
    const topics = topicsToSend(event, bound ?? boundOfEphemeral(event, community), community, joined());
    const isNew = (topic: string) => topic !== cameBy && !hasCome(event.id, topic);
    const contents = topics.some(isNew) ? messagesOf(event.id, payload) : [];
    if (contents.length === 0) return;
    for (const topic of topics.filter(isNew)) {
      await this.keepPace(contents.length);
      await send(topic, contents);
      this.counts.messages += contents.length;
      metrics.gossipSent.inc(contents.length);
    }
    this.counts.events += 1;
  }

  /** A peer that gets more than it can process loses messages, so this node waits instead. */
  private async keepPace(messages: number): Promise<void> {
    const perSecond = this.options.communities.node()['p2p.sendPerSecond'];
    const at = performance.now();
    const refilled = this.pace.tokens + ((at - this.pace.at) / SECOND_MS) * perSecond;
    const tokens = Math.min(perSecond, refilled) - messages;
    this.pace = { tokens, at };
    if (tokens >= 0) return;
    await pause((-tokens / perSecond) * SECOND_MS, this.options.signal);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return delay(ms, undefined, { signal }).catch(() => undefined);
}
