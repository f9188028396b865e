/**
 * The HTTP server of the port: every connection has a deadline for each wait, counts towards the limits, and
 * has a client address (I14). Code above it need not know how a connection arrived.
 */
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import { ERRORS } from '../api/rules-errors.js';
import type { Work } from '../limits/work.js';
import type { Addresses } from './client-address.js';
import { CONNECTION_BOUNDS, type ConnectionBounds, Connections } from './connections.js';
import { readProxied } from './proxy-protocol.js';
import { SAFE_HEADERS } from './safe-headers.js';

export interface ServerBounds extends ConnectionBounds {
  /** From the connection to the first byte, and from the first byte to the end of the head of a request. */
  readonly headMsMax: number;
  /** From the first byte of a request to the last one of its body. */
  readonly requestMsMax: number;
  /** Between two requests. */
  readonly keepAliveMsMax: number;
  /** Without a byte in either direction while a request is answered. */
  readonly stalledMsMax: number;
  /** From the connection to the end of the header of the PROXY protocol. */
  readonly proxyHeaderMsMax: number;
}

export const SERVER_BOUNDS: ServerBounds = {
  ...CONNECTION_BOUNDS,
  headMsMax: 10_000,
  requestMsMax: 30_000,
  keepAliveMsMax: 10_000,
  stalledMsMax: 60_000,
  proxyHeaderMsMax: 5_000,
};

const HEAD_BYTES_MAX = 16_384;
const HEADERS_MAX = 100;
/** How often deadlines are checked. */
const CHECK_MS_MAX = 1_000;

export interface ServerOptions {
  readonly bounds: ServerBounds;
  readonly addresses: Addresses;
  /** Trusted proxies name their clients at the start of each connection. */
  readonly proxyProtocol: boolean;
  readonly work?: Pick<Work, 'offend' | 'refusedMs'> | undefined;
}

export interface BoundedServer {
  readonly server: Server;
  readonly connections: Connections;
}

type ConnectionListener = (this: Server, socket: Socket) => void;

export function createBoundedServer(handler: RequestListener, options: ServerOptions): BoundedServer {
  const { bounds, addresses, work } = options;
  const connections = new Connections(bounds);
  const server = createServer({
    headersTimeout: bounds.headMsMax,
    requestTimeout: bounds.requestMsMax,
    keepAliveTimeout: bounds.keepAliveMsMax,
    connectionsCheckingInterval: Math.min(CHECK_MS_MAX, bounds.headMsMax, bounds.requestMsMax),
    maxHeaderSize: HEAD_BYTES_MAX,
  });
  server.maxHeadersCount = HEADERS_MAX;
  server.timeout = bounds.stalledMsMax;

  const [speakHttp] = server.listeners('connection') as [ConnectionListener];
  const enter = (socket: Socket): void => {
    const client = addresses.ofPeer(socket);
    if (client !== undefined && (work?.refusedMs(client) ?? 0) > 0) socket.destroy();
    else if (connections.open(socket, client)) speakHttp.call(server, socket);
  };
  server.removeAllListeners('connection');
  server.on('connection', (socket: Socket) => {
    if (!options.proxyProtocol || !addresses.isTrusted(socket)) return enter(socket);
    // Until its client is known it counts for the proxy.
    if (connections.open(socket, undefined)) {
      const named = () => {
        connections.release(socket);
        enter(socket);
      };
      readProxied(socket, named, bounds.proxyHeaderMsMax);
    }
  });
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    if (connections.begin(request, response, addresses.of(request))) handler(request, response);
    else refuseConnection(response);
  });
  // Input that is not HTTP is an offence.
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    const client = addresses.ofPeer(socket);
    if (client !== undefined && error.code?.startsWith('HPE_')) work?.offend(client);
  });
  server.on('close', () => connections.close());
  return { server, connections };
}

const CONNECTIONS_REFUSED = JSON.stringify({
  code: 'RATE_LIMITED',
  message: ERRORS.RATE_LIMITED.message,
  details: { reason: 'too many connections of this address', retry_after_seconds: 1 },
});

function refuseConnection(response: ServerResponse): void {
  const headers = {
    ...SAFE_HEADERS,
    'content-type': 'application/json; charset=utf-8',
    'retry-after': '1',
    connection: 'close',
  };
  response.writeHead(ERRORS.RATE_LIMITED.status, headers).end(CONNECTIONS_REFUSED);
}
