/** The HTTP side of the one port: NIP-11, the landing page, health and metrics. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { connect as connectSocket } from 'node:net';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, resetSetting, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { SOFTWARE_URL } from '../../src/node/version.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { pinTopics, startTestNode, type TestNode } from '../support/node.js';

const TOKEN = 'a-token-of-the-metrics';
let relay: TestNode;
const alice = newAuthor();

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_METRICS_TOKEN: TOKEN } });
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, { timeout: 100_000 });
});
afterAll(() => relay.close());

const clients: RawClient[] = [];
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});
async function connect(url = relay.url): Promise<RawClient> {
  const client = await RawClient.connect(url);
  clients.push(client);
  return client;
}

const community = () => relay.node.communities.find(undefined, 'default')!;

/** Writes settings, waits until this instance uses them, and resets them afterwards. */
async function withSettings(
  values: Partial<Record<SettingKey, unknown>>,
  work: () => Promise<void>,
): Promise<void> {
  const { pool } = relay.database;
  const entries = Object.entries(values) as [SettingKey, unknown][];
  const before = entries.map(([key]) => community().settings[key]);
  for (const [key, value] of entries) await writeSetting(pool, community().id, key, value, Date.now());
  await expect
    .poll(() => entries.map(([key]) => community().settings[key]), { timeout: 100_000 })
    .toEqual(entries.map(([, value]) => value));
  try {
    await work();
  } finally {
    for (const [key] of entries) {
      if (key === 'topic.mode') await writeSetting(pool, community().id, key, 'open', Date.now());
      else await resetSetting(pool, community().id, key);
    }
    await expect
      .poll(() => entries.map(([key]) => community().settings[key]), { timeout: 100_000 })
      .toEqual(before);
  }
}

interface Information {
  name: string;
  description: string;
  supported_nips: number[];
  limitation: Record<string, unknown>;
  [key: string]: unknown;
}

async function information(path = '/'): Promise<Information> {
  const response = await fetch(relay.http + path, { headers: { accept: 'application/nostr+json' } });
  expect(response.status).toBe(200);
  return (await response.json()) as Information;
}

/** How many events arrive before EOSE. One that was just accepted may still arrive live after it. */
async function stored(client: RawClient, filter: object): Promise<number> {
  const from = client.frames.length;
  const id = `stored ${from}`;
  client.send(['REQ', id, filter]);
  const end = await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === id, from);
  client.send(['CLOSE', id]);
  return client.frames.slice(from, client.frames.indexOf(end)).filter((frame) => frame[1] === id).length;
}

/** One raw request, for what fetch and ws would not send. Without an answer the result is empty. */
function rawRequest(lines: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connectSocket(relay.node.port, '127.0.0.1', () =>
      socket.write(`${lines.join('\r\n')}\r\n\r\n`),
    );
    let text = '';
    socket.on('data', (data) => {
      text += data;
      if (text.includes('\r\n\r\n')) socket.destroy();
    });
    socket.setTimeout(5_000, () => socket.destroy());
    socket.on('error', reject);
    socket.on('close', () => resolve(text));
  });
}

describe('the information document (NIP-11)', () => {
  it('is served by its Accept header, with its type and for every origin', async () => {
    for (const accept of ['application/nostr+json', 'text/html, application/nostr+json;q=0.9']) {
      const response = await fetch(relay.http, { headers: { accept, origin: 'https://client.example' } });
      expect(response.status).toBe(200);
      expect(response.headers.get('content-type')).toMatch(/^application\/nostr\+json/);
      expect(response.headers.get('access-control-allow-origin')).toBe('*');
      expect(response.headers.get('vary')?.toLowerCase()).toContain('accept');
      expect(await response.json()).toMatchObject({
        name: 'Minato',
        software: SOFTWARE_URL,
        version: expect.any(String),
      });
    }
    const plain = await fetch(relay.http, { headers: { accept: 'application/json' } });
    expect(plain.headers.get('content-type')).toMatch(/^text\/html/);
  });

  it('a preflight of another origin is answered', async () => {
    for (const path of ['/', '/c/art']) {
      const response = await fetch(relay.http + path, {
        method: 'OPTIONS',
        headers: {
          origin: 'https://client.example',
          'access-control-request-method': 'GET',
          'access-control-request-headers': 'accept',
        },
      });
      expect(response.status).toBe(204);
      expect(response.headers.get('access-control-allow-origin')).toBe('*');
      expect(response.headers.get('access-control-allow-headers')).toBeTruthy();
      expect(response.headers.get('access-control-allow-methods')).toContain('GET');
    }
  });

  it('contains the default limits', async () => {
    const { limitation, supported_nips } = await information();
    expect(limitation).toMatchObject({
      max_message_length: 786_432,
      max_subscriptions: 200,
      max_filters: 100,
      max_limit: 5_000,
      default_limit: 500,
      max_subid_length: 64,
      max_event_tags: 10_000,
      max_event_bytes: 98_304,
      max_list_bytes: 524_288,
      min_pow_difficulty: 0,
      auth_required: false,
      payment_required: false,
      restricted_writes: false,
      created_at_upper_limit: 900,
    });
    expect(supported_nips).toEqual([
      1, 5, 9, 11, 13, 17, 32, 40, 42, 43, 45, 50, 56, 59, 62, 67, 70, 77, 85, 86, 98,
    ]);
  });

  it('lists the NIPs that the README lists', async () => {
    const [, section] = (await readFile('README.md', 'utf8')).split('## What it supports\n');
    const listed = section?.split('\n\n')[0]?.match(/\d+/g)?.map(Number);
    expect((await information()).supported_nips).toEqual(listed?.sort((a, b) => a - b));
  });

  it('names the software, the key of the relay, the topic mode and the public topics', async () => {
    await expect.poll(async () => (await information()).self, { timeout: 100_000 }).toMatch(/^[0-9a-f]{64}$/);
    const { software, topics } = await information();
    expect(new URL(String(software)).protocol).toBe('https:');
    expect(topics).toMatchObject({ mode: 'open', public: ['kukuri:global'] });
    await withSettings({ 'topic.mode': 'required' }, async () => {
      expect((await information()).topics).toMatchObject({ mode: 'required' });
      const page = await (await fetch(relay.http)).text();
      expect(page).toContain('Topic mode: <code>required</code>');
      expect(page).toContain('kukuri:global');
    });
  });

  it('names the operator of the relay if set, and omits unset fields', async () => {
    expect(await information()).not.toHaveProperty('contact');
    expect(await information()).not.toHaveProperty('pubkey');
    const words = {
      'relay.name': 'Our harbour',
      'relay.description': 'For us.',
      'relay.contact': 'mailto:us@example.org',
      'relay.pubkey': alice.pubkey,
      'relay.icon': 'https://example.org/i.png',
      'relay.banner': 'https://example.org/b.png',
      'relay.termsOfService': 'https://example.org/terms',
      'relay.privacyPolicy': 'https://example.org/privacy',
    };
    await withSettings(words, async () => {
      expect(await information()).toMatchObject({
        name: 'Our harbour',
        description: 'For us.',
        contact: 'mailto:us@example.org',
        pubkey: alice.pubkey,
        icon: 'https://example.org/i.png',
        banner: 'https://example.org/b.png',
        terms_of_service: 'https://example.org/terms',
        privacy_policy: 'https://example.org/privacy',
      });
    });
  });

  it('follows the settings, and the node enforces what it says', async () => {
    const small = {
      'limits.messageBytesMax': 2_000,
      'limits.eventBytesMax': 1_000,
      'limits.tagsMax': 3,
      'limits.subscriptionsMax': 2,
      'limits.filtersMax': 2,
      'limits.limitMax': 4,
      'limits.limitDefault': 2,
      'limits.subscriptionIdLengthMax': 40,
      'limits.createdAheadSecondsMax': 60,
      'limits.createdBehindSecondsMax': 3_600,
      'topic.mode': 'required',
    };
    await withSettings(small, async () => {
      const { limitation } = await information();
      const limit = (key: string) => limitation[key] as number;
      expect(limitation).toMatchObject({
        max_message_length: 2_000,
        max_event_tags: 3,
        max_subscriptions: 2,
        max_filters: 2,
        max_limit: 4,
        default_limit: 2,
        max_subid_length: 40,
        created_at_upper_limit: 60,
        created_at_lower_limit: 3_600,
        restricted_writes: true,
      });
      const client = await connect();
      const author = newAuthor();
      const post = (draft: object) => client.publish(sign(author, { tags: [['t', 'limits']], ...draft }));
      const refused = [false, expect.stringMatching(/^invalid: /)];
      await pinTopics(relay, ['limits']);
      for (let at = 0; at < 6; at++) expect(await post({ content: `${at}` })).toEqual([true, '']);
      const tags = (count: number) => Array.from({ length: count }, () => ['t', 'limits']);
      expect(await post({ tags: tags(limit('max_event_tags')) })).toEqual([true, '']);
      expect(await post({ tags: tags(limit('max_event_tags') + 1) })).toEqual(refused);
      expect(await post({ created_at: nowSeconds() + limit('created_at_upper_limit') + 30 })).toEqual(
        refused,
      );
      expect(await post({ created_at: nowSeconds() + limit('created_at_upper_limit') - 30 })).toEqual([
        true,
        '',
      ]);
      expect(await post({ created_at: nowSeconds() - limit('created_at_lower_limit') - 30 })).toEqual(
        refused,
      );
      expect(await post({ created_at: nowSeconds() - limit('created_at_lower_limit') + 30 })).toEqual([
        true,
        '',
      ]);
      expect(await post({ tags: [] })).toEqual(refused);
      expect(await post({ content: 'x'.repeat(1_000) })).toEqual(refused);

      const ask = { '#t': ['limits'] };
      expect(await stored(client, ask)).toBe(limit('default_limit'));
      expect(await stored(client, { ...ask, limit: 100 })).toBe(limit('max_limit'));
      const filters = (count: number) => Array.from({ length: count }, () => ask);
      expect((await client.query(...filters(limit('max_filters')))).closed).toBeUndefined();
      expect((await client.query(...filters(limit('max_filters') + 1))).closed).toMatch(/^invalid: /);
      const reply = async (id: string) => {
        const from = client.frames.length;
        client.send(['REQ', id, { ...ask, kinds: [7_777] }]);
        return (await client.waitFor((frame) => frame[1] === id, from))[0];
      };
      expect(await reply('i'.repeat(limit('max_subid_length') + 1))).toBe('CLOSED');
      for (let at = 0; at < limit('max_subscriptions'); at++) {
        expect(await reply(`${at}`.padEnd(limit('max_subid_length'), '-'))).toBe('EOSE');
      }
      expect(await reply('one too many')).toBe('CLOSED');
      const from = client.frames.length;
      client.send(`["CLOSE","${'x'.repeat(limit('max_message_length'))}"]`);
      expect((await client.waitFor((frame) => frame[0] === 'NOTICE', from))[1]).toMatch(/^invalid: /);
    });
  });

  it('default_limit is what a filter without a limit really gets, also when max_limit is lower', async () => {
    await withSettings({ 'limits.limitMax': 3 }, async () => {
      const client = await connect();
      const author = newAuthor();
      for (let at = 0; at < 5; at++) await client.publish(sign(author, { content: `${at}` }));
      expect(await stored(client, { authors: [author.pubkey] })).toBe(3);
      expect((await information()).limitation).toMatchObject({ default_limit: 3, max_limit: 3 });
    });
  });

  it('min_pow_difficulty is required of every id (NIP-13)', async () => {
    const mine = (bits: number, exact: boolean) => {
      for (let nonce = 0; ; nonce++) {
        const event = sign(alice, { tags: [['nonce', `${nonce}`, `${bits}`]] });
        const zeros = Math.clz32(Number.parseInt(event.id.slice(0, 8), 16));
        if (exact ? zeros === bits : zeros >= bits) return event;
      }
    };
    await withSettings({ 'limits.powBitsMin': 4 }, async () => {
      expect((await information()).limitation.min_pow_difficulty).toBe(4);
      const client = await connect();
      expect(await client.publish(mine(4, false))).toEqual([true, '']);
      expect(await client.publish(mine(3, true))).toEqual([false, expect.stringMatching(/^pow: /)]);
    });
  });

  it('/c/<slug>/ with a final slash is the same community', async () => {
    const response = await fetch(`${relay.http}/c/art/`, { headers: { accept: 'application/nostr+json' } });
    expect(response.status).toBe(200);
    await connect(`${relay.url}/c/art/`);
  });
});

describe('the landing page', () => {
  it('shows what this node is, its address, topics, NIPs, how to connect, and a live count', async () => {
    const client = await connect();
    await client.publish(sign(alice, { tags: [['t', 'lighthouses']] }));
    await expect
      .poll(async () => (await fetch(relay.http)).text(), { timeout: 100_000 })
      .toContain('lighthouses');
    const page = await (await fetch(relay.http)).text();
    for (const part of ['Minato', relay.url, 'NIP-01', 'NIP-11', 'NIP-45', 'data-stat="events"', '"REQ"']) {
      expect(page).toContain(part);
    }
    expect(page).toMatch(/open: add the address above to any Nostr client/);
    await withSettings({ 'topic.mode': 'default' }, async () => {
      expect(await (await fetch(relay.http)).text()).toMatch(
        /name no topic of this relay belong to the global topic/,
      );
      expect((await information()).limitation.restricted_writes).toBe(false);
    });
    await withSettings({ 'topic.mode': 'required' }, async () => {
      expect(await (await fetch(relay.http)).text()).toMatch(
        /works by topic.*<code>t<\/code>.*<code>#t<\/code>/s,
      );
      const required = await (await fetch(relay.http)).text();
      expect(required, 'what is not carried is not offered').not.toContain('lighthouses');
    });
  });

  it('loads nothing from other hosts, and its policy forbids it', async () => {
    const response = await fetch(relay.http);
    const page = await response.text();
    for (const [, url] of page.matchAll(
      /(?:src|href|action|data-stats)\s*=\s*["']?([^"'\s>]+)|url\(\s*["']?([^"')]+)/gi,
    )) {
      expect(new URL(url ?? '', relay.http).origin).toBe(relay.http);
    }
    expect(page).not.toMatch(/@import|<iframe|<img/i);
    const policy = response.headers.get('content-security-policy') ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("connect-src 'self'");
    expect(policy).not.toMatch(/https?:|\*|unsafe-/);
  });

  it('has no script of its own in the text, and no other may run', async () => {
    const response = await fetch(relay.http);
    const page = await response.text();
    const scripts = [...page.matchAll(/<script([^>]*)>(.*?)<\/script>/gs)];
    expect(scripts.map(([, attributes, text]) => [attributes!.includes(' src="/assets/'), text])).toEqual([
      [true, ''],
    ]);
    expect(response.headers.get('content-security-policy')).toContain("script-src 'self';");
    expect(page).not.toMatch(/ on\w+=|style=/);
  });

  it('of a node without the API has exactly the script and style that the policy names', async () => {
    const plain = await startTestNode({ roles: ['relay'] });
    const response = await fetch(plain.http);
    const page = await response.text();
    await plain.close();
    const policy = response.headers.get('content-security-policy') ?? '';
    const hashes = (tag: string) =>
      Array.from(page.matchAll(new RegExp(`<${tag}>(.*?)</${tag}>`, 'gs')), ([, text]) =>
        createHash('sha256')
          .update(text ?? '')
          .digest('base64'),
      );
    expect(hashes('script')).toHaveLength(1);
    expect(hashes('style')).toHaveLength(1);
    for (const tag of ['script', 'style']) expect(policy).toContain(`${tag}-src 'sha256-${hashes(tag)[0]}'`);
    expect(page).not.toMatch(/ on\w+=|style=/);
  });

  it('shows hostile settings and topics as text', async () => {
    const hostile = `</title><script>alert("1")</script><img src=x onerror='alert(2)'>&amp;`;
    const client = await connect();
    const topic = `"><script>topic</script>`;
    await client.publish(sign(alice, { tags: [['t', topic]] }));
    await pinTopics(relay, [topic]);
    const values = {
      'relay.name': hostile,
      'relay.description': hostile,
      'relay.contact': hostile,
      'topic.mode': 'required',
    };
    await withSettings(values, async () => {
      await expect
        .poll(async () => (await fetch(relay.http)).text(), { timeout: 100_000 })
        .toContain('topic&#60;/script');
      const page = await (await fetch(relay.http)).text();
      expect(page.match(/<script/g)).toHaveLength(1);
      expect(page).not.toContain('<img');
      expect(page).not.toContain('alert("1")');
      expect(page).toContain('&#60;script&#62;alert(&#34;1&#34;)');
      expect((await information()).name).toBe(hostile);
    });
    const host = `"><script>host</script>`;
    const raw = await rawRequest(['GET / HTTP/1.1', `Host: ${host}`, 'Connection: close']);
    expect(raw).not.toContain('<script>host');
  });

  it('shows the configured address rather than the requested one', async () => {
    await withSettings({ 'relay.urls': ['wss://relay.example.org'] }, async () => {
      const page = await (await fetch(relay.http)).text();
      expect(page).toContain('wss://relay.example.org');
      expect(page).not.toContain(relay.url);
    });
  });

  it('/stats counts events, connections and subscriptions', async () => {
    const stats = async () => (await (await fetch(`${relay.http}/stats`)).json()) as Record<string, number>;
    await expect.poll(async () => (await stats()).connections, { timeout: 100_000 }).toBe(0);
    const before = await stats();
    const client = await connect();
    client.send(['REQ', 'a', { limit: 0 }]);
    client.send(['REQ', 'b', { limit: 0 }]);
    await client.waitFor((frame) => frame[1] === 'b');
    for (const content of ['one', 'two', 'two']) await client.publish(sign(newAuthor(), { content }));
    const wanted = { events: expect.any(Number), connections: 1, subscriptions: 2 };
    expect(await stats()).toEqual(wanted);
    await expect
      .poll(async () => (await stats()).events ?? 0, { timeout: 100_000 })
      .toBeGreaterThanOrEqual((before.events ?? 0) + 3);
    await client.close();
    await expect.poll(stats, { timeout: 100_000 }).toMatchObject({ connections: 0, subscriptions: 0 });
  });
});

describe('health', () => {
  it('/healthz and /readyz report that the node is up', async () => {
    for (const path of ['/healthz', '/readyz']) expect((await fetch(relay.http + path)).status).toBe(200);
  });

  it('/readyz is 503 while the database does not answer, /healthz stays, and both recover', async () => {
    const own = await startTestNode({ env: { MINATO_LOG_LEVEL: 'silent' } });
    const { database, ...server } = own.test.connection;
    const admin = new pg.Client({ ...server, database: 'postgres' });
    await admin.connect();
    const status = async (path: string) => (await fetch(own.http + path)).status;
    try {
      await admin.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS false`);
      await admin.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1', [
        database,
      ]);
      await expect.poll(() => status('/readyz'), { timeout: 100_000 }).toBe(503);
      expect(await status('/healthz')).toBe(200);
      await admin.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS true`);
      await expect.poll(() => status('/readyz'), { timeout: 100_000 }).toBe(200);
      const client = await connect(own.url);
      const event = sign(alice);
      expect((await client.publish(event))[0]).toBe(true);
      expect(await client.query({ ids: [event.id] })).toEqual({ events: [event] });
    } finally {
      await admin.end();
      await own.close();
    }
  });

  it('a node that is stopped right after its start does stop', async () => {
    const own = await startTestNode();
    const stopped = own.close().then(() => true);
    const late = new Promise((resolve) => setTimeout(resolve, 10_000, false));
    expect(await Promise.race([stopped, late])).toBe(true);
  });
});

describe('/metrics', () => {
  const metrics = (headers: Record<string, string> = {}) => fetch(`${relay.http}/metrics`, { headers });

  it('is for local clients, or with the bearer token', async () => {
    expect((await metrics()).status).toBe(200);
    const forwarded = { 'x-forwarded-for': '203.0.113.9' };
    expect((await metrics(forwarded)).status).toBe(403);
    expect((await metrics({ 'x-forwarded-for': '127.0.0.1' })).status).toBe(403);
    for (const authorization of ['Bearer wrong', `Bearer ${TOKEN}x`, TOKEN, 'Bearer ', 'Bearer undefined']) {
      expect((await metrics({ ...forwarded, authorization })).status).toBe(403);
    }
    expect((await metrics({ ...forwarded, authorization: `Bearer ${TOKEN}` })).status).toBe(200);
  });

  it('without a configured token refuses every remote bearer', async () => {
    const own = await startTestNode();
    for (const authorization of ['Bearer undefined', 'Bearer ', 'Bearer null']) {
      const response = await fetch(`${own.http}/metrics`, {
        headers: { 'x-forwarded-for': '203.0.113.9', authorization },
      });
      expect(response.status).toBe(403);
      expect(await response.text()).not.toContain('minato_');
    }
    await own.close();
  });

  it('has every metric of this list', async () => {
    const client = await connect();
    await client.publish(sign(newAuthor()));
    await client.query({ kinds: [1] });
    const text = await (await metrics()).text();
    for (const name of [
      'minato_events_total',
      'minato_lane_depth',
      'minato_lane_batch_events',
      'minato_lane_commit_seconds',
      'minato_verify_seconds',
      'minato_req_seconds',
      'minato_subscriptions',
      'minato_sockets',
      'minato_received_bytes_total',
      'minato_sent_bytes_total',
      'minato_outbox_head',
    ]) {
      expect(text).toMatch(new RegExp(`^# TYPE ${name} (counter|gauge|histogram)$`, 'm'));
      expect(text).toMatch(new RegExp(`^${name}(_count|_bucket)?(\\{[^}]*\\})? \\d`, 'm'));
    }
  });

  it('counts what happens: outcomes, sockets, subscriptions, requests', async () => {
    const read = async () => {
      const text = await (await metrics()).text();
      return (name: string) =>
        Number(
          text
            .split('\n')
            .find((line) => line.startsWith(`${name} `))
            ?.split(' ')[1] ?? 0,
        );
    };
    await expect.poll(async () => (await read())('minato_sockets'), { timeout: 100_000 }).toBe(0);
    const before = await read();
    const client = await connect();
    const event = sign(newAuthor());
    await client.publish(event);
    await client.publish(event);
    await client.publish(sign(newAuthor(), { kind: 39_020 }));
    await client.publish({ ...sign(newAuthor()), id: 'a'.repeat(64) });
    client.send(['REQ', 'open', { limit: 1 }]);
    await client.waitFor((frame) => frame[0] === 'EOSE');
    const after = await read();
    const grown = (name: string) => after(name) - before(name);
    expect(grown('minato_events_total{outcome="stored"}')).toBe(1);
    expect(grown('minato_events_total{outcome="duplicate"}')).toBe(1);
    expect(grown('minato_events_total{outcome="restricted"}')).toBe(1);
    expect(grown('minato_events_total{outcome="invalid"}')).toBe(1);
    expect(after('minato_sockets')).toBe(1);
    expect(after('minato_subscriptions')).toBe(1);
    expect(grown('minato_req_seconds_count')).toBe(1);
    expect(grown('minato_received_bytes_total')).toBeGreaterThan(1_000);
    expect(grown('minato_sent_bytes_total')).toBeGreaterThan(300);
  });
});

describe('other requests', () => {
  it.each([
    '/nothing',
    '/c/nobody',
    '/c/nobody/stats',
    '/administration',
    '/.env',
    '/c/../healthz/x',
    '/%00',
    '//',
    '//c/art',
  ])('GET %s is 404', async (path) => {
    expect((await fetch(relay.http + path)).status).toBe(404);
  });

  it('an unsupported method is refused', async () => {
    for (const method of ['POST', 'PUT', 'DELETE']) {
      const response = await fetch(relay.http, {
        method,
        body: method === 'DELETE' ? null : 'x',
        headers: { 'content-type': 'text/plain' },
      });
      expect([404, 405, 415]).toContain(response.status);
    }
  });

  it.each(['//', '//[', '/\\\\', 'http://', '*', '/c/%zz', '/%', '/c/%00', `/${'x'.repeat(5_000)}`])(
    'an upgrade at "%s" is refused and the node keeps running',
    async (target) => {
      const answer = await rawRequest([
        `GET ${target} HTTP/1.1`,
        'Host: relay.example',
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Version: 13',
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
      ]);
      expect(answer).toMatch(/^HTTP\/1\.1 4\d\d /);
      expect((await fetch(`${relay.http}/healthz`)).status).toBe(200);
    },
  );

  it('a refused client that does not disconnect does not delay the shutdown', async () => {
    const own = await startTestNode();
    const socket = connectSocket({ port: own.node.port, host: '127.0.0.1', allowHalfOpen: true });
    socket.on('error', () => undefined);
    socket.write(
      'GET /c/nobody HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
        'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
    );
    await new Promise((resolve) => socket.once('end', resolve).resume());
    let stopped = false;
    const stopping = own.close().then(() => {
      stopped = true;
    });
    await vi.waitUntil(() => stopped, { timeout: 10_000 }).catch(() => undefined);
    const stoppedByItself = stopped;
    socket.destroy();
    await stopping;
    expect(stoppedByItself).toBe(true);
  });

  it('an upgrade to another protocol than WebSocket is refused', async () => {
    const answer = await rawRequest([
      'GET / HTTP/1.1',
      'Host: relay.example',
      'Connection: Upgrade',
      'Upgrade: h2c',
    ]);
    expect(answer).toMatch(/^HTTP\/1\.1 4\d\d /);
  });
});
