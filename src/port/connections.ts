/**
 * Limits the open HTTP connections, per address and in total (I14). A connection counts here until it becomes
 * a websocket, which has limits of its own. When a limit is reached, the connection that has waited longest
 * for its client is closed (the client sends nothing, does not finish its request, or does not read its
 * answer). So clients with many connections lose them, and a new client can connect.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Counts } from '../limits/counts.js';
import { ADDRESSES_PER_NETWORK } from '../limits/work.js';
import type { ClientAddress } from './client-address.js';

export interface ConnectionBounds {
  /** All HTTP connections. */
  readonly connectionsMax: number;
  /** Per address; a network (an IPv6 /48) may have four times as many. */
  readonly perAddressMax: number;
  /** Requests that a client may send before the first is answered. */
  readonly pipelinedMax: number;
  /** A client must read a whole answer within this time. */
  readonly answerMsMax: number;
}

export const CONNECTION_BOUNDS: ConnectionBounds = {
  connectionsMax: 2_000,
  perAddressMax: 128,
  pipelinedMax: 16,
  answerMsMax: 60_000,
};

const LOOK_MS = 1_000;

interface Held {
  readonly socket: Socket;
  /** Undefined between the requests of a proxy, and for local clients, which are not counted. */
  client: ClientAddress | undefined;
  /** The latest request and its answer; undefined while there is none. */
  request: IncomingMessage | undefined;
  response: ServerResponse | undefined;
  unanswered: number;
  /** The time since which its answer waits to be read. */
  unreadSince: number | undefined;
}

export class Connections {
  /** In the order of their last change, the oldest first. */
  private readonly held = new Map<Socket, Held>();
  private readonly counts = new Counts<string>();
  /** Answers that are known as a whole and written in slices. */
  private readonly sliced = new WeakSet<ServerResponse>();
  private readonly looking: NodeJS.Timeout;

  constructor(
    private readonly bounds: ConnectionBounds = CONNECTION_BOUNDS,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.looking = setInterval(() => this.look(), LOOK_MS).unref();
  }

  get size(): number {
    return this.held.size;
  }

  /** Adds a new connection. False if there is no room for it: then it is closed. */
  open(socket: Socket, client: ClientAddress | undefined): boolean {
    const isFull = this.held.size >= this.bounds.connectionsMax && !this.closeWaiting();
    if (isFull || !this.makeRoomFor(client)) {
      socket.destroy();
      return false;
    }
    const held = {
      socket,
      client: undefined,
      request: undefined,
      response: undefined,
      unanswered: 0,
      unreadSince: undefined,
    };
    this.held.set(socket, held);
    this.count(held, client);
    socket.once('close', () => this.release(socket));
    return true;
  }

  /**
   * Begins a request of this client, after its head was read. False if the client has too many connections:
   * then the request must be refused.
   */
  begin(request: IncomingMessage, response: ServerResponse, client: ClientAddress): boolean {
    const held = this.held.get(request.socket);
    if (held === undefined) return true;
    held.unanswered += 1;
    if (held.unanswered > this.bounds.pipelinedMax) {
      request.socket.destroy();
      return false;
    }
    this.moveToEnd(held);
    const before = held.client;
    this.count(held, undefined);
    const isAllowed = this.makeRoomFor(client);
    this.count(held, client.isLoopback || !isAllowed ? before : client);
    Object.assign(held, { request, response, unreadSince: undefined });
    response.once('close', () => this.end(held, before));
    return isAllowed;
  }

  /** This answer is known as a whole: its deadline begins when its client does not take the next slice. */
  slice(response: ServerResponse): void {
    this.sliced.add(response);
  }

  /** The connection has become a websocket, or is closed. */
  release(socket: Socket): void {
    const held = this.held.get(socket);
    if (held === undefined) return;
    this.count(held, undefined);
    this.held.delete(socket);
  }

  close(): void {
    clearInterval(this.looking);
  }

  /** The next request of the connection may belong to another client. */
  private end(held: Held, before: ClientAddress | undefined): void {
    held.unanswered -= 1;
    if (held.unanswered > 0 || !this.held.has(held.socket)) return;
    this.count(held, before);
    Object.assign(held, { request: undefined, response: undefined, unreadSince: undefined });
    this.moveToEnd(held);
  }

  private moveToEnd(held: Held): void {
    this.held.delete(held.socket);
    this.held.set(held.socket, held);
  }

  private makeRoomFor(client: ClientAddress | undefined): boolean {
    if (client === undefined || client.isLoopback) return true;
    const { perAddressMax } = this.bounds;
    const { rateKey, networkKey } = client;
    const isOver = (key: string, max: number) => this.counts.of(key) >= max;
    if (isOver(rateKey, perAddressMax) && !this.closeWaiting((other) => other.rateKey === rateKey))
      return false;
    if (networkKey === rateKey || !isOver(networkKey, perAddressMax * ADDRESSES_PER_NETWORK)) return true;
    return this.closeWaiting((other) => other.networkKey === networkKey);
  }

  /** Closes a waiting connection of the client with the most connections, otherwise any waiting one. */
  private closeWaiting(isOf?: (client: ClientAddress) => boolean): boolean {
    const greediest = isOf === undefined ? this.counts.largest() : undefined;
    let any: Held | undefined;
    for (const held of this.held.values()) {
      if (!waitsForClient(held) || (isOf !== undefined && !(held.client && isOf(held.client)))) continue;
      any ??= held;
      if (greediest === undefined || (held.client && keysOf(held.client).includes(greediest)))
        return this.cut(held);
    }
    return any !== undefined && this.cut(any);
  }

  private cut(held: Held): true {
    this.release(held.socket);
    held.socket.destroy();
    return true;
  }

  private count(held: Held, client: ClientAddress | undefined): void {
    if (held.client !== undefined) for (const key of keysOf(held.client)) this.counts.add(key, -1);
    held.client = client;
    if (client !== undefined) for (const key of keysOf(client)) this.counts.add(key, 1);
  }

  /**
   * Closes connections whose answers are not read. An answer of unknown length that is still being written (a
   * download) has its own time-out.
   */
  private look(): void {
    const now = this.now();
    for (const held of this.held.values()) {
      const { response } = held;
      if (response === undefined) continue;
      if (!isUnread(response) && !(this.sliced.has(response) && response.writableNeedDrain)) continue;
      held.unreadSince ??= now;
      if (now - held.unreadSince >= this.bounds.answerMsMax) this.cut(held);
    }
  }
}

/** What a client is counted by. */
export const keysOf = ({ rateKey, networkKey }: ClientAddress) =>
  networkKey === rateKey ? [rateKey] : [rateKey, networkKey];

function waitsForClient({ request, response }: Held): boolean {
  if (request === undefined || response === undefined) return true;
  return !request.complete || isUnread(response) || response.writableNeedDrain;
}

/** It was written completely, but not read completely. */
function isUnread({ writableEnded, writableFinished }: ServerResponse): boolean {
  return writableEnded && !writableFinished;
}
