import { Socket } from 'node:net';
import { expect, it } from 'vitest';
import { readConfig } from '../node/config.js';
import { namePeer } from './client-address.js';
import { EarlyPeers, earlyProxies } from './early-peers.js';

function socketOf(address: string): Socket {
  const socket = new Socket();
  namePeer(socket, address);
  return socket;
}

it('an address holds as many as it may, and a network (an IPv6 /48) four times as many', () => {
  const peers = new EarlyPeers([], 2);
  const first = socketOf('2001:db8:1:1::1');
  expect(peers.hold(first)).toBe(true);
  expect(peers.hold(socketOf('2001:db8:1:1::2'))).toBe(true);
  expect(peers.hold(socketOf('2001:db8:1:1::3'))).toBe(false);
  for (const host of [2, 2, 3, 3, 4, 4]) expect(peers.hold(socketOf(`2001:db8:1:${host}::1`))).toBe(true);
  expect(peers.hold(socketOf('2001:db8:1:5::1'))).toBe(false);
  expect(peers.hold(socketOf('2001:db8:2:1::1'))).toBe(true);
  for (const expected of [true, true, false]) expect(peers.hold(socketOf('192.0.2.1'))).toBe(expected);
  peers.release(first);
  peers.release(first);
  expect(peers.hold(socketOf('2001:db8:1:5::1'))).toBe(true);
  expect(peers.hold(socketOf('2001:db8:1:5::1'))).toBe(false);
});

it('a trusted proxy, which has many clients, is not limited', () => {
  const peers = new EarlyPeers(['loopback', '10.0.0.0/8'], 1);
  for (const address of ['127.0.0.1', '::1', '10.1.2.3'])
    for (let count = 0; count < 3; count += 1) expect(peers.hold(socketOf(address))).toBe(true);
});

it.each([
  [{}],
  [{ MINATO_TRUSTED_PROXIES: '' }],
  [{ MINATO_TRUSTED_PROXIES: ' loopback , 10.0.0.0/8,' }],
  [{ MINATO_TRUSTED_PROXIES: '192.0.2.1' }],
])('the proxies that are trusted early are those of the whole configuration: %j', (env) => {
  expect(earlyProxies(env)).toEqual(readConfig(env).trustedProxies);
});
