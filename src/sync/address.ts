/**
 * Which addresses a peer may have. Peers of a community are set by its operators, who need not be operators
 * of the node: they must not reach services of this machine or of its network.
 */
import { lookup as resolve } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';
import { PeerFailure } from './peer-failure.js';

function isPublic(address: string): boolean {
  return ipaddr.process(address).range() === 'unicast';
}

/** Undefined where every address is allowed. Throws for an address that is not. */
export function lookupFor(url: string, allowsPrivate: boolean): LookupFunction | undefined {
  if (allowsPrivate) return undefined;
  const host = new URL(url).hostname.replace(/^\[|\]$/g, '');
  // An address is not looked up.
  if (isIP(host) !== 0 && !isPublic(host)) throw notAllowed(host);
  return (name, options, done) => {
    resolve(name, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return done(error, []);
      const hidden = addresses.find(({ address }) => !isPublic(address));
      if (hidden !== undefined) return done(notAllowed(name), []);
      if (options.all) return done(null, addresses);
      const [first] = addresses;
      if (first === undefined) return done(new Error(`${name} has no address`), []);
      done(null, first.address, first.family);
    });
  };
}

function notAllowed(host: string): PeerFailure {
  return new PeerFailure(
    'unreachable',
    `${host} is an address of this machine or of a private network (node.syncPrivatePeers)`,
  );
}
