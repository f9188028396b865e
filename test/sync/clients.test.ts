/** Negentropy with rust-nostr as a client, which keeps its events in an IndexedDB in memory. */
import 'fake-indexeddb/auto';
import { bytesToHex } from '@noble/hashes/utils.js';
import {
  type Client,
  ClientBuilder,
  Duration,
  Event,
  Filter,
  Keys,
  loadWasmAsync,
  NostrDatabase,
  NostrSigner,
  SyncDirection,
  SyncOptions,
} from '@rust-nostr/nostr-sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BrowserSocket } from '../clients/libraries.js';
import { idsOf, openSyncing, type Syncing, someEvents, store } from '../support/domains/sync.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

globalThis.WebSocket ??= BrowserSocket as unknown as typeof globalThis.WebSocket;

let node: TestNode;
let syncing: Syncing;
let client: Client;

beforeAll(async () => {
  await loadWasmAsync();
  node = await startTestNode({ jobs: [] });
  syncing = await openSyncing(node);
  const signer = NostrSigner.keys(Keys.parse(bytesToHex(newAuthor().secret)));
  const database = await NostrDatabase.indexeddb('client');
  client = new ClientBuilder().signer(signer).database(database).build();
  await client.addRelay(node.url);
  await client.connect();
});
afterAll(async () => {
  await client.shutdown();
  await syncing.close();
  await node.close();
});

async function sync(filter: object, { isDry = false, direction = SyncDirection.Down } = {}) {
  const patience = new SyncOptions().initialTimeout(Duration.fromSecs(60)).direction(direction);
  const options = isDry ? patience.dry_run() : patience;
  const { report, failed } = await client.sync(Filter.fromJson(JSON.stringify(filter)), options);
  expect(failed.map(({ error }) => error)).toEqual([]);
  const hexOf = (ids: readonly { toHex(): string }[]) => ids.map((id) => id.toHex()).sort();
  return {
    local: hexOf(report.local),
    remote: hexOf(report.remote),
    sent: hexOf(report.sent),
    received: hexOf(report.received),
  };
}

async function keep(events: readonly object[]): Promise<void> {
  for (const event of events) await client.database.save_event(Event.fromJson(JSON.stringify(event)));
}

it('finds nothing where nothing is', async () => {
  const found = await sync({ kinds: [1_500] }, { isDry: true });
  expect(found).toEqual({ local: [], remote: [], sent: [], received: [] });
});

it('finds all events, over several messages', async () => {
  const events = someEvents(4_200, { kind: 1_501 });
  await store(syncing, events);
  expect((await sync({ kinds: [1_501] }, { isDry: true })).remote).toEqual(idsOf(events));
});

it('finds and fetches all events of a topic', async () => {
  const events = someEvents(120, { kind: 1_502, tags: [['t', 'harbour']] });
  await store(syncing, events);
  const { remote, received } = await sync({ '#t': ['harbour'] });
  expect(remote).toEqual(idsOf(events));
  expect(received).toEqual(idsOf(events));
});

describe('of two random sets', () => {
  const SIZE = 600;

  /** Each side lacks so many percent of all events, and no event is missing on both. */
  for (const [at, percent] of [0, 1, 10, 100].entries())
    it(`with ${percent} % difference it sends and fetches exactly the difference`, async () => {
      const kind = 1_510 + at;
      const events = someEvents(SIZE, { kind }).sort(() => Math.random() - 0.5);
      const differing = (SIZE * percent) / 100;
      const [mine, theirs] = [events.slice(0, differing / 2), events.slice(differing / 2, differing)];
      const both = events.slice(differing);
      await keep([...both, ...mine]);
      await store(syncing, [...both, ...theirs]);
      const found = await sync({ kinds: [kind] }, { direction: SyncDirection.Both });
      expect(found).toEqual({
        local: idsOf(mine),
        remote: idsOf(theirs),
        sent: idsOf(mine),
        received: idsOf(theirs),
      });
      const again = await sync({ kinds: [kind] }, { direction: SyncDirection.Both });
      expect(again).toEqual({ local: [], remote: [], sent: [], received: [] });
    });
});
