/**
 * A peer that sends what it likes, to a node that carries a topic: garbage, forged events, foreign topics,
 * old and deleted events, parts that do not fit, and floods. The node takes what is right, and stays itself.
 */
import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { messagesOf } from '../../src/p2p/rules-envelope.js';
import { eventually, runCli } from '../support/cli.js';
import type { RawClient } from '../support/clients/client.js';
import { GossipNode, newTopic, RawPeer } from '../support/domains/gossip.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { type Loopback, openLoopback } from '../support/servers/loopback.js';

const CHAT = newTopic();
const FRESH = newTopic();
const HEX = CHAT.slice('kukuri:'.length);
const FRESH_HEX = FRESH.slice('kukuri:'.length);
const FAR = { timeout: 100_000 };
type Signed = ReturnType<typeof sign>;

let net: Loopback;
let node: GossipNode;
let client: RawClient;
let peer: RawPeer;

beforeAll(async () => {
  net = await openLoopback();
  node = await GossipNode.start(net, { topics: [CHAT], settings: { 'p2p.invalidPerMinute': 1_000 } });
  await node.carry(FRESH, { maxDelaySeconds: 60, allowBackfill: true });
  client = await node.connect();
  const { ticket } = await node.ticket();
  await eventually('the topics are joined', async () => (await node.state())?.topics === 3 || undefined);
  peer = await RawPeer.open(net);
  for (const hex of [HEX, FRESH_HEX]) await peer.join(hex, ticket);
});

afterAll(async () => {
  await client?.close();
  await peer?.close();
  await node?.close();
  await net?.close();
});

const inChat = (draft: Parameters<typeof sign>[1] = {}, author = newAuthor()) =>
  sign(author, { ...draft, tags: [['t', CHAT], ...(draft.tags ?? [])] });
const messages = (event: Signed) => messagesOf(event.id, JSON.stringify(event));
const send = (event: Signed, hex = HEX) => peer.send(hex, ...messages(event));
const found = async (id: string) =>
  (await client.query({ ids: [id], '#t': [CHAT, FRESH] })).events.length === 1;

/** After it, everything that was sent before has been processed. */
async function pass(): Promise<void> {
  const mark = inChat({ content: 'mark' });
  await send(mark);
  await eventually('the mark has arrived', async () => (await found(mark.id)) || undefined);
}

const counts = async () => (await node.state())!.counts;

it('an honest event arrives, and what the node has is sent to the peer once', async () => {
  const event = inChat();
  await send(event);
  await expect.poll(() => found(event.id), FAR).toBe(true);
  const own = inChat();
  await client.publish(own);
  const texts = () => peer.received.map(({ content }) => Buffer.from(content).toString());
  await eventually('it comes', () => texts().some((text) => text.includes(own.id)) || undefined);
  expect(texts().filter((text) => text.includes(event.id))).toEqual([]);
  expect(texts().filter((text) => text.includes(own.id))).toHaveLength(1);
});

it('forged, malformed and foreign messages change nothing', async () => {
  const real = inChat();
  const bad: Signed[] = [
    { ...real, content: 'forged' },
    { ...real, sig: real.sig.replace(/^../, '00') },
    { ...inChat(), id: real.id },
    sign(newAuthor(), { tags: [['t', newTopic()]] }),
    sign(newAuthor(), {}),
    inChat({ kind: 39_020, tags: [['d', 'x']] }),
    inChat({ kind: 22_242 }),
    inChat({ kind: 4, tags: [['p', newAuthor().pubkey]] }),
    inChat({ tags: [['-']] }),
    sign(newAuthor(), { kind: 62, tags: [['relay', 'wss://elsewhere.example']] }),
    sign(newAuthor(), { kind: 0, content: '{}' }),
  ];
  for (const event of bad) await send(event);
  for (const bytes of [0, 1, 2, 40, 4_000]) await peer.send(HEX, randomBytes(bytes));
  await peer.send(HEX, Buffer.from([1, 0, 0xff, 0xfe]), Buffer.from([1, 0]), Buffer.from('\x01\x00{}'));
  await pass();
  const { rows } = await node.pool.query<{ n: number }>(
    'SELECT count(*)::int AS n FROM event_dedupe WHERE event_id = ANY ($1)',
    [bad.map(({ id }) => Buffer.from(id, 'hex'))],
  );
  expect(rows).toEqual([{ n: 0 }]);
  await expect.poll(async () => (await counts()).invalid, FAR).toBeGreaterThanOrEqual(10);
});

it('an event of another topic is refused with its reason', async () => {
  const elsewhere = sign(newAuthor(), { tags: [['t', FRESH]] });
  await send(elsewhere, HEX);
  await pass();
  expect(await found(elsewhere.id)).toBe(false);
  await send(elsewhere, FRESH_HEX);
  await expect.poll(() => found(elsewhere.id), FAR).toBe(true);
});

it('maxDelaySeconds keeps old events out of gossip, though they may be posted', async () => {
  const tags = [['t', FRESH]];
  const old = sign(newAuthor(), { tags, created_at: nowSeconds() - 90 });
  const recent = sign(newAuthor(), { tags, created_at: nowSeconds() - 10 });
  await send(old, FRESH_HEX);
  await send(recent, FRESH_HEX);
  await expect.poll(() => found(recent.id), FAR).toBe(true);
  expect(await found(old.id)).toBe(false);
  expect(await client.publish(old)).toEqual([true, '']);
});

it('a deletion acts before its target arrives, in any joined topic; another author has no say', async () => {
  const author = newAuthor();
  const [deleted, kept] = [inChat({}, author), inChat({}, author)];
  const strangers = sign(newAuthor(), { kind: 5, tags: [['e', kept.id]] });
  await send(sign(author, { kind: 5, tags: [['e', deleted.id]] }), FRESH_HEX);
  await send(strangers, HEX);
  await eventually('both requests are stored', async () => {
    const { events } = await client.query({ kinds: [5], authors: [author.pubkey, strangers.pubkey] });
    return events.length === 2 || undefined;
  });
  await send(deleted);
  await send(kept);
  await expect.poll(() => found(kept.id), FAR).toBe(true);
  expect(await found(deleted.id)).toBe(false);
});

/** The same event in other bytes: iroh delivers bytes that the node has sent or received only once. */
const offerAgain = (event: Signed) =>
  peer.send(
    HEX,
    ...messagesOf(event.id, JSON.stringify(Object.fromEntries(Object.entries(event).reverse()))),
  );

it('what was deleted, expired or erased here stays out when a stale peer offers it again', async () => {
  const [author, gone, erased] = [newAuthor(), newAuthor(), newAuthor()];
  const deleted = inChat({}, author);
  const brief = inChat({ tags: [['expiration', String(nowSeconds() + 3)]] }, author);
  const [vanished, lost] = [inChat({}, gone), inChat({}, erased)];
  const kept = inChat({}, author);
  for (const event of [deleted, brief, vanished, lost, kept])
    expect(await client.publish(event)).toEqual([true, '']);
  await client.publish(sign(author, { kind: 5, tags: [['e', deleted.id]] }));
  await client.publish(sign(gone, { kind: 62, tags: [['relay', 'ALL_RELAYS']] }));
  const environment = { DATABASE_URL: node.test.url, MINATO_DATA_DIR: node.folder };
  expect(await runCli(['erase', 'member', erased.pubkey, '--yes'], environment)).toMatchObject({ code: 0 });
  await eventually('the event expires', () => nowSeconds() > Number(brief.tags[1]![1]) || undefined);
  const before = await counts();
  for (const event of [kept, deleted, brief, vanished, lost]) await offerAgain(event);
  await pass();
  // All of them have arrived: one is known, the others are refused.
  await expect.poll(async () => (await counts()).refused - before.refused, FAR).toBe(4);
  expect((await counts()).duplicates - before.duplicates).toBe(1);
  for (const event of [deleted, brief, vanished, lost]) expect(await found(event.id)).toBe(false);
  expect(await found(kept.id)).toBe(true);
});

it('parts arrive in any order, and parts of a liar do not keep an event out', async () => {
  const event = inChat({ content: 'x'.repeat(30_000) });
  const parts = messages(event);
  expect(parts.length).toBeGreaterThan(5);
  const lie = Uint8Array.from(parts[1]!);
  lie.fill(7, 100);
  await peer.send(HEX, lie, ...[...parts].reverse());
  await expect.poll(() => found(event.id), FAR).toBe(true);
});

/** So many forged messages, each with other bytes: gossip delivers the same bytes only once. */
function forgeries(count: number): Uint8Array[] {
  const event = inChat({ content: 'flood' });
  return Array.from({ length: count }, (_, at) => {
    const sig = at.toString(16).padStart(128, '0');
    return messages({ ...event, sig })[0]!;
  });
}

/** Floods while a client posts, and returns the median time of its posts. */
async function postsDuring(flood: {
  readonly hex: string;
  readonly messages: Uint8Array[];
}): Promise<number> {
  let isFlooding = true;
  const flooding = (async () => {
    for (let at = 0; isFlooding; at += 50) {
      const batch = flood.messages.slice(at, at + 50);
      if (batch.length === 0) return;
      await peer.send(flood.hex, ...batch);
    }
  })();
  const times: number[] = [];
  for (let posts = 0; posts < 60; posts += 1) {
    const from = performance.now();
    expect(await client.publish(inChat())).toEqual([true, '']);
    times.push(performance.now() - from);
  }
  isFlooding = false;
  await flooding;
  return times.sort((a, b) => a - b)[30]!;
}

it('a flood is bounded, its peer is dropped for a while, and others post nearly as before', async () => {
  const sink = await RawPeer.open(net);
  const elsewhere = randomBytes(32).toString('hex');
  await sink.join(elsewhere, { machines: [], urls: [] }, false);
  await peer.join(elsewhere, {
    machines: [{ id: sink.opened.id, addresses: [...sink.opened.addresses] }],
    urls: [],
  });
  const flood = forgeries(40_000);
  const before = await counts();
  await node.set('p2p.invalidPerMinute', 50);
  // The same flood between two other peers costs the machine as much, and the node nothing.
  const beside = await postsDuring({ hex: elsewhere, messages: flood.slice(0, 20_000) });
  const during = await postsDuring({ hex: HEX, messages: flood.slice(20_000) });
  await expect.poll(async () => (await node.state())?.dropped, FAR).toEqual([peer.opened.id]);
  const after = await counts();
  console.log(`a post takes ${(during / beside).toFixed(2)} times as long as beside the same flood`);
  expect(after.invalid - before.invalid).toBeLessThan(500);
  expect(after.discarded).toBeGreaterThan(before.discarded);
  await sink.close();
});
