/**
 * What the relay adds to the port: the websocket and NIP-11 at `/` and `/c/<slug>`, and the landing page.
 * The path or the host name selects the community; nothing else is shared between communities
 * (I13).
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import { type WebSocket, WebSocketServer } from 'ws';
import { isKeptOut } from '../blocks/rules.js';
import { addressesOf } from '../communities/addresses.js';
import type { Community } from '../communities/communities.js';
import { readTotals } from '../communities/communities.sql.js';
import { FRAME_BYTES_MAX, type Settings } from '../communities/rules-settings.js';
import type { NostrEvent } from '../events/rules/event.js';
import type { EventReads } from '../events/store.js';
import { CONNECTION_MS } from '../limits/costs.js';
import { Counts } from '../limits/counts.js';
import { rateKey } from '../limits/keys.js';
import type { Verdict } from '../limits/rates.js';
import { rest } from '../limits/time-slices.js';
import { ADDRESSES_PER_NETWORK } from '../limits/work.js';
import type { AddressOf } from '../port/client-address.js';
import { type Http, hostOf } from '../port/http.js';
import { isExempt } from '../port/rate.js';
import { SAFE_HEADERS } from '../port/safe-headers.js';
import { topicsOf } from '../topics/rules.js';
import { Connection, type ConnectionContext } from './connection.js';
import { FRAGMENTS_MAX, FRAME_READS_MAX } from './input/arrivals.js';
import type { Client } from './input/incoming.js';
import { publicTopics, relayInformation, supportedNips } from './nip11.js';
import { fillMembersPage, PAGE_POLICY, type PageContent, renderPage, type Stats } from './page.js';

const TOO_MANY_REQUESTS = '429 Too Many Requests';
/** NIP-11 is read by web pages of any origin, and NIP-86 is spoken by them. */
const CORS = {
  'access-control-allow-origin': '*',
  'access-control-allow-headers': '*, authorization',
  'access-control-allow-methods': 'GET, POST, OPTIONS',
};
const TICK_MS = 1_000;
/**
 * Each socket has its heartbeat once in this many ticks, so that the pings of thousands are spread out.
 */
const HEARTBEAT_TICKS = 30;
/** After so many sockets it is checked whether the slice of the event loop is over. */
const VISITED_AT_ONCE = 20;
const TOPICS_SHOWN = 24;
/** What the landing page reads from the database is read at most this often per community. */
const PAGE_CACHE_MS = 2_000;

export interface RelayOptions extends ConnectionContext {
  /** The API answers on the same port. */
  readonly hasApi: boolean;
  /**
   * Sends the members' page, with what `fill` puts into it. Undefined without the API, or if it is not built.
   */
  readonly membersPage?: ((reply: FastifyReply, fill: (html: string) => string) => FastifyReply) | undefined;
  readonly publicUrl: string | undefined;
  /** The ticket for the gossip of a community; undefined while it does not take part. */
  readonly ticketOf?: ((community: Community) => string | undefined) | undefined;
  readonly ownPool: Pool;
  readonly addressOf: AddressOf;
  /** The part of a limit per address that applies to this process. */
  readonly shareOf: (max: number) => number;
}

export interface Relay {
  /** Cuts every socket, without a close frame. */
  close(): Promise<void>;
}

export function addRelay(http: Http, options: RelayOptions): Relay {
  const sockets = new Map<Connection, number>();
  addPages(http.app, options, sockets);
  const heartbeat = acceptSockets(http, options, sockets);
  options.communities.afterPoll(() => visitEach(sockets.keys(), (connection) => connection.review()));
  return {
    close: async () => {
      clearInterval(heartbeat);
      for (const connection of sockets.keys()) connection.cut();
      // Each client disconnects or is cut off after its grace period, so this ends. Closing the port first
      // would lose replies that are still to be sent.
      while (sockets.size > 0) await delay(10);
    },
  };
}

/** The topics of the newest events, most used first. */
async function recentTopics(events: Pick<EventReads, 'newest'>, community: number): Promise<string[]> {
  const page = await events.newest(community, { createdAt: Number.MAX_SAFE_INTEGER, id: '' });
  const uses = new Map<string, number>();
  for (const { payload } of page.events)
    for (const topic of topicsOf(JSON.parse(payload) as NostrEvent))
      uses.set(topic, (uses.get(topic) ?? 0) + 1);
  const byUse = [...uses].sort(([a, usesA], [b, usesB]) => usesB - usesA || (a < b ? -1 : 1));
  return byUse.slice(0, TOPICS_SHOWN).map(([topic]) => topic);
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
      recentTopics(options.stored.events, community),
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
      return reply
        .type('application/nostr+json')
        .send(JSON.stringify(relayInformation(community, options.hasApi, options.ticketOf?.(community))));
    }
    const path = pathOf(request.raw).replace(/\/$/, '');
    const content: PageContent = {
      settings: community.settings,
      nips: supportedNips(community.settings, options.hasApi),
      address: shownAddress(community, request, options.publicUrl),
      statsPath: `${path}/stats`,
      topics: (await read(community.id)).topics.filter((topic) => isShown(topic, community)),
      publicTopics: publicTopics(community).slice(0, TOPICS_SHOWN),
      stats: await statsOf(community.id),
    };
    if (options.membersPage !== undefined)
      return options.membersPage(reply, (html) => fillMembersPage(html, content));
    return reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', PAGE_POLICY)
      .send(renderPage(content));
  };

  const stats = async (request: FastifyRequest, reply: FastifyReply) => {
    const community = communityOf(request.raw, options);
    return community === undefined
      ? reply.code(404).send({ error: 'no such community' })
      : statsOf(community.id);
  };

  /** NIP-05: only the requested name is answered; a list of all names would be a list of members. */
  const identifiers = async (request: FastifyRequest, reply: FastifyReply) => {
    const community = options.communities.find(hostOf(request.headers), undefined);
    const { name } = request.query as { name?: unknown };
    const pubkey = typeof name === 'string' ? community?.names.get(name) : undefined;
    reply.headers(CORS);
    if (community === undefined || pubkey === undefined) return { names: {}, relays: {} };
    return {
      names: { [String(name)]: pubkey },
      relays: { [pubkey]: options.addressesOf(community).slice(0, 1) },
    };
  };
  app.get('/.well-known/nostr.json', identifiers);

  for (const prefix of ['', '/c/:slug']) {
    app.get(prefix || '/', page);
    app.get(`${prefix}/stats`, stats);
    app.options(prefix || '/', (_request, reply) => reply.headers(CORS).code(204).send());
  }
}

/** Topics that are not open to everybody are not listed. */
function isShown(topic: string, { settings, topics }: Community): boolean {
  const rules = topics.get(topic);
  if (settings['auth.mode'] === 'required') return rules?.enabled === true && rules.public;
  return settings['topic.mode'] === 'open' || rules?.enabled === true;
}

/** For display only, so the Host header is good enough where nothing is configured. */
function shownAddress(community: Community, request: FastifyRequest, publicUrl: string | undefined): string {
  const base = publicUrl ?? `ws://${request.headers.host ?? 'localhost'}`;
  return URL.canParse(base) ? addressesOf(community, [base])[0]! : base;
}

function acceptSockets(http: Http, options: RelayOptions, sockets: Map<Connection, number>): NodeJS.Timeout {
  // No compression: a small frame could otherwise become a large one before any limit sees it.
  const wss = new WebSocketServer({
    noServer: true,
    maxPayload: FRAME_BYTES_MAX,
    perMessageDeflate: false,
    autoPong: false,
    maxFragments: FRAGMENTS_MAX,
    maxBufferedChunks: FRAME_READS_MAX,
  });
  // A handshake that is wrong. `ws` would answer it without our headers.
  wss.on('wsClientError', (_error, socket) => refuseUpgrade(socket, '400 Bad Request'));
  /** Open sockets by address, network (an IPv6 /48) and community. */
  const addresses = new Counts<string>();
  const networks = new Counts<string>();
  const communities = new Counts<number>();
  /** Sockets whose rate limit is being checked count already. */
  let opening = 0;

  /** Why this client may not connect now. */
  const refusalOf = (client: Client, settings: Settings): string | undefined => {
    if (http.closing || sockets.size + opening >= http.room.websockets) return '503 Service Unavailable';
    const share = options.communities.share() * http.room.websockets;
    if (communities.of(client.community) >= share) return '503 Service Unavailable';
    const max = options.shareOf(settings['limits.connectionsPerAddressMax']);
    const isFull =
      addresses.of(client.rateKey) >= max || networks.of(client.networkKey) >= max * ADDRESSES_PER_NETWORK;
    return isFull && !client.isLoopback ? TOO_MANY_REQUESTS : undefined;
  };
  const count = ({ rateKey, networkKey, community }: Client, sockets: 1 | -1): void => {
    addresses.add(rateKey, sockets);
    networks.add(networkKey, sockets);
    communities.add(community, sockets);
  };

  const accept = (ws: WebSocket, socket: Duplex, client: Client): void => {
    count(client, 1);
    const connection = new Connection(ws, socket, client, options);
    sockets.set(connection, client.community);
    options.metrics.sockets.set(sockets.size);
    ws.on('close', () => {
      count(client, -1);
      sockets.delete(connection);
      options.metrics.sockets.set(sockets.size);
    });
  };

  http.app.server.on('upgrade', async (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => undefined);
    // From here on it counts as opening, or is refused at once.
    http.upgraded(request);
    const address = options.addressOf(request);
    const community = isStats(request) ? undefined : communityOf(request, options);
    const isFree = community === undefined ? address.isLoopback : isExempt(address, community.settings);
    if (!isFree) options.work.charge(address, CONNECTION_MS);
    if (http.closing) return refuseUpgrade(socket, '503 Service Unavailable');
    if (community === undefined) return refuseUpgrade(socket, '404 Not Found');
    const { settings } = community;
    const client = { community: community.id, ...address };
    if (isKeptOut(community.blocks, client)) return refuseUpgrade(socket, '403 Forbidden');
    const refusedMs = isFree ? 0 : options.work.refusedMs(client);
    if (refusedMs > 0) return refuseUpgrade(socket, TOO_MANY_REQUESTS, refusedMs);
    const refused = refusalOf(client, settings);
    if (refused !== undefined) return refuseUpgrade(socket, refused);
    opening += 1;
    const { allowed, retryAfterMs } = await connectionRate(client, settings, options);
    if (!allowed) {
      opening -= 1;
      return refuseUpgrade(socket, TOO_MANY_REQUESTS, retryAfterMs);
    }
    await options.turns.run(client, () => {
      opening -= 1;
      if (socket.destroyed) return;
      // Others may have connected meanwhile.
      const late = refusalOf(client, settings);
      if (late !== undefined) return refuseUpgrade(socket, late);
      wss.handleUpgrade(request, socket, head, (ws) => accept(ws, socket, client));
    });
  });
  let tick = 0;
  let underWay = 0;
  const beat = async (turn: number): Promise<void> => {
    underWay += 1;
    await visitEach(sockets.keys(), (connection) => {
      connection.checkUnfinished();
      if (connection.serial % HEARTBEAT_TICKS === turn) connection.ping();
    });
    underWay -= 1;
  };
  return setInterval(() => {
    tick = (tick + 1) % HEARTBEAT_TICKS;
    // More only if a visit took so many ticks; then each socket has its heartbeat in one of them (I14).
    if (underWay < HEARTBEAT_TICKS) void beat(tick);
  }, TICK_MS);
}

/** In slices: thousands of sockets would otherwise take tens of milliseconds of one pass (I18). */
async function visitEach(
  connections: Iterable<Connection>,
  visit: (connection: Connection) => void,
): Promise<void> {
  let visited = 0;
  for (const connection of connections) {
    visit(connection);
    if (++visited % VISITED_AT_ONCE === 0) await rest();
  }
}

function connectionRate(
  client: Client,
  settings: Settings,
  { rates, now }: RelayOptions,
): Verdict | Promise<Verdict> {
  if (isExempt(client, settings)) return { allowed: true, retryAfterMs: 0 };
  const key = rateKey(client.community, 'connections', client.rateKey);
  return rates.take(key, settings['rate.connectionsPerSecond'], settings['rate.connectionsBurst'], now());
}

const SAFE_LINES = Object.entries(SAFE_HEADERS)
  .map(([name, value]) => `${name}: ${value}\r\n`)
  .join('');

function refuseUpgrade(socket: Duplex, status: string, retryAfterMs = 0): void {
  const retryAfter = retryAfterMs > 0 ? `Retry-After: ${Math.ceil(retryAfterMs / 1_000)}\r\n` : '';
  const end = 'Connection: close\r\nContent-Length: 0\r\n\r\n';
  const head = `HTTP/1.1 ${status}\r\n${retryAfter}${SAFE_LINES}${end}`;
  // Not left to the client: one that does not disconnect would delay the shutdown.
  socket.end(head, () => socket.destroy());
}

/**
 * Not by `new URL`, which throws on what a client may well send, and makes another path of some of the rest.
 */
function pathOf(request: IncomingMessage): string {
  return request.url?.split('?', 1)[0] ?? '/';
}

function isStats(request: IncomingMessage): boolean {
  return /^(\/c\/[^/]+)?\/stats$/.test(pathOf(request));
}

/** `/` selects by host name, `/c/<slug>` by slug; any other path is not found. */
function communityOf(request: IncomingMessage, { communities }: RelayOptions): Community | undefined {
  const match = /^(?:\/c\/([^/]+))?(?:\/|\/stats)?$/.exec(pathOf(request));
  if (match === null) return undefined;
  return communities.find(hostOf(request.headers), match[1]);
}
