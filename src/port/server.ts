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
import { type Denial, denial, ERRORS } from '../api/rules-errors.js';
import type { Work } from '../limits/work.js';
import { boundChunks } from './chunks.js';
import type { Addresses, ClientAddress } from './client-address.js';
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
/** A new connection, before its first request. */
const ACCEPT_MS = 0.1;
/** An address with more debt gets no new connection: its requests would be refused too. */
const DEBT_MS_MAX = 10_000;
/**
 * What ends a connection counts as this many offences: too many requests before the first is answered, bodies
 * in tiny chunks.
 */
const CUT_OFFENCES = 40;

export interface ServerOptions {
  readonly bounds: ServerBounds;
  readonly addresses: Addresses;
  /** Trusted proxies name their clients at the start of each connection. */
  readonly proxyProtocol: boolean;
  readonly work?: Pick<Work, 'charge' | 'offend' | 'refusedMs' | 'waitMs'> | undefined;
}

export interface BoundedServer {
  readonly server: Server;
  readonly connections: Connections;
  /** Answers input that is not HTTP, or does not arrive in time, and closes the connection. */
  readonly refuseUnreadable: (error: NodeJS.ErrnoException, socket: Socket) => void;
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
    // Refused below: Node.js would answer it by itself, past every limit.
    requireHostHeader: false,
  });
  server.maxHeadersCount = HEADERS_MAX;
  server.timeout = bounds.stalledMsMax;

  const [speakHttp] = server.listeners('connection') as [ConnectionListener];
  const enter = (socket: Socket): void => {
    const client = addresses.ofPeer(socket);
    if (client !== undefined && isUnwelcome(client)) socket.destroy();
    else if (connections.open(socket, client)) speakHttp.call(server, socket);
  };
  /** A new connection is charged like everything else, also one that sends nothing (I18). */
  const isUnwelcome = (client: ClientAddress): boolean => {
    work?.charge(client, ACCEPT_MS);
    return (work?.refusedMs(client) ?? 0) > 0 || (work?.waitMs(client) ?? 0) > DEBT_MS_MAX;
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
  const offend = (client: ClientAddress, offences: number): void => {
    if (!client.isLoopback) work?.offend(client, offences);
  };
  const serve = (request: IncomingMessage, response: ServerResponse): void => {
    const { socket, headers } = request;
    // One read may hold thousands of requests. After the one that ended the connection they cost no more.
    if (socket.destroyed) return;
    const client = addresses.of(request);
    if (!connections.begin(request, response, client)) {
      if (socket.destroyed) offend(client, CUT_OFFENCES);
      else refuse(response, CONNECTIONS_REFUSED);
      return;
    }
    if (headers.host === undefined && request.httpVersion === '1.1') {
      offend(client, 1);
      refuse(response, NO_HOST);
      return;
    }
    if (headers['transfer-encoding'] !== undefined)
      boundChunks(request, () => {
        offend(client, CUT_OFFENCES);
        socket.destroy();
      });
    handler(request, response);
  };
  server.on('request', serve);
  // An expectation other than 100-continue is ignored, as RFC 9110 allows. Node.js would answer it by itself.
  server.on('checkExpectation', serve);
  server.on('close', () => connections.close());
  const refuseUnreadable = (error: NodeJS.ErrnoException, socket: Socket): void => {
    const client = addresses.ofPeer(socket);
    // Input that is not HTTP is an offence.
    if (client !== undefined && error.code?.startsWith('HPE_')) work?.offend(client);
    if (error.code === 'ECONNRESET' || socket.destroyed) return;
    if (socket.writable) socket.write(unreadable(STATUS_OF_ERROR[error.code ?? ''] ?? '400 Bad Request'));
    socket.destroy();
  };
  return { server, connections, refuseUnreadable };
}

const CONNECTIONS_REFUSED = denial('RATE_LIMITED', {
  reason: 'too many connections of this address',
  retry_after_seconds: 1,
});
const NO_HOST = denial('INVALID_REQUEST', {
  problems: [{ path: 'headers', message: 'a request needs a Host header' }],
});

const CLOSING_HEADERS = {
  ...SAFE_HEADERS,
  'content-type': 'application/json; charset=utf-8',
  connection: 'close',
};

function refuse(response: ServerResponse, { denied: code, details }: Denial): void {
  const { status, message } = ERRORS[code];
  const isForNow = code === 'RATE_LIMITED';
  const headers = { ...CLOSING_HEADERS, ...(isForNow && { 'retry-after': '1' }) };
  response.writeHead(status, headers).end(JSON.stringify({ code, message, details }));
}

const STATUS_OF_ERROR: Readonly<Record<string, string>> = {
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
};

function unreadable(status: string): string {
  const { message } = ERRORS.INVALID_REQUEST;
  const body = JSON.stringify({ code: 'INVALID_REQUEST', message, details: { reason: status } });
  const headers = { ...CLOSING_HEADERS, 'content-length': String(body.length) };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status}\r\n${lines.join('')}\r\n${body}`;
}
