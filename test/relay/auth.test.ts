/**
 * NIP-42 over real sockets: who a client is, what is private, and a community that serves the authenticated
 * only.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { authenticate, challengeOf, proofOf } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

let relay: TestNode;
let second: TestNode;
let skewMs = 0;
const clients: RawClient[] = [];
const community = (slug = 'default') => relay.node.communities.find(undefined, slug)!;

async function connect(node = relay, path = ''): Promise<RawClient> {
  const client = await RawClient.connect(node.url + path);
  clients.push(client);
  return client;
}

async function set(values: Partial<Record<SettingKey, unknown>>, slug = 'default'): Promise<void> {
  const entries = Object.entries(values) as [SettingKey, unknown][];
  for (const [key, value] of entries) {
    await writeSetting(relay.database.pool, community(slug).id, key, value, Date.now() + skewMs);
  }
  const isThere = (node: TestNode) =>
    entries.every(
      ([key, value]) =>
        JSON.stringify(node.node.communities.find(undefined, slug)?.settings[key]) === JSON.stringify(value),
    );
  await vi.waitUntil(() => isThere(relay) && isThere(second), { timeout: 100_000 });
}

beforeAll(async () => {
  const now = () => Date.now() + skewMs;
  relay = await startTestNode({ now });
  second = await startTestNode({ on: relay.test, now });
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => community('art') !== undefined, { timeout: 100_000 });
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});
afterAll(async () => {
  await second.close();
  await relay.close();
});

describe('a proof of a key', () => {
  it('is requested only when an answer needs it, with one challenge per connection', async () => {
    const [one, other] = [await connect(), await connect()];
    expect((await one.query({ kinds: [1] }, { authors: [newAuthor().pubkey] })).closed).toBeUndefined();
    expect(await one.publish(sign(newAuthor()))).toEqual([true, '']);
    expect(one.challenges).toEqual([]);
    expect((await one.query({ kinds: [4] })).closed).toMatch(/^auth-required: /);
    expect((await one.publish(sign(newAuthor(), { tags: [['-']] })))[1]).toMatch(/^auth-required: /);
    expect(one.challenges).toHaveLength(2);
    expect(new Set(one.challenges)).toEqual(new Set([one.challenge]));
    expect(one.challenge).toMatch(/^[0-9a-f]{32}$/);
    expect(one.challenge).not.toBe(await challengeOf(other));
  });

  it('is requested right before the answer that needs it', async () => {
    const client = await connect();
    const verbs: string[] = [];
    client.ws.on('message', (data) => verbs.push(JSON.parse(String(data))[0]));
    await client.query({ kinds: [1059] });
    await client.publish(sign(newAuthor(), { tags: [['-']] }));
    expect(verbs).toEqual(['AUTH', 'CLOSED', 'AUTH', 'OK']);
  });

  it('is accepted for this relay, by each of its addresses', async () => {
    const { port } = relay.node;
    for (const address of [relay.url, `${relay.url}/`, `ws://localhost:${port}`]) {
      expect(await authenticate(await connect(), newAuthor(), address)).toEqual([true, '']);
    }
  });

  it('of another connection, another relay or another community is refused', async () => {
    const [mine, yours] = [await connect(), await connect()];
    const alice = newAuthor();
    const stolen = await proofOf(yours, alice, relay.url);
    mine.send(['AUTH', stolen]);
    const [, , accepted, why] = await mine.waitFor(([verb]) => verb === 'OK');
    expect([accepted, why]).toEqual([false, expect.stringMatching(/^invalid: the challenge/)]);
    for (const address of ['wss://evil.example', `${relay.url}/c/art`, `ws://127.0.0.1:1`]) {
      const words = [false, expect.stringMatching(/^invalid: the relay tag/)];
      expect(await authenticate(mine, alice, address)).toEqual(words);
    }
    const art = await connect(relay, '/c/art');
    expect((await authenticate(art, alice, relay.url))[0]).toBe(false);
    expect(await authenticate(art, alice, `${relay.url}/c/art`)).toEqual([true, '']);
  });

  it('is refused when it is stale, of another kind, or badly signed', async () => {
    const client = await connect();
    const alice = newAuthor();
    const old = Math.floor(Date.now() / 1_000) - 700;
    expect((await authenticate(client, alice, relay.url, { created_at: old }))[1]).toMatch(/^invalid: /);
    expect((await authenticate(client, alice, relay.url, { kind: 1 }))[1]).toMatch(/^invalid: /);
    const proof = await proofOf(client, alice, relay.url);
    client.send(['AUTH', { ...proof, sig: 'a'.repeat(128) }]);
    const [, , accepted, why] = await client.waitFor(([verb, id]) => verb === 'OK' && id === proof.id);
    expect([accepted, why]).toEqual([false, expect.stringMatching(/^invalid: .*signature/)]);
    const private4 = { kinds: [4], authors: [alice.pubkey] };
    expect((await client.query(private4)).closed).toMatch(/^auth-required: /);
  });

  it('is hinted at once, without a challenge, by a REQ with private kinds among others', async () => {
    const [client, alice] = [await connect(), newAuthor()];
    const verbs: string[] = [];
    client.ws.on('message', (data) => verbs.push(JSON.parse(String(data))[0]));
    const note = sign(alice, { content: 'for all' });
    const secret = sign(alice, { kind: 4, tags: [['p', newAuthor().pubkey]] });
    for (const event of [note, secret]) expect(await client.publish(event)).toEqual([true, '']);
    const asked = { kinds: [1, 4], authors: [alice.pubkey] };
    expect(await client.query(asked)).toEqual({ events: [note] });
    expect(verbs).toEqual(['OK', 'OK', 'NOTICE', 'EVENT', 'EOSE']);
    expect(client.frames.find(([verb]) => verb === 'NOTICE')?.[1]).toMatch(/^auth-required: private kinds/);
    expect(await client.query({ kinds: [4] }, { kinds: [1], authors: [alice.pubkey] })).toEqual({
      events: [note],
    });
    expect(client.challenges).toEqual([]);
    expect((await client.query({ kinds: [4] })).closed).toMatch(/^auth-required: /);
    await authenticate(client, alice, relay.url);
    expect((await client.query(asked)).events).toHaveLength(2);
    expect(verbs.filter((verb) => verb === 'NOTICE')).toHaveLength(1);
  });

  it('is processed before the frames that follow it, though the client does not wait', async () => {
    const client = await connect();
    const alice = newAuthor();
    const proof = await proofOf(client, alice, relay.url);
    client.send(['AUTH', proof]);
    client.send(['REQ', 'own', { kinds: [4], authors: [alice.pubkey] }]);
    client.send(['EVENT', sign(alice, { tags: [['-']] })]);
    await client.waitFor(([verb]) => verb === 'EOSE');
    await client.until(() => client.frames.filter(([verb]) => verb === 'OK').length === 2);
    expect(client.frames.filter(([verb]) => verb === 'OK').map((frame) => frame[2])).toEqual([true, true]);
  });

  it('of up to twenty keys counts on one connection', async () => {
    const client = await connect();
    for (let at = 0; at < 20; at++)
      expect(await authenticate(client, newAuthor(), relay.url)).toEqual([true, '']);
    expect((await authenticate(client, newAuthor(), relay.url))[1]).toMatch(/^error: more than 20 keys/);
  });

  it('a malformed one is answered, and the connection stays open', async () => {
    const client = await connect();
    client.send(['AUTH', 'challenge']);
    expect((await client.waitFor(([verb]) => verb === 'NOTICE'))[1]).toMatch(/^invalid: AUTH needs/);
    client.send(['AUTH', { id: 'x' }]);
    expect((await client.waitFor(([verb, id]) => verb === 'OK' && id === 'x'))[2]).toBe(false);
  });
});

describe('a private event', () => {
  const [alice, bob, carol] = [newAuthor(), newAuthor(), newAuthor()];
  const note = () => sign(alice, { kind: 4, tags: [['p', bob.pubkey]], content: `${Math.random()}` });

  it('reaches its author and its recipient only, stored and live, on every instance', async () => {
    const as = async (author: typeof alice | undefined, node: TestNode) => {
      const client = await connect(node);
      if (author !== undefined) await authenticate(client, author, node.url);
      client.send(['REQ', 'live', { authors: [alice.pubkey] }]);
      await client.waitFor(([verb]) => verb === 'EOSE');
      return client;
    };
    const parties = [await as(alice, relay), await as(bob, second)];
    const others = [await as(carol, relay), await as(undefined, relay), await as(undefined, second)];
    const event = note();
    const after = sign(alice, { content: `mark ${Math.random()}` });
    expect(await others[1]!.publish(event)).toEqual([true, '']);
    expect(await others[1]!.publish(after)).toEqual([true, '']);
    const seen = async (client: RawClient) => {
      await client.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as { id: string }).id === after.id);
      return client.frames.flatMap((frame) =>
        frame[0] === 'EVENT' ? [(frame[2] as { id: string }).id] : [],
      );
    };
    for (const client of parties) expect(await seen(client)).toEqual([event.id, after.id]);
    for (const client of others) expect(await seen(client)).toEqual([after.id]);
    const filters = [
      { ids: [event.id] },
      { authors: [alice.pubkey] },
      { '#p': [bob.pubkey] },
      { kinds: [1, 4] },
    ];
    for (const filter of filters) {
      // Twice, so that the second is answered from memory.
      for (let at = 0; at < 2; at++) {
        const isThere = async (client: RawClient) =>
          (await client.query({ ...filter, limit: 5 })).events.some(({ id }) => id === event.id);
        for (const client of parties) expect(await isThere(client)).toBe(true);
        for (const client of others) expect(await isThere(client)).toBe(false);
      }
    }
  });

  it('is not counted for others', async () => {
    const dave = newAuthor();
    const reader = await connect();
    await reader.publish(sign(dave, { kind: 4, tags: [['p', bob.pubkey]] }));
    await reader.publish(sign(dave, { kind: 1 }));
    const count = async () => {
      const from = reader.frames.length;
      reader.send(['COUNT', 'c', { authors: [dave.pubkey] }]);
      return (await reader.waitFor((frame) => frame[1] === 'c', from))[2];
    };
    expect(await count()).toEqual({ count: 1 });
    await authenticate(reader, carol, relay.url);
    expect(await count()).toEqual({ count: 1 });
    await authenticate(reader, bob, relay.url);
    expect(await count()).toEqual({ count: 2 });
  });

  it('cannot be queried by a stranger: the REQ and the COUNT are closed with the reason', async () => {
    const client = await connect();
    const closed = expect.stringMatching(/^auth-required: /);
    expect(await client.query({ kinds: [1059], '#p': [bob.pubkey] })).toEqual({ events: [], closed });
    client.send(['COUNT', 'c', { kinds: [4] }]);
    expect(await client.waitFor((frame) => frame[1] === 'c')).toEqual(['CLOSED', 'c', closed]);
  });

  it('an ephemeral gift wrap reaches its recipient alone', async () => {
    const [reader, other] = [await connect(), await connect()];
    await authenticate(reader, bob, relay.url);
    for (const client of [reader, other]) {
      client.send(['REQ', 'live', { '#p': [bob.pubkey], limit: 0 }]);
      await client.waitFor(([verb]) => verb === 'EOSE');
    }
    const wrap = sign(newAuthor(), { kind: 21_059, tags: [['p', bob.pubkey]] });
    const mark = sign(newAuthor(), { kind: 20_001, tags: [['p', bob.pubkey]] });
    await other.publish(wrap);
    await other.publish(mark);
    const ids = async (client: RawClient) => {
      await client.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as { id: string }).id === mark.id);
      return client.frames.flatMap((frame) =>
        frame[0] === 'EVENT' ? [(frame[2] as { id: string }).id] : [],
      );
    };
    expect(await ids(reader)).toEqual([wrap.id, mark.id]);
    expect(await ids(other)).toEqual([mark.id]);
  });

  it('which kinds are private is a setting, and it holds for open subscriptions as well', async () => {
    const reader = await connect();
    reader.send(['REQ', 'live', { '#x': ['secret'] }]);
    await reader.waitFor(([verb]) => verb === 'EOSE');
    await set({ 'auth.privateKinds': [4, 1059, 7_000] });
    const tags = [['x', 'secret']];
    await vi.waitUntil(
      async () => {
        const from = reader.frames.length;
        const hidden = sign(carol, { kind: 7_000, tags, content: `${Math.random()}` });
        const mark = sign(carol, { kind: 1, tags, content: `${Math.random()}` });
        await reader.publish(hidden);
        await reader.publish(mark);
        const idOf = (frame: unknown[]) => (frame[2] as { id: string }).id;
        await reader.waitFor((frame) => frame[0] === 'EVENT' && idOf(frame) === mark.id, from);
        return !reader.frames.slice(from).some((frame) => frame[0] === 'EVENT' && idOf(frame) === hidden.id);
      },
      { timeout: 100_000 },
    );
    await set({ 'auth.privateKinds': [4, 1059, 21_059] });
  });
});

describe('a protected event (NIP-70)', () => {
  it('is taken from its authenticated author, and from nobody else', async () => {
    const [alice, mallory] = [newAuthor(), newAuthor()];
    const client = await connect();
    const event = sign(alice, { tags: [['-']] });
    const refused = [false, expect.stringMatching(/^auth-required: /)];
    expect(await client.publish(event)).toEqual(refused);
    await authenticate(client, mallory, relay.url);
    expect(await client.publish(event)).toEqual(refused);
    await authenticate(client, alice, relay.url);
    expect(await client.publish(event)).toEqual([true, '']);
    expect((await (await connect()).query({ ids: [event.id] })).events).toEqual([event]);
    // A repeat by another reveals nothing either.
    expect(await (await connect()).publish(event)).toEqual(refused);
  });
});

describe('a community that requires authentication', () => {
  const required = { 'auth.mode': 'required', 'auth.graceSeconds': 60, 'auth.timeoutSeconds': 30 };
  beforeEach(() => set(required));
  afterEach(async () => {
    skewMs = 0;
    await set({ 'auth.mode': 'off', 'auth.enforceAt': 0 });
  });

  it('refuses EVENT, REQ and COUNT before AUTH, and serves after it', async () => {
    const client = await connect();
    const alice = newAuthor();
    const closed = expect.stringMatching(/^auth-required: /);
    const event = sign(alice);
    expect(await client.publish(event)).toEqual([false, closed]);
    expect(await client.query({ kinds: [1] })).toEqual({ events: [], closed });
    client.send(['COUNT', 'c', { kinds: [1] }]);
    expect(await client.waitFor((frame) => frame[1] === 'c')).toEqual(['CLOSED', 'c', closed]);
    await authenticate(client, alice, relay.url);
    expect(await client.publish(event)).toEqual([true, '']);
    expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
  });

  it('sends its challenge at connect, and the same one right before each answer that needs it', async () => {
    const client = await connect();
    const sent: unknown[] = [];
    // The first may have come with the handshake.
    client.ws.on('message', (data) => sent.push(JSON.parse(String(data))));
    await client.until(() => client.challenges.length === 1);
    sent.length = 0;
    const event = sign(newAuthor());
    await client.publish(event);
    await client.query({ kinds: [1] });
    client.send(['COUNT', 'c', { kinds: [1] }]);
    await client.waitFor((frame) => frame[1] === 'c');
    const why = expect.stringMatching(/^auth-required: /);
    const { challenge } = client;
    expect(sent).toEqual([
      ['AUTH', challenge],
      ['OK', event.id, false, why],
      ['AUTH', challenge],
      ['CLOSED', expect.any(String), why],
      ['AUTH', challenge],
      ['CLOSED', 'c', why],
    ]);
    expect(client.challenges).toEqual(Array(4).fill(challenge));
  });

  it('closes a new connection that does not authenticate in time, and no other', async () => {
    const [silent, known] = [await connect(), await connect()];
    await authenticate(known, newAuthor(), relay.url);
    skewMs += 31_000;
    await silent.until(() => silent.closed !== undefined);
    expect(silent.closed).toEqual({ code: 1008, reason: expect.stringMatching(/^auth-required: /) });
    expect((await known.query({ kinds: [1] })).closed).toBeUndefined();
  });

  it('gives older connections a grace period, then closes their subscriptions', async () => {
    await set({ 'auth.mode': 'off' });
    const early = await connect();
    const anyone = await connect();
    early.send(['REQ', 'live', { kinds: [1], limit: 0 }]);
    await early.waitFor(([verb]) => verb === 'EOSE');
    skewMs += 1_000;
    await set({ 'auth.mode': 'required' });
    const during = sign(newAuthor());
    expect(await anyone.publish(during)).toEqual([true, '']);
    await early.waitFor((frame) => frame[0] === 'EVENT');
    skewMs += 61_000;
    const closed = await early.waitFor(([verb]) => verb === 'CLOSED');
    expect(closed).toEqual(['CLOSED', 'live', expect.stringMatching(/^auth-required: /)]);
    expect((await anyone.publish(sign(newAuthor())))[1]).toMatch(/^auth-required: /);
    expect(
      await authenticate(early, newAuthor(), relay.url, {
        created_at: Math.floor((Date.now() + skewMs) / 1_000),
      }),
    ).toEqual([true, '']);
    skewMs += 31_000;
    await anyone.until(() => anyone.closed !== undefined);
    expect(early.closed).toBeUndefined();
  });

  it('begins at the announced second', async () => {
    const at = Math.floor(Date.now() / 1_000) + 100;
    await set({ 'auth.enforceAt': at });
    expect(await (await connect()).publish(sign(newAuthor()))).toEqual([true, '']);
    skewMs += 101_000;
    const late = await connect();
    expect((await late.publish(sign(newAuthor())))[1]).toMatch(/^auth-required: /);
  });

  it('leaves another community alone, and says in NIP-11 that it requires it', async () => {
    await set({ 'topic.mode': 'open' }, 'art');
    const art = await connect(relay, '/c/art');
    expect(await art.publish(sign(newAuthor()))).toEqual([true, '']);
    const document = async (path: string) => {
      const answer = await fetch(relay.http + path, { headers: { accept: 'application/nostr+json' } });
      return (await answer.json()) as { supported_nips: number[]; limitation: Record<string, unknown> };
    };
    expect((await document('/')).limitation.auth_required).toBe(true);
    expect((await document('/c/art')).limitation.auth_required).toBe(false);
    expect((await document('/')).supported_nips).toEqual(expect.arrayContaining([42, 70]));
  });
});
