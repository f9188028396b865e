/**
 * Finds the address of a client. Rates and limits depend on it, so only a trusted proxy may name it for its
 * clients, in the header that the operator has configured. A forwarded request never counts as local.
 */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isIP, type Socket, SocketAddress } from 'node:net';
import { compile as compileTrust } from '@fastify/proxy-addr';

export interface ClientAddress {
  readonly address: string;
  /**
   * The key of rates and limits: for IPv6 the /64 of the host, which can use 2^64 addresses.
   */
  readonly rateKey: string;
  /** The key of the network: for IPv6 the /48 of one customer, otherwise the same as `rateKey`. */
  readonly networkKey: string;
  /**
   * A local client: connected directly, to a host name of this machine, while the operator trusts such
   * clients.
   */
  readonly isLoopback: boolean;
  /** Contradicting addresses, one of which is the client's: a block of any of them applies. */
  readonly alsoNamed?: readonly string[];
}

export type AddressOf = (request: IncomingMessage) => ClientAddress;

/**
 * Headers in which a proxy may name its client. The first two are lists to which each proxy appends, the
 * others have one address.
 */
export const PROXY_HEADERS = [
  'x-forwarded-for',
  'forwarded',
  'x-real-ip',
  'cf-connecting-ip',
  'true-client-ip',
  'fly-client-ip',
] as const;
export type ProxyHeader = (typeof PROXY_HEADERS)[number];

/** Headers of proxies and tunnels: a request with one of these was forwarded. */
const FORWARDING = [
  ...PROXY_HEADERS,
  'via',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-proto',
  'x-forwarded-server',
  'x-original-forwarded-for',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-envoy-external-address',
  'fastly-client-ip',
  'cf-ray',
  'cdn-loop',
] as const;
/** The longest chain of proxies (I14). */
const HOPS_MAX = 32;
const FORWARDED_LENGTH_MAX = 1_024;

export interface AddressOptions {
  readonly trustedProxies: readonly string[];
  /**
   * The header that is read. By default X-Forwarded-For or X-Real-IP, if they do not contradict each other.
   */
  readonly header?: ProxyHeader | undefined;
  /** Whether clients on this machine are trusted. */
  readonly trustsLoopback?: () => boolean;
  /**
   * Called for a direct connection of this machine to another host name: a program forwards it without naming
   * its client.
   */
  readonly onUnnamed?: (host: string | undefined) => void;
}

export interface Addresses {
  readonly of: AddressOf;
  /**
   * The address of a new connection; undefined if its peer is a trusted proxy, which has many clients.
   */
  readonly ofPeer: (socket: Socket) => ClientAddress | undefined;
  readonly isTrusted: (socket: Socket) => boolean;
}

/** The client that a proxy has named at the start of a connection (PROXY protocol). */
const named = new WeakMap<Socket, string>();

export function namePeer(socket: Socket, address: string): void {
  named.set(socket, address);
}

export function createAddressOf(trustedProxies: readonly string[]): AddressOf {
  return createAddresses({ trustedProxies }).of;
}

export function createAddresses(options: AddressOptions): Addresses {
  const { trustsLoopback = () => true, onUnnamed } = options;
  const trusts = compileTrust([...options.trustedProxies]);
  const isTrusted = (address: string) => trusts(address, 0);

  /** Whether the client is certainly on this machine. */
  const isLocal = ({ socket, headers }: IncomingMessage, peer: string): boolean => {
    if (named.has(socket) || !isLoopback(peer) || isForwarded(headers)) return false;
    if (isLocalName(headers.host)) return isLocalOrigin(headers.origin) && trustsLoopback();
    onUnnamed?.(headers.host);
    return false;
  };

  const peerOf = (socket: Socket) => addressIn(named.get(socket) ?? socket.remoteAddress);
  const find: AddressOf = (request) => {
    const peer = peerOf(request.socket);
    if (peer === undefined) return NOBODY;
    const { address, alsoNamed } = isTrusted(peer)
      ? clientOf(request.headers, peer, options.header, isTrusted)
      : { address: peer, alsoNamed: undefined };
    return { ...counted(address), isLoopback: isLocal(request, peer), ...(alsoNamed && { alsoNamed }) };
  };
  const found = new WeakMap<IncomingMessage, ClientAddress>();
  return {
    of: (request) => {
      const client = found.get(request) ?? find(request);
      found.set(request, client);
      return client;
    },
    ofPeer: (socket) => {
      const peer = peerOf(socket);
      return peer === undefined || isTrusted(peer) ? undefined : { ...counted(peer), isLoopback: false };
    },
    isTrusted: ({ remoteAddress }) => {
      const peer = addressIn(remoteAddress);
      return peer !== undefined && isTrusted(peer);
    },
  };
}

const NOBODY: ClientAddress = { address: '', rateKey: '', networkKey: '', isLoopback: false };

function counted(address: string): Pick<ClientAddress, 'address' | 'rateKey' | 'networkKey'> {
  const isV6 = isIP(address) === 6;
  return {
    address,
    rateKey: isV6 ? networkOf(address, 64) : address,
    networkKey: isV6 ? networkOf(address, 48) : address,
  };
}

interface Named {
  readonly address: string;
  readonly alsoNamed: readonly string[] | undefined;
}

/** The client of a trusted proxy. If its header cannot be parsed, the proxy itself counts as the client. */
function clientOf(
  headers: IncomingHttpHeaders,
  peer: string,
  header: ProxyHeader | undefined,
  isTrusted: (address: string) => boolean,
): Named {
  const said = (name: ProxyHeader) => walk(entriesOf(headers, name), isTrusted);
  if (header !== undefined) return { address: said(header).at(-1) ?? peer, alsoNamed: undefined };
  const listed = said('x-forwarded-for');
  if (headers['x-real-ip'] === undefined) return { address: listed.at(-1) ?? peer, alsoNamed: undefined };
  const [single] = said('x-real-ip');
  if (headers['x-forwarded-for'] === undefined) return { address: single ?? peer, alsoNamed: undefined };
  if (single !== undefined && listed.includes(single)) {
    return { address: listed.at(-1)!, alsoNamed: undefined };
  }
  // A proxy forwards a header that it does not set as its client wrote it. It is unknown which of the two
  // that is, so neither is trusted: all such clients are counted together as the proxy.
  return { address: peer, alsoNamed: single === undefined ? listed : [...listed, single] };
}

/** The addresses of a header, the nearest last. */
function entriesOf(headers: IncomingHttpHeaders, name: ProxyHeader): string[] {
  const value = headers[name];
  const text = Array.isArray(value) ? value.join(',') : (value ?? '');
  if (name === 'x-forwarded-for') return text.split(',');
  return name === 'forwarded' ? forwardedFor(text) : [text];
}

/**
 * Goes from the nearest proxy back, as long as each is trusted. An entry that cannot be parsed ends it:
 * nothing before it can be trusted.
 */
function walk(entries: readonly string[], isTrusted: (address: string) => boolean): string[] {
  const walked: string[] = [];
  for (const entry of entries.slice(-HOPS_MAX).reverse()) {
    const address = addressIn(entry);
    if (address === undefined) break;
    walked.push(address);
    if (!isTrusted(address)) break;
  }
  return walked;
}

/** The `for` of each element (RFC 7239); empty if an element has none. */
export function forwardedFor(header: string): string[] {
  // The nearest proxies are at the end; what is cut off was not written by a trusted one.
  const elements = header.slice(-FORWARDED_LENGTH_MAX).match(/(?:"(?:[^"\\]|\\.)*"|[^",])+/g) ?? [];
  return elements.map((element) => {
    const [, quoted, token] = /(?:^|;)\s*for=(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))/i.exec(element) ?? [];
    return quoted?.replace(/\\(.)/g, '$1') ?? token ?? '';
  });
}

/** The address in normal form: without port and zone, IPv4-mapped IPv6 as IPv4. Undefined if it is none. */
export function addressIn(text: string | undefined): string | undefined {
  const bare = text?.trim().replace(/^\[(.*)\](:\d+)?$|^([\d.]+):\d+$/, '$1$3') ?? '';
  const version = isIP(bare);
  if (version === 0) return undefined;
  if (version === 4) return bare;
  const { address } = new SocketAddress({ address: bare, family: 'ipv6' });
  return address.replace(/^::ffff:(?=\d+\.)/, '');
}

/** The first bits, a multiple of 16. */
function networkOf(address: string, bits: 48 | 64): string {
  const [head = '', tail = ''] = address.split('::');
  const [left, right] = [head, tail].map((part) => (part === '' ? [] : part.split(':'))) as [
    string[],
    string[],
  ];
  const zeros = new Array<string>(Math.max(0, 8 - left.length - right.length)).fill('0');
  return `${[...left, ...zeros, ...right].slice(0, bits / 16).join(':')}::/${bits}`;
}

function isForwarded(headers: IncomingHttpHeaders): boolean {
  return FORWARDING.some((name) => headers[name] !== undefined);
}

/**
 * Whether a Host header names this machine. With DNS rebinding, the Host header has the name of the
 * attacker's page.
 */
function isLocalName(header: string | undefined): boolean {
  const host = header
    ?.toLowerCase()
    .replace(/:\d*$/, '')
    .replace(/^\[(.*)\]$/, '$1');
  if (host === undefined) return false;
  return host === 'localhost' || host.endsWith('.localhost') || isLoopback(addressIn(host) ?? '');
}

/** A foreign web page in a local browser may open a websocket to this machine; its Origin reveals that. */
function isLocalOrigin(origin: string | undefined): boolean {
  return origin === undefined || isLocalName(/^https?:\/\/([^/]+)$/i.exec(origin)?.[1]);
}

export function isLoopback(address: string): boolean {
  return address === '::1' || /^(::ffff:)?127\./.test(address);
}
