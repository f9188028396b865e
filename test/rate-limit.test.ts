/** The rate of one address: events and queries beyond it are refused, other addresses do not notice. */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { SettingKey } from '../src/core/settings.js';
import { addCommunity, writeSetting } from '../src/store/communities.js';
import { RawClient } from './support/client.js';
import { newAuthor, sign } from './support/events.js';
import { startTestNode, type TestNode } from './support/node.js';

describe('an address', () => {
  let relay: TestNode;
  let nowMs = Date.now();
  const clients: RawClient[] = [];
  const community = () => relay.node.communities.find(undefined, 'default')!;
  const RATES = {
    'rate.eventsPerSecond': 1,
    'rate.eventsBurst': 5,
    'rate.queriesPerSecond': 1,
    'rate.queriesBurst': 3,
  };
  const LIMITED = expect.stringMatching(/^rate-limited: ./);

  async function set(id: number, values: Partial<Record<SettingKey, unknown>>): Promise<void> {
    const entries = Object.entries(values) as [SettingKey, unknown][];
    for (const [key, value] of entries) await writeSetting(relay.database.pool, id, key, value, Date.now());
    await vi.waitUntil(
      () => entries.every(([key, value]) => relay.node.communities.get(id)?.settings[key] === value),
      { timeout: 10_000 },
    );
  }

  async function from(address: string | undefined, path = ''): Promise<RawClient> {
    const client = await RawClient.connect(
      relay.url + path,
      address === undefined ? {} : { 'x-forwarded-for': address },
    );
    clients.push(client);
    return client;
  }
  const post = (client: RawClient, count: number) =>
    Promise.all(Array.from({ length: count }, () => client.publish(sign(newAuthor()))));
  const accepted = (replies: [boolean, string][]) => replies.filter(([ok]) => ok).length;

  beforeAll(async () => {
    // The clock stands still unless a test moves it, so that no bucket refills by itself.
    relay = await startTestNode({ now: () => nowMs });
    await set(community().id, RATES);
  });
  afterEach(async () => {
    await Promise.all(clients.splice(0).map((client) => client.close()));
  });
  afterAll(() => relay.close());

  it('gets OK false for events beyond its burst, and none of them is stored', async () => {
    const client = await from('203.0.113.9');
    const events = Array.from({ length: 8 }, () => sign(newAuthor()));
    const replies: [boolean, string][] = [];
    for (const event of events) replies.push(await client.publish(event));
    expect(replies).toEqual([...new Array(5).fill([true, '']), ...new Array(3).fill([false, LIMITED])]);
    const reader = await from(undefined);
    expect((await reader.query({ ids: events.map((event) => event.id) })).events).toHaveLength(5);
  });

  it('has one burst over all of its connections, and refills with time', async () => {
    const first = await from('203.0.113.10');
    const second = await from('203.0.113.10');
    expect(accepted(await post(first, 3))).toBe(3);
    expect(accepted(await post(second, 3))).toBe(2);
    nowMs += 2_000;
    expect(accepted(await post(first, 4))).toBe(2);
  });

  it('gets CLOSED for REQ and COUNT beyond its burst, and may still post', async () => {
    const client = await from('203.0.113.11');
    expect(await client.query({ kinds: [7_777] })).toEqual({ events: [] });
    expect(await client.query({ kinds: [7_777] })).toEqual({ events: [] });
    const start = client.frames.length;
    client.send(['COUNT', 'c', { kinds: [1] }]);
    expect((await client.waitFor((frame) => frame[1] === 'c', start))[0]).toBe('COUNT');
    expect(await client.query({ kinds: [7_777] })).toEqual({ events: [], closed: LIMITED });
    const next = client.frames.length;
    client.send(['COUNT', 'c', { kinds: [1] }]);
    expect(await client.waitFor((frame) => frame[1] === 'c', next)).toEqual(['CLOSED', 'c', LIMITED]);
    expect(await post(client, 1)).toEqual([[true, '']]);
  });

  it('pays for malformed events too', async () => {
    const client = await from('203.0.113.12');
    const bad = () => client.publish({ id: `${Math.random()}` });
    for (let at = 0; at < 5; at++) expect((await bad())[1]).toMatch(/^invalid: /);
    expect(await bad()).toEqual([false, LIMITED]);
    expect(await post(client, 1)).toEqual([[false, LIMITED]]);
  });

  it('does not slow down another address', async () => {
    const busy = await from('203.0.113.13');
    expect(accepted(await post(busy, 7))).toBe(5);
    expect(accepted(await post(await from('203.0.113.14'), 5))).toBe(5);
    expect(accepted(await post(await from('2001:db8::1'), 5))).toBe(5);
  });

  it('is the one that the proxy names last: what the client itself wrote before it counts for nothing', async () => {
    expect(accepted(await post(await from('198.51.100.1, 203.0.113.15'), 5))).toBe(5);
    expect(accepted(await post(await from('127.0.0.1, 203.0.113.15'), 1))).toBe(0);
    expect(accepted(await post(await from('203.0.113.15'), 1))).toBe(0);
  });

  it('has a burst of its own in each community', async () => {
    const id = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
    await set(id, { ...RATES, 'topic.mode': 'open' });
    expect(accepted(await post(await from('203.0.113.16'), 6))).toBe(5);
    expect(accepted(await post(await from('203.0.113.16', '/c/art'), 6))).toBe(5);
  });

  it('on this machine is exempt, until the setting says otherwise', async () => {
    const client = await from(undefined);
    expect(accepted(await post(client, 12))).toBe(12);
    for (let at = 0; at < 6; at++) expect((await client.query({ kinds: [7_777] })).closed).toBeUndefined();
    await set(community().id, { 'rate.exemptLoopback': false });
    expect(accepted(await post(client, 12))).toBe(5);
    await set(community().id, { 'rate.exemptLoopback': true });
    expect(accepted(await post(client, 12))).toBe(12);
  });
});
