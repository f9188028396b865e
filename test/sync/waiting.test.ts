/** Messages of negentropy that wait for the database: what a client may leave waiting is bounded (I14). */
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import { ClientReconciliations } from '../../src/relay/reconciliation.js';
import { RawClient } from '../support/clients/client.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase } from '../support/servers/database.js';
import { FaultProxy } from '../support/servers/fault-proxy.js';

/** The largest message, in hex. */
const CHARACTERS_MAX = 262_144;
const OPENINGS = 100;

let relay: TestNode;
let proxy: FaultProxy;
let client: RawClient;
beforeAll(async () => {
  const test = await createTestDatabase();
  proxy = await FaultProxy.start(test.connection);
  relay = await startTestNode({ jobs: [], on: { ...test, connection: proxy.connection } });
});
afterAll(async () => {
  await relay.close();
  await proxy.stop();
  await relay.test.drop();
});
beforeEach(async () => {
  client = await RawClient.connect(relay.url);
});
afterEach(async () => {
  proxy.release();
  await client.close();
});

/** The records of its session are never read: their statement waits in the network. */
async function openFrozen(id: string, filter: object): Promise<void> {
  const frozen = proxy.when('int8send(r.created_at)', { kind: 'freeze' });
  client.send(['NEG-OPEN', id, filter, '6100000200']);
  await frozen;
}
const open = (id: string, message: string) => client.send(['NEG-OPEN', id, { kinds: [1] }, message]);
const errorOf = async (id: string) =>
  (await client.waitFor(([verb, of]) => verb === 'NEG-ERR' && of === id))[2];

it('a wrong message is refused at once, also while the database does not answer', async () => {
  await openFrozen('first', { kinds: [1], authors: ['a'.repeat(64)] });
  open('large', '61'.repeat(CHARACTERS_MAX));
  expect(await errorOf('large')).toBe('invalid: the message is too large');
  open('malformed', 'zz');
  expect(await errorOf('malformed')).toBe('invalid: the message is not hex');
  open('waiting', '61');
  client.send(['NEG-MSG', 'first', '61'.repeat(CHARACTERS_MAX)]);
  expect(await errorOf('first')).toBe('invalid: the next message comes after the answer to the last one');
  expect(client.frames.map(([verb, id]) => [verb, id])).toEqual([
    ['NEG-ERR', 'large'],
    ['NEG-ERR', 'malformed'],
    ['NEG-ERR', 'first'],
  ]);
});

it('one message of each open session waits, and the next session is refused', async () => {
  await openFrozen('first', { kinds: [1], '#t': ['tea'] });
  for (let number = 2; number <= 11; number += 1) open(`${number}`, '61');
  expect(await errorOf('11')).toBe('blocked: more than 10 open sessions; close some first');
  client.send(['NEG-CLOSE', '2']);
  open('12', '61');
  open('13', '61');
  expect(await errorOf('13')).toBe('blocked: more than 10 open sessions; close some first');
});

it('a session that is opened again leaves nothing of those before it in the line', async () => {
  const onOpen = vi.spyOn(ClientReconciliations.prototype, 'onOpen');
  await openFrozen('first', { kinds: [1], '#t': ['a'], authors: ['b'.repeat(64)] });
  const [reconciliations] = onOpen.mock.contexts;
  onOpen.mockRestore();
  const { waiting } = reconciliations as unknown as {
    waiting: ReadonlyMap<unknown, { message: Uint8Array }>;
  };
  for (let times = 0; times < OPENINGS; times += 1) open('again', '61'.repeat(CHARACTERS_MAX / 2));
  open('last', 'zz');
  await errorOf('last');
  expect(waiting.size).toBeLessThanOrEqual(1);
  for (const { message } of waiting.values()) expect(message.length).toBe(CHARACTERS_MAX / 2);
  client.send(['NEG-CLOSE', 'again']);
  open('closed', 'zz');
  await errorOf('closed');
  expect(waiting.size).toBe(0);
});
