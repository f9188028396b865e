/** I13: no community sees another's data, although one process, one port and one database serve them all. */
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

let relay: TestNode;
/** One client per community: the default, one by path, one by host name. */
let harbour: RawClient;
let art: RawClient;
let music: RawClient;
const alice = newAuthor();
const MUSIC_HOST = 'music.example.org';

const found = (slug: string) => relay.node.communities.find(undefined, slug);

async function add(slug: string, host?: string): Promise<number> {
  const id = await addCommunity(relay.database.pool, slug, host, Date.now());
  for (const [key, value] of [
    ['topic.mode', 'open'],
    ['relay.name', `Relay of ${slug}`],
  ] as const) {
    await writeSetting(relay.database.pool, id, key, value, Date.now());
  }
  await vi.waitUntil(() => found(slug)?.settings['relay.name'] === `Relay of ${slug}`, { timeout: 100_000 });
  return id;
}

beforeAll(async () => {
  relay = await startTestNode();
  await add('art');
  await add('music', MUSIC_HOST);
  harbour = await RawClient.connect(relay.url);
  art = await RawClient.connect(`${relay.url}/c/art`);
  music = await RawClient.connect(relay.url, { host: MUSIC_HOST });
});
afterAll(async () => {
  for (const client of [harbour, art, music]) await client.close();
  await relay.close();
});

/** `fetch` cannot set the Host header. */
function get(path: string, headers: Record<string, string> = {}): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(`${relay.http}${path}`, { headers }, (response) => {
      let body = '';
      response.on('data', (chunk) => {
        body += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
    });
    sent.on('error', reject);
    sent.end();
  });
}
const NOSTR = { accept: 'application/nostr+json' };
const nameAt = async (path: string, headers: Record<string, string> = {}) =>
  JSON.parse((await get(path, { ...NOSTR, ...headers })).body).name as string;

async function count(client: RawClient, filter: object): Promise<unknown> {
  const from = client.frames.length;
  client.send(['COUNT', 'c', filter]);
  return (await client.waitFor((frame) => frame[1] === 'c', from))[2];
}

describe('which community answers', () => {
  it('/ is the default community, /c/<slug> goes by slug, a host name by host', async () => {
    expect(await nameAt('/')).toBe('Minato');
    expect(await nameAt('/', { host: 'unknown.example.org' })).toBe('Minato');
    expect(await nameAt('/c/default')).toBe('Minato');
    expect(await nameAt('/c/art')).toBe('Relay of art');
    expect(await nameAt('/c/music')).toBe('Relay of music');
    expect(await nameAt('/', { host: MUSIC_HOST })).toBe('Relay of music');
    expect(await nameAt('/', { host: `${MUSIC_HOST.toUpperCase()}:7447` })).toBe('Relay of music');
    expect(await nameAt('/c/art', { host: MUSIC_HOST })).toBe('Relay of art');
  });

  it.each(['/c/nobody', '/c/ART', '/c/art%20', '/c/', '/c', '/c/art/more', '/elsewhere'])(
    '%s is 404 for HTTP and for the upgrade',
    async (path) => {
      expect((await get(path, NOSTR)).status).toBe(404);
      expect((await get(path)).status).toBe(404);
      await expect(RawClient.connect(relay.url + path)).rejects.toThrow('404');
    },
  );

  it('/c/<slug>/stats of an unknown community is 404', async () => {
    expect((await get('/c/nobody/stats')).status).toBe(404);
  });

  it('a community that is added while the node runs is served without a restart', async () => {
    expect((await get('/c/late', NOSTR)).status).toBe(404);
    await add('late', 'late.example.org');
    expect(await nameAt('/c/late')).toBe('Relay of late');
    expect(await nameAt('/', { host: 'late.example.org' })).toBe('Relay of late');
    const client = await RawClient.connect(`${relay.url}/c/late`);
    const event = sign(alice, { content: 'first of the late ones' });
    expect(await client.publish(event)).toEqual([true, '']);
    expect(await client.query({})).toEqual({ events: [event] });
    await client.close();
  });

  it.each(['', 'Art', 'a/b', 'a b', '-a', 'x'.repeat(64), 'é'])(
    '"%s" is not a valid community name',
    async (slug) => {
      await expect(addCommunity(relay.database.pool, slug, undefined, Date.now())).rejects.toThrow(
        'is not a valid community name',
      );
    },
  );

  it('a taken name or host is refused with a sentence', async () => {
    const { pool } = relay.database;
    await expect(addCommunity(pool, 'art', undefined, Date.now())).rejects.toThrow('already exists');
    await expect(addCommunity(pool, 'music2', MUSIC_HOST, Date.now())).rejects.toThrow('already exists');
  });
});

describe('the data of a community', () => {
  it('the same event is stored in each community, and each finds its own duplicates', async () => {
    const event = sign(alice, { content: 'everywhere', tags: [['t', 'shared']] });
    expect(await harbour.publish(event)).toEqual([true, '']);
    expect(await art.publish(event)).toEqual([true, '']);
    expect((await art.publish(event))[1]).toMatch(/^duplicate:/);
    expect((await harbour.publish(event))[1]).toMatch(/^duplicate:/);
    expect(await music.query({ ids: [event.id] })).toEqual({ events: [] });
    expect(await music.publish(event)).toEqual([true, '']);
    for (const client of [harbour, art, music]) {
      expect(await client.query({ ids: [event.id] })).toEqual({ events: [event] });
      expect(await client.query({ '#t': ['shared'] })).toEqual({ events: [event] });
    }
  });

  it('is found by REQ and COUNT there and nowhere else, whatever the filter', async () => {
    const author = newAuthor();
    const event = sign(author, {
      kind: 1_111,
      created_at: 77,
      content: 'secret',
      tags: [
        ['t', 'secret'],
        ['e', 'x'],
      ],
    });
    expect(await art.publish(event)).toEqual([true, '']);
    const filters = [
      { ids: [event.id] },
      { authors: [author.pubkey] },
      { authors: [author.pubkey], kinds: [1_111] },
      { kinds: [1_111] },
      { '#t': ['secret'] },
      { '#e': ['x'], authors: [author.pubkey] },
      { since: 77, until: 77 },
    ];
    for (const filter of filters) {
      expect(await art.query(filter)).toEqual({ events: [event] });
      expect(await count(art, filter)).toEqual({ count: 1 });
      for (const other of [harbour, music]) {
        expect(await other.query(filter)).toEqual({ events: [] });
        expect(await count(other, filter)).toEqual({ count: 0 });
      }
    }
  });

  it('a newer version replaces the older one only in its own community', async () => {
    const author = newAuthor();
    const older = sign(author, { kind: 0, created_at: 10, content: 'older' });
    const newer = sign(author, { kind: 0, created_at: 20, content: 'newer' });
    expect(await harbour.publish(older)).toEqual([true, '']);
    expect(await art.publish(newer)).toEqual([true, '']);
    expect(await harbour.query({ kinds: [0], authors: [author.pubkey] })).toEqual({ events: [older] });
    expect(await art.publish(older)).toEqual([true, 'duplicate: have a newer version']);
    expect(await music.publish(older)).toEqual([true, '']);
    expect(await art.query({ kinds: [0], authors: [author.pubkey] })).toEqual({ events: [newer] });
  });

  it('live events, stored and ephemeral, reach the subscriptions of their community only', async () => {
    const readers = [
      await RawClient.connect(relay.url),
      await RawClient.connect(`${relay.url}/c/art`),
      await RawClient.connect(`${relay.url}/c/music`),
    ];
    const author = newAuthor();
    for (const reader of readers) {
      reader.send(['REQ', 'same id', { authors: [author.pubkey] }]);
      await reader.waitFor((frame) => frame[0] === 'EOSE');
    }
    const clients = [harbour, art, music];
    const sent = clients.map((_, at) => [
      sign(author, { content: `stored ${at}` }),
      sign(author, { kind: 20_001, content: `ephemeral ${at}` }),
      sign(author, { content: `last ${at}` }),
    ]);
    for (const [at, client] of clients.entries()) for (const event of sent[at]!) await client.publish(event);
    for (const [at, reader] of readers.entries()) {
      await reader.until(() => reader.frames.filter((frame) => frame[0] === 'EVENT').length >= 3);
      const got = reader.frames.flatMap((frame) =>
        frame[0] === 'EVENT' ? [(frame[2] as { id: string }).id] : [],
      );
      expect(got.sort()).toEqual(sent[at]!.map((event) => event.id).sort());
    }
    // The last event went to the last community; the other readers must not have received it.
    for (const reader of readers) {
      await reader.query({ kinds: [7_777] });
      expect(reader.frames.filter((frame) => frame[0] === 'EVENT')).toHaveLength(3);
      await reader.close();
    }
  });

  it('settings apply in their own community only', async () => {
    const id = found('art')!.id;
    await writeSetting(relay.database.pool, id, 'limits.filtersMax', 1, Date.now());
    await expect.poll(() => found('art')?.settings['limits.filtersMax'], { timeout: 100_000 }).toBe(1);
    expect((await art.query({ kinds: [1] }, { kinds: [2] })).closed).toMatch(/^invalid: /);
    expect((await harbour.query({ kinds: [1] }, { kinds: [2] })).closed).toBeUndefined();
    const limitation = async (path: string) =>
      JSON.parse((await get(path, NOSTR)).body).limitation.max_filters as number;
    expect(await limitation('/c/art')).toBe(1);
    expect(await limitation('/')).toBe(100);
  });

  it('the limit of subscriptions is per connection: one community does not use up another', async () => {
    const readers = await Promise.all(['', '/c/art'].map((path) => RawClient.connect(relay.url + path)));
    for (const reader of readers) {
      for (let at = 0; at < 20; at++) reader.send(['REQ', `s${at}`, { kinds: [7_777] }]);
      await reader.until(() => reader.frames.length >= 20);
      expect(reader.frames.every((frame) => frame[0] === 'EOSE')).toBe(true);
      await reader.close();
    }
  });
});

describe('public facts about a community', () => {
  it('stats and the landing page show this community only', async () => {
    await add('quiet');
    const stats = async (path: string) => JSON.parse((await get(`${path}/stats`)).body);
    expect(await stats('/c/quiet')).toEqual({ events: 0, connections: 0, subscriptions: 0 });
    const reader = await RawClient.connect(`${relay.url}/c/quiet`);
    reader.send(['REQ', 'one', { limit: 0 }]);
    await reader.waitFor((frame) => frame[0] === 'EOSE');
    const event = sign(alice, { tags: [['t', 'whispered']] });
    await reader.publish(event);
    await harbour.publish(sign(alice, { tags: [['t', 'shouted']] }));
    await expect
      .poll(() => stats('/c/quiet'), { timeout: 100_000 })
      .toEqual({ events: 1, connections: 1, subscriptions: 1 });
    const page = (await get('/c/quiet')).body;
    expect(page).toContain('Relay of quiet');
    expect(page).toContain('whispered');
    expect(page).not.toContain('shouted');
    await expect.poll(async () => (await get('/')).body, { timeout: 100_000 }).toContain('shouted');
    expect((await get('/')).body).not.toContain('whispered');
    expect((await stats('')).connections).toBe(1);
    await reader.close();
  });

  it('no metric has a community in a label', async () => {
    const { status, body } = await get('/metrics');
    expect(status).toBe(200);
    expect(body).toContain('minato_events_total');
    for (const word of ['art', 'music', 'quiet', 'default', MUSIC_HOST, 'Relay of']) {
      expect(body).not.toMatch(new RegExp(`\\{[^}]*"${word}[^}]*\\}`));
    }
    expect(body).not.toMatch(/\{[^}]*community/i);
    expect(body).not.toContain(alice.pubkey);
  });
});
