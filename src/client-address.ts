/** Where a request comes from. Rates and bounds go by it, so only a trusted proxy may say it for its clients. */
import type { IncomingMessage } from 'node:http';
import { isIP, SocketAddress } from 'node:net';
import { compile as compileTrust, all as hopsOf } from '@fastify/proxy-addr';

export interface ClientAddress {
  readonly address: string;
  /** What rates and bounds count by: of IPv6 the network of the host, which has 2^64 addresses to choose from. */
  readonly rateKey: string;
  /** A client on this machine; not one that a proxy on this machine speaks for. */
  readonly isLoopback: boolean;
}

export type AddressOf = (request: IncomingMessage) => ClientAddress;

const FORWARDING = ['x-forwarded-for', 'x-real-ip', 'forwarded'] as const;

/** Believes what trusted proxies say, from the nearest on as far as each is trusted in turn. */
export function createAddressOf(trustedProxies: readonly string[]): AddressOf {
  const trusts = compileTrust([...trustedProxies]);
  return (request) => {
    const peer = addressIn(request.socket.remoteAddress);
    if (peer === undefined) return { address: '', rateKey: '', isLoopback: false };
    const named = namedBy(request, trusts);
    const address = named.at(-1) ?? peer;
    // A proxy that was not believed or not understood still speaks for others, who are not on this machine.
    const direct = named.length > 0 || FORWARDING.every((name) => request.headers[name] === undefined);
    const rateKey = isIP(address) === 6 ? networkOf(address) : address;
    return { address, rateKey, isLoopback: direct && [peer, ...named].every(isLoopback) };
  };
}

/** Those that trusted hops name, the nearest first. What cannot be read ends it: nobody can have vouched for more. */
function namedBy(request: IncomingMessage, trusts: (address: string, hop: number) => boolean): string[] {
  const [peer, ...hops] = hopsOf(request, trusts);
  if (hops.length === 0 && trusts(peer!, 0)) hops.push(String(request.headers['x-real-ip'] ?? ''));
  const addresses = hops.map(addressIn);
  const unreadable = addresses.indexOf(undefined);
  return addresses.slice(0, unreadable === -1 ? undefined : unreadable) as string[];
}

/** In its one spelling: without port and zone, IPv4 in the clothes of IPv6 as IPv4. Undefined when it is none. */
function addressIn(text: string | undefined): string | undefined {
  const bare = text?.trim().replace(/^\[(.*)\](:\d+)?$|^([\d.]+):\d+$/, '$1$3') ?? '';
  const version = isIP(bare);
  if (version === 0) return undefined;
  if (version === 4) return bare;
  const { address } = new SocketAddress({ address: bare, family: 'ipv6' });
  return address.replace(/^::ffff:(?=\d+\.)/, '');
}

/** The first 64 bits. */
function networkOf(address: string): string {
  const [head = '', tail = ''] = address.split('::');
  const [left, right] = [head, tail].map((part) => (part === '' ? [] : part.split(':'))) as [
    string[],
    string[],
  ];
  const zeros = new Array<string>(Math.max(0, 8 - left.length - right.length)).fill('0');
  return `${[...left, ...zeros, ...right].slice(0, 4).join(':')}::/64`;
}

export function isLoopback(address: string): boolean {
  return address === '::1' || /^(::ffff:)?127\./.test(address);
}
