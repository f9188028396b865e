/** I18: live events are charged to who reads them. Each of them arrives, once and in order, also late. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { serializeEvent } from '../../src/events/rules/event.js';
import { RawClient } from '../support/clients/client.js';
import { startTestNode, type TestNode } from '../support/node.js';

let relay: TestNode;
beforeAll(async () => {
  relay = await startTestNode();
});
afterAll(() => relay.close());

const pubkey = randomBytes(32).toString('hex');
function unsigned(place: number) {
  const id = randomBytes(32).toString('hex');
  const event = {
    id,
    pubkey,
    created_at: 1_700_000_000 + place,
    kind: 1,
    tags: [],
    content: 'x'.repeat(2_000),
    sig: '0'.repeat(128),
  };
  return { community: 1, event, payload: serializeEvent(event) };
}
const SUBSCRIPTIONS = 100;

it.each([
  ['203.0.113.7', true],
  [undefined, false],
])('live events are charged to their reader, unless it is exempt: %s', async (address, isCharged) => {
  const headers = address === undefined ? {} : { 'x-forwarded-for': address };
  const client = await RawClient.connect(relay.url, headers);
  const framesOf = (wanted: string) => client.frames.filter(([type]) => type === wanted);
  const names = Array.from({ length: SUBSCRIPTIONS }, (_, number) => `s${number}`);
  for (const name of names) client.send(['REQ', name, { authors: [pubkey], limit: 0 }]);
  await client.until(() => framesOf('EOSE').length === SUBSCRIPTIONS);
  const charge = vi.spyOn(relay.node.work, 'charge');
  const events = Array.from({ length: 60 }, (_, place) => unsigned(place));
  for (const event of events) expect(await relay.node.store.submit(event)).toBe('stored');
  await client.until(() => framesOf('EVENT').length === SUBSCRIPTIONS * events.length);
  const chargedMs = charge.mock.calls.reduce((sum, [, costMs]) => sum + costMs, 0);
  charge.mockRestore();
  expect(chargedMs > 10).toBe(isCharged);
  const ids = events.map(({ event }) => event.id);
  for (const name of names) {
    const received = framesOf('EVENT').filter(([, of]) => of === name);
    expect(received.map(([, , event]) => (event as { id: string }).id)).toEqual(ids);
  }
  await client.close();
});
