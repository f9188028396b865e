/**
 * The process of the iroh endpoint. It applies the rate of each peer, and passes on at most a window of
 * messages, some of each peer, so that one peer cannot delay the others. I14: every queue here is bounded.
 * It ends when the node ends.
 */
import { createRequire } from 'node:module';
import { isIPv6 } from 'node:net';
import type { Iroh, Message, NodeDiscoveryConfig, Sender } from '@number0/iroh';
import { LocalBuckets } from '../limits/local-buckets.js';
import type { Call, EndpointLimits, FromEndpoint, OpenEndpoint, Opened, ToEndpoint } from './protocol.js';
import { IROH, NO_IROH } from './protocol.js';

/** Messages that the node has not processed yet. */
const WINDOW = 256;
/** Of one peer. */
const WINDOW_PER_PEER = 64;
/** Messages of one peer that wait here, and of all peers. */
const WAITING_PER_PEER_MAX = 512;
const WAITING_MAX = 4_096;
const PEERS_MAX = 1_000;
const BURST_SECONDS = 10;
const REPORT_MS = 1_000;
const TOPICS_REPORTED_MAX = 100;

interface Line {
  readonly waiting: { readonly topic: string; readonly content: Uint8Array }[];
  inFlight: number;
}

let iroh: Iroh | undefined;
let limits: EndpointLimits = { messagesPerSecond: 1 };
const topics = new Map<string, Sender>();
/** Who is a neighbour in each topic. */
const neighbours = new Map<string, Set<string>>();
const hasJoined = new Set<string>();
const lines = new Map<string, Line>();
const ignored = new Map<string, number>();
const rates = new LocalBuckets(PEERS_MAX);
let inFlight = 0;
let waiting = 0;
let discarded = 0;
const discardedTopics = new Set<string>();

function tell(message: FromEndpoint): void {
  if (process.connected) process.send?.(message);
}

const bytesOf = (hex: string) => [...Buffer.from(hex, 'hex')];
const firstLine = (error: unknown) =>
  (error instanceof Error ? error.message : String(error)).split('\n', 1)[0]!.slice(0, 300);

// ── Calls ──────────────────────────────────────────────────────────────────────────────────────────────────

/** iroh binds both families; the one that is not asked for stays on this machine. */
function bindings(bind: string, port: number): { ipv4Addr: string; ipv6Addr: string } {
  if (isIPv6(bind)) return { ipv4Addr: '127.0.0.1:0', ipv6Addr: `[${bind}]:${port}` };
  return { ipv4Addr: `${bind}:${port}`, ipv6Addr: bind === '0.0.0.0' ? `[::]:${port}` : '[::1]:0' };
}

async function open({ secret, bind, port, discovery, limits: given }: OpenEndpoint): Promise<Opened> {
  const require = createRequire(import.meta.url);
  let library: typeof import('@number0/iroh');
  try {
    library = require(IROH);
  } catch {
    process.exit(NO_IROH);
  }
  limits = given;
  iroh = await library.Iroh.memory({
    ...bindings(bind, port),
    nodeDiscovery: (discovery ? 'Default' : 'None') as NodeDiscoveryConfig,
    secretKey: bytesOf(secret),
  });
  const { nodeId, addresses, relayUrl } = await iroh.net.nodeAddr();
  return { id: nodeId, addresses: addresses ?? [], relay: relayUrl ?? null };
}

async function join(topic: string, peers: readonly { id: string; addresses: readonly string[] }[]) {
  for (const { id, addresses } of peers)
    await iroh!.net.addNodeAddr({ nodeId: id, addresses: [...addresses] });
  const before = topics.get(topic);
  const ids = peers.map(({ id }) => id);
  let isOpen = true;
  const sender = await iroh!.gossip.subscribe(bytesOf(topic), ids, (error, message) => {
    if (!isOpen) return;
    if (error === null) return receive(topic, message);
    isOpen = false;
    tell({ type: 'lost', topic, why: 'broken' });
  });
  topics.set(topic, sender);
  // The new subscription is open before the old one is closed, so that nothing is missed in between.
  await before?.close();
}

async function leave(topic: string): Promise<void> {
  const sender = topics.get(topic);
  topics.delete(topic);
  neighbours.delete(topic);
  hasJoined.delete(topic);
  await sender?.close();
}

async function send(topic: string, contents: readonly Uint8Array[]): Promise<void> {
  const sender = topics.get(topic);
  if (sender === undefined) return;
  for (const content of contents) await sender.broadcast([...content]);
}

async function carryOut(what: Call): Promise<Opened | undefined> {
  switch (what.type) {
    case 'open':
      return open(what.options);
    case 'join':
      await join(what.topic, what.peers);
      return undefined;
    case 'leave':
      await leave(what.topic);
      return undefined;
    case 'close':
      await Promise.all([...topics.keys()].map(leave));
      await iroh?.node.shutdown();
      return undefined;
    case 'send':
      await send(what.topic, what.contents);
      return undefined;
  }
}

// ── Messages of peers ──────────────────────────────────────────────────────────────────────────────────────

/** Reports each change once, also if it is seen in two subscriptions or by a message only. */
function noteNeighbour(topic: string, peer: string, isUp: boolean): void {
  const known = neighbours.get(topic) ?? new Set();
  neighbours.set(topic, known);
  if (known.has(peer) === isUp) return;
  if (isUp) known.add(peer);
  else known.delete(peer);
  tell({ type: isUp ? 'up' : 'down', topic, peer });
}

/**
 * iroh-gossip 0.35 never takes a neighbour off the list that it reports to a further subscription of a topic:
 * that has everybody who was ever up. So only the list of the first one is news.
 */
function noteJoined(topic: string, peers: readonly string[]): void {
  if (hasJoined.has(topic)) return;
  hasJoined.add(topic);
  for (const peer of peers) noteNeighbour(topic, peer, true);
}

function receive(topic: string, { received, joined, neighborUp, neighborDown, lagged }: Message): void {
  if (lagged) tell({ type: 'lost', topic, why: 'lagged' });
  if (joined) noteJoined(topic, joined);
  if (neighborUp) noteNeighbour(topic, neighborUp, true);
  if (neighborDown) noteNeighbour(topic, neighborDown, false);
  if (!received) return;
  const { deliveredFrom: peer, content } = received;
  // Its NeighborUp may have been lost.
  noteNeighbour(topic, peer, true);
  const now = performance.now();
  const { messagesPerSecond } = limits;
  const isIgnored = now < (ignored.get(peer) ?? 0);
  const line = lines.get(peer) ?? { waiting: [], inFlight: 0 };
  const isTaken =
    !isIgnored &&
    waiting < WAITING_MAX &&
    line.waiting.length < WAITING_PER_PEER_MAX &&
    rates.take(peer, messagesPerSecond, messagesPerSecond * BURST_SECONDS, now).allowed;
  if (!isTaken) {
    discarded += 1;
    if (discardedTopics.size < TOPICS_REPORTED_MAX) discardedTopics.add(topic);
    return;
  }
  lines.set(peer, line);
  line.waiting.push({ topic, content: Uint8Array.from(content) });
  waiting += 1;
  passOn();
}

/** One message of each peer in turn, while the node keeps up. */
function passOn(): void {
  let isMoving = true;
  while (isMoving && inFlight < WINDOW) {
    isMoving = false;
    for (const [peer, line] of lines) {
      if (inFlight >= WINDOW) return;
      if (line.inFlight >= WINDOW_PER_PEER) continue;
      const next = line.waiting.shift();
      if (next === undefined) continue;
      waiting -= 1;
      line.inFlight += 1;
      inFlight += 1;
      isMoving = true;
      tell({ type: 'message', peer, ...next });
    }
  }
}

function took(peer: string, count: number): void {
  inFlight -= count;
  const line = lines.get(peer);
  if (line !== undefined) {
    line.inFlight -= count;
    if (line.inFlight === 0 && line.waiting.length === 0) lines.delete(peer);
  }
  passOn();
}

function ignore(peer: string, ms: number): void {
  if (ignored.size >= PEERS_MAX) ignored.clear();
  ignored.set(peer, performance.now() + ms);
  const line = lines.get(peer);
  if (line === undefined) return;
  waiting -= line.waiting.length;
  discarded += line.waiting.length;
  for (const { topic } of line.waiting.splice(0)) discardedTopics.add(topic);
}

function handle(message: ToEndpoint): void {
  switch (message.type) {
    case 'call': {
      const { call } = message;
      carryOut(message.what).then(
        (opened) => tell({ type: 'done', call, ...(opened ? { opened } : {}) }),
        (error: unknown) => tell({ type: 'done', call, error: firstLine(error) }),
      );
      return;
    }
    case 'took':
      took(message.peer, message.count);
      return;
    case 'limits':
      limits = message.limits;
      return;
    case 'ignore':
      ignore(message.peer, message.ms);
      return;
  }
}

setInterval(() => {
  if (discarded === 0) return;
  tell({ type: 'discarded', messages: discarded, topics: [...discardedTopics] });
  discarded = 0;
  discardedTopics.clear();
}, REPORT_MS);
// The node ends this process. A signal to the whole group must not end it before the node has sent what it
// still has.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
process.on('disconnect', () => process.exit(0));
process.on('message', (message) => handle(message as ToEndpoint));
