/**
 * The HTTP port of the node. Health and metrics are served with any roles; the relay and the API add their
 * own routes before it listens.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { type Denial, ERRORS } from '../api/rules-errors.js';
import { FRAME_BYTES_MAX } from '../communities/rules-settings.js';
import { inTime, isNoAnswer } from '../limits/in-time.js';
import type { Work } from '../limits/work.js';
import type { Log } from '../node/log.js';
import type { Metrics } from '../node/metrics.js';
import { type Addresses, createAddresses } from './client-address.js';
import type { Room } from './descriptors.js';
import type { EarlyPort } from './early-port.js';
import { type Entrance, SLICE_BYTES } from './entrance.js';
import { addressesOf } from './host.js';
import { SAFE_HEADERS } from './safe-headers.js';
import { type BoundedServer, createBoundedServer, SERVER_BOUNDS, type ServerBounds } from './server.js';

export { hostOf } from './host.js';

/** The deadline of /readyz. */
const READY_MS_MAX = 3_000;
/** The result of a readiness check is cached this long. */
const READY_KEPT_MS = 500;
/** Of a body that is not read, so much is discarded so that the connection can be used again. */
const UNREAD_BODY_BYTES_MAX = 65_536;
export const ROOM: Room = { http: SERVER_BOUNDS.connectionsMax, websockets: 10_000 };

declare module 'fastify' {
  interface FastifyContextConfig {
    /**
     * Which checks a request passes: `health` has neither blocks nor rates, `own` checks its own rate after
     * it has authenticated the client. By default blocked addresses are refused and the rate of public routes
     * applies.
     */
    entry?: 'health' | 'own';
  }
  interface FastifyRequest {
    /** Charges work for this request to its client, in milliseconds of the event loop (I18). */
    charge(costMs: number): void;
  }
}

export interface HttpOptions {
  readonly metrics: Metrics;
  /** What /metrics answers; by default the metrics of this process. */
  readonly scrape?: (() => Promise<string>) | undefined;
  readonly metricsToken: string | undefined;
  /** Resolves when the database answers. */
  readonly ready: () => Promise<void>;
  readonly addresses?: Addresses;
  /** Without it there are neither blocks nor rates. */
  readonly entrance?: Entrance;
  readonly work?: Work;
  readonly proxyProtocol?: boolean;
  /** The maximum numbers of connections. */
  readonly room?: Room;
  readonly bounds?: Partial<ServerBounds>;
  readonly log?: Pick<Log, 'error'>;
}

export class Http {
  readonly app: FastifyInstance;
  readonly room: Room;
  private readonly addresses: Addresses;
  private readonly others: Server[] = [];
  private bounded!: BoundedServer;
  private stopping = false;

  constructor(private readonly options: HttpOptions) {
    const { room = ROOM, proxyProtocol = false, work, bounds = {} } = options;
    const addresses = options.addresses ?? createAddresses({ trustedProxies: [] });
    this.room = room;
    this.addresses = addresses;
    this.app = fastify({
      logger: false,
      bodyLimit: FRAME_BYTES_MAX,
      forceCloseConnections: true,
      serverFactory: (handler) => {
        const all = { ...SERVER_BOUNDS, connectionsMax: room.http, ...bounds };
        this.bounded = createBoundedServer(handler, { bounds: all, addresses, proxyProtocol, work });
        return this.bounded.server;
      },
      // A topic id has up to 103 characters, three times as many when each is percent-encoded.
      routerOptions: { ignoreTrailingSlash: true, maxParamLength: 512 },
      frameworkErrors: (_error, request, reply) =>
        void this.refuseMalformed(request as unknown as FastifyRequest, reply as unknown as FastifyReply),
      clientErrorHandler: (error, socket) => this.bounded.refuseUnreadable(error, socket),
    });
    // The body of a request is not read, unless its route has a parser for it.
    this.app.removeAllContentTypeParsers();
    this.app.addContentTypeParser('*', (_request, _payload, done) => done(null));
    this.app.addHook('onRequest', (request, reply) => this.enter(request, reply));
    this.app.decorateRequest('charge', function charge(this: FastifyRequest, costMs: number) {
      options.entrance?.charge(this.raw, costMs);
    });
    // Not async: the body is read in the same step, so that no byte of it is missed.
    this.app.addHook('preParsing', (request, reply, _payload, done) => {
      options.entrance?.receive(request.raw, reply.raw);
      done();
    });
    this.app.addHook('onSend', async (request, reply, payload) => {
      if (hasLongUnreadBody(request.raw)) reply.header('connection', 'close');
      const isBytes = typeof payload === 'string' || Buffer.isBuffer(payload);
      if (options.entrance === undefined || !isBytes || payload.length <= SLICE_BYTES) return payload;
      if (request.method === 'HEAD') return payload;
      const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
      reply.header('content-length', String(bytes.length));
      this.bounded.connections.slice(reply.raw);
      return options.entrance.answer(request.raw, bytes);
    });
    this.addHealth();
    this.app.setErrorHandler((error, _request, reply) => {
      if (isNoAnswer(error)) return refuse(reply.header('retry-after', '5'), { denied: 'UNAVAILABLE' });
      // An error of the client is explained to it. The message of one of ours may name paths and hosts.
      const { statusCode = 500 } = error as { statusCode?: number };
      if (statusCode < 500) return reply.send(error);
      options.log?.error({ error: String((error as Error).stack ?? error) }, 'a request failed');
      return refuse(reply, { denied: 'INTERNAL' });
    });
  }

  /** From now on no new client is accepted, and /readyz says so. */
  stopAccepting(): void {
    this.stopping = true;
  }
  get closing(): boolean {
    return this.stopping;
  }

  /** The number of open HTTP connections. */
  get connections(): number {
    return this.bounded.connections.size;
  }
  /** The connection has become a websocket and is no longer counted here. */
  upgraded(request: IncomingMessage): void {
    this.bounded.connections.release(request.socket);
  }

  /** Returns the port; the system chooses it for port 0. A port that is open already is taken over. */
  async listen(host: string, port: number, early?: EarlyPort): Promise<number> {
    const [first = host, ...others] = await addressesOf(host);
    await this.app.listen({ host: first, port, ...early?.handle });
    const address = this.app.server.address();
    const chosen = typeof address === 'object' && address !== null ? address.port : port;
    for (const other of others) await this.listenAlso(other, chosen);
    return chosen;
  }

  /** Serves connections that another process has accepted, which are passed to the returned function. */
  async serve(): Promise<(socket: Socket) => void> {
    await this.app.ready();
    const { server } = this.app;
    // From this event on Node.js checks the deadlines of the connections.
    server.emit('listening');
    return (socket) => {
      server.emit('connection', socket);
      socket.resume();
    };
  }

  async close(): Promise<void> {
    this.stopping = true;
    for (const server of this.others) server.close();
    const { server } = this.app;
    const isOwnPort = server.listening;
    await this.app.close();
    if (isOwnPort) return;
    server.closeAllConnections();
    server.close();
  }

  /** An address on which it cannot listen (IPv6 is off) is skipped. */
  private async listenAlso(host: string, port: number): Promise<void> {
    const server = createServer((socket) => this.app.server.emit('connection', socket));
    await new Promise<void>((resolve) => {
      server.once('error', () => resolve());
      server.listen({ host, port }, () => {
        this.others.push(server);
        resolve();
      });
    });
  }

  /** Every request passes here. */
  private async enter(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> {
    reply.headers(SAFE_HEADERS);
    const { entrance } = this.options;
    const { entry } = request.routeOptions.config;
    const paced = await entrance?.pace(request.raw, entry === 'health');
    // The connection of a client in too much debt is closed.
    if (paced !== undefined) return refuse(reply.header('connection', 'close'), paced);
    const refused = entry === undefined ? await entrance?.admit(request.raw) : undefined;
    return refused === undefined ? undefined : refuse(reply, refused);
  }

  /** For a malformed path, for which no hook is called. */
  private async refuseMalformed(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    await this.options.entrance?.pace(request.raw);
    refuse(reply.headers({ ...SAFE_HEADERS, connection: 'close' }), { denied: 'INVALID_REQUEST' });
  }

  private addHealth(): void {
    const { metrics, metricsToken, scrape = metrics.scrape } = this.options;
    const health = { config: { entry: 'health' } } as const;
    const isReady = this.keepReady();
    this.app.get('/healthz', health, () => ({ status: 'ok' }));
    this.app.get('/readyz', health, async (_request, reply) => {
      if (this.stopping) return reply.code(503).send({ status: 'shutting down' });
      return (await isReady())
        ? { status: 'ready' }
        : reply.code(503).send({ status: 'the database does not answer' });
    });
    this.app.get('/metrics', async (request, reply) => {
      if (!isBearer(request, metricsToken) && !this.addresses.of(request.raw).isLoopback) {
        return reply
          .code(403)
          .send('metrics are served to this machine, or with the bearer token MINATO_METRICS_TOKEN\n');
      }
      return reply.type(metrics.registry.contentType).send(await scrape());
    });
  }

  /** Whether the database answers. Concurrent requests share one check. */
  private keepReady(): () => Promise<boolean> {
    let kept: Promise<boolean> | undefined;
    const ask = () =>
      inTime(this.options.ready(), READY_MS_MAX, 'the store').then(
        () => true,
        () => false,
      );
    return () => {
      kept ??= ask().finally(() => setTimeout(() => (kept = undefined), READY_KEPT_MS).unref());
      return kept;
    };
  }
}

/** The body is still arriving, and nobody wants it: the connection is closed after the answer. */
function hasLongUnreadBody({ complete, headers }: IncomingMessage): boolean {
  if (complete) return false;
  const isChunked = headers['transfer-encoding'] !== undefined;
  return isChunked || Number(headers['content-length'] ?? 0) > UNREAD_BODY_BYTES_MAX;
}

/** A refusal before the route; a web page of another origin may read it. */
function refuse(reply: FastifyReply, { denied, details = {} }: Denial): FastifyReply {
  const { status, message } = ERRORS[denied];
  const { retry_after_seconds: seconds } = details;
  if (typeof seconds === 'number') reply.header('retry-after', String(seconds));
  return reply
    .code(status)
    .header('access-control-allow-origin', '*')
    .type('application/json; charset=utf-8')
    .send(JSON.stringify({ code: denied, message, details }));
}

/** In constant time for every wrong token. */
function isBearer({ headers }: FastifyRequest, token: string | undefined): boolean {
  if (token === undefined) return false;
  const hash = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(hash(headers.authorization ?? ''), hash(`Bearer ${token}`));
}
