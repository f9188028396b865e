/** Parses networks as an operator writes them: one address, or a range (CIDR). Pure. */
import ipaddr from 'ipaddr.js';
import { z } from 'zod';

type Address = ipaddr.IPv4 | ipaddr.IPv6;

interface Network {
  /** Its first address. */
  readonly address: Address;
  /** The number of leading bits that its addresses share. */
  readonly prefix: number;
}

const ADDRESS = z.union([z.ipv4(), z.ipv6()]);
const BITS = { ipv4: 32, ipv6: 128 } as const;
const HOST_BITS = 64;
const MAPPED_BITS = 96;
const LOOPBACK: readonly Network[] = [
  { address: ipaddr.IPv4.parse('127.0.0.0'), prefix: 8 },
  { address: ipaddr.IPv6.parse('::1'), prefix: 128 },
];

/** The network in normal form, `192.0.2.0/24`, or the problem as a message for the operator. */
export function checkNetwork(text: string): { readonly network: string } | { readonly problem: string } {
  const network = parseNetwork(text.trim());
  if (network === undefined)
    return { problem: 'an address such as 192.0.2.1 or 2001:db8::1, or a network such as 192.0.2.0/24' };
  if (LOOPBACK.some((loopback) => overlap(loopback, network)))
    return { problem: 'the addresses of this machine itself (127.0.0.0/8, ::1) cannot be blocked' };
  return { network: `${network.address.toString()}/${network.prefix}` };
}

export function holdsAddress(network: string, address: string): boolean {
  const [one, other] = [parseNetwork(network), parseNetwork(address)];
  return one !== undefined && other !== undefined && overlap(one, other);
}

function parseNetwork(text: string): Network | undefined {
  const [, name = '', bits] = /^([0-9a-f:.]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  // ipaddr.js alone also reads octal numbers and short forms such as 192.0.2.
  if (!ADDRESS.safeParse(name).success) return undefined;
  const address = ipaddr.parse(name);
  const prefix = Number(bits ?? BITS[address.kind()]);
  if (prefix > BITS[address.kind()]) return undefined;
  const network = withoutMapping(masked(address, prefix));
  // A host can use any address of its /64, so blocking one of them would have no effect.
  const isHost6 = bits === undefined && network.address.kind() === 'ipv6';
  return isHost6 ? masked(network.address, HOST_BITS) : network;
}

/** A client with an IPv4-mapped IPv6 address is known by its IPv4 address. */
function withoutMapping({ address, prefix }: Network): Network {
  return isIPv6(address) && address.isIPv4MappedAddress() && prefix >= MAPPED_BITS
    ? { address: address.toIPv4Address(), prefix: prefix - MAPPED_BITS }
    : { address, prefix };
}

function masked(address: Address, prefix: number): Network {
  const cidr = `${address.toString()}/${prefix}`;
  const family = isIPv6(address) ? ipaddr.IPv6 : ipaddr.IPv4;
  return { address: family.networkAddressFromCIDR(cidr), prefix };
}

/** Two networks are disjoint, or one contains the other. */
function overlap(one: Network, two: Network): boolean {
  if (one.address.kind() !== two.address.kind()) return false;
  return one.address.match(two.address, Math.min(one.prefix, two.prefix));
}

function isIPv6(address: Address): address is ipaddr.IPv6 {
  return address.kind() === 'ipv6';
}
