/** Messages that iroh loses, and streams that break: the node joins again and fills the gap. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../support/cli.js';
import type { RawClient } from '../support/clients/client.js';
import { GossipNode, newTopic } from '../support/domains/gossip.js';
import { newAuthor, sign } from '../support/events.js';
import { type Loopback, openLoopback } from '../support/servers/loopback.js';

const CHAT = newTopic();
const FAR = { timeout: 150_000 };

let net: Loopback;
let folder: string;
let faultFile: string;
let node: GossipNode;
let other: GossipNode;
let [reader, writer]: RawClient[] = [];

beforeAll(async () => {
  net = await openLoopback();
  folder = mkdtempSync(join(tmpdir(), 'minato-faults-'));
  faultFile = join(folder, 'fault');
  writeFileSync(faultFile, 'none');
  other = await GossipNode.start(net, { topics: [CHAT] });
  const settings = { 'node.syncPrivatePeers': true };
  node = await GossipNode.start(net, { topics: [CHAT], settings, faultFile });
  await node.set('p2p.peers', [(await other.ticket()).text]);
  await eventually('they are neighbours, and the first gap is filled', async () => {
    const state = await node.state();
    return (state?.neighbours.length === 1 && state.catchUp.done > 0) || undefined;
  });
  [reader, writer] = [await node.connect(), await other.connect()];
});
afterAll(async () => {
  await reader?.close();
  await writer?.close();
  await node?.close();
  await other?.close();
  await net?.close();
  rmSync(folder, { recursive: true });
});

/** Resolves when the fault has taken effect. */
async function fault(text: 'drop' | 'lagged' | 'broken'): Promise<void> {
  writeFileSync(faultFile, text);
  await eventually('the fault', () => readFileSync(`${faultFile}.seen`, 'utf8') === text || undefined);
}

async function post(): Promise<string> {
  const event = sign(newAuthor(), { tags: [['t', CHAT]] });
  expect(await writer!.publish(event)).toEqual([true, '']);
  return event.id;
}
const isHere = async (id: string) => (await reader!.query({ ids: [id], '#t': [CHAT] })).events.length === 1;

for (const why of ['lagged', 'broken'] as const)
  it(`after ${why} it fills the gap, and hears its topics again`, async () => {
    const heard = await post();
    await expect.poll(() => isHere(heard), FAR).toBe(true);
    await fault('drop');
    const lost = [await post(), await post()];
    await other.drained();
    const { lagged } = (await node.state())!.counts;
    await fault(why);
    for (const id of lost) await expect.poll(() => isHere(id), FAR).toBe(true);
    if (why === 'lagged')
      await expect.poll(async () => (await node.state())!.counts.lagged, FAR).toBeGreaterThan(lagged);
    const { accepted } = (await node.state())!.counts;
    const live = await post();
    await expect.poll(() => isHere(live), FAR).toBe(true);
    await expect.poll(async () => (await node.state())!.counts.accepted, FAR).toBeGreaterThan(accepted);
  });
