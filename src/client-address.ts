/** Where a request comes from. Rates and bounds go by it, so only a trusted proxy may say it for its clients. */
import type { IncomingMessage } from 'node:http';

export interface ClientAddress {
  readonly address: string;
  readonly isLoopback: boolean;
}

/** Behind a proxy on this machine, the client is the one that the proxy names last. */
export function clientAddress(request: IncomingMessage): ClientAddress {
  const peer = request.socket.remoteAddress ?? '';
  const forwarded = request.headers['x-forwarded-for'] ?? request.headers['x-real-ip'];
  const named = (Array.isArray(forwarded) ? forwarded.join(',') : forwarded)?.split(',').at(-1)?.trim();
  const address = isLoopback(peer) && named ? named : peer;
  return { address, isLoopback: isLoopback(address) };
}

export function isLoopback(address: string): boolean {
  return address === '::1' || /^(::ffff:)?127\./.test(address);
}
