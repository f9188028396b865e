/** Limits on what the node keeps for one client or one address (I14), beyond back-pressure. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { OpenValues } from '../../src/relay/open-values.js';
import { QueryGate } from '../../src/relay/query-gate.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

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
  const from = (address: string) => ({
    client: { rateKey: address, networkKey: address },
    community: 1,
    isExempt: false,
  });
  const stranger = from('203.0.113.1');
  const other = from('203.0.113.2');
  const light = { class: 'light', ms: 1 } as const;
  const settled = () => new Promise((resolve) => setImmediate(resolve));

  it('of one address run two at a time, and leave room for others', async () => {
    const gate = new QueryGate();
    const ends: (() => void)[] = [];
    const started: string[] = [];
    const ask = (client: typeof stranger, name: string) =>
      gate.run(client, light, () => {
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

  it('that fail release their slot', async () => {
    const gate = new QueryGate();
    for (let round = 0; round < 20; round += 1) {
      await expect(gate.run(stranger, light, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    }
    expect(await gate.run(stranger, light, async () => 'yes')).toBe('yes');
  });
});

describe('a connection', () => {
  it('may have thirty timelines of 2,000 authors open at once', async () => {
    const client = await RawClient.connect(relay.url);
    const authors = Array.from({ length: 2_000 }, (_, n) => n.toString(16).padStart(64, '0'));
    const names = Array.from({ length: 30 }, (_, n) => `timeline ${n}`);
    for (const name of names) client.send(['REQ', name, { kinds: [1], authors, limit: 10 }]);
    for (const name of names) {
      const [word] = await client.waitFor(([word, id]) => word !== 'EVENT' && id === name);
      expect(word).toBe('EOSE');
    }
    await client.close();
  });

  it('has a limited number of values in its open filters, and gets an error beyond it', async () => {
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

  it('has those of COUNTs that wait among them', async () => {
    await setting('limits.subscriptionValuesMax', 30);
    const client = await RawClient.connect(relay.url);
    const authors = Array.from({ length: 20 }, () => newAuthor().pubkey);
    const run = vi.spyOn(QueryGate.prototype, 'run');
    const slots: (() => void)[] = [];
    run.mockImplementation(async (_, { class: kind }, query) => {
      await new Promise<void>((resolve) => slots.push(resolve));
      return query(kind);
    });
    client.send(['COUNT', 'first', { authors }]);
    client.send(['COUNT', 'second', { authors: authors.slice(0, 11) }]);
    client.send(['REQ', 'third', { authors: authors.slice(0, 11) }]);
    for (const id of ['second', 'third']) {
      const closed = await client.waitFor(([verb, of]) => verb === 'CLOSED' && of === id);
      expect(closed[2]).toMatch(/^rate-limited: more than 30 values /);
    }
    run.mockRestore();
    for (const begin of slots) begin();
    await client.waitFor(([verb, of]) => verb === 'COUNT' && of === 'first');
    client.send(['COUNT', 'fourth', { authors: authors.slice(0, 11) }]);
    await client.waitFor(([verb, of]) => verb === 'COUNT' && of === 'fourth');
    await client.close();
  });

  it('takes a place for each filter, also for one without values, until it closes', async () => {
    const take = vi.spyOn(OpenValues.prototype, 'take');
    const giveBack = vi.spyOn(OpenValues.prototype, 'giveBack');
    const client = await RawClient.connect(relay.url);
    const bare = Array.from({ length: 10 }, () => ({ until: 1, limit: 0 }));
    client.send(['REQ', 'bare', ...bare]);
    await client.waitFor(([verb, of]) => verb === 'EOSE' && of === 'bare');
    client.send(['CLOSE', 'bare']);
    client.send(['COUNT', 'bare', ...bare]);
    await client.waitFor(([verb, of]) => verb === 'COUNT' && of === 'bare');
    await client.close();
    expect(take.mock.calls.map(([, weight]) => weight)).toEqual([200, 200]);
    expect(giveBack.mock.calls.map(([, weight]) => weight)).toEqual([200, 200]);
    vi.restoreAllMocks();
  });

  it('gets a pong for its ping, with the same payload', async () => {
    const client = await RawClient.connect(relay.url);
    const pong = new Promise<string>((resolve) => client.ws.once('pong', (data) => resolve(String(data))));
    client.ws.ping('are you there?');
    expect(await pong).toBe('are you there?');
    await client.close();
  });

  it('of an address that has its maximum is refused; other addresses are not', async () => {
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

it('a network has the sockets of four addresses, however many addresses it has', async () => {
  await setting('limits.connectionsPerAddressMax', 2);
  const from = (address: string) => RawClient.connect(relay.url, { 'x-forwarded-for': address });
  const held: RawClient[] = [];
  for (let host = 0; host < 8; host += 1) held.push(await from(`2001:db8:7:${host}::1`));
  await expect(from('2001:db8:7:ff::1')).rejects.toThrow('429');
  held.push(await from('2001:db8:8::1'));
  for (const client of held) await client.close();
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
