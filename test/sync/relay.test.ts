/** The relay's side of negentropy (NIP-77), against other implementations and by its bounds. */
import { type Filter, nip77 } from 'nostr-tools';
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { changeSetting } from '../../src/communities/settings.sql.js';
import { eventually } from '../support/cli.js';
import { authenticate } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { idsOf, openSyncing, type Syncing, someEvents, store } from '../support/domains/sync.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

useWebSocketImplementation(WebSocket);

let node: TestNode;
let syncing: Syncing;

beforeAll(async () => {
  node = await startTestNode({ jobs: [] });
  syncing = await openSyncing(node);
});
afterAll(async () => {
  await syncing.close();
  await node.close();
});

interface Item {
  readonly id: string;
  readonly created_at: number;
}

/** As a client of nostr-tools: what each side lacks. */
async function compare(
  items: readonly Item[],
  filter: Filter,
  url = node.url,
): Promise<{ have: string[]; need: string[] }> {
  const storage = new nip77.NegentropyStorageVector();
  for (const { created_at, id } of items) storage.insert(created_at, id);
  storage.seal();
  const relay = await Relay.connect(url);
  const have: string[] = [];
  const need: string[] = [];
  try {
    await new Promise<void>((resolve, reject) => {
      const sync = new nip77.NegentropySync(relay, storage, filter, {
        onhave: (id) => have.push(id),
        onneed: (id) => need.push(id),
        onclose: (why) => (why === undefined ? resolve() : reject(new Error(why))),
      });
      void sync.start();
    });
  } finally {
    relay.close();
  }
  return { have: have.sort(), need: need.sort() };
}

/** Opens a session by hand; returns the answer. */
async function open(client: RawClient, id: string, filter: object, message = '6100000200') {
  const from = client.frames.length;
  client.send(['NEG-OPEN', id, filter, message]);
  return client.waitFor(([type, of]) => String(type).startsWith('NEG-') && of === id, from);
}

async function set(key: Parameters<typeof changeSetting>[1]['key'], value: unknown): Promise<void> {
  const community = node.node.communities.find(undefined, undefined)!;
  await changeSetting(node.database.pool, { community: community.id, key, value }, Date.now());
  await eventually(`${key} is changed`, () => {
    const { settings } = node.node.communities.get(community.id)!;
    return JSON.stringify(settings[key]) === JSON.stringify(value) || undefined;
  });
}

/** The ids in the answer to a message that has none: a list of all. */
function listed(answer: readonly unknown[]): string[] {
  const storage = new nip77.NegentropyStorageVector();
  storage.seal();
  const need: string[] = [];
  new nip77.Negentropy(storage).reconcile(String(answer[2]), undefined, (id) => need.push(id));
  return need.sort();
}

describe('a client with nostr-tools', () => {
  const SIZE = 1_500;
  for (const percent of [0, 1, 10, 100]) {
    it(`finds a difference of ${percent} % of ${SIZE} random events, and no other`, async () => {
      const kind = 1_000 + percent;
      const events = someEvents(SIZE, { kind, span: percent === 10 ? 20 : 100_000 });
      await store(syncing, events);
      const lacking = Math.round((SIZE * percent) / 100);
      const extra = someEvents(lacking, { kind });
      const items = [...events.slice(lacking), ...extra];
      const { have, need } = await compare(items, { kinds: [kind] });
      expect([...new Set(need)]).toEqual(idsOf(events.slice(0, lacking)));
      expect([...new Set(have)]).toEqual(idsOf(extra));
    });
  }

  it('compares by authors, tags, times, ids and limits as REQ does', async () => {
    const [one, other] = [newAuthor(), newAuthor()];
    const events = [
      ...someEvents(60, { author: one, kind: 1, tags: [['t', 'sea']] }),
      ...someEvents(60, {
        author: other,
        kind: 7,
        tags: [
          ['t', 'land'],
          ['p', one.pubkey],
        ],
      }),
    ];
    await store(syncing, events);
    const client = await RawClient.connect(node.url);
    const middle = events[30]!.created_at;
    for (const filter of [
      { authors: [one.pubkey] },
      { authors: [one.pubkey, other.pubkey], kinds: [1, 7] },
      { '#t': ['sea'], authors: [one.pubkey, other.pubkey] },
      { '#t': ['sea', 'land'], '#p': [one.pubkey] },
      { authors: [one.pubkey], since: middle },
      { authors: [one.pubkey], until: middle },
      { authors: [one.pubkey], limit: 7 },
      { ids: events.slice(0, 20).map(({ id }) => id) },
      { kinds: [1], authors: [other.pubkey] },
      { authors: [...Array.from({ length: 30 }, () => newAuthor().pubkey), one.pubkey, other.pubkey] },
    ]) {
      const { events: served } = await client.query(filter);
      const { need } = await compare([], filter);
      expect(need, JSON.stringify(filter)).toEqual(idsOf(served));
    }
    await client.close();
  });
});

describe('a session', () => {
  it('is not changed by events that arrive later, and forgets those that are deleted', async () => {
    const author = newAuthor();
    const filter = { authors: [author.pubkey], kinds: [1] };
    const events = someEvents(3, { author });
    await store(syncing, events);
    const client = await RawClient.connect(node.url);
    expect(listed(await open(client, 's', filter))).toEqual(idsOf(events));
    await client.publish(sign(author, { created_at: nowSeconds() }));
    await client.publish(sign(author, { kind: 5, tags: [['e', events[0]!.id]] }));
    const from = client.frames.length;
    client.send(['NEG-MSG', 's', '6100000200']);
    const again = await client.waitFor(([type]) => type === 'NEG-MSG', from);
    const [left, all] = [idsOf(events.slice(1)), idsOf(events)];
    // The page that is still in memory may be a moment old; a new session never is.
    expect([left, all]).toContainEqual(listed(again));
    expect(listed(await open(client, 's', filter))).toHaveLength(3);
    expect(listed(await open(client, 's', filter))).not.toContain(events[0]!.id);
    await client.close();
  });

  it('reads no event that became visible after its position', async () => {
    const author = newAuthor();
    const [first, second] = someEvents(2, { author });
    await store(syncing, [first!]);
    const { store: events, communities } = node.node;
    const upTo = await events.head();
    await store(syncing, [second!]);
    const query = {
      community: communities.find(undefined, undefined)!.id,
      filter: { authors: new Set([author.pubkey]), tags: [] },
      limit: 100,
      now: Date.now(),
      lower: { time: 0, id: new Uint8Array() },
      upper: { time: Number.POSITIVE_INFINITY, id: new Uint8Array() },
    };
    const idsUpTo = async (position: number) => {
      const { records } = await events.records({ ...query, upTo: position }, 'medium');
      return Array.from({ length: records.length / 40 }, (_, at) =>
        Buffer.from(records.subarray(at * 40 + 8, (at + 1) * 40)).toString('hex'),
      ).sort();
    };
    expect(await idsUpTo(upTo)).toEqual([first!.id]);
    expect(await idsUpTo(await events.head())).toEqual(idsOf([first!, second!]));
  });

  it('is closed before another one is opened under its id, and by NEG-CLOSE', async () => {
    const client = await RawClient.connect(node.url);
    expect((await open(client, 'a', { kinds: [1] }))[0]).toBe('NEG-MSG');
    expect((await open(client, 'a', { kinds: [7] }))[0]).toBe('NEG-MSG');
    client.send(['NEG-CLOSE', 'a']);
    const from = client.frames.length;
    client.send(['NEG-MSG', 'a', '61']);
    expect(await client.waitFor(([type]) => type === 'NEG-ERR', from)).toEqual([
      'NEG-ERR',
      'a',
      'closed: there is no such session',
    ]);
    await client.close();
  });

  it('has its own ids beside those of subscriptions', async () => {
    const client = await RawClient.connect(node.url);
    await open(client, 'same', { kinds: [1] });
    client.send(['REQ', 'same', { kinds: [1], limit: 0 }]);
    await client.waitFor(([type, id]) => type === 'EOSE' && id === 'same');
    const from = client.frames.length;
    client.send(['CLOSE', 'same']);
    client.send(['NEG-MSG', 'same', '61']);
    expect((await client.waitFor(([type]) => String(type).startsWith('NEG-'), from))[0]).toBe('NEG-MSG');
    await client.close();
  });

  it('needs one filter and a message', async () => {
    const client = await RawClient.connect(node.url);
    const refused = async (frame: unknown[]) => {
      const from = client.frames.length;
      client.send(frame);
      const [, , why] = await client.waitFor(([type]) => type === 'NEG-ERR', from);
      return String(why);
    };
    expect(await refused(['NEG-OPEN', 'x', { kinds: [1] }])).toMatch(/^invalid: /);
    expect(await refused(['NEG-OPEN', 'x', { kinds: [1] }, 'zz'])).toBe('invalid: the message is not hex');
    expect(await refused(['NEG-OPEN', 'x', { kinds: [1] }, '11'])).toMatch(/^invalid: /);
    expect(await refused(['NEG-OPEN', 'x', { kinds: ['1'] }, '61'])).toMatch(/^invalid: /);
    expect(await refused(['NEG-OPEN', 'x', { search: 'tea' }, '61'])).toMatch(/^unsupported: /);
    expect(await refused(['NEG-OPEN', 'x', { kinds: [1] }, '61'.repeat(200_000)])).toBe(
      'invalid: the message is too large',
    );
    await client.close();
  });
});

describe('the bounds', () => {
  it('a filter with too many events is blocked, and the answer names the maximum', async () => {
    const author = newAuthor();
    await store(syncing, someEvents(30, { author }));
    await set('limits.negentropyRecordsMax', 20);
    const client = await RawClient.connect(node.url);
    expect(await open(client, 'big', { authors: [author.pubkey] })).toEqual([
      'NEG-ERR',
      'big',
      'blocked: this query is too big: more than 20 records',
    ]);
    await set('limits.negentropyRecordsMax', 1_000_000);
    expect((await open(client, 'big', { authors: [author.pubkey] }))[0]).toBe('NEG-MSG');
    await client.close();
  });

  it('a connection has a maximum of sessions', async () => {
    await set('limits.negentropySessionsMax', 2);
    const client = await RawClient.connect(node.url);
    expect((await open(client, '1', { kinds: [1] }))[0]).toBe('NEG-MSG');
    expect((await open(client, '2', { kinds: [1] }))[0]).toBe('NEG-MSG');
    expect((await open(client, '3', { kinds: [1] }))[2]).toMatch(/^blocked: more than 2 open sessions/);
    client.send(['NEG-CLOSE', '1']);
    expect((await open(client, '3', { kinds: [1] }))[0]).toBe('NEG-MSG');
    await client.close();
    await set('limits.negentropySessionsMax', 10);
  });

  it('a second message before the answer ends the session', async () => {
    const client = await RawClient.connect(node.url);
    client.send(['NEG-OPEN', 'hasty', { kinds: [1] }, '61']);
    client.send(['NEG-MSG', 'hasty', '61']);
    const [, , why] = await client.waitFor(([type]) => type === 'NEG-ERR');
    expect(why).toMatch(/^invalid: the next message comes after/);
    await client.close();
  });

  it('NIP-11 names NIP-77 while it is on, and both known answers are given while it is off', async () => {
    const nips = async () => {
      const response = await fetch(node.http, { headers: { accept: 'application/nostr+json' } });
      return ((await response.json()) as { supported_nips: number[] }).supported_nips;
    };
    expect(await nips()).toContain(77);
    await set('limits.negentropySessionsMax', 0);
    expect(await nips()).not.toContain(77);
    const client = await RawClient.connect(node.url);
    expect(await open(client, 'off', { kinds: [1] })).toEqual([
      'NEG-ERR',
      'off',
      'blocked: negentropy disabled',
    ]);
    expect(await client.waitFor(([type]) => type === 'NOTICE')).toEqual([
      'NOTICE',
      'ERROR: bad msg: negentropy disabled',
    ]);
    await client.close();
    await set('limits.negentropySessionsMax', 10);
  });
});

describe('what a client may see', () => {
  it('private kinds are in the records of their parties only', async () => {
    const [alice, bob] = [newAuthor(), newAuthor()];
    const secret = sign(alice, { kind: 4, tags: [['p', bob.pubkey]] });
    const open1 = sign(alice, { kind: 1, tags: [['p', bob.pubkey]] });
    await store(syncing, [secret, open1]);
    const filter = { authors: [alice.pubkey] };
    const stranger = await RawClient.connect(node.url);
    expect(listed(await open(stranger, 's', filter))).toEqual([open1.id]);
    const party = await RawClient.connect(node.url);
    await authenticate(party, bob, node.url);
    expect(listed(await open(party, 's', filter))).toEqual(idsOf([secret, open1]));
    expect((await open(stranger, 's', { kinds: [4] }))[2]).toMatch(/^auth-required: /);
    await stranger.close();
    await party.close();
  });

  it('expired and superseded events are in no records', async () => {
    const author = newAuthor();
    const old = sign(author, { kind: 0, created_at: nowSeconds() - 100 });
    const current = sign(author, { kind: 0, created_at: nowSeconds() - 50 });
    const brief = sign(author, { tags: [['expiration', String(nowSeconds() + 2)]] });
    await store(syncing, [old, current, brief]);
    const client = await RawClient.connect(node.url);
    await eventually('the event expires', () => nowSeconds() > Number(brief.tags[0]![1]) || undefined);
    expect(listed(await open(client, 's', { authors: [author.pubkey] }))).toEqual([current.id]);
    await client.close();
  });
});
