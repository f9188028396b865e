/**
 * Remote signers (NIP-46) over this node. Their messages (kind 24133) need no topic in any mode, and no
 * consent of the keys that send them, so that a member can sign in with a signer that uses this node.
 */
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { createPolicy, makeCurrent, publishPolicy, writeText } from '../../src/policies/policies.sql.js';
import { authenticate } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const SIGNING = 24_133;
let relay: TestNode;
const clients: RawClient[] = [];
const community = () => relay.node.communities.find(undefined, undefined)!;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_TOPIC_MODE: 'required' } });
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});
afterAll(() => relay.close());

async function connect(author?: Author): Promise<RawClient> {
  const client = await RawClient.connect(relay.url);
  clients.push(client);
  if (author !== undefined) expect(await authenticate(client, author, relay.url)).toEqual([true, '']);
  return client;
}

const message = (from: Author, to: Author) =>
  sign(from, { kind: SIGNING, content: `${Math.random()}`, tags: [['p', to.pubkey]] });

/** The signer waits for messages to its key, and the app sends one. */
async function expectDelivered(signer: RawClient, app: RawClient, keys: [Author, Author]): Promise<void> {
  const [ofSigner, ofApp] = keys;
  signer.send(['REQ', 'signer', { kinds: [SIGNING], '#p': [ofSigner.pubkey] }]);
  await signer.waitFor(([verb, id]) => verb === 'EOSE' && id === 'signer');
  const sent = message(ofApp, ofSigner);
  expect(await app.publish(sent)).toEqual([true, '']);
  await signer.waitFor(([verb, , event]) => verb === 'EVENT' && (event as { id: string }).id === sent.id);
}

async function publishTerms(): Promise<void> {
  const { pool } = relay.database;
  const ref = { community: community().id, type: 'terms', version: 'v1' } as const;
  const text = { title: 'Terms', content: 'Be kind' };
  const steps = [
    () => createPolicy(pool, ref, Date.now()),
    () => writeText(pool, { ...ref, locale: 'en' }, text, Date.now()),
    () => publishPolicy(pool, ref, Date.now()),
    () => makeCurrent(pool, ref, Date.now()),
  ];
  for (const step of steps) {
    const result: unknown = await step();
    if (isDenial(result)) throw new Error(JSON.stringify(result));
  }
}

it('messages to a signer need no topic where everything else does', async () => {
  const keys: [Author, Author] = [newAuthor(), newAuthor()];
  const app = await connect();
  await expectDelivered(await connect(), app, keys);
  expect(await app.publish(sign(keys[1]))).toEqual([false, expect.stringMatching(/^invalid: missing topic/)]);
  expect((await app.query({ kinds: [SIGNING, 1] })).closed).toMatch(/^invalid: missing topic/);
});

it('the setting topic.freeKinds cannot take that away', async () => {
  await writeSetting(relay.database.pool, community().id, 'topic.freeKinds', [0], Date.now());
  await vi.waitUntil(() => community().settings['topic.freeKinds'].length === 1, { timeout: 20_000 });
  await expectDelivered(await connect(), await connect(), [newAuthor(), newAuthor()]);
});

it('keys of signers need to authenticate where clients must, but not to agree to the terms', async () => {
  await publishTerms();
  await writeSetting(relay.database.pool, community().id, 'auth.mode', 'required', Date.now());
  await vi.waitUntil(
    () => community().settings['auth.mode'] === 'required' && community().policies.length === 1,
    { timeout: 20_000 },
  );
  const keys: [Author, Author] = [newAuthor(), newAuthor()];
  const stranger = await connect();
  expect(await stranger.publish(message(keys[1], keys[0]))).toEqual([
    false,
    expect.stringMatching(/^auth-required: /),
  ]);
  const [signer, app] = [await connect(keys[0]), await connect(keys[1])];
  await expectDelivered(signer, app, keys);
  const refused = 'restricted: consent required';
  expect(await app.publish(sign(keys[1], { tags: [['t', 'kukuri:global']] }))).toEqual([false, refused]);
  expect((await app.query({ kinds: [1], '#t': ['kukuri:global'] })).closed).toBe(refused);
  expect((await app.query({ kinds: [SIGNING, 0] })).closed).toBe(refused);
});
