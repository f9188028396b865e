/** The process of iroh: what it reports about neighbours is what a node acts on. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventually } from '../support/cli.js';
import { RawPeer } from '../support/domains/gossip.js';
import { type Loopback, openLoopback } from '../support/servers/loopback.js';

const TOPIC = 'ab'.repeat(32);

let net: Loopback;
let [one, other]: RawPeer[] = [];
beforeAll(async () => {
  net = await openLoopback();
  [one, other] = [await RawPeer.open(net), await RawPeer.open(net)];
});
afterAll(async () => {
  await one?.close();
  await net?.close();
});

it('a neighbour that is gone does not come back because its topic is joined again', async () => {
  const machines = [other!.address];
  await other!.join(TOPIC, { machines: [] }, false);
  await one!.join(TOPIC, { machines });
  const up = { type: 'up', peer: other!.opened.id };
  expect(one!.changes).toEqual([up]);
  await one!.join(TOPIC, { machines }, false);
  await other!.close();
  const down = { type: 'down', peer: other!.opened.id };
  await eventually('iroh notices', () => one!.changes.length === 2 || undefined);
  expect(one!.changes).toEqual([up, down]);
  // iroh-gossip 0.35 reports it again, at once, to each further subscription.
  for (let times = 0; times < 3; times += 1) await one!.join(TOPIC, { machines }, false);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  expect(one!.changes).toEqual([up, down]);
});
