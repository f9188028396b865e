/**
 * The event store on DynamoDB behind a proxy that interferes: throttling and lost answers never lose an
 * acknowledged event, a failed removal is retried by a job, an index that is behind shows nothing deleted,
 * and races are forced in both orders. PostgreSQL has one transaction for all of this, so these tests are for
 * this store only.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ATTEMPTS_MAX } from '../../src/dynamodb/sdk.js';
import { Dynamodb, TRANSACTION_ITEMS_MAX } from '../../src/events/dynamodb/client.js';
import { OWNERS_MAX } from '../../src/events/dynamodb/commit.js';
import { PAYLOAD_BYTES_MAX } from '../../src/events/dynamodb/items.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { allItems } from '../support/domains/dynamodb-items.js';
import { DynamodbProxy, type Interference, sharedDynamodb } from '../support/servers/dynamodb.js';
import { type Contract, openContract, openDynamodb, START } from '../support/stores/contract.js';
import { hash, unsigned } from '../support/stores/life.js';

const SECONDS = START / 1_000;
const [alice, bob] = ['alice', 'bob'].map(hash) as [string, string];
const FAILED = 'error: failed to store event';
const DELETED = 'blocked: deleted by its author';

let proxy: DynamodbProxy;
let on: Contract;
let db: Dynamodb;
let community: number;
let made = 0;

/** The first writer goes through the proxy, the second does not. */
const THROUGH = { writer: 0 };
const DIRECT = { writer: 1 };

beforeAll(async () => {
  const { url } = await sharedDynamodb();
  proxy = await DynamodbProxy.start(url);
  on = await openContract('dynamodb', { endpoints: [proxy.place().endpoint, url] });
  db = new Dynamodb({ endpoint: url, region: 'us-east-1', prefix: on.prefix! });
});
afterAll(async () => {
  await db?.close();
  await on?.close();
  await proxy?.stop();
});
beforeEach(() => {
  proxy.interfere = () => undefined;
  community = on.community();
});

const note = (draft: Partial<NostrEvent> = {}) => {
  made += 1;
  return unsigned({ kind: 1, pubkey: alice, created_at: SECONDS, content: `${made}`, ...draft });
};
const request = (...tags: string[][]) => note({ kind: 5, tags });
/** The entries that lists of events are read from. */
const entriesOf = async ({ id }: NostrEvent) =>
  (await allItems(db)).filter(({ table, item }) => table === 'index' && String(item.sk).includes(id));
const idsDirect = async () =>
  (
    await on.stores[1]!.find(
      { community, filter: { kinds: new Set([1, 30_023]), tags: [] }, limit: 100, now: on.now },
      'light',
    )
  ).map(({ id }) => id);

describe('throttling', () => {
  const errors = ['ProvisionedThroughputExceededException', 'InternalServerError'];
  const calls = ['BatchGetItem', 'BatchWriteItem', 'TransactWriteItems'];
  it.each(calls.flatMap((call) => errors.map((error) => ({ call, error }))))(
    '$error of every $call: the client gets an error, nothing is served, and the event can be sent again',
    async ({ call, error }) => {
      const one = note({ tags: [['t', 'sea']] });
      proxy.interfere = ({ operation }) => (operation === call ? { refuse: error } : undefined);
      expect(await on.submit(community, one, THROUGH)).toBe(FAILED);
      expect(await idsDirect()).toEqual([]);
      proxy.interfere = () => undefined;
      expect(await on.submit(community, one, THROUGH)).toBe('stored');
      expect(await idsDirect()).toEqual([one.id]);
    },
  );

  it('items that a batch leaves undone are written', async () => {
    let left = 2;
    proxy.interfere = ({ operation }) =>
      operation === 'BatchWriteItem' && left-- > 0 ? { handBack: 2 } : undefined;
    const tags = Array.from({ length: 30 }, (_, at) => ['x', `${at}`]);
    const one = note({ tags });
    expect(await on.submit(community, one, THROUGH)).toBe('stored');
    for (const [, value] of tags) {
      const filter = { tags: [{ name: 'x', values: new Set([value!]) }] };
      expect(await on.ids(community, filter)).toEqual([one.id]);
    }
  });

  it('a transaction whose answer is lost is stored once, and the client gets `stored`', async () => {
    let lost = 0;
    proxy.interfere = ({ operation }) =>
      operation === 'TransactWriteItems' && ++lost <= 3 ? { loseAnswer: true } : undefined;
    const one = note();
    expect(await on.submit(community, one, THROUGH)).toBe('stored');
    expect(lost).toBeGreaterThan(2);
    expect(await idsDirect()).toEqual([one.id]);
    expect(await on.submit(community, one, DIRECT)).toBe('duplicate');
  });
});

describe('what is tidied after the outcome is known', () => {
  /** Holds the requests until `open`. */
  const hold = (isHeld: (request: Parameters<Interference>[0]) => boolean) => {
    let open = (): void => undefined;
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    const held = { count: 0, open: () => open() };
    const meet: Interference = (request) => {
      if (!isHeld(request)) return undefined;
      held.count += 1;
      return { before: () => opened };
    };
    return { held, meet };
  };

  it('after a lost answer: the client does not wait for it', async () => {
    const { held, meet } = hold(({ operation }) => operation === 'GetItem');
    let lost = 0;
    proxy.interfere = (request) =>
      request.operation === 'TransactWriteItems' && ++lost <= ATTEMPTS_MAX
        ? { loseAnswer: true }
        : meet(request);
    const one = note();
    expect(await on.submit(community, one, THROUGH)).toBe('stored');
    await expect.poll(() => held.count).toBe(1);
    held.open();
    expect(await idsDirect()).toEqual([one.id]);
  });

  it('of the version before it: the client does not wait for it, the next version does', async () => {
    const [first, second, third] = [1, 2, 3].map((at) =>
      note({ kind: 30_023, created_at: at, tags: [['d', 'x']] }),
    ) as [NostrEvent, NostrEvent, NostrEvent];
    await on.submit(community, first, DIRECT);
    const { held, meet } = hold(
      ({ operation, body }) =>
        operation === 'BatchWriteItem' && JSON.stringify(body).includes('DeleteRequest'),
    );
    proxy.interfere = meet;
    expect(await on.submit(community, second, THROUGH)).toBe('stored');
    await expect.poll(() => held.count).toBe(1);
    const next = on.submit(community, third, THROUGH);
    expect(on.stores[0]!.depth).toBe(1);
    expect(await idsDirect()).toEqual([second.id]);
    expect(on.stores[0]!.depth).toBe(1);
    held.open();
    expect(await next).toBe('stored');
    expect(await idsDirect()).toEqual([third.id]);
  });
});

describe('deletions', () => {
  it('a removal that fails is left to a job, and the request is still stored', async () => {
    const [one, two] = [note(), note()];
    for (const event of [one, two]) await on.submit(community, event, DIRECT);
    let refused: string | undefined;
    proxy.interfere = ({ operation, body }) => {
      if (operation !== 'DeleteItem') return undefined;
      const { id } = (body as { Key?: { id?: { S: string } } }).Key ?? {};
      refused ??= id?.S;
      return id?.S === refused ? { refuse: 'InternalServerError' } : undefined;
    };
    const asked = request(['e', one.id], ['e', two.id]);
    expect(await on.submit(community, asked, THROUGH)).toBe('stored');
    // What was deleted stays deleted.
    expect(await idsDirect()).toEqual([refused!.split('/')[1]]);
    proxy.interfere = () => undefined;
    expect(await on.stores[1]!.deleteHistory(100)).toEqual({ versions: 1, found: true });
    expect(await on.stores[1]!.deleteHistory(100)).toEqual({ versions: 0, found: false });
    expect(await idsDirect()).toEqual([]);
    for (const event of [one, two]) expect(await on.submit(community, event, DIRECT)).toBe(DELETED);
  });

  it('a request that cannot be stored: its targets stay deleted, and it can be sent again', async () => {
    const one = note();
    await on.submit(community, one, DIRECT);
    proxy.interfere = ({ operation }) =>
      operation === 'TransactWriteItems' ? { refuse: 'InternalServerError' } : undefined;
    const asked = request(['e', one.id]);
    expect(await on.submit(community, asked, THROUGH)).toBe(FAILED);
    expect(await idsDirect()).toEqual([]);
    proxy.interfere = () => undefined;
    expect(await on.submit(community, asked, THROUGH)).toBe('stored');
  });
});

describe('races', () => {
  it('an event whose transaction comes after the tombstone is refused', async () => {
    for (const [event, target] of [
      [note(), 'e'],
      [note({ kind: 30_023, tags: [['d', 'x']] }), 'a'],
    ] as const) {
      const asked = request(target === 'e' ? ['e', event.id] : ['a', `30023:${alice}:x`]);
      let held = false;
      proxy.interfere = ({ operation }) => {
        if (operation !== 'TransactWriteItems' || held) return undefined;
        held = true;
        return { before: () => on.submit(community, asked, DIRECT) };
      };
      expect(await on.submit(community, event, THROUGH)).toBe(DELETED);
      expect(held).toBe(true);
      expect(await idsDirect()).toEqual([]);
      // The entries of the attempt that failed are deleted again, soon after the answer.
      await expect.poll(() => entriesOf(event)).toEqual([]);
    }
  });

  it('an event that is stored just before the tombstone is written is deleted', async () => {
    const one = note();
    let held = false;
    proxy.interfere = ({ operation }) => {
      if (operation !== 'PutItem' || held) return undefined;
      held = true;
      return { before: () => on.submit(community, one, DIRECT) };
    };
    expect(await on.submit(community, request(['e', one.id]), THROUGH)).toBe('stored');
    expect(held).toBe(true);
    expect(await idsDirect()).toEqual([]);
  });

  it('an event whose transaction comes after a mark is refused', async () => {
    const one = note({ pubkey: bob });
    const vanish = note({ kind: 62, pubkey: bob });
    let held = false;
    proxy.interfere = ({ operation }) => {
      if (operation !== 'TransactWriteItems' || held) return undefined;
      held = true;
      return { before: () => on.submit(community, vanish, DIRECT) };
    };
    expect(await on.submit(community, one, THROUGH)).toBe('blocked: its author asked to vanish');
    expect(await idsDirect()).toEqual([]);
  });

  it('of two versions at once the newest is served, and the other is not', async () => {
    const [old, young] = [1, 2].map((at) => note({ kind: 30_023, created_at: at, tags: [['d', 'x']] }));
    for (const [first, second] of [
      [old!, young!],
      [young!, old!],
    ]) {
      community = on.community();
      let held = false;
      proxy.interfere = ({ operation }) => {
        if (operation !== 'TransactWriteItems' || held) return undefined;
        held = true;
        return { before: () => on.submit(community, second!, DIRECT) };
      };
      await on.submit(community, first!, THROUGH);
      expect(held).toBe(true);
      expect(await idsDirect()).toEqual([young!.id]);
    }
  });

  it('many writers of one key: one version is served, and nobody gives up', async () => {
    const versions = Array.from({ length: 30 }, (_, at) => note({ kind: 0, created_at: at }));
    const outcomes = await Promise.all(
      versions.map((one, at) => on.submit(community, one, { writer: at % 2 })),
    );
    expect(outcomes.filter((told) => told.startsWith('error'))).toEqual([]);
    expect(await on.ids(community, { kinds: new Set([0]) })).toEqual([versions.at(-1)!.id]);
  });
});

describe('an index that is behind', () => {
  const filter = { authors: new Set([alice]), kinds: new Set([1]) };
  /** The index of `Events` answers as if nothing had reached it. */
  const behind = () => {
    proxy.interfere = ({ operation, body }) =>
      operation === 'Query' && body.IndexName !== undefined ? { answer: { Items: [], Count: 0 } } : undefined;
  };

  it('does not hide what this instance has just acknowledged', async () => {
    behind();
    const [one, two] = [note({ created_at: SECONDS - 1 }), note()];
    await on.submit(community, one, THROUGH);
    await on.submit(community, two, THROUGH);
    expect(await on.ids(community, filter)).toEqual([two.id, one.id]);
    expect(await on.ids(community, filter, { limit: 1 })).toEqual([two.id]);
    // By tags, authors, kinds and all together the index is never behind.
    expect(await on.ids(community, { authors: new Set([alice]) })).toEqual([two.id, one.id]);
  });

  it('shows nothing that is deleted', async () => {
    behind();
    const one = note();
    await on.submit(community, one, THROUGH);
    await on.submit(community, request(['e', one.id]), DIRECT);
    expect(await on.ids(community, filter)).toEqual([]);
  });
});

describe('limits', () => {
  it(`a transaction of ${TRANSACTION_ITEMS_MAX} items is accepted`, async () => {
    const [db] = await openDynamodb(1);
    const changes = Array.from({ length: TRANSACTION_ITEMS_MAX }, (_, at) => ({
      table: 'state' as const,
      put: { pk: `${at}`, sk: '-' },
    }));
    await db!.transact(changes);
    expect(await db!.get('state', { pk: `${TRANSACTION_ITEMS_MAX - 1}`, sk: '-' })).toBeDefined();
    await db!.close();
  });

  it('a gift wrap has as many recipients as one transaction can check', async () => {
    const wrap = (recipients: number) =>
      note({ kind: 1_059, tags: Array.from({ length: recipients }, (_, at) => ['p', hash(`${at}`)]) });
    expect(await on.submit(community, wrap(OWNERS_MAX - 1))).toBe('stored');
    expect(await on.submit(community, wrap(OWNERS_MAX))).toBe(
      `invalid: a gift wrap may have at most ${OWNERS_MAX - 1} recipients here`,
    );
  });

  it('an event that does not fit into an item is refused with the limit', async () => {
    const large = (bytes: number) => note({ content: 'x'.repeat(bytes) });
    expect(await on.submit(community, large(PAYLOAD_BYTES_MAX - 1_000))).toBe('stored');
    expect(await on.submit(community, large(PAYLOAD_BYTES_MAX))).toBe(
      `invalid: too large: this relay stores at most ${PAYLOAD_BYTES_MAX} bytes`,
    );
  });
});
