/**
 * The stream of events in DynamoDB becomes the log of changes in PostgreSQL: every change once, with its
 * reason, in the order of each event, whichever worker reads it, also over expired iterators, lost leases and
 * splits of shards. A log with a gap makes every reader rebuild.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readTotals } from '../../src/communities/communities.sql.js';
import { Dynamodb } from '../../src/events/dynamodb/client.js';
import { Streams, streamsEndpoint } from '../../src/events/dynamodb/stream/client.js';
import { StreamFollower } from '../../src/events/dynamodb/stream/follow.js';
import { readSize, WHOLE } from '../../src/events/postgres/capacity.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { OutboxBehind, type ViewChange } from '../../src/events/store.js';
import { createLog } from '../../src/node/log.js';
import { DynamodbProxy, sharedDynamodb } from '../support/servers/dynamodb.js';
import { type Contract, openContract, START } from '../support/stores/contract.js';
import { hash, unsigned } from '../support/stores/life.js';

const PACKAGE: string = '@aws-sdk/client-dynamodb-streams';
const hasStreams = await import(PACKAGE).then(
  () => true,
  () => false,
);

const SECONDS = START / 1_000;
const [alice, bob] = ['alice', 'bob'].map(hash) as [string, string];
let made = 0;
const note = (draft: Partial<NostrEvent> = {}) => {
  made += 1;
  return unsigned({ kind: 1, pubkey: alice, created_at: SECONDS, content: `${made}`, ...draft });
};
const article = (created_at: number) => note({ kind: 30_023, created_at, tags: [['d', 'x']] });

describe('the endpoint of streams', () => {
  it('is beside that of the tables on AWS, and the same elsewhere', () => {
    expect(streamsEndpoint('https://dynamodb.eu-central-1.amazonaws.com')).toBe(
      'https://streams.dynamodb.eu-central-1.amazonaws.com',
    );
    expect(streamsEndpoint('http://127.0.0.1:8000')).toBe('http://127.0.0.1:8000');
  });
});

describe.skipIf(!hasStreams)('the stream', () => {
  let proxy: DynamodbProxy;
  let on: Contract;
  let followers: StreamFollower[];
  let streams: Streams;
  let community: number;
  let position: number;

  beforeAll(async () => {
    const { url } = await sharedDynamodb();
    proxy = await DynamodbProxy.start(url);
    on = await openContract('dynamodb', { endpoints: [url, url] });
  });
  afterAll(async () => {
    await streams?.close();
    await on?.close();
    await proxy?.stop();
  });
  beforeEach(async () => {
    proxy.interfere = () => undefined;
    await streams?.close();
    streams = new Streams(proxy.place());
    await free();
    followers = [newFollower(), newFollower()];
    await drain();
    community = on.community();
    position = await on.stores[0]!.head();
  });

  const newFollower = () => {
    const db = new Dynamodb({ ...proxy.place(on.prefix!) });
    return new StreamFollower({
      db,
      streams,
      pool: on.database.pool,
      tagHash: on.tagHash,
      log: createLog('silent'),
      now: Date.now,
    });
  };
  /** Both workers read until nothing is left. */
  const drain = async () => {
    for (let quiet = 0; quiet < 2; ) {
      const read = await Promise.all(followers.map((follower) => follower.step()));
      quiet = read.every((records) => records === 0) ? quiet + 1 : 0;
    }
  };
  /** Whoever asks next gets the shards. */
  const free = () => on.database.pool.query('UPDATE stream_shards SET held_until = 0');
  const changes = async (): Promise<readonly ViewChange[]> =>
    (await on.stores[1]!.changes(position, 1_000)).changes;
  const told = async () =>
    (
      await on.database.pool.query<{ what: string }>(
        `SELECT concat_ws(' ', op, reason, encode(event_id, 'hex')) AS what FROM events_outbox
         WHERE seq > $1 ORDER BY seq`,
        [position],
      )
    ).rows.map(({ what }) => what);
  const send = async (...events: NostrEvent[]) => {
    for (const event of events) await on.submit(community, event);
  };
  const bytes = (...events: NostrEvent[]) =>
    events.reduce((sum, event) => sum + Buffer.byteLength(serializeEvent(event)), 0);

  it('announces each change once with its reason, and keeps the totals', async () => {
    const [kept, deleted, removed] = [note({ tags: [['t', 'sea']] }), note(), note()];
    const brief = note({ tags: [['expiration', `${SECONDS + 10}`]] });
    const [old, young] = [article(SECONDS - 5), article(SECONDS - 4)];
    const request = note({ kind: 5, tags: [['e', deleted.id]] });
    await send(kept, deleted, removed, brief, old, young, request, kept);
    const refs = [{ community, id: removed.id }];
    await on.stores[0]!.hide({ hidden: 'removed', purge: false, which: { by: 'ids', refs } });
    on.now = START + 10_000;
    await on.stores[0]!.hide({ hidden: 'expired', purge: true, which: { by: 'expiration', limit: 10 } });
    on.now = START;
    await on.stores[0]!.countSeen([{ community, id: kept.id, times: 1, lastSeenAt: on.now }]);
    await drain();
    const all = await told();
    const upserts = [kept, deleted, removed, brief, old, young, request].map(({ id }) => `upsert ${id}`);
    const deletes = [
      `delete nip09 ${deleted.id}`,
      `delete moderation ${removed.id}`,
      `delete expiration ${brief.id}`,
      `delete superseded ${old.id}`,
    ];
    expect([...all].sort()).toEqual([...upserts, ...deletes].sort());
    for (const { id } of [deleted, removed, brief, old])
      expect(all.indexOf(`upsert ${id}`), 'in the order of each event').toBeLessThan(
        all.findIndex((what) => what.startsWith('delete') && what.endsWith(id)),
      );
    expect(await readTotals(on.database.pool, community)).toEqual({
      events: 3,
      bytes: bytes(kept, young, request),
    });
    const counted = { events: 2, bytes: bytes(kept, young) };
    expect(await readSize(on.database.pool, { community, topic: WHOLE })).toEqual(counted);
    expect((await changes()).map(({ op }) => op)).toEqual(all.map((what) => what.split(' ')[0]));
    await on.stores[0]!.restore(refs);
    await drain();
    expect((await told()).slice(all.length)).toEqual([`upsert ${removed.id}`]);
  });

  it('an erasure is announced, and its ids are forgotten without another change', async () => {
    const one = note({ pubkey: bob });
    await send(one);
    const author = { community, pubkey: bob, until: SECONDS, sparesRequest: true };
    const which = { by: 'author', author, limit: 10 } as const;
    await on.stores[0]!.hide({ hidden: 'erased', purge: true, forget: true, which });
    await drain();
    expect(await told()).toEqual([`upsert ${one.id}`, `delete erasure ${one.id}`]);
    expect(await readTotals(on.database.pool, community)).toEqual({ events: 0, bytes: 0 });
  });

  it('a request to vanish takes a position without a row, with the marks that hold', async () => {
    await send(note({ kind: 62, pubkey: bob }));
    await drain();
    const [change] = await changes();
    expect(change).toMatchObject({ op: 'unnamed' });
    const { marks } = change as Extract<ViewChange, { op: 'unnamed' }>;
    expect(marks).toContainEqual({ community, pubkey: bob, until: SECONDS });
    expect(await told()).toEqual([]);
  });

  it('a mark of the control plane takes a position at once', async () => {
    await on.stores[0]!.mark(async () => [{ community, pubkey: bob, until: SECONDS, requestId: undefined }]);
    expect((await changes()).map(({ op }) => op)).toEqual(['unnamed']);
  });

  it('an append whose worker has lost the shard is not made, and the other worker makes it', async () => {
    const [one, two] = followers as [StreamFollower, StreamFollower];
    await send(note());
    // While the first worker waits for its records, the second one takes the shard over and reads them.
    let taken: Promise<number> | undefined;
    proxy.interfere = ({ operation }) => {
      if (operation !== 'GetRecords' || taken !== undefined) return undefined;
      const take = async () => {
        await free();
        taken = two.step();
        await taken;
      };
      taken = Promise.resolve(0);
      return { after: take };
    };
    await free();
    expect(await one.step()).toBe(0);
    expect(await taken).toBe(1);
    await drain();
    expect(await told()).toHaveLength(1);
  });

  it('an answer that is lost, or an iterator that has expired, repeats nothing', async () => {
    const events = [note(), note(), note()];
    const faults = [
      { loseAnswer: true },
      { refuse: 'ExpiredIteratorException' },
      { refuse: 'InternalServerError' },
    ];
    for (const [at, event] of events.entries()) {
      await send(event);
      let broken = false;
      proxy.interfere = ({ operation }) => {
        if (operation !== 'GetRecords' || broken) return undefined;
        broken = true;
        return faults[at];
      };
      await free();
      await followers[at % 2]!.step().catch(() => 0);
      await drain();
    }
    expect(await told()).toEqual(events.map(({ id }) => `upsert ${id}`));
  });

  it('when records were trimmed before they were read, every reader must rebuild', async () => {
    await send(note());
    await drain();
    position = await on.stores[0]!.head();
    await send(note());
    let trimmed = false;
    proxy.interfere = ({ operation }) => {
      if (!['GetRecords', 'GetShardIterator'].includes(operation) || trimmed) return undefined;
      trimmed = true;
      return { refuse: 'TrimmedDataAccessException' };
    };
    await free();
    await followers[0]!.step();
    expect(trimmed).toBe(true);
    await expect(on.stores[0]!.changes(position, 10)).rejects.toThrow(OutboxBehind);
    const head = await on.stores[0]!.head();
    expect((await on.stores[0]!.changes(head, 10)).changes).toEqual([]);
  });

  it('a shard is read after its parent was read to its end', async () => {
    await on.database.pool.query('DELETE FROM stream_shards');
    const image = { id: { S: '1/x' }, community: { N: `${community}` }, kind: { N: '1' } };
    const record = (event: NostrEvent, at: number) => ({
      eventName: 'MODIFY',
      dynamodb: { SequenceNumber: `${at}`, NewImage: { ...image, payload: { S: serializeEvent(event) } } },
    });
    const [first, second, third] = [note(), note(), note()];
    /** The parent has two pages; then it is closed. */
    const pages: Record<string, object> = {
      'parent ': { Records: [record(first, 1)], NextShardIterator: 'parent more' },
      'parent more': { Records: [record(second, 2)] },
      'child ': { Records: [record(third, 3)], NextShardIterator: 'child more' },
      'child more': { Records: [], NextShardIterator: 'child more' },
    };
    const asked: string[] = [];
    proxy.interfere = ({ operation, body }) => {
      const { ShardId, ShardIterator } = body as { ShardId?: string; ShardIterator?: string };
      if (operation === 'DescribeStream') {
        const Shards = [
          { ShardId: 'child', ParentShardId: 'parent' },
          { ShardId: 'parent', ParentShardId: 'gone' },
        ];
        return { answer: { StreamDescription: { Shards } } };
      }
      if (operation === 'GetShardIterator') return { answer: { ShardIterator: `${ShardId} ` } };
      if (operation !== 'GetRecords') return undefined;
      asked.push(ShardIterator!);
      return { answer: pages[ShardIterator!]! };
    };
    const follower = newFollower();
    for (let steps = 0; steps < 4; steps += 1) await follower.step();
    expect(asked).toEqual(['parent ', 'parent more', 'child ', 'child more']);
    expect(await told()).toEqual([first, second, third].map(({ id }) => `upsert ${id}`));
    proxy.interfere = () => undefined;
    await on.database.pool.query('DELETE FROM stream_shards');
  });
});
