/**
 * Brings a community and another relay to the same events, in one direction or both. The differences come
 * from negentropy (NIP-77), or from pages of REQ where the peer does not know it. Events from the peer pass
 * the same admission and lane as a post, without the rates of authors: what this node has deleted, removed or
 * erased is refused as always (I6). Events to the peer are only those that anybody may see, or that are in a
 * topic that the operator has named.
 *
 * Deletions converge as well. Requests of a topic come first (a Minato peer finds them by the topics of their
 * targets). Then, for events that only this node has, the peer is asked for requests that name them.
 */
import type { Pool } from 'pg';
import type { Communities, Community } from '../communities/communities.js';
import type { Admission } from '../events/admission.js';
import { type Filter, parseFilter } from '../events/rules/filter.js';
import { isRefusal } from '../events/rules/reply.js';
import type { EventStore } from '../events/store.js';
import type { NodeKeys } from '../keys/keys.js';
import type { Log } from '../node/log.js';
import type { DiskLevel } from '../node/rules-disk.js';
import { Digest, type ReadPage } from './digest.js';
import { type PeerInformation, readInformation } from './information.js';
import { Pages } from './pages.js';
import { Peer } from './peer.js';
import { PeerFailure } from './peer-failure.js';
import { filtersFor, type WireFilter } from './rules-filters.js';
import { BadMessage, fromHex, openingMessage, reconcile, toHex } from './rules-negentropy.js';
import { Stopped, Transfer, type TransferCounts } from './transfer.js';

export type Direction = 'down' | 'up' | 'both';

/** The parts of a node that a sync uses. */
export interface SyncParts {
  readonly admission: Admission;
  readonly communities: Communities;
  readonly store: Pick<EventStore, 'records' | 'known' | 'byIds' | 'head' | 'changes' | 'depth'>;
  readonly keys: Pick<NodeKeys, 'sign'>;
  /** Keeps where pages of REQ were interrupted. */
  readonly pool: Pool;
  readonly diskLevel: (community: number) => DiskLevel;
  readonly log: Log;
  /** Milliseconds. */
  readonly now: () => number;
}

export interface SyncPlan {
  readonly community: number;
  readonly url: string;
  readonly direction: Direction;
  /** All of the community by default. */
  readonly topics?: readonly string[] | undefined;
  /** Seconds. */
  readonly since?: number | undefined;
}

export interface SyncOptions {
  readonly signal: AbortSignal;
  /** Stops when capacity is short, and lets everything else go first. */
  readonly isLowPriority: boolean;
  readonly allowsPrivate: boolean;
  readonly onProgress?: ((progress: SyncProgress) => void) | undefined;
  /** How long the peer may be silent. */
  readonly answerMs?: number | undefined;
}

export interface SyncProgress extends TransferCounts {
  /** Filters that are done, and all of them. */
  readonly step: number;
  readonly steps: number;
  readonly method: Method;
}

export type Method = 'negentropy' | 'pages';

export interface Synced extends TransferCounts {
  /**
   * `complete`: both sides were compared as a whole. `stopped`: by this side, for want of space or by the
   * signal. `failed`: by the peer.
   */
  readonly ended: 'complete' | 'stopped' | 'failed';
  /** A sentence for the operator; empty when complete. */
  readonly why: string;
  readonly method: Method;
  /** Bytes of all frames. */
  readonly bytesIn: number;
  readonly bytesOut: number;
}

const ANSWER_MS = 30_000;
/** A large peer walks its store before the first answer. */
const FIRST_ANSWER_MS = 180_000;
/** Where it is not known whether the peer knows negentropy at all. */
const UNSURE_MS = 10_000;
const MESSAGE_BYTES_MAX = 60_000;
/** Rounds without a limit would let a peer keep this side busy for ever. */
const ROUNDS_MIN = 200;
const DIFFERENCES_PER_ROUND = 20;
/** Sessions of one filter: a peer may close one while events are transferred. */
const SESSIONS_MAX = 20;
const OWN_RECORDS_MAX = 100_000_000;

export async function syncWithPeer(plan: SyncPlan, parts: SyncParts, options: SyncOptions): Promise<Synced> {
  const sync = new Exchange(plan, parts, options);
  try {
    await sync.run();
    return sync.result('complete', '');
  } catch (error) {
    if (options.signal.aborted) return sync.result('stopped', 'interrupted');
    if (error instanceof Stopped) return sync.result('stopped', error.message);
    if (error instanceof PeerFailure) return sync.result('failed', error.message);
    if (error instanceof BadMessage) return sync.result('failed', `the peer misbehaves: ${error.message}`);
    parts.log.warn({ error: String(error) }, 'a sync failed');
    return sync.result('failed', error instanceof Error ? error.message : String(error));
  } finally {
    sync.close();
  }
}

class Exchange {
  private peer: Peer | undefined;
  private information: PeerInformation = { hasNegentropy: undefined, limitMax: undefined };
  private method: Method = 'negentropy';
  /** The peer has answered in this session. */
  private isUnderWay = false;
  private readonly transfer: Transfer;
  private step = 0;
  private steps = 0;
  private bytes = { in: 0, out: 0 };

  constructor(
    private readonly plan: SyncPlan,
    private readonly parts: SyncParts,
    private readonly options: SyncOptions,
  ) {
    this.transfer = new Transfer(plan, parts, {
      ...options,
      community: () => this.community(),
      onProgress: () => this.report(),
    });
  }

  async run(): Promise<void> {
    const { signal, allowsPrivate, answerMs = ANSWER_MS } = this.options;
    const filters = filtersFor(this.community(), this.plan);
    this.steps = filters.length;
    this.information = await readInformation(this.plan.url, { allowsPrivate, signal, answerMs });
    if (this.information.hasNegentropy === false) this.method = 'pages';
    await this.connect();
    for (const filter of filters) {
      await this.syncFilter(filter);
      this.step += 1;
      this.report();
    }
  }

  result(ended: Synced['ended'], why: string): Synced {
    this.count();
    const { in: bytesIn, out: bytesOut } = this.bytes;
    return { ...this.transfer.counts, ended, why, method: this.method, bytesIn, bytesOut };
  }

  close(): void {
    this.peer?.close();
  }

  private community(): Community {
    const community = this.parts.communities.get(this.plan.community);
    if (community === undefined) throw new Stopped('the community no longer exists');
    return community;
  }

  private report(): void {
    const { step, steps, method } = this;
    this.options.onProgress?.({ ...this.transfer.counts, step, steps, method });
  }

  /** The frames of a connection that is replaced. */
  private count(): void {
    this.bytes.in += this.peer?.bytesIn ?? 0;
    this.bytes.out += this.peer?.bytesOut ?? 0;
    this.peer?.close();
    this.peer = undefined;
  }

  private async connect(): Promise<Peer> {
    this.count();
    const { keys, now } = this.parts;
    const { community, url } = this.plan;
    const { answerMs = ANSWER_MS, signal, allowsPrivate } = this.options;
    this.peer = await Peer.connect({
      url,
      allowsPrivate,
      answerMs,
      signal,
      now,
      sign: (template) => keys.sign(community, 'relay', template),
    });
    this.transfer.use(this.peer, this.information.limitMax);
    return this.peer;
  }

  private async syncFilter(wire: WireFilter): Promise<void> {
    const filter = parseFilter(wire, { 'limits.filterValuesMax': Number.MAX_SAFE_INTEGER });
    if (isRefusal(filter)) throw new Stopped(filter.why);
    this.transfer.begin(wire);
    if (this.method === 'negentropy') {
      try {
        await this.reconcileAll(wire, filter);
        return;
      } catch (error) {
        if (!(error instanceof PeerFailure) || !this.mayUsePages(error)) throw error;
        this.method = 'pages';
        // A peer that said nothing was cut off.
        if (error.problem === 'silent') await this.connect();
      }
    }
    await new Pages(this.plan, wire, filter, this.parts, this.transfer, this.information.limitMax).run();
  }

  /** Nothing was answered yet: it does not know negentropy, or not for so many events. */
  private mayUsePages({ problem }: PeerFailure): boolean {
    if (problem === 'unsupported') return true;
    if (this.isUnderWay) return false;
    return problem === 'refused' || (problem === 'silent' && this.information.hasNegentropy !== true);
  }

  private async reconcileAll(wire: WireFilter, filter: Filter): Promise<void> {
    for (let sessions = 1; ; sessions += 1) {
      const before = this.transfer.progress;
      try {
        await this.reconcileOnce(wire, filter);
        return;
      } catch (error) {
        const isClosed = error instanceof PeerFailure && error.problem === 'refused' && this.isUnderWay;
        // The next session begins with what was transferred in this one.
        if (!isClosed || sessions === SESSIONS_MAX || this.transfer.progress === before) throw error;
      }
    }
  }

  private async reconcileOnce(wire: WireFilter, filter: Filter): Promise<void> {
    this.isUnderWay = false;
    const peer = this.peer ?? (await this.connect());
    const { answerMs } = this.options;
    const records = await this.ownRecords(filter);
    const isSure = this.information.hasNegentropy === true;
    const session = peer.negentropy(
      wire,
      toHex(await openingMessage(records)),
      answerMs ?? (isSure ? FIRST_ANSWER_MS : UNSURE_MS),
    );
    let answer = await session.first();
    this.isUnderWay = true;
    this.information = { ...this.information, hasNegentropy: true };
    for (let rounds = 1; ; rounds += 1) {
      this.transfer.counts.rounds += 1;
      const next = await reconcile(fromHex(answer), records, MESSAGE_BYTES_MAX, this.transfer.found);
      if (next === undefined) break;
      const learned = this.transfer.learnedOf(records.count);
      if (rounds > ROUNDS_MIN + learned / DIFFERENCES_PER_ROUND)
        throw new PeerFailure('misbehaved', 'the peer misbehaves: its rounds do not come to an end');
      answer = await session.next(toHex(next));
    }
    session.close();
  }

  /** What this node serves, whoever may see it: so nothing is fetched that is here already. */
  private async ownRecords(filter: Filter): Promise<Digest> {
    const { store, now } = this.parts;
    const upTo = await store.head();
    let spanSeconds: number | undefined;
    const read: ReadPage = async (lower, upper, limit) => {
      this.options.signal.throwIfAborted();
      const rules = this.community();
      const query = { community: rules.id, filter, rules, now: now(), limit, upTo };
      const found = await store.records({ ...query, lower, upper, spanSeconds }, 'heavy');
      spanSeconds = found.spanSeconds;
      return found;
    };
    const records = await Digest.build(read, OWN_RECORDS_MAX);
    if (records === undefined) throw new Stopped('this node has too many events for one sync; use --topic');
    return records;
  }
}
