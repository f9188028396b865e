/**
 * What the relay adds to the port: the websocket and NIP-11 at `/` and `/c/<slug>`, and the landing page.
 * Which community answers comes from the path or the host name; nothing else of a request crosses between them (I13).
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import { WebSocketServer } from 'ws';
import { clientAddress } from '../client-address.js';
import type { Community } from '../communities.js';
import { FRAME_BYTES_MAX } from '../core/settings.js';
import { type Http, hostOf } from '../http.js';
import { DEFAULT_SLUG, readTotals } from '../store/communities.js';
import { readRecentTopics } from '../store/outbox.js';
import { CLOSE_GOING_AWAY, type Client, Connection, type ConnectionContext } from './connection.js';
import { relayInformation } from './nip11.js';
import { PAGE_POLICY, renderPage, type Stats } from './page.js';

const CONNECTIONS_MAX = 10_000;
/** NIP-11 is read by web pages of any origin. */
const CORS = {
  'access-control-allow-origin': '*',
  'access-control-allow-headers': '*',
  'access-control-allow-methods': 'GET, OPTIONS',
};
const HEARTBEAT_MS = 30_000;
const TOPICS_SHOWN = 24;
/** What the landing page reads from the database is read at most this often per community. */
const PAGE_CACHE_MS = 2_000;

export interface RelayOptions extends ConnectionContext {
  readonly publicUrl: string | undefined;
  readonly ownPool: Pool;
}

export interface Relay {
  /** Closes every socket with 1001. */
  close(): Promise<void>;
}

export function addRelay(http: Http, options: RelayOptions): Relay {
  const sockets = new Map<Connection, number>();
  addPages(http.app, options, sockets);
  const heartbeat = acceptSockets(http, options, sockets);
  return {
    close: async () => {
      clearInterval(heartbeat);
      for (const connection of sockets.keys())
        connection.close(CLOSE_GOING_AWAY, 'the relay is shutting down');
      // Each says goodbye or is cut off after its grace, so this ends; closing the port first would cut all of them off.
      while (sockets.size > 0) await delay(10);
    },
  };
}

function addPages(
  app: FastifyInstance,
  options: RelayOptions,
  sockets: ReadonlyMap<Connection, number>,
): void {
  const cached = new LRUCache<number, Promise<{ topics: string[]; events: number }>>({
    max: 100,
    ttl: PAGE_CACHE_MS,
  });

  const read = (community: number) => {
    const hit = cached.get(community);
    if (hit !== undefined) return hit;
    const value = Promise.all([
      readRecentTopics(options.ownPool, community, TOPICS_SHOWN),
      readTotals(options.ownPool, community),
    ]).then(([topics, totals]) => ({ topics, events: totals.events }));
    cached.set(community, value);
    return value;
  };

  const statsOf = async (community: number): Promise<Stats> => ({
    events: (await read(community)).events,
    connections: [...sockets.values()].filter((of) => of === community).length,
    subscriptions: options.fanout.index(community).size,
  });

  const page = async (request: FastifyRequest, reply: FastifyReply) => {
    const community = communityOf(request.raw, options);
    if (community === undefined) return reply.code(404).send({ error: 'no such community' });
    reply.headers(CORS).header('vary', 'accept');
    if (request.headers.accept?.includes('application/nostr+json')) {
      return reply.type('application/nostr+json').send(JSON.stringify(relayInformation(community.settings)));
    }
    const path = pathOf(request.raw).replace(/\/$/, '');
    return reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', PAGE_POLICY)
      .send(
        renderPage({
          settings: community.settings,
          address: addressOf(community, request, options.publicUrl, path),
          statsPath: `${path}/stats`,
          topics: shown(community, (await read(community.id)).topics),
          stats: await statsOf(community.id),
        }),
      );
  };

  const stats = async (request: FastifyRequest, reply: FastifyReply) => {
    const community = communityOf(request.raw, options);
    return community === undefined
      ? reply.code(404).send({ error: 'no such community' })
      : statsOf(community.id);
  };

  for (const prefix of ['', '/c/:slug']) {
    app.get(prefix || '/', page);
    app.get(`${prefix}/stats`, stats);
    app.options(prefix || '/', (_request, reply) => reply.headers(CORS).code(204).send());
  }
}

/** For show only: what a client compares with is always configured, never the Host header. */
function addressOf(
  community: Community,
  request: FastifyRequest,
  publicUrl: string | undefined,
  path: string,
): string {
  const [configured] = community.settings['relay.urls'];
  if (configured !== undefined) return configured;
  if (publicUrl === undefined) return `ws://${request.headers.host ?? 'localhost'}${path}`;
  const base = publicUrl.replace(/^http/, 'ws').replace(/\/$/, '');
  if (community.slug === DEFAULT_SLUG) return base;
  return community.host === undefined
    ? `${base}/c/${community.slug}`
    : `${base.split('://', 1)[0]}://${community.host}`;
}

function acceptSockets(http: Http, options: RelayOptions, sockets: Map<Connection, number>): NodeJS.Timeout {
  // No compression: a small frame could otherwise become a large one before any limit sees it.
  const wss = new WebSocketServer({
    noServer: true,
    maxPayload: FRAME_BYTES_MAX,
    perMessageDeflate: false,
    autoPong: false,
  });
  const addresses = new AddressCounts();
  http.app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => undefined);
    const community = isStats(request) ? undefined : communityOf(request, options);
    if (http.closing || sockets.size >= CONNECTIONS_MAX)
      return refuseUpgrade(socket, '503 Service Unavailable');
    if (community === undefined) return refuseUpgrade(socket, '404 Not Found');
    const client = { community: community.id, ...clientAddress(request) };
    if (!addresses.mayConnect(client, community.settings['limits.connectionsPerAddressMax'])) {
      return refuseUpgrade(socket, '429 Too Many Requests');
    }
    wss.handleUpgrade(request, socket, head, (ws) => {
      addresses.add(client.address);
      const connection = new Connection(ws, socket, client, options);
      sockets.set(connection, community.id);
      options.metrics.sockets.set(sockets.size);
      ws.on('close', () => {
        addresses.remove(client.address);
        sockets.delete(connection);
        options.metrics.sockets.set(sockets.size);
      });
    });
  });
  return setInterval(() => {
    for (const connection of sockets.keys()) connection.ping();
  }, HEARTBEAT_MS);
}

/** Open sockets by address. */
class AddressCounts {
  private readonly counts = new Map<string, number>();

  mayConnect({ address, isLoopback }: Client, max: number): boolean {
    return isLoopback || (this.counts.get(address) ?? 0) < max;
  }
  add(address: string): void {
    this.counts.set(address, (this.counts.get(address) ?? 0) + 1);
  }
  remove(address: string): void {
    const left = (this.counts.get(address) ?? 1) - 1;
    if (left === 0) this.counts.delete(address);
    else this.counts.set(address, left);
  }
}

function refuseUpgrade(socket: Duplex, status: string): void {
  // Not left to the client: one that does not hang up would hold up the shutdown.
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, () => socket.destroy());
}

/** Not by `new URL`, which throws on what a client may well send, and makes another path of some of the rest. */
function pathOf(request: IncomingMessage): string {
  return request.url?.split('?', 1)[0] ?? '/';
}

function isStats(request: IncomingMessage): boolean {
  return /^(\/c\/[^/]+)?\/stats$/.test(pathOf(request));
}

/** `/` goes by host name, `/c/<slug>` by name; any other path is nobody's. */
function communityOf(request: IncomingMessage, { communities }: RelayOptions): Community | undefined {
  const match = /^(?:\/c\/([^/]+))?(?:\/|\/stats)?$/.exec(pathOf(request));
  if (match === null) return undefined;
  return communities.find(hostOf(request.headers), match[1]);
}

/** What is not carried is not offered. */
function shown({ settings, topics }: Community, recent: readonly string[]): readonly string[] {
  if (settings['topic.mode'] === 'open') return recent;
  return recent.filter((topic) => topics.get(topic)?.enabled);
}
