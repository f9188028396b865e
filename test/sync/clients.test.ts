/** Negentropy with rust-nostr as a client. It keeps no events here, so it lacks all or none. */
import { bytesToHex } from '@noble/hashes/utils.js';
import {
  Client,
  Duration,
  Filter,
  Keys,
  loadWasmAsync,
  NostrSigner,
  SyncDirection,
  SyncOptions,
} from '@rust-nostr/nostr-sdk';
import { afterAll, beforeAll, expect, it } from 'vitest';
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
  client = new Client(NostrSigner.keys(Keys.parse(bytesToHex(newAuthor().secret))));
  await client.addRelay(node.url);
  await client.connect();
});
afterAll(async () => {
  await client.shutdown();
  await syncing.close();
  await node.close();
});

async function sync(filter: object, isDry: boolean) {
  const patience = new SyncOptions().initialTimeout(Duration.fromSecs(60)).direction(SyncDirection.Down);
  const options = isDry ? patience.dry_run() : patience;
  const { report, failed } = await client.sync(Filter.fromJson(JSON.stringify(filter)), options);
  expect(failed.map(({ error }) => error)).toEqual([]);
  return {
    remote: report.remote.map((id) => id.toHex()).sort(),
    received: report.received.map((id) => id.toHex()).sort(),
  };
}

it('finds nothing where nothing is', async () => {
  expect(await sync({ kinds: [1_500] }, true)).toEqual({ remote: [], received: [] });
});

it('finds all events, over several messages', async () => {
  const events = someEvents(4_200, { kind: 1_501 });
  await store(syncing, events);
  expect((await sync({ kinds: [1_501] }, true)).remote).toEqual(idsOf(events));
});

it('finds and fetches all events of a topic', async () => {
  const events = someEvents(120, { kind: 1_502, tags: [['t', 'harbour']] });
  await store(syncing, events);
  const { remote, received } = await sync({ '#t': ['harbour'] }, false);
  expect(remote).toEqual(idsOf(events));
  expect(received).toEqual(idsOf(events));
});
