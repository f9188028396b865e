/**
 * An erasure in DynamoDB that ends at any of its writes is resumed, and leaves nothing. Every write after
 * that point is refused, so the tables are as after a crash.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Dynamodb } from '../../src/events/dynamodb/client.js';
import { Streams } from '../../src/events/dynamodb/stream/client.js';
import { StreamFollower } from '../../src/events/dynamodb/stream/follow.js';
import { createLog } from '../../src/node/log.js';
import { allItems } from '../support/domains/dynamodb-items.js';
import { DynamodbProxy, sharedDynamodb } from '../support/servers/dynamodb.js';
import { type Contract, openContract, START } from '../support/stores/contract.js';
import { hash, unsigned } from '../support/stores/life.js';

const SECONDS = START / 1_000;
const WRITES = ['BatchWriteItem', 'UpdateItem', 'DeleteItem', 'PutItem'];

let proxy: DynamodbProxy;
let on: Contract;
let db: Dynamodb;
let follower: StreamFollower;
let streams: Streams;
/** By community: how many writes are left until it crashes. */
const left = new Map<number, number>();
const done = new Map<number, number>();

beforeAll(async () => {
  const { url } = await sharedDynamodb();
  proxy = await DynamodbProxy.start(url);
  on = await openContract('dynamodb', { endpoints: [proxy.place().endpoint] });
  const place = { endpoint: url, region: 'us-east-1', prefix: on.prefix! };
  db = new Dynamodb(place);
  streams = new Streams(place);
  const { ownPool: pool } = on.database;
  const now = Date.now;
  follower = new StreamFollower({ db, streams, pool, tagHash: on.tagHash, log: createLog('silent'), now });
  follower.start();
  proxy.interfere = ({ operation, body }) => {
    if (!WRITES.includes(operation)) return undefined;
    const community = Number(/"(\d+)\//.exec(JSON.stringify(body))?.[1]);
    done.set(community, (done.get(community) ?? 0) + 1);
    const rest = left.get(community);
    if (rest === undefined) return undefined;
    left.set(community, rest - 1);
    return rest > 0 ? undefined : { refuse: 'ValidationException' };
  };
});
afterAll(async () => {
  await follower?.stop();
  await streams?.close();
  await db?.close();
  await on?.close();
  await proxy?.stop();
});

const pubkey = hash('alice');

/** In a community of its own, so that many crash at the same time. */
async function fill(): Promise<number> {
  const community = on.community();
  const own = { pubkey, content: `${community}` };
  const events = [
    unsigned({ ...own, kind: 0, created_at: SECONDS - 2, tags: [] }),
    unsigned({ ...own, kind: 0, created_at: SECONDS - 1, tags: [['t', 'sea']] }),
    unsigned({ kind: 1_059, created_at: SECONDS, pubkey: hash('eph'), content: '', tags: [['p', pubkey]] }),
  ];
  for (const event of events) expect(await on.submit(community, event)).toBe('stored');
  return community;
}

async function erase(community: number): Promise<number> {
  const client = await on.database.connect();
  try {
    let deleted = 0;
    const session = { client, now: () => on.now, rows: 100 };
    for (const deleter of on.stores[0]!.deleters(session))
      deleted += await deleter.delete({ type: 'member', community, pubkey }, async () => undefined);
    return deleted;
  } finally {
    await client.end();
  }
}
/** Of all communities, but for the lists of authors. */
const itemsLeft = async () =>
  (await allItems(db)).filter(({ item: { pk } }) => !/^\d+\/people\//.test(String(pk)));

it('leaves nothing, whichever of its writes was the last', async () => {
  const whole = await fill();
  const before = done.get(whole)!;
  await erase(whole);
  expect(await itemsLeft()).toEqual([]);
  const writes = done.get(whole)! - before;
  expect(writes).toBeGreaterThan(10);
  await Promise.all(
    Array.from({ length: writes }, async (_, at) => {
      const community = await fill();
      left.set(community, at);
      await expect(erase(community), `at write ${at}`).rejects.toThrow();
      left.delete(community);
      await erase(community);
    }),
  );
  expect(await itemsLeft()).toEqual([]);
});
