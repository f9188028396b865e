/**
 * Rates and batches by weight, over real sockets: a flood of heavy events slows its sender and nobody else
 * (I18).
 */
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { LANE_LOCK } from '../../src/events/postgres/lane/lock.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

let node: TestNode;
const clients: RawClient[] = [];
beforeAll(async () => {
  node = await startTestNode();
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});
afterAll(() => node.close());

async function connect(address: string): Promise<RawClient> {
  const client = await RawClient.connect(node.url, { 'x-forwarded-for': address });
  clients.push(client);
  return client;
}

async function set(key: 'rate.eventsPerSecond' | 'rate.eventsBurst', value: number): Promise<void> {
  const community = () => node.node.communities.find(undefined, undefined)!;
  await writeSetting(node.database.pool, community().id, key, value, Date.now());
  await eventually('the setting holds', () => (community().settings[key] === value ? true : undefined));
}

let made = 0;
const mallory = newAuthor();
const list = (length: number) => Array.from({ length }, (_, at) => ['p', `${at}`.padStart(64, 'a')]);
const heavy = (author = mallory) =>
  sign(author, {
    content: `heavy ${++made}`,
    tags: Array.from({ length: 1_990 }, (_, at) => ['p', `${made}/${at}`]),
  });
const okOf = (client: RawClient) => client.frames.filter(([type]) => type === 'OK');

it('an event costs its weight: a few heavy events use up a burst of a thousand light ones', async () => {
  await set('rate.eventsPerSecond', 1);
  const client = await connect('198.51.100.7');
  for (let count = 0; count < 14; count += 1) client.send(['EVENT', heavy()]);
  await client.until(() => okOf(client).length === 14);
  const taken = okOf(client).filter(([, , accepted]) => accepted === true);
  expect(taken.length).toBeGreaterThanOrEqual(9);
  expect(taken.length).toBeLessThanOrEqual(11);
  for (const [, , accepted, why] of okOf(client))
    if (!accepted) expect(why).toMatch(/^rate-limited: too many events, try again in \d+ s$/);
});

it('a follow list of 5,000 fits into the bursts of address and author, with light events', async () => {
  await set('rate.eventsPerSecond', 1);
  const client = await connect('192.0.2.2');
  const alice = newAuthor();
  for (let version = 1; version <= 3; version += 1)
    expect(await client.publish(sign(alice, { kind: 3, created_at: version, tags: list(5_000) }))).toEqual([
      true,
      '',
    ]);
  expect(await client.publish(sign(alice, { content: 'a light one' }))).toEqual([true, '']);
});

it('an event heavier than the burst passes when the bucket is full', async () => {
  await set('rate.eventsPerSecond', 1);
  await set('rate.eventsBurst', 20);
  const client = await connect('192.0.2.3');
  expect(await client.publish(sign(newAuthor(), { kind: 3, tags: list(2_000) }))).toEqual([true, '']);
  const [taken, why] = await client.publish(sign(newAuthor(), { kind: 3, tags: list(2_000) }));
  expect({ taken, why }).toEqual({ taken: false, why: expect.stringMatching(/^rate-limited: /) });
  await set('rate.eventsBurst', 1_000);
});

it('a light event waits for at most one batch of heavy events of another address', async () => {
  // The highest rate that the node allows, so that only the lane limits the flood.
  await set('rate.eventsPerSecond', 500);
  await set('rate.eventsBurst', 10_000);
  const fresh = newAuthor();
  const flood = Array.from({ length: 30 }, () => heavy(fresh));
  const holder = await node.database.pool.connect();
  await holder.query('SELECT pg_advisory_lock($1)', [LANE_LOCK]);
  const [flooder, good] = [await connect('198.51.100.8'), await connect('192.0.2.4')];
  for (const event of flood) flooder.send(['EVENT', event]);
  // One event is in a batch; two would exceed the limit of a batch.
  await eventually('the flood waits', () => (node.node.store.depth === 29 ? true : undefined));
  const light = good.publish(sign(newAuthor(), { content: 'hello' }));
  await eventually('the light one waits too', () => (node.node.store.depth === 30 ? true : undefined));
  await holder.query('SELECT pg_advisory_unlock($1)', [LANE_LOCK]);
  holder.release();
  expect(await light).toEqual([true, '']);
  // The event in the batch, and those until the OK of the light event arrived.
  expect(okOf(flooder).length).toBeLessThanOrEqual(5);
  await flooder.until(() => okOf(flooder).length === 30);
  expect(okOf(flooder).every(([, , accepted]) => accepted === true)).toBe(true);
});
