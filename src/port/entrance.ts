/**
 * The checks of every HTTP request before its route: debt of the client (I18), its turn on the event loop,
 * blocked address, rate. Routes with a rate of their own do the last two themselves, after they have
 * authenticated the client. A large answer is charged by its bytes, and written in turns.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { type Denial, denial } from '../api/rules-errors.js';
import { isKeptOut } from '../blocks/rules.js';
import type { Communities, Community } from '../communities/communities.js';
import { AUTH_MS, headMs } from '../limits/costs.js';
import { Counts } from '../limits/counts.js';
import type { LoopTurns } from '../limits/loop-turns.js';
import type { Rates } from '../limits/rates.js';
import { ADDRESSES_PER_NETWORK, type Work } from '../limits/work.js';
import type { HeldBytes } from '../relay/input/held-bytes.js';
import type { AddressOf, ClientAddress } from './client-address.js';
import { keysOf } from './connections.js';
import { hostOf } from './host.js';
import { isExempt, refuseRate, tooMany } from './rate.js';

/** The cost of a request on the event loop, refused or not: a small head, its route and a small answer. */
const REQUEST_MS = 0.25;
/** The cost of a byte of its body: received, hashed and scanned. What is parsed is charged by its shape. */
const BODY_BYTE_MS = 0.000_01;
/** The cost of a chunk of a body of unknown length, and what it holds beside its bytes. */
const CHUNK_MS = 0.003;
const CHUNK_HELD_BYTES = 256;
/** The cost of checking a signature (NIP-98) and its one-time use. */
const SIGNED_MS = AUTH_MS;
/** The cost of a byte of a large answer: 1.2 ms for 0.9 MB, beside a thousand others that are not read. */
const ANSWER_BYTE_MS = 0.000_001_5;
/** What is written of an answer in one turn. */
export const SLICE_BYTES = 65_536;
const BODY_BYTES_CHARGED_MAX = 131_072;
/** A client in debt waits at most this long; with more debt it is refused. */
const WAIT_MS_MAX = 10_000;
/** For /healthz at most this long, and then it is answered: a load balancer may use the same address. */
const HEALTH_WAIT_MS_MAX = 1_000;
/** Requests of an address that wait for its debt. They hold connections that others may need. */
const WAITING_MAX = 8;

export interface EntranceOptions {
  readonly communities: Pick<Communities, 'find'>;
  readonly rates: Pick<Rates, 'take'>;
  readonly work: Pick<Work, 'charge' | 'waitMs' | 'refusedMs'>;
  readonly turns: LoopTurns;
  /** The budget of input that is not processed yet, of all clients. */
  readonly input: Pick<HeldBytes, 'join'>;
  readonly addressOf: AddressOf;
  readonly now: () => number;
}

export class Entrance {
  /** Requests that wait for a debt, by address and by network. */
  private readonly waiting = new Counts<string>();

  constructor(private readonly options: EntranceOptions) {}

  /** Charges the request, and waits for the client's turn. A client in debt waits longer, or is refused. */
  async pace(request: IncomingMessage, isHealth = false): Promise<Denial | undefined> {
    const { work, turns, addressOf } = this.options;
    const client = addressOf(request);
    const community = this.communityOf(request);
    if (community === undefined || isExempt(client, community.settings)) return undefined;
    const bodyBytes = Math.min(BODY_BYTES_CHARGED_MAX, Number(request.headers['content-length'] ?? 0) || 0);
    const signedMs = /^nostr /i.test(request.headers.authorization ?? '') ? SIGNED_MS : 0;
    const costMs = REQUEST_MS + headMs(headBytes(request)) + signedMs + bodyBytes * BODY_BYTE_MS;
    work.charge(client, costMs);
    const refusedMs = work.refusedMs(client);
    const waitMs = Math.max(work.waitMs(client), refusedMs);
    const mayWait = isHealth || refusedMs === 0;
    if (waitMs > 0 && !(mayWait && (await this.waitFor(client, waitMs, isHealth))))
      return tooMany({ allowed: false, retryAfterMs: waitMs });
    await turns.wait({ ...client, community: community.id }, costMs);
    return undefined;
  }

  /** False if the client must not go on: its debt is too large, or too many of its requests wait already. */
  private async waitFor(client: ClientAddress, waitMs: number, isHealth: boolean): Promise<boolean> {
    const { waiting } = this;
    const keys = keysOf(client);
    const maxOf = (key: string) => WAITING_MAX * (key === client.rateKey ? 1 : ADDRESSES_PER_NETWORK);
    if (keys.some((key) => waiting.of(key) >= maxOf(key))) return false;
    for (const key of keys) waiting.add(key, 1);
    await delay(Math.min(waitMs, isHealth ? HEALTH_WAIT_MS_MAX : WAIT_MS_MAX));
    for (const key of keys) waiting.add(key, -1);
    return isHealth || waitMs <= WAIT_MS_MAX;
  }

  /**
   * To be called before the body of a request is read. Until the request is answered its bytes count towards
   * the input of all clients (I14); a client that holds more than a fair share is cut off when that is used
   * up. A body of unknown length is charged as it arrives; the others were charged with their request.
   */
  receive(request: IncomingMessage, response: ServerResponse): void {
    const { headers, socket } = request;
    const isChunked = headers['transfer-encoding'] !== undefined;
    if (!isChunked && !(Number(headers['content-length'] ?? 0) > 0)) return;
    const client = this.options.addressOf(request);
    const community = this.communityOf(request);
    if (community === undefined || isExempt(client, community.settings)) return;
    const held = this.options.input.join(community.id, client.networkKey, () => socket.destroy());
    response.once('close', () => held.leave());
    request.on('data', (chunk: Buffer) => {
      held.set(held.bytes + chunk.length + (isChunked ? CHUNK_HELD_BYTES : 0));
      if (isChunked) this.options.work.charge(client, chunk.length * BODY_BYTE_MS + CHUNK_MS);
    });
  }

  /** Charges work that belongs to a request. */
  charge(request: IncomingMessage, costMs: number): void {
    const client = this.options.addressOf(request);
    const community = this.communityOf(request);
    if (community !== undefined && !isExempt(client, community.settings))
      this.options.work.charge(client, costMs);
  }

  /**
   * Charges an answer of more than a slice. It becomes a stream of slices, each written at the client's turn:
   * 0.9 MB took more than a millisecond in one step. The next slice waits until the last one is taken.
   */
  answer(request: IncomingMessage, bytes: Buffer): Buffer | Readable {
    const { work, turns, addressOf } = this.options;
    const client = addressOf(request);
    const community = this.communityOf(request);
    if (community === undefined || isExempt(client, community.settings)) return bytes;
    work.charge(client, bytes.length * ANSWER_BYTE_MS);
    let from = 0;
    return new Readable({
      highWaterMark: SLICE_BYTES,
      read() {
        const slice = bytes.subarray(from, from + SLICE_BYTES);
        // Not measured: the response writes it after the turn, at the end of this step of the event loop.
        void turns.wait({ ...client, community: community.id }, slice.length * ANSWER_BYTE_MS).then(() => {
          if (this.destroyed) return;
          from += slice.length;
          this.push(slice);
          if (from >= bytes.length) this.push(null);
        });
      },
    });
  }

  /** Checks blocks and the rate of public routes. */
  async admit(request: IncomingMessage): Promise<Denial | undefined> {
    const { rates, addressOf, now } = this.options;
    const client = addressOf(request);
    const community = this.communityOf(request);
    if (community === undefined) return undefined;
    if (isKeptOut(community.blocks, client)) return denial('ADDRESS_BLOCKED');
    const taking = {
      community,
      client,
      by: client.rateKey,
      who: 'public',
      isSubscriptionRequest: false,
    } as const;
    return refuseRate(rates, taking, now());
  }

  /** The community whose rules apply: the default one if the path names no existing community. */
  private communityOf({ headers, url = '/' }: IncomingMessage): Community | undefined {
    const { communities } = this.options;
    const [, slug] = /^\/c\/([^/?]+)/.exec(url) ?? [];
    return communities.find(hostOf(headers), slug) ?? communities.find(undefined, undefined);
  }
}

/** Without its separators. */
function headBytes({ url = '', rawHeaders }: IncomingMessage): number {
  return rawHeaders.reduce((sum, text) => sum + text.length, url.length);
}
