/** Networks as an operator writes them: one address, or all that begin alike (CIDR). Pure. */
import { z } from 'zod';

export interface Network {
  readonly family: 4 | 6;
  /** Its first address. */
  readonly value: bigint;
  /** How many bits its addresses share. */
  readonly prefix: number;
}

const BITS = { 4: 32, 6: 128 } as const;
const HOST_BITS = 64;
const LOOPBACK: readonly Network[] = [
  { family: 4, value: 127n << 24n, prefix: 8 },
  { family: 6, value: 1n, prefix: 128 },
];
/** IPv4 in the clothes of IPv6: such clients are known by their IPv4 address. */
const MAPPED: Network = { family: 6, value: 0xffffn << 32n, prefix: 96 };

/** In its one spelling, `192.0.2.0/24`. The problem is a sentence for the operator. */
export function checkNetwork(text: string): { readonly network: string } | { readonly problem: string } {
  const network = parseNetwork(text.trim());
  if (network === undefined)
    return { problem: 'an address such as 192.0.2.1 or 2001:db8::1, or a network such as 192.0.2.0/24' };
  if (LOOPBACK.some((loopback) => overlap(loopback, network)))
    return { problem: 'the addresses of this machine itself (127.0.0.0/8, ::1) cannot be blocked' };
  return { network: networkText(network) };
}

export function holdsAddress(network: string, address: string): boolean {
  const [one, other] = [parseNetwork(network), parseNetwork(address)];
  return one !== undefined && other !== undefined && overlap(one, other);
}

export function parseNetwork(text: string): Network | undefined {
  const [, address = '', bits] = /^([0-9a-f:.]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const family = z.ipv4().safeParse(address).success
    ? 4
    : z.ipv6().safeParse(address).success
      ? 6
      : undefined;
  if (family === undefined) return undefined;
  const prefix = Number(bits ?? BITS[family]);
  if (prefix > BITS[family]) return undefined;
  const network = withoutMapping(
    masked({ family, value: family === 4 ? value4(address) : value6(address), prefix }),
  );
  // A host has a whole /64 to choose its addresses from: one of them alone would be no block.
  return bits === undefined && network.family === 6 ? masked({ ...network, prefix: HOST_BITS }) : network;
}

function withoutMapping(network: Network): Network {
  if (network.prefix < MAPPED.prefix || !overlap(MAPPED, network)) return network;
  return { family: 4, value: network.value & 0xffff_ffffn, prefix: network.prefix - MAPPED.prefix };
}

function masked({ family, value, prefix }: Network): Network {
  const rest = BigInt(BITS[family] - prefix);
  return { family, value: (value >> rest) << rest, prefix };
}

/** Two networks are apart, or one holds the other. */
function overlap(one: Network, two: Network): boolean {
  if (one.family !== two.family) return false;
  const prefix = Math.min(one.prefix, two.prefix);
  return masked({ ...one, prefix }).value === masked({ ...two, prefix }).value;
}

function value4(address: string): bigint {
  return address.split('.').reduce((value, part) => (value << 8n) | BigInt(part), 0n);
}

function value6(address: string): bigint {
  const plain = address.replace(/[\d.]+\.[\d.]+$/, (tail) => {
    const value = value4(tail);
    return `${(value >> 16n).toString(16)}:${(value & 0xffffn).toString(16)}`;
  });
  const [left, right] = plain.split('::').map((half) => half.split(':').filter((group) => group !== ''));
  const zeros = Array.from({ length: 8 - left!.length - (right?.length ?? 0) }, () => '0');
  const groups = right === undefined ? left! : [...left!, ...zeros, ...right];
  return groups.reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n);
}

function networkText({ family, value, prefix }: Network): string {
  return `${family === 4 ? text4(value) : text6(value)}/${prefix}`;
}

function text4(value: bigint): string {
  return [24n, 16n, 8n, 0n].map((shift) => String((value >> shift) & 0xffn)).join('.');
}

/** A URL spells an address in its shortest form. */
function text6(value: bigint): string {
  const groups = Array.from({ length: 8 }, (_, at) =>
    ((value >> BigInt(112 - 16 * at)) & 0xffffn).toString(16),
  );
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1);
}
