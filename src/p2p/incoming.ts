/**
 * Events of other nodes on their way in: message → parts → rules of gossip → the admission and the lane of a
 * post. The endpoint passes on a window of messages and waits until each is processed, so that nothing queues
 * here without a bound (I14). A peer that sends too much that is malformed or forged is ignored for a while.
 */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Communities, Community } from '../communities/communities.js';
import type { Admission, Sender } from '../events/admission.js';
import type { Access } from '../events/rules/access.js';
import { KIND_VANISH } from '../events/rules/classify.js';
import { type NostrEvent, parseEvent } from '../events/rules/event.js';
import { isForged, isRefusal, type Outcome, type Refusal } from '../events/rules/reply.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { type JoinedTopic, type JoinedTopics, refuseGossip } from './rules.js';
import { type Part, parseMessage, textOf } from './rules-envelope.js';
import { Parts } from './rules-parts.js';
import { PeerRecords } from './rules-peers.js';

/** Events whose gossip topics are remembered, so that they are not sent where they have been. */
const SEEN_MAX = 50_000;

export interface IncomingOptions {
  readonly admission: Admission;
  readonly communities: Communities;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly now: () => number;
  readonly joined: () => JoinedTopics;
  /** Ignore everything of this peer for a while. */
  readonly ignore: (peer: string, ms: number) => void;
  /** An event of this topic was not taken, and may be missing here. */
  readonly onMissed: (topic: string) => void;
}

export type Received = 'accepted' | 'duplicate' | 'refused' | 'invalid' | 'part';

export class Incoming {
  readonly counts: Record<Received, number> = { accepted: 0, duplicate: 0, refused: 0, invalid: 0, part: 0 };
  readonly peers = new PeerRecords();
  private readonly parts = new Parts();
  private readonly seen = new LRUCache<string, Set<string>>({ max: SEEN_MAX });

  constructor(private readonly options: IncomingOptions) {}

  get received(): number {
    return Object.values(this.counts).reduce((sum, count) => sum + count, 0);
  }

  /** Whether this node got the event through this gossip topic, as far as it remembers. */
  hasCome(id: string, topic: string): boolean {
    return this.seen.get(id)?.has(topic) === true;
  }

  /** Processes one message. Never rejects. */
  async receive(topic: string, peer: string, content: Uint8Array): Promise<void> {
    const result = await this.process(topic, peer, content).catch((error: unknown) => {
      this.options.log.warn({ error: String(error) }, 'an event of another node could not be processed');
      this.options.onMissed(topic);
      return 'refused' as const;
    });
    this.counts[result] += 1;
    this.options.metrics.gossipReceived.inc({ outcome: result });
    if (result === 'invalid') this.noteInvalid(peer);
  }

  private async process(topic: string, peer: string, content: Uint8Array): Promise<Received> {
    if (this.peers.isDropped(peer, performance.now())) return 'refused';
    const joined = this.options.joined().get(topic);
    // It has just been left.
    if (joined === undefined) return 'refused';
    const message = parseMessage(content);
    if (message === undefined) return 'invalid';
    if (message.type === 'part') return this.gather(topic, peer, message, joined);
    const event = parseJson(message.payload);
    return event === undefined ? 'invalid' : this.take(topic, peer, event, joined);
  }

  private async gather(
    topic: string,
    peer: string,
    part: Part,
    joined: readonly JoinedTopic[],
  ): Promise<Received> {
    const now = performance.now();
    if (this.parts.expire(now) > 0) this.options.onMissed(topic);
    const candidates = this.parts.add(peer, part, now);
    if (candidates === 'waiting') return 'part';
    if (candidates === 'refused') {
      this.options.onMissed(topic);
      return 'refused';
    }
    for (const { bytes, peers } of candidates) {
      const text = textOf(bytes);
      const event = text === undefined ? undefined : parseJson(text);
      if (event === undefined || event.id !== part.id || idOf(event) !== part.id) continue;
      this.parts.done(part);
      return this.take(topic, peers.includes(peer) ? peer : peers[0]!, event, joined);
    }
    // Other bytes for a place may still come, until the time of the parts is over.
    return 'invalid';
  }

  private async take(
    topic: string,
    peer: string,
    event: NostrEvent,
    joined: readonly JoinedTopic[],
  ): Promise<Received> {
    this.remember(event.id, topic);
    const places = event.kind === KIND_VANISH ? joined.slice(0, 1) : joined;
    const outcomes = await Promise.all(places.map((place) => this.admit(topic, peer, event, place)));
    if (outcomes.some(isForged)) {
      this.seen.delete(event.id);
      return 'invalid';
    }
    const isLost = (outcome: Outcome | Refusal) =>
      isRefusal(outcome) && (outcome.refused === 'rate-limited' || outcome.refused === 'error');
    if (outcomes.some(isLost)) this.options.onMissed(topic);
    if (outcomes.some((outcome) => outcome === 'stored' || outcome === 'broadcast')) return 'accepted';
    return outcomes.every(isRefusal) ? 'refused' : 'duplicate';
  }

  private async admit(
    hex: string,
    peer: string,
    event: NostrEvent,
    { community: id, topic }: JoinedTopic,
  ): Promise<Outcome | Refusal> {
    const community = this.options.communities.get(id);
    if (community === undefined) return 'duplicate';
    const nowSeconds = Math.floor(this.options.now() / 1_000);
    const refused = refuseGossip(event, { hex, topic }, community, nowSeconds);
    const outcome =
      refused ?? (await this.options.admission.admit(community, event, senderOf(peer, hex, community)));
    if (isRefusal(outcome)) this.options.log.debug({ peer, topic, ...outcome }, 'gossip: refused an event');
    return outcome;
  }

  private remember(id: string, topic: string): void {
    const topics = this.seen.get(id);
    if (topics === undefined) this.seen.set(id, new Set([topic]));
    else topics.add(topic);
  }

  private noteInvalid(peer: string): void {
    const { communities, log, metrics, ignore } = this.options;
    const { 'p2p.invalidPerMinute': invalidPerMinute, 'p2p.dropSeconds': seconds } = communities.node();
    if (!this.peers.noteInvalid(peer, { invalidPerMinute, dropMs: seconds * 1_000 }, performance.now()))
      return;
    metrics.gossipPeersDropped.inc();
    log.warn({ peer, seconds }, 'gossip: a peer sent too much that is malformed or forged, and is ignored');
    ignore(peer, seconds * 1_000);
  }
}

/** A peer has no key of a member: where clients must authenticate, it reaches public topics only. */
const NO_KEYS: ReadonlySet<string> = new Set();
const OPERATORS_PEER: ReadonlySet<string> = new Set(['gossip']);

function senderOf(peer: string, hex: string, { settings }: Community): Sender {
  const access: Access = {
    pubkeys: NO_KEYS,
    enforced: settings['auth.mode'] === 'required',
    // The operator has let gossip in.
    consented: OPERATORS_PEER,
    subscribed: NO_KEYS,
  };
  // All peers wait in one line, each in its own part of it: gossip delays no client (I18).
  return { access, exempt: false, client: { networkKey: 'gossip', rateKey: `gossip:${peer}` }, cameBy: hex };
}

function parseJson(text: string): NostrEvent | undefined {
  try {
    const event = parseEvent(JSON.parse(text));
    return isRefusal(event) ? undefined : event;
  } catch {
    return undefined;
  }
}

function idOf({ pubkey, created_at, kind, tags, content }: NostrEvent): string {
  const preimage = JSON.stringify([0, pubkey, created_at, kind, tags, content]);
  return createHash('sha256').update(preimage).digest('hex');
}
