/**
 * Every signature check waits in the queue of its own client and is charged to it (I18): events, AUTH, signed
 * requests.
 */
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import { AUTH_MS, EVENT_MS } from '../../src/limits/costs.js';
import { authorization, credential } from '../support/clients/api.js';
import { authenticate } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const ADDRESS = '192.0.2.50';
const alice = newAuthor();
let relay: TestNode;
let client: RawClient;
/** The queues of the checks since the test began, and the charges to the address. */
const lines = () => checked.mock.calls.map(([{ from }]) => from);
const charged = () =>
  charges.mock.calls.filter(([{ rateKey }]) => rateKey === ADDRESS).map(([, costMs]) => costMs);
let checked: ReturnType<typeof watchChecks>;
let charges: ReturnType<typeof watchCharges>;
const watchChecks = () => vi.spyOn(relay.node.verifier, 'verify');
const watchCharges = () => vi.spyOn(relay.node.work, 'charge');

beforeAll(async () => {
  relay = await startTestNode();
  client = await RawClient.connect(relay.url, { 'x-forwarded-for': ADDRESS });
  checked = watchChecks();
  charges = watchCharges();
});
beforeEach(() => {
  checked.mockClear();
  charges.mockClear();
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

it('an event waits behind its author at its address, and is charged by its weight', async () => {
  expect(await client.publish(sign(alice))).toEqual([true, '']);
  expect(lines()).toEqual([['1', ADDRESS, alice.pubkey]]);
  charges.mockClear();
  const tags = Array.from({ length: 400 }, (_, n) => ['t', `topic ${n}`]);
  expect(await client.publish(sign(alice, { tags }))).toEqual([true, '']);
  expect(Math.max(...charged())).toBeGreaterThanOrEqual(20 * EVENT_MS);
});

it('so does AUTH, which is charged for the check and for the rights that are read', async () => {
  expect(await authenticate(client, alice, relay.url)).toEqual([true, '']);
  expect(lines()).toEqual([['1', ADDRESS, alice.pubkey]]);
  expect(charged()).toContain(AUTH_MS);
});

it('so does a signed request', async () => {
  const url = `${relay.http}/v1/topic-subscriptions`;
  const headers = { 'x-forwarded-for': ADDRESS };
  const ask = (more: Record<string, string>) => fetch(url, { headers: { ...headers, ...more } });
  await ask({});
  const unsigned = charged().reduce((sum, costMs) => sum + costMs, 0);
  expect(lines()).toEqual([]);
  charges.mockClear();
  const signed = authorization(credential(alice, { method: 'GET', url }));
  expect((await ask({ authorization: signed })).status).toBe(200);
  expect(lines()).toEqual([['1', ADDRESS, alice.pubkey]]);
  expect(charged().reduce((sum, costMs) => sum + costMs, 0)).toBeGreaterThan(unsigned);
});

it('checks of an exempt local client wait in the queue of the operator', async () => {
  const local = await RawClient.connect(relay.url);
  expect(await local.publish(sign(alice))).toEqual([true, '']);
  expect(lines()).toEqual([['1', '']]);
  await local.close();
});
