/** What one client, or one address, can make the node hold (I14), beyond what back-pressure covers. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { SettingKey } from '../src/core/settings.js';
import { QueryGate } from '../src/relay/query-gate.js';
import { writeSetting } from '../src/store/communities.js';
import { RawClient } from './support/client.js';
import { newAuthor } from './support/events.js';
import { startTestNode, type TestNode } from './support/node.js';

let relay: TestNode;
beforeAll(async () => {
  relay = await startTestNode();
});
afterAll(() => relay.close());

async function setting(key: SettingKey, value: number): Promise<void> {
  await writeSetting(relay.database.pool, 1, key, value, Date.now());
  while (relay.node.communities.get(1)?.settings[key] !== value) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

describe('queries of clients', () => {
  const stranger = { rateKey: '203.0.113.1', isLoopback: false };
  const other = { rateKey: '203.0.113.2', isLoopback: false };
  const settled = () => new Promise((resolve) => setImmediate(resolve));

  it('of one address are two at a time, and leave room for others', async () => {
    const gate = new QueryGate();
    const ends: (() => void)[] = [];
    const started: string[] = [];
    const ask = (client: typeof stranger, name: string) =>
      gate.run(client, () => {
        started.push(name);
        return new Promise<void>((resolve) => ends.push(resolve));
      });
    const all = ['a1', 'a2', 'a3', 'a4'].map((name) => ask(stranger, name));
    all.push(ask(other, 'b1'));
    await settled();
    expect(started).toEqual(['a1', 'a2', 'b1']);
    ends[0]!();
    await settled();
    expect(started).toEqual(['a1', 'a2', 'b1', 'a3']);
    while (ends.length > 0) {
      ends.shift()!();
      await settled();
    }
    await Promise.all(all);
    expect(started).toHaveLength(5);
  });

  it('that fail give their place back', async () => {
    const gate = new QueryGate();
    for (let round = 0; round < 20; round += 1) {
      await expect(gate.run(stranger, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    }
    expect(await gate.run(stranger, async () => 'yes')).toBe('yes');
  });
});

describe('a connection', () => {
  it('holds only so many values in its open filters, and is told', async () => {
    await setting('limits.subscriptionValuesMax', 30);
    const client = await RawClient.connect(relay.url);
    const authors = Array.from({ length: 20 }, () => newAuthor().pubkey);
    client.send(['REQ', 'first', { authors }]);
    await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'first');
    client.send(['REQ', 'second', { authors: authors.slice(0, 11) }]);
    const closed = await client.waitFor((frame) => frame[0] === 'CLOSED' && frame[1] === 'second');
    expect(closed[2]).toMatch(/^rate-limited: /);
    client.send(['CLOSE', 'first']);
    client.send(['REQ', 'third', { authors: authors.slice(0, 11) }]);
    await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'third');
    await client.close();
  });

  it('gets a pong for its ping, with what it sent', async () => {
    const client = await RawClient.connect(relay.url);
    const pong = new Promise<string>((resolve) => client.ws.once('pong', (data) => resolve(String(data))));
    client.ws.ping('are you there?');
    expect(await pong).toBe('are you there?');
    await client.close();
  });

  it('of an address that has its share already is refused; other addresses are not', async () => {
    await setting('limits.connectionsPerAddressMax', 2);
    const from = (address: string) => RawClient.connect(relay.url, { 'x-forwarded-for': address });
    const held = [await from('203.0.113.7'), await from('203.0.113.7')];
    await expect(from('203.0.113.7')).rejects.toThrow('429');
    const neighbour = await from('203.0.113.8');
    await held.pop()!.close();
    held.push(await from('203.0.113.7'), neighbour);
    for (const client of held) await client.close();
  });
});

it('a refused COUNT leaves the subscription of the same name open', async () => {
  const client = await RawClient.connect(relay.url);
  client.send(['REQ', 'a', { kinds: [1], limit: 0 }]);
  await client.waitFor((frame) => frame[0] === 'EOSE');
  client.send(['COUNT', 'a', { nonsense: 'x' }]);
  await client.waitFor((frame) => frame[0] === 'CLOSED');
  expect(relay.node.fanout.index(1).size).toBe(1);
  await client.close();
});
