/**
 * Limits the connections that are held while the node starts by their address and network (I14, I18), as the
 * port does once it serves (connections.ts): so nobody takes the places of all others. Which proxies are
 * trusted is read from the environment, as the address of the port is (rules-early.ts): they have many
 * clients, and are not limited. Loaded before the rest of the program, so it imports little.
 */
import type { Socket } from 'node:net';
import { Counts } from '../limits/counts.js';
import { ADDRESSES_PER_NETWORK } from '../limits/work.js';
import { type Addresses, createAddresses } from './client-address.js';
import { CONNECTION_BOUNDS, keysOf } from './connections.js';

const TRUSTED_DEFAULT = 'loopback';

/** Not checked: the configuration refuses what is none. */
export function earlyProxies(env: Readonly<Record<string, string | undefined>>): string[] {
  const list = env.MINATO_TRUSTED_PROXIES || TRUSTED_DEFAULT;
  return list.split(',').flatMap((name) => (name.trim() === '' ? [] : [name.trim()]));
}

export class EarlyPeers {
  private readonly addresses: Pick<Addresses, 'ofPeer'>;
  private readonly counts = new Counts<string>();
  private readonly held = new Map<Socket, readonly string[]>();

  /** Throws for a proxy that is no address or network. */
  constructor(
    trustedProxies: readonly string[],
    private readonly perAddressMax = CONNECTION_BOUNDS.perAddressMax,
  ) {
    this.addresses = createAddresses({ trustedProxies });
  }

  /** False if its address or network holds as many as it may. */
  hold(socket: Socket): boolean {
    const client = this.addresses.ofPeer(socket);
    if (client === undefined) return true;
    const keys = keysOf(client);
    const maxOf = (key: string) => this.perAddressMax * (key === client.rateKey ? 1 : ADDRESSES_PER_NETWORK);
    if (keys.some((key) => this.counts.of(key) >= maxOf(key))) return false;
    for (const key of keys) this.counts.add(key, 1);
    this.held.set(socket, keys);
    return true;
  }

  release(socket: Socket): void {
    for (const key of this.held.get(socket) ?? []) this.counts.add(key, -1);
    this.held.delete(socket);
  }
}
