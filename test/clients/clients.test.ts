/** Real client libraries against a real node: nostr-tools, NDK and a PING of welshman. */
import NDK, { NDKEvent, NDKPrivateKeySigner } from '@nostr-dev-kit/ndk';
import { defaultSocketPolicies, Socket, SocketEvent, SocketStatus } from '@welshman/net';
import { nip77 } from 'nostr-tools';
import { SimplePool, useWebSocketImplementation as usePoolSocket } from 'nostr-tools/pool';
import { type Event, verifyEvent } from 'nostr-tools/pure';
import { Relay, useWebSocketImplementation as useRelaySocket } from 'nostr-tools/relay';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import WebSocket from 'ws';
import { type Draft, newAuthor, sign } from '../support/events.js';
import { pinTopics, startTestNode, type TestNode } from '../support/node.js';

// Node has a WebSocket of its own from version 22 on; NDK knows no other way to be given one.
globalThis.WebSocket ??= WebSocket as unknown as typeof globalThis.WebSocket;
useRelaySocket(WebSocket);
usePoolSocket(WebSocket);

const ids = (events: Iterable<{ id: string }>) => Array.from(events, (event) => event.id);

describe.each([
  ['open', undefined],
  ['required', 'harbour'],
] as const)('nostr-tools in %s mode', (mode, topic) => {
  let node: TestNode;
  let relay: Relay;
  const author = newAuthor();
  const tagged = (draft: Draft): Draft => ({
    ...draft,
    tags: [...(draft.tags ?? []), ...(topic ? [['t', topic]] : [])],
  });
  const asked = <T extends object>(filter: T) => ({ ...filter, ...(topic ? { '#t': [topic] } : {}) });

  beforeAll(async () => {
    node = await startTestNode({ env: { MINATO_TOPIC_MODE: mode } });
    if (topic) await pinTopics(node, [topic]);
    relay = new Relay(node.url);
    await relay.connect();
  });
  afterAll(async () => {
    relay.close();
    await node.close();
  });

  it('publish resolves when the event is stored, and once more for a repeat', async () => {
    const event = sign(author, tagged({ content: 'first' }));
    expect(await relay.publish(event)).toBe('');
    expect(await relay.publish(event)).toMatch(/^duplicate:/);
  });

  it('publish rejects with the reason of a refusal', async () => {
    const event = sign(author, tagged({ content: 'forged' }));
    const forged = { ...event, content: 'changed' } as Event;
    await expect(relay.publish(forged)).rejects.toThrow(/^invalid: /);
  });

  it('a subscription gives the stored events, EOSE, then live ones, until it is closed', async () => {
    const reader = newAuthor();
    const stored = sign(reader, tagged({ content: 'stored', created_at: 1_000 }));
    await relay.publish(stored);
    const received: Event[] = [];
    let eose = 0;
    const subscription = relay.subscribe([asked({ kinds: [1], authors: [reader.pubkey] })], {
      onevent: (event) => received.push(event),
      oneose: () => {
        eose = received.length;
      },
    });
    await expect.poll(() => eose, { timeout: 100_000 }).toBe(1);
    const live = sign(reader, tagged({ content: 'live', created_at: 2_000 }));
    await relay.publish(live);
    await relay.publish(sign(author, tagged({ content: 'of another' })));
    await expect.poll(() => ids(received), { timeout: 100_000 }).toEqual(ids([stored, live]));
    expect(received.every((event) => verifyEvent({ ...event }))).toBe(true);

    subscription.close();
    let later: Event | undefined;
    relay.subscribe([asked({ authors: [reader.pubkey], since: 3_000 })], {
      onevent: (event) => {
        later = event;
      },
    });
    const last = sign(reader, tagged({ content: 'after the close', created_at: 3_000 }));
    await relay.publish(last);
    await expect.poll(() => later?.id, { timeout: 100_000 }).toBe(last.id);
    expect(ids(received)).toEqual(ids([stored, live]));
  });

  it('a refused subscription is closed with its reason', async () => {
    const reason = await new Promise<string>((resolve) => {
      relay.subscribe([asked({ kinds: [1.5] })], { onclose: resolve });
    });
    expect(reason).toMatch(/^invalid: /);
  });

  it('count gives the number of events', async () => {
    const counted = newAuthor();
    for (const content of ['a', 'b', 'c']) await relay.publish(sign(counted, tagged({ content })));
    expect(await relay.count([asked({ authors: [counted.pubkey] })], {})).toBe(3);
  });

  it('a negentropy sync finds what the client lacks, and leaves the connection as it was', async () => {
    const storage = new nip77.NegentropyStorageVector();
    storage.seal();
    const missing = sign(author, tagged({ kind: 1_077 }));
    await relay.publish(missing);
    const need: string[] = [];
    await new Promise<void>((resolve) => {
      const sync = new nip77.NegentropySync(relay, storage, asked({ kinds: [1_077] }), {
        onneed: (id) => need.push(id),
        onclose: () => resolve(),
      });
      void sync.start();
    });
    expect(need).toEqual([missing.id]);
    const note = sign(author, tagged({ content: 'after the sync' }));
    expect(await relay.publish(note)).toBe('');
  });

  it('a pool publishes, queries, gets one and subscribes', async () => {
    const pool = new SimplePool();
    const member = newAuthor();
    const events = [1, 2, 3].map((created_at) =>
      sign(member, tagged({ created_at, content: `${created_at}` })),
    );
    for (const event of events) expect(await Promise.all(pool.publish([node.url], event))).toEqual(['']);
    // The library writes its own limit into the filter of `get`, so each call has one of its own.
    const filter = () => asked({ authors: [member.pubkey] });
    expect(ids(await pool.querySync([node.url], filter())).sort()).toEqual(ids(events).sort());
    expect((await pool.get([node.url], filter()))?.id).toBe(events[2]?.id);
    const seen: Event[] = [];
    const subscription = pool.subscribe([node.url], filter(), { onevent: (event) => seen.push(event) });
    await expect.poll(() => seen.length, { timeout: 100_000 }).toBe(3);
    const live = sign(member, tagged({ created_at: 4, content: 'live' }));
    await Promise.all(pool.publish([node.url], live));
    await expect.poll(() => ids(seen), { timeout: 100_000 }).toContain(live.id);
    expect(seen).toHaveLength(4);
    subscription.close();
    pool.destroy();
  });

  const inRequired = mode === 'required' ? it : () => undefined;
  inRequired('posts and questions without a topic are refused with the reason', async () => {
    await expect(relay.publish(sign(author, { content: 'nowhere' }))).rejects.toThrow(
      'invalid: missing topic',
    );
    const reason = await new Promise<string>((resolve) => {
      relay.subscribe([{ kinds: [1] }], { onclose: resolve });
    });
    expect(reason).toMatch(/^invalid: missing topic/);
    await expect(relay.count([{ kinds: [1] }], {})).rejects.toThrow(/missing topic/);
  });
});

describe('NDK in open mode', () => {
  let node: TestNode;
  let writer: NDK;
  let reader: NDK;
  const author = newAuthor();

  const connected = async (options: ConstructorParameters<typeof NDK>[0] = {}) => {
    const ndk = new NDK({ ...options, explicitRelayUrls: [node.url], enableOutboxModel: false });
    await ndk.connect(10_000);
    await vi.waitUntil(() => ndk.pool.connectedRelays().length === 1, { timeout: 100_000 });
    return ndk;
  };
  const note = (content: string, kind = 1, tags: string[][] = []) =>
    new NDKEvent(writer, { kind, content, tags });

  beforeAll(async () => {
    node = await startTestNode();
    writer = await connected({ signer: new NDKPrivateKeySigner(Buffer.from(author.secret).toString('hex')) });
    reader = await connected();
  });
  afterAll(async () => {
    for (const ndk of [writer, reader]) for (const relay of ndk.pool.relays.values()) relay.disconnect();
    await node.close();
  });

  it('publish reaches the relay, and fetchEvents on another connection finds the event', async () => {
    const event = note('from NDK', 1, [['t', 'boats']]);
    expect((await event.publish()).size).toBe(1);
    const found = await reader.fetchEvents({ kinds: [1], authors: [author.pubkey], '#t': ['boats'] });
    expect(ids(found)).toEqual([event.id]);
    const [fetched] = found;
    expect(verifyEvent(fetched?.rawEvent() as Event)).toBe(true);
    expect(fetched?.content).toBe('from NDK');
  });

  it('a live subscription gets the stored event, EOSE, and then each new one once', async () => {
    const before = note('before', 1, [['t', 'live']]);
    await before.publish();
    const received: string[] = [];
    let eose = false;
    const subscription = reader.subscribe({ kinds: [1], '#t': ['live'] }, { closeOnEose: false });
    subscription.on('event', (event: NDKEvent) => received.push(event.id));
    subscription.on('eose', () => {
      eose = true;
    });
    await expect.poll(() => eose && received.length, { timeout: 100_000 }).toBe(1);
    const after = note('after', 1, [['t', 'live']]);
    await after.publish();
    await expect.poll(() => received, { timeout: 100_000 }).toEqual([before.id, after.id]);
    subscription.stop();
  });

  it('a newer profile takes the place of the older one', async () => {
    const first = note('{"name":"first"}', 0);
    first.created_at = 1_000;
    await first.publish();
    const second = note('{"name":"second"}', 0);
    second.created_at = 2_000;
    await second.publish();
    expect(ids(await reader.fetchEvents({ kinds: [0], authors: [author.pubkey] }))).toEqual([second.id]);
  });

  it('publish fails when the relay refuses the event', async () => {
    const late = note('too far ahead');
    late.created_at = Math.floor(Date.now() / 1_000) + 3_600;
    await expect(late.publish()).rejects.toThrow();
    expect((await reader.fetchEvents({ ids: [late.id] })).size).toBe(0);
  });
});

it('the PING of an idle welshman client is ignored, and the client goes on', async () => {
  const node = await startTestNode();
  const socket = new Socket(node.url, defaultSocketPolicies);
  const received: unknown[][] = [];
  socket.on(SocketEvent.Receive, (message: unknown[]) => received.push(message));
  socket.open();
  await expect.poll(() => socket.status, { timeout: 100_000 }).toBe(SocketStatus.Open);
  // What its policy sends after thirty seconds without a message.
  socket.send(['PING']);
  socket.send(['REQ', 'after', { kinds: [1], limit: 1 }]);
  await expect.poll(() => received, { timeout: 100_000 }).toEqual([['EOSE', 'after']]);
  socket.cleanup();
  await node.close();
});
