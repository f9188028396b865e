/**
 * One client: its frames in, its replies out (NIP-01). Everything it can make us hold is bounded (I14):
 * events in progress, waiting frames, and unread replies; past a bound its socket is not read any further.
 * Everything it makes us do is charged to its address before it is done (I18): while that is in debt, its
 * socket is not read and its frames wait.
 */
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { isKeptOut } from '../blocks/rules.js';
import type { Community } from '../communities/communities.js';
import type { Admission } from '../events/admission.js';
import type { Access } from '../events/rules/access.js';
import { type Accepted, isForged, isRefusal, type Refusal, refusal, tooMany } from '../events/rules/reply.js';
import { weightOfInput } from '../events/rules/weight.js';
import { AUTH_MS, EVENT_MS, FORGED_MS, TEXT_BYTE_MS } from '../limits/costs.js';
import type { Verdict } from '../limits/rates.js';
import { isMembershipRequest } from '../members/rules-joining.js';
import { ClientQueries, type QueriesContext } from './client-queries.js';
import { Identity, type IdentityContext } from './identity.js';
import { Arrivals } from './input/arrivals.js';
import { Charges } from './input/charges.js';
import type { Held, HeldBytes } from './input/held-bytes.js';
import { type Client, eventIdIn, eventIdOf, type Frame, kindOf } from './input/incoming.js';
import type { FrameSource, Intake, Place } from './input/intake.js';
import { parseMessage } from './input/message.js';
import { Pausing } from './input/pausing.js';
import { Outgoing } from './outgoing.js';
import { ClientReconciliations } from './reconciliation.js';
import { Replies } from './replies.js';

/** Events of one client between arrival and OK. */
const EVENTS_UNDER_WAY_MAX = 256;
/** Unprocessed frames of one client: what one read of its socket brings, and a little more. */
const FRAMES_WAITING_MAX = 256;
const FRAMES_WAITING_BYTES_MAX = 262_144;
/**
 * A frame that breaks the protocol ends the connection, and so costs the sender one; it counts as this many
 * offences.
 */
const BROKEN_FRAME_OFFENCES = 10;
/**
 * A larger frame is greedy work, whoever sends it: parsing it is one step of the event loop, 1 ms for a
 * filter of 900 authors, and whoever comes meanwhile waits for all of it.
 */
const LARGE_FRAME_BYTES = 16_384;
const MALFORMED = 'rate-limited: too many malformed messages';
const CLOSE_GOING_AWAY = 1_001;
const CLOSE_POLICY = 1_008;

export interface ConnectionContext extends IdentityContext, QueriesContext {
  readonly admission: Admission;
  readonly intake: Intake;
  /** What clients have sent that is not processed yet, and what they have not read. */
  readonly input: HeldBytes;
  readonly output: HeldBytes;
}

let opened = 0;

export class Connection implements FrameSource {
  readonly serial: number;
  private readonly outgoing: Outgoing;
  private readonly identity: Identity;
  private readonly replies: Replies;
  private readonly queries: ClientQueries;
  private readonly reconciliations: ClientReconciliations;
  private readonly arrivals: Arrivals;
  private readonly heldInput: Held;
  private readonly place: Place;
  private readonly charges: Charges;
  private readonly pausing: Pausing;
  private frames: Frame[] = [];
  private framesBytes = 0;
  private eventsUnderWay = 0;
  /** Closed because of an offence: its other frames are not processed. */
  private rejected = false;
  private gone = false;
  /** The next frame waits until the last one is processed. */
  private held = false;
  private reviewed: Reviewed | undefined;
  private alive = true;

  constructor(
    private readonly ws: WebSocket,
    socket: Duplex,
    private readonly client: Client,
    private readonly context: ConnectionContext,
  ) {
    opened += 1;
    this.serial = opened;
    this.charges = new Charges(client, context);
    // Clients on this machine that are exempt from rates share nothing with each other.
    const sharesWith = this.charges.isExemptNow() ? `exempt ${this.serial}` : client.networkKey;
    const turnClient = {
      community: client.community,
      networkKey: sharesWith,
      rateKey: sharesWith === client.networkKey ? client.rateKey : sharesWith,
    };
    const join = (giveUp: () => void) => context.output.join(client.community, sharesWith, giveUp);
    this.outgoing = new Outgoing(ws, socket, context.metrics, join, {
      charge: (costMs) => {
        if (!this.charges.isExemptNow()) context.work.charge(client, costMs);
      },
      debtMs: () => this.charges.debtMs(),
      isGreedy: () => context.turns.isGreedy(turnClient),
      turn: (work) => context.turns.run(turnClient, work),
    });
    this.identity = new Identity(client.community, client, context);
    this.replies = new Replies(this.outgoing, this.identity.challenge);
    const { outgoing, identity, replies } = this;
    const judge = (asked: Community, goOn: (verdict: Verdict) => void) =>
      this.judge(this.mayAsk(asked), goOn);
    const asker = { ws, client, turnClient, identity, outgoing, replies, judge };
    this.queries = new ClientQueries(asker, context);
    this.reconciliations = new ClientReconciliations(asker, context);
    const community = context.communities.get(client.community);
    // Whether it must authenticate is decided now, not at its first frame.
    if (community !== undefined) this.identity.access(community);
    if (community?.settings['auth.mode'] === 'required') this.replies.challenge();
    this.place = context.intake.join(this, client.community, sharesWith);
    this.heldInput = context.input.join(client.community, sharesWith, () =>
      this.reject('rate-limited: too much input waits here; try again in a moment'),
    );
    this.arrivals = new Arrivals({
      client,
      work: context.work,
      held: this.heldInput,
      isExempt: () => this.charges.isExemptNow(),
      reject: (why) => this.reject(why),
    });
    this.pausing = new Pausing({
      ws,
      outgoing,
      isFull: () =>
        this.eventsUnderWay >= EVENTS_UNDER_WAY_MAX ||
        this.frames.length >= FRAMES_WAITING_MAX ||
        this.framesBytes >= FRAMES_WAITING_BYTES_MAX,
      debtMs: () => this.charges.debtMs(),
      onPaid: () => this.place.add(),
      onResume: (pausedMs) => {
        this.arrivals.postpone(pausedMs);
        // A pong may have been waiting in the unread socket.
        this.alive = true;
      },
      onLeftInDebt: () => {
        this.dropFrames();
        this.letGo();
      },
    });
    // Runs before `ws` processes the chunk.
    socket.prependListener('data', (chunk: Buffer) => this.onChunk(chunk));
    ws.on('message', (data: Buffer, isBinary: boolean) => {
      if (this.rejected) return;
      this.frames.push({ data, isBinary });
      this.noteWaiting(data.length);
      this.place.add();
      this.pausing.regulate();
    });
    ws.on('pong', () => {
      this.alive = true;
    });
    ws.on('ping', (data: Buffer) => {
      if (this.rejected) return;
      this.outgoing.pong(data);
      this.pausing.regulate();
    });
    // Events that it sent before it disconnected are still accepted, unless its address is in debt.
    ws.on('close', () => {
      this.gone = true;
      this.pausing.leave();
      this.place.leave();
      this.arrivals.end();
      this.letGo();
      this.queries.endAll();
      this.reconciliations.endAll();
      this.identity.leave();
    });
    // The close event follows. Without a listener here an oversized frame would end the process.
    ws.on('error', (error) => {
      context.log.debug({ error: String(error) }, 'socket error');
      if (!this.charges.isExemptNow()) context.work.offend(client, BROKEN_FRAME_OFFENCES);
      this.reject('invalid: broken frame');
    });
  }

  private onChunk(chunk: Buffer): void {
    if (this.rejected) this.ws.pause();
    else if (this.arrivals.take(chunk)) this.pausing.regulate();
    else this.ws.terminate();
  }

  /** Closed at once, and not read any further. What it has already sent is not processed. */
  private reject(why: string): void {
    if (this.rejected) return;
    this.rejected = true;
    this.dropFrames();
    this.heldInput.leave();
    this.context.metrics.rejected.inc();
    this.close(CLOSE_POLICY, why);
    this.pausing.stop();
  }

  private dropFrames(): void {
    this.frames = [];
    this.noteWaiting(-this.framesBytes);
  }

  private noteWaiting(bytes: number): void {
    this.framesBytes += bytes;
    this.arrivals.wait(this.framesBytes);
  }

  /** What it sent before it disconnected counts until it is processed. */
  private letGo(): void {
    if (this.gone && this.frames.length === 0) this.heldInput.leave();
  }

  /** Called about once a second. */
  checkUnfinished(): void {
    if (!this.pausing.isPaused && this.arrivals.isOverdue())
      this.reject('invalid: a message was not finished in time');
  }

  /** Called at each heartbeat: a socket without a pong since the last one is terminated. */
  ping(): void {
    // While the socket is paused its pong is not read. What pauses it has a bound of its own.
    if (this.pausing.isPaused) return;
    if (this.alive) this.ws.ping();
    else this.ws.terminate();
    this.alive = false;
  }

  close(code: number, why: string): void {
    this.outgoing.close(code, why);
  }

  /** At a shutdown. Clients reconnect after a cut connection, but some do not after a clean close. */
  cut(): void {
    this.outgoing.cut();
  }

  get nextBytes(): number {
    return this.frames[0]?.data.length ?? 0;
  }

  get isGreedy(): boolean {
    if (this.context.work.isGreedy(this.client)) return true;
    return this.nextBytes > LARGE_FRAME_BYTES && !this.charges.isExemptNow();
  }

  takeFrame(): boolean {
    if (this.held || this.pausing.isInDebt()) return false;
    const frame = this.frames.shift();
    if (frame === undefined) return false;
    this.noteWaiting(-frame.data.length);
    this.letGo();
    this.onMessage(frame);
    return this.frames.length > 0 && !this.held;
  }

  /** Frames that arrive meanwhile are processed afterwards, in order. */
  private async holdFor(work: Promise<void>): Promise<void> {
    this.held = true;
    try {
      await work;
    } catch (error) {
      this.context.log.error({ error: String(error) }, 'a frame could not be processed');
    }
    this.held = false;
    this.place.add();
    this.pausing.regulate();
  }

  /**
   * Called about twice a second: what a client may no longer see ends now (a right that ended, a topic that
   * is no longer carried, a mode that changed), and one that must authenticate and does not, or whose address
   * was blocked, is closed.
   */
  review(): void {
    const community = this.context.communities.get(this.client.community);
    if (community === undefined) {
      this.close(CLOSE_GOING_AWAY, 'this community is gone');
      return;
    }
    if (isKeptOut(community.blocks, this.client)) {
      this.close(CLOSE_POLICY, 'blocked: the operator has blocked this address');
      return;
    }
    if (this.identity.isOverdue(community)) {
      this.close(CLOSE_POLICY, 'auth-required: not authenticated in time');
      return;
    }
    this.reconciliations.review(community);
    const access = this.identity.access(community);
    if (this.reviewed?.access === access && this.reviewed.community === community) return;
    this.reviewed = { access, community };
    this.queries.review(community);
  }

  private onMessage({ data, isBinary }: Frame): void {
    this.context.metrics.bytesIn.inc(data.length);
    const community = this.context.communities.get(this.client.community);
    if (community === undefined) {
      this.close(CLOSE_GOING_AWAY, 'this community is gone');
      return;
    }
    const problem = isBinary
      ? refusal('invalid', 'frames must be text')
      : this.onText(community, data, community.settings['limits.messageBytesMax']);
    if (problem !== undefined) {
      this.replies.notice(problem);
      this.offend(community, MALFORMED);
    }
    this.pausing.regulate();
  }

  private onText(community: Community, data: Buffer, bytesMax: number): Refusal | undefined {
    const message = parseMessage(data, bytesMax, (costMs) => this.charges.charge(community, costMs));
    if (isRefusal(message)) return this.refuseUnparsed(community, data, message);
    switch (message[0]) {
      case 'EVENT':
        return this.onEvent(community, message[1], data.length);
      case 'REQ':
        return this.queries.onReq(community, message);
      case 'COUNT':
        return this.queries.onCount(community, message);
      case 'CLOSE':
        return this.queries.onClose(message[1]);
      case 'AUTH':
        return this.onAuth(community, message[1]);
      case 'NEG-OPEN':
        return this.reconciliations.onOpen(community, message);
      case 'NEG-MSG':
        return this.reconciliations.onMessage(community, message);
      case 'NEG-CLOSE':
        return this.reconciliations.onClose(message[1]);
      // Some clients use this as a ping and expect no answer.
      case 'PING':
        return undefined;
      default:
        return refusal('invalid', 'unknown message type; this relay knows EVENT, REQ, COUNT, CLOSE and AUTH');
    }
  }

  /** An event gets its OK, also when its message was not parsed. */
  private refuseUnparsed(community: Community, data: Buffer, why: Refusal): Refusal | undefined {
    const id = eventIdIn(data);
    if (id === undefined) return why;
    this.replies.ok(id, why);
    this.offend(community, MALFORMED);
    return undefined;
  }

  private onEvent(community: Community, input: unknown, bytes: number): Refusal | undefined {
    const id = eventIdOf(input);
    if (id === undefined) return refusal('invalid', 'EVENT needs an event with an id');
    const verdict = this.charges.mayPost(community, kindOf(input), weightOfInput(input, bytes));
    this.judge(verdict, ({ allowed, retryAfterMs, what = 'events' }) => {
      if (allowed) return this.admit(this.current(community), id, input, bytes);
      this.context.metrics.events.inc({ outcome: 'rate-limited' });
      this.replies.ok(id, tooMany(what, retryAfterMs));
    });
    return undefined;
  }

  private admit(community: Community, id: string, input: unknown, bytes: number): void {
    this.eventsUnderWay += 1;
    const textMs = readsTexts(community) ? bytes * TEXT_BYTE_MS : 0;
    this.charges.charge(community, weightOfInput(input, bytes) * EVENT_MS + textMs);
    const access = this.identity.access(community);
    const sender = {
      access,
      exempt: this.charges.isExempt(community),
      client: this.client,
      charge: (costMs: number) => this.charges.charge(community, costMs),
    };
    const { admission, membership, metrics } = this.context;
    const startedAt = performance.now();
    const admitted: Promise<Accepted | Refusal> = isMembershipRequest(kindOf(input))
      ? admission.request(community, input, sender, (event) => membership.take(community, event))
      : admission.admit(community, input, sender);
    void admitted.then((outcome) => {
      this.eventsUnderWay -= 1;
      this.replies.ok(id, outcome);
      metrics.figures.noteOk(performance.now() - startedAt);
      this.judgeSignature(community, outcome);
      this.pausing.regulate();
    });
  }

  private onAuth(community: Community, input: unknown): Refusal | undefined {
    const id = eventIdOf(input);
    if (id === undefined) return refusal('invalid', 'AUTH needs a signed event with an id');
    void this.holdFor(this.authenticate(community, id, input));
    return undefined;
  }

  private async authenticate(community: Community, id: string, input: unknown): Promise<void> {
    let refused: Refusal | undefined;
    this.charges.charge(community, AUTH_MS);
    try {
      const { allowed, retryAfterMs } = await this.mayAsk(community);
      if (!allowed) refused = tooMany('tries', retryAfterMs);
      else refused = await this.identity.authenticate(community, input, this.charges.isExempt(community));
    } catch (error) {
      this.context.log.warn({ error: String(error) }, 'a client could not be authenticated');
      refused = refusal('error', 'failed to authenticate, try again in a moment');
    }
    this.replies.ok(id, refused ?? 'authenticated');
    if (refused !== undefined) this.judgeSignature(community, refused);
  }

  /** Checking an invalid signature is wasted work, and no honest client sends one. */
  private judgeSignature(community: Community, outcome: Accepted | Refusal): void {
    if (!isForged(outcome)) return;
    this.charges.charge(community, FORGED_MS);
    this.offend(community, 'rate-limited: too many signatures that do not hold');
  }

  private offend(community: Community, why: string): void {
    if (this.charges.offend(community)) this.reject(why);
  }

  private mayAsk(community: Community): Verdict | Promise<Verdict> {
    return this.charges.mayAsk(community, this.identity.pubkeys);
  }

  /** The rules may have changed while a rate limit was checked. */
  private current(community: Community): Community {
    return this.context.communities.get(community.id) ?? community;
  }

  /**
   * Continues at once when the verdict is known. Otherwise the frames of this client wait for it, in order;
   * other clients are not affected.
   */
  private judge<V extends Verdict>(verdict: V | Promise<V>, goOn: (verdict: V) => void): void {
    if (!(verdict instanceof Promise)) {
      goOn(verdict);
      return;
    }
    void this.holdFor(verdict.then(goOn));
  }
}

interface Reviewed {
  readonly access: Access;
  readonly community: Community;
}

/** Are contents compared with words or rules here? */
function readsTexts({ blocks, rules }: Community): boolean {
  return !blocks.words.isEmpty || rules.ordered.length > 0;
}
